//! The help of every command, as it is printed.

#![expect(clippy::unwrap_used, reason = "a run that cannot be started fails the test")]
#![expect(dead_code, reason = "not every test file runs the binary in every way")]

mod common;

use common::redrive;

const COMMANDS: [&str; 15] = [
    "demo",
    "init",
    "run",
    "broker",
    "check",
    "plan",
    "topics",
    "entities",
    "convert",
    "status",
    "pause",
    "resume",
    "schema",
    "completions",
    "man",
];

fn help(args: &[&str]) -> String {
    let output = redrive(args).env("COLUMNS", "100").output().unwrap();
    assert_eq!(output.status.code(), Some(0));
    String::from_utf8(output.stdout).unwrap()
}

#[test]
fn every_help_is_as_it_was_written() {
    insta::assert_snapshot!("redrive", help(&["--help"]));
    for command in COMMANDS {
        insta::assert_snapshot!(command, help(&[command, "--help"]));
    }
    for command in ["list", "show", "release"] {
        let help = help(&["entities", command, "--help"]);
        insta::assert_snapshot!(format!("entities-{command}"), help);
    }
    for command in ["plan", "apply"] {
        insta::assert_snapshot!(format!("topics-{command}"), help(&["topics", command, "--help"]));
    }
}

#[test]
fn every_commands_help_teaches_by_example() {
    for command in COMMANDS {
        let help = help(&[command, "--help"]);
        assert!(help.contains("Examples:"), "{command}");
        assert!(help.contains(&format!("redrive {command}")), "{command}");
    }
}
