//! Runs the binary.

use std::io::Write;
use std::path::Path;
use std::process::{Command, Output, Stdio};

/// `redrive` at the root of the project, with nothing of ours in its environment.
pub fn redrive(args: &[&str]) -> Command {
    let mut command = Command::new(env!("CARGO_BIN_EXE_redrive"));
    command.args(args).current_dir(Path::new(env!("CARGO_MANIFEST_DIR")).join("../.."));
    command.env_remove("REDRIVE_CONFIG").env_remove("KAFKA");
    command
}

/// What a run gave: exit code, standard output, standard error.
pub struct Ran {
    pub code: Option<i32>,
    pub out: String,
    pub err: String,
}

impl From<Output> for Ran {
    fn from(output: Output) -> Self {
        Ran {
            code: output.status.code(),
            out: String::from_utf8(output.stdout).unwrap(),
            err: String::from_utf8(output.stderr).unwrap(),
        }
    }
}

/// Runs it to the end.
pub fn run(args: &[&str]) -> Ran {
    redrive(args).stdin(Stdio::null()).output().unwrap().into()
}

/// Runs it with this text on its standard input.
pub fn run_with(args: &[&str], input: &str) -> Ran {
    let mut command = redrive(args);
    command.stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::piped());
    let mut child = command.spawn().unwrap();
    // It may end before it has read everything.
    let _ = child.stdin.take().unwrap().write_all(input.as_bytes());
    child.wait_with_output().unwrap().into()
}
