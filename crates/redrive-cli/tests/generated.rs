//! Files in the docs that are generated: compared, and written anew with `UPDATE_DOCS=1`.

#![expect(clippy::unwrap_used, reason = "a run that cannot be started fails the test")]
#![expect(dead_code, reason = "not every test file runs the binary in every way")]

mod common;

use std::path::Path;

use common::run;

fn is_up_to_date(file: &str, args: &[&str]) {
    let generated = run(args).out;
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("../..").join(file);
    if std::env::var_os("UPDATE_DOCS").is_some() {
        std::fs::write(&path, &generated).unwrap();
    }
    let stored = std::fs::read_to_string(&path).unwrap_or_default();
    assert!(
        stored == generated,
        "{file} is old: UPDATE_DOCS=1 cargo test -p redrive-cli --test generated"
    );
}

#[test]
fn the_config_reference_is_what_the_types_say() {
    is_up_to_date("docs/config.md", &["schema", "--format", "markdown"]);
}

#[test]
fn the_json_schema_is_what_the_types_say() {
    is_up_to_date("docs/config.schema.json", &["schema"]);
}

#[test]
fn completions_know_the_commands() {
    for shell in ["bash", "zsh", "fish", "elvish", "powershell"] {
        let ran = run(&["completions", shell]);
        assert_eq!(ran.code, Some(0), "{shell}");
        assert!(ran.out.contains("convert") && ran.out.contains("failure"), "{shell}");
    }
}

#[test]
fn every_command_has_a_manual_page() {
    let page = run(&["man"]);
    assert_eq!(page.code, Some(0));
    assert!(page.out.contains(".TH redrive 1") && page.out.contains("Exit codes"));

    let dir = std::env::temp_dir().join(format!("redrive-man-{}", std::process::id()));
    let ran = run(&["man", "--dir", dir.to_str().unwrap()]);
    assert_eq!(ran.code, Some(0), "{}", ran.err);
    for command in ["redrive", "redrive-check", "redrive-plan", "redrive-convert", "redrive-schema"]
    {
        assert!(dir.join(format!("{command}.1")).exists(), "{command}");
    }
    std::fs::remove_dir_all(&dir).unwrap();
}
