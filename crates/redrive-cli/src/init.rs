//! `redrive init`: a config to start from.

use std::fs::OpenOptions;
use std::io::{ErrorKind, Write};
use std::path::{Path, PathBuf};

use anyhow::{Context, bail};
use clap::Args;
use redrive::config::{Config, Options, Severity, Syntax};

use crate::output::{self, CYAN, DIM, Exit, GREEN, styled};

/// The starter config, for the topic `orders`.
const TEMPLATE: &str = include_str!("init/starter.yaml");
/// What stands in the template for the topic.
const TOPIC: &str = "orders";

#[derive(Args, Debug)]
pub struct InitArgs {
    /// The source topic
    #[arg(long, value_name = "TOPIC", default_value = TOPIC)]
    topic: String,

    /// The file; `-` writes to standard output
    #[arg(short, long, value_name = "FILE", default_value = "redrive.yaml")]
    output: PathBuf,

    /// Overwrite a file that is there
    #[arg(long)]
    force: bool,
}

impl InitArgs {
    pub const AFTER_HELP: &str = "\
Nothing is asked. The config is valid as it stands: put in the address of the service, and run it.

Examples:
  redrive init
  redrive init --topic payments --output payments.yaml
  redrive init --topic payments --output - | redrive plan -c - --failure status=503

Exit codes: 0 written, 2 wrong use: the file is there, or the topic's name cannot be one.";
}

pub fn run(args: &InitArgs) -> anyhow::Result<Exit> {
    let text = starter(&args.topic)?;
    if args.output == Path::new("-") {
        output::print(&text)?;
        return Ok(Exit::Fine);
    }
    let file = args.output.display();
    let mut open = OpenOptions::new();
    open.write(true);
    match args.force {
        true => open.create(true).truncate(true),
        false => open.create_new(true),
    };
    let opened = match open.open(&args.output) {
        Err(error) if error.kind() == ErrorKind::AlreadyExists => {
            bail!(
                "{file} is there already: give another file with --output, or overwrite it with --force"
            )
        }
        opened => opened.with_context(|| format!("cannot write {file}")),
    };
    opened?.write_all(text.as_bytes()).with_context(|| format!("cannot write {file}"))?;
    let quoted = shell_word(&args.output.to_string_lossy());
    let next = [
        (
            format!("redrive plan -c {quoted} --failure status=503"),
            "what happens to a record that fails",
        ),
        (format!("redrive topics plan -c {quoted}"), "which topics are needed"),
        (format!("redrive run -c {quoted} --create-topics"), "go"),
    ];
    let mut told = format!("{} {file} is written\n", styled(GREEN, "✔"));
    let width = next.iter().map(|it| it.0.chars().count()).max().unwrap_or(0) + 3;
    for (command, what) in next {
        let command = styled(CYAN, format!("{command:<width$}"));
        told += &format!("  {command}{}\n", styled(DIM, what));
    }
    output::print(&told)?;
    Ok(Exit::Fine)
}

/// The config's text for a topic. It is looked at as any other config would be, so that a name which Kafka does not have is told.
fn starter(topic: &str) -> anyhow::Result<String> {
    let text = fill(topic);
    let nothing = Options { topic: None, group: None, env: &|_| None };
    let loaded = Config::load(&text, Syntax::Yaml, &nothing)?;
    let mut errors = loaded.problems.iter().filter(|it| it.severity == Severity::Error);
    if let Some(problem) = errors.next() {
        let hint = problem.hint.as_ref().map(|it| format!(": {it}")).unwrap_or_default();
        bail!("no config for --topic {topic:?}: {}{hint}", problem.message);
    }
    Ok(text)
}

fn fill(topic: &str) -> String {
    let name = |ending: &str| yaml_word(&format!("{topic}{ending}"));
    let mut text = String::new();
    for line in TEMPLATE.lines() {
        // `<orders.retry.30s>` is a name that the topic's own is part of.
        let mut rest = line;
        while let Some((before, (inside, after))) =
            rest.split_once('<').and_then(|(before, it)| Some((before, it.split_once('>')?)))
        {
            text += before;
            text += &name(inside.strip_prefix(TOPIC).unwrap_or(inside));
            rest = after;
        }
        text += rest;
        text.push('\n');
    }
    text
}

/// A word in YAML, in quotes where it could be taken for something else.
fn yaml_word(text: &str) -> String {
    let is_plain = text.starts_with(|it: char| it.is_ascii_alphabetic())
        && text.chars().all(|it| it.is_ascii_alphanumeric() || matches!(it, '.' | '_' | '-'))
        && !matches!(
            text.to_ascii_lowercase().as_str(),
            "null" | "true" | "false" | "yes" | "no" | "on" | "off" | "y" | "n"
        );
    if is_plain { text.to_owned() } else { serde_json::Value::from(text).to_string() }
}

/// A word in a shell, in quotes where it needs them.
fn shell_word(text: &str) -> String {
    let is_plain = |it: char| it.is_ascii_alphanumeric() || matches!(it, '.' | '_' | '-' | '/');
    match !text.is_empty() && text.chars().all(is_plain) {
        true => text.to_owned(),
        false => format!("'{}'", text.replace('\'', r"'\''")),
    }
}
