//! `redrive init`: a config that is right as it stands, for any topic.

#![expect(clippy::unwrap_used, reason = "a run that cannot be started fails the test")]

mod common;

use std::path::PathBuf;

use common::{redrive, run, run_with};

/// A new directory, which goes with this.
struct Directory(PathBuf);

impl Directory {
    fn new(name: &str) -> Self {
        let path = std::env::temp_dir().join(format!("redrive-init-{name}-{}", std::process::id()));
        std::fs::create_dir_all(&path).unwrap();
        Self(path)
    }
}

impl Drop for Directory {
    fn drop(&mut self) {
        _ = std::fs::remove_dir_all(&self.0);
    }
}

#[test]
fn what_it_writes_is_accepted_as_it_stands() {
    let directory = Directory::new("default");
    let here = |args: &[&str]| {
        common::Ran::from(redrive(args).current_dir(&directory.0).output().unwrap())
    };
    let ran = here(&["init"]);
    assert_eq!(ran.code, Some(0), "{}", ran.err);
    assert!(ran.out.contains("redrive.yaml is written"), "{}", ran.out);
    let ran = here(&["check"]);
    assert_eq!(ran.code, Some(0), "{}", ran.out);
    let told = "✔ redrive.yaml is valid: 1 flow\n  orders → orders.retry.30s → orders.retry.5m → orders.retry.1h → orders.dlt\n";
    assert_eq!(ran.out, told, "no problems, no warnings, nothing missing");
    let ran = here(&["plan", "--failure", "status=503"]);
    assert_eq!(ran.code, Some(0), "{}", ran.err);
}

#[test]
fn a_file_that_is_there_is_left_alone_unless_it_is_forced() {
    let directory = Directory::new("force");
    let here = |args: &[&str]| {
        common::Ran::from(redrive(args).current_dir(&directory.0).output().unwrap())
    };
    let file = directory.0.join("my.yaml");
    std::fs::write(&file, "precious").unwrap();
    let ran = here(&["init", "--output", "my.yaml"]);
    assert_eq!(ran.code, Some(2));
    assert!(
        ran.err.contains("my.yaml is there already") && ran.err.contains("--force"),
        "{}",
        ran.err
    );
    assert_eq!(std::fs::read_to_string(&file).unwrap(), "precious");
    let ran = here(&["init", "--output", "my.yaml", "--force", "--topic", "bills"]);
    assert_eq!(ran.code, Some(0), "{}", ran.err);
    let text = std::fs::read_to_string(&file).unwrap();
    assert!(text.contains("topic: bills\n") && !text.contains("precious"), "{text}");
    let ran = here(&["init", "--output", "no/such/directory.yaml"]);
    assert_eq!(ran.code, Some(2));
    assert!(ran.err.contains("cannot write no/such/directory.yaml"), "{}", ran.err);
}

#[test]
fn topics_whose_names_look_like_something_else_in_yaml_stay_names() {
    let odd = [
        "123",
        "1.5",
        "0x1F",
        "1e3",
        "0o17",
        "null",
        "true",
        "no",
        "off",
        "y",
        "-",
        "-a",
        "_",
        "a_b",
        ".a",
        "...a",
        "1_000",
        "12-30-2026",
        "2026-11-16",
        "NaN",
        "Infinity",
        "a.b-c_d",
        "Null",
        ".inf",
    ];
    for topic in odd {
        let made = run(&["init", &format!("--topic={topic}"), "--output", "-"]);
        assert_eq!(made.code, Some(0), "{topic}: {}", made.err);
        let ran = run_with(&["check", "-c", "-"], &made.out);
        assert_eq!(ran.code, Some(0), "{topic}: {}\n{}", ran.out, made.out);
        let way = format!(
            "  {topic} → {topic}.retry.30s → {topic}.retry.5m → {topic}.retry.1h → {topic}.dlt\n"
        );
        assert!(ran.out.ends_with(&way), "{topic}: {}", ran.out);
        assert!(!ran.out.contains("warning"), "{topic}: {}", ran.out);
    }
}

#[test]
fn a_name_that_no_topic_can_have_is_refused_and_nothing_is_written() {
    let directory = Directory::new("bad");
    let long = "a".repeat(245);
    for topic in
        ["", ".", "..", "or ders", "a/b", "a\nb", "ä", "<orders>", "a: b", "${HOME}", &long]
    {
        let args = ["init", &format!("--topic={topic}")];
        let ran = common::Ran::from(redrive(&args).current_dir(&directory.0).output().unwrap());
        assert_eq!(ran.code, Some(2), "{topic:?}: {}", ran.out);
        assert!(ran.err.contains("--topic"), "{topic:?}: {}", ran.err);
        assert!(!directory.0.join("redrive.yaml").exists(), "{topic:?}");
    }
}

/// Whoever takes the `#` away finds nothing wrong either.
#[test]
fn what_stands_in_comments_is_right_too() {
    let made = run(&["init", "--output", "-"]).out;
    let mut count = 0;
    let lines = made.lines().map(|line| match line.split_once("# ") {
        Some((blanks, key)) if blanks.trim().is_empty() && !blanks.is_empty() && is_entry(key) => {
            count += 1;
            format!("{blanks}{key}\n")
        }
        _ => format!("{line}\n"),
    });
    let whole: String = lines.collect();
    assert_eq!(count, 6, "{whole}");
    let directory = Directory::new("comments");
    std::fs::write(directory.0.join("redrive.yaml"), &whole).unwrap();
    let mut command = redrive(&["check"]);
    command.env("KAFKA_USER", "me").env("KAFKA_PASSWORD", "secret").env("TOKEN", "token");
    let ran = common::Ran::from(command.current_dir(&directory.0).output().unwrap());
    assert_eq!(ran.code, Some(0), "{}", ran.out);
    assert!(!ran.out.contains("warning"), "{}", ran.out);
}

/// Whether a comment is a key with its value, and not a sentence.
fn is_entry(text: &str) -> bool {
    text.split_once(": ")
        .is_some_and(|it| it.0.chars().all(|it| it.is_ascii_lowercase() || it == '.'))
}
