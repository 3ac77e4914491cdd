//! Life without redraws: a line now and then, for logs, pipes and simple terminals.

use std::io::Write;
use std::time::Duration;

use crate::board::{Board, News, Tone};
use crate::options::Life;

/// How many news are written in a second.
const NEWS: u32 = 5;

/// Writes lines, without colours.
pub(crate) struct Plain {
    life: Life,
    /// When the last line about everything was written.
    last: Option<u64>,
    /// How many news came since.
    news: u32,
}

impl Plain {
    pub(crate) fn new(life: Life) -> Self {
        Self { life, last: None, news: 0 }
    }

    /// Writes a line. A reader that went away is no reason to stop.
    pub(crate) fn line(&self, text: &str) {
        let text = format!("{text}\n");
        _ = match self.life {
            Life::Stdout => std::io::stdout().write_all(text.as_bytes()),
            Life::Stderr => std::io::stderr().write_all(text.as_bytes()),
        };
    }

    /// Writes what is new: what matters at once, and how things stand every second.
    pub(crate) fn show(&mut self, board: &mut Board, now: i64) {
        for news in board.take_news() {
            let matters = !matches!(news.tone, Tone::Good | Tone::Retry(_));
            self.news += u32::from(matters && news.tone != Tone::Service);
            if matters && (self.news <= NEWS || news.tone == Tone::Service) {
                self.line(&told(&news));
            }
        }
        let second = board.elapsed(now).as_secs();
        if self.last != Some(second) && board.produced > 0 {
            if self.news > NEWS {
                self.line(&format!("         … and {} more", self.news - NEWS));
            }
            (self.last, self.news) = (Some(second), 0);
            self.line(&standing(board, now));
        }
    }
}

fn time(elapsed: Duration) -> String {
    format!("{:>5.1} s", elapsed.as_secs_f64())
}

fn told(news: &News) -> String {
    let at = Duration::from_millis(u64::try_from(news.at).unwrap_or(0));
    format!("{}  {} {}", time(at), news.who, news.what)
}

fn standing(board: &Board, now: i64) -> String {
    let waiting: Vec<_> =
        (0..board.scene.tiers.len()).map(|it| board.waiting(it, now).to_string()).collect();
    let late = board.lateness().map(|it| format!(", late by {} (p99)", it[1])).unwrap_or_default();
    format!(
        "{}  {} produced, {} handled, {} waiting, {} dead letters, {} dropped{late}",
        time(board.elapsed(now)),
        board.produced,
        board.done,
        waiting.join(" + "),
        board.dead_letters(),
        board.dropped,
    )
}
