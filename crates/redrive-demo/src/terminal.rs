//! The terminal: taken for the length of a demo, and given back however it ends.

use std::io::{self, IsTerminal, Write};
use std::sync::Arc;
use std::sync::Once;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread::{self, JoinHandle};
use std::time::Duration;

use crossterm::event::{self, Event, KeyCode, KeyEvent, KeyEventKind, KeyModifiers};
use crossterm::terminal::{Clear, ClearType, EnterAlternateScreen, LeaveAlternateScreen};
use crossterm::{cursor, execute};
use parking_lot::Mutex;
use ratatui::Terminal;
use ratatui::backend::CrosstermBackend;
use tokio::sync::watch;

use crate::board::SharedBoard;
use crate::clock;
use crate::options::Life;
use crate::screen;

/// How long a frame stands.
const FRAME: Duration = Duration::from_millis(50);

/// Whether the terminal is ours now, and where it is.
static TAKEN: Mutex<Option<Life>> = Mutex::new(None);

fn out(life: Life) -> Box<dyn Write + Send> {
    match life {
        Life::Stdout => Box::new(io::stdout()),
        Life::Stderr => Box::new(io::stderr()),
    }
}

/// Whether there is a terminal that can be drawn on.
pub(crate) fn is_there(life: Life) -> bool {
    let is_terminal = match life {
        Life::Stdout => io::stdout().is_terminal(),
        Life::Stderr => io::stderr().is_terminal(),
    };
    is_terminal && std::env::var_os("TERM").is_some_and(|it| it != "dumb")
}

fn take(life: Life) -> io::Result<()> {
    static HOOK: Once = Once::new();
    HOOK.call_once(|| {
        let before = std::panic::take_hook();
        std::panic::set_hook(Box::new(move |info| {
            give_back();
            before(info);
        }));
    });
    *TAKEN.lock() = Some(life);
    crossterm::terminal::enable_raw_mode()?;
    // Cleared here: `Terminal::clear` asks for the cursor's place, which not every terminal answers.
    execute!(out(life), EnterAlternateScreen, Clear(ClearType::All), cursor::Hide)
}

/// Gives the terminal back, if it is ours.
pub(crate) fn give_back() {
    if let Some(life) = TAKEN.lock().take() {
        _ = execute!(out(life), LeaveAlternateScreen, cursor::Show);
        _ = crossterm::terminal::disable_raw_mode();
    }
}

/// Ends the process for somebody who does not want to wait, as a shell expects it after Ctrl-C.
pub(crate) fn end_at_once() {
    give_back();
    std::process::exit(130);
}

fn is_taken() -> bool {
    TAKEN.lock().is_some()
}

/// A screen that is drawn again and again, by a thread of its own. It ends when this is dropped.
pub(crate) struct Screen {
    is_over: Arc<AtomicBool>,
    thread: Option<JoinHandle<()>>,
}

impl Screen {
    /// Takes the terminal. Whoever presses Ctrl-C, q or Esc is heard.
    pub(crate) fn start(
        life: Life,
        board: SharedBoard,
        cut: watch::Sender<bool>,
    ) -> io::Result<Self> {
        let has_colours = std::env::var_os("NO_COLOR").is_none_or(|it| it.is_empty());
        let is_over: Arc<AtomicBool> = Arc::default();
        let (started, until) = (take(life), Arc::clone(&is_over));
        if let Err(error) = started {
            give_back();
            return Err(error);
        }
        let thread = thread::Builder::new().name("redrive-screen".to_owned()).spawn(move || {
            // Without a screen the demo goes on all the same.
            _ = show(life, &board, &cut, &until, has_colours);
            give_back();
        });
        match thread {
            Ok(thread) => Ok(Self { is_over, thread: Some(thread) }),
            Err(error) => {
                give_back();
                Err(error)
            }
        }
    }
}

impl Drop for Screen {
    fn drop(&mut self) {
        self.is_over.store(true, Ordering::Release);
        if let Some(thread) = self.thread.take() {
            _ = thread.join();
        }
        give_back();
    }
}

fn show(
    life: Life,
    board: &SharedBoard,
    cut: &watch::Sender<bool>,
    is_over: &AtomicBool,
    has_colours: bool,
) -> io::Result<()> {
    let mut terminal = Terminal::new(CrosstermBackend::new(out(life)))?;
    // Whoever panics gives the terminal back, and nobody must draw on it then.
    while !is_over.load(Ordering::Acquire) && is_taken() {
        terminal.draw(|frame| {
            screen::draw(&board.lock(), clock::millis(), frame.area(), frame.buffer_mut());
            if !has_colours {
                screen::bleach(frame.buffer_mut());
            }
        })?;
        if event::poll(FRAME)?
            && let Event::Key(key) = event::read()?
            && is_end(key)
            && cut.send_replace(true)
            && is_ctrl_c(key)
        {
            end_at_once();
        }
    }
    Ok(())
}

fn is_end(key: KeyEvent) -> bool {
    let is_quit = matches!(key.code, KeyCode::Char('q') | KeyCode::Esc);
    key.kind == KeyEventKind::Press && (is_ctrl_c(key) || is_quit)
}

fn is_ctrl_c(key: KeyEvent) -> bool {
    key.code == KeyCode::Char('c') && key.modifiers.contains(KeyModifiers::CONTROL)
}
