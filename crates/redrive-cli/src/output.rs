//! Printing: exit codes, problems, and text that may go to a pipe.

use std::fmt::Write as _;
use std::io::{self, Write};
use std::process::ExitCode;

use anstyle::{AnsiColor, Style};
use anyhow::Context;
use redrive::config::{Problem, Severity};

/// How a command ended. Every command uses these.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Exit {
    Fine = 0,
    Problems = 1,
    WrongUse = 2,
    /// It could not go on.
    Failed = 3,
}

impl From<Exit> for ExitCode {
    fn from(exit: Exit) -> Self {
        ExitCode::from(exit as u8)
    }
}

pub const BOLD: Style = Style::new().bold();
pub const DIM: Style = Style::new().dimmed();
pub const RED: Style = AnsiColor::Red.on_default().bold();
pub const YELLOW: Style = AnsiColor::Yellow.on_default().bold();
pub const GREEN: Style = AnsiColor::Green.on_default().bold();
pub const CYAN: Style = AnsiColor::Cyan.on_default();

/// `text` in a style, which is taken out again where it does not go to a terminal.
pub fn styled(style: Style, text: impl std::fmt::Display) -> String {
    format!("{style}{text}{style:#}")
}

/// Prints to standard output. A reader that went away is no error.
pub fn print(text: &str) -> anyhow::Result<()> {
    let mut out = anstream::stdout().lock();
    match out.write_all(text.as_bytes()).and_then(|()| out.flush()) {
        Err(error) if error.kind() != io::ErrorKind::BrokenPipe => {
            Err(error).context("cannot write to standard output")
        }
        _ => Ok(()),
    }
}

/// Prints to standard error.
pub fn tell(text: &str) {
    // There is nowhere left to complain to.
    let _ = anstream::stderr().lock().write_all(text.as_bytes());
}

/// Tells why a command could not do its work.
pub fn fail(error: &anyhow::Error) {
    tell(&format!("{}: {error:#}\n", styled(RED, "error")));
}

/// Problems for people: place, what is wrong, how to put it right.
pub fn problems(file: &str, problems: &[Problem]) -> String {
    let mut text = String::new();
    for problem in problems {
        let style = if problem.severity == Severity::Error { RED } else { YELLOW };
        let mut place = file.to_owned();
        if let Some(position) = problem.position {
            let _ = write!(place, ":{}:{}", position.line, position.column);
        }
        let _ = writeln!(text, "{}: {}", styled(style, problem.severity), problem.message);
        let _ = write!(text, "  {} {}", styled(DIM, "at"), place);
        if !problem.path.is_empty() {
            let _ = write!(text, "  {}", styled(CYAN, &problem.path));
        }
        text.push('\n');
        if let Some(hint) = &problem.hint {
            let _ = writeln!(text, "  {} {hint}", styled(DIM, "→"));
        }
    }
    text
}

/// "1 error", "3 warnings", "2 errors and 1 warning".
pub fn count(problems: &[Problem]) -> String {
    let of = |severity: Severity| problems.iter().filter(|it| it.severity == severity).count();
    let (errors, warnings) = (of(Severity::Error), of(Severity::Warning));
    match (errors, warnings) {
        (errors, 0) => plural(errors, "error"),
        (0, warnings) => plural(warnings, "warning"),
        (errors, warnings) => {
            format!("{} and {}", plural(errors, "error"), plural(warnings, "warning"))
        }
    }
}

/// "1 run", "4 runs".
pub fn plural(number: usize, word: &str) -> String {
    if number == 1 { format!("1 {word}") } else { format!("{number} {word}s") }
}
