//! The screen in several sizes, drawn from the same made-up run.

use ratatui::Terminal;
use ratatui::backend::TestBackend;

use super::*;
use crate::picture;

fn drawn(width: u16, height: u16, at: i64) -> TestBackend {
    let (board, now) = picture::board(at);
    let mut terminal = Terminal::new(TestBackend::new(width, height)).unwrap();
    terminal.draw(|frame| draw(&board, now, frame.area(), frame.buffer_mut())).unwrap();
    terminal.backend().clone()
}

#[test]
fn the_usual_terminal() {
    insta::assert_snapshot!(drawn(80, 24, 5_900));
}

#[test]
fn the_usual_terminal_while_the_service_is_down() {
    insta::assert_snapshot!(drawn(80, 24, 4_700));
}

#[test]
fn a_small_terminal() {
    insta::assert_snapshot!(drawn(60, 16, 5_900));
}

#[test]
fn a_wide_terminal() {
    insta::assert_snapshot!(drawn(200, 50, 5_900));
}

#[test]
fn a_tiny_terminal_gets_the_numbers() {
    insta::assert_snapshot!(drawn(20, 5, 5_900));
}

#[test]
fn before_anything_happens() {
    insta::assert_snapshot!(drawn(80, 24, -1));
}

#[test]
fn no_size_is_too_small_or_too_large() {
    let (board, now) = picture::board(5_900);
    for width in [1, 2, 5, 20, 47, 48, 60, 71, 72, 80, 131, 132, 200, 1000] {
        for height in [1, 2, 5, 10, 12, 13, 16, 21, 22, 24, 30, 40, 60, 300] {
            let area = Rect::new(0, 0, width, height);
            draw(&board, now, area, &mut Buffer::empty(area));
        }
    }
}

#[test]
fn a_bleached_screen_has_no_colours_and_the_same_text() {
    let (board, now) = picture::board(5_900);
    let area = Rect::new(0, 0, 80, 24);
    let (mut one, mut other) = (Buffer::empty(area), Buffer::empty(area));
    draw(&board, now, area, &mut one);
    draw(&board, now, area, &mut other);
    bleach(&mut other);
    assert!(one.content.iter().any(|it| it.fg != Color::Reset));
    assert!(other.content.iter().all(|it| it.fg == Color::Reset && it.bg == Color::Reset));
    let text = |it: &Buffer| it.content.iter().map(|it| it.symbol().to_owned()).collect::<String>();
    assert_eq!(text(&one), text(&other));
}
