//! `redrive status`, `pause` and `resume`: asking a process that runs.

use std::fmt::Write;
use std::time::Duration;

use anyhow::{Context, bail};
use redrive::config::{AdminToken, format_duration};
use redrive_admin::{Client, ClientError, Command};
use serde_json::{Value, json};

use crate::args::{AdminArgs, Format};
use crate::input;
use crate::output::{self, BOLD, CYAN, DIM, Exit, GREEN, RED, YELLOW, styled};

/// The variable that has the token, so that it stands in no list of processes.
const TOKEN: &str = "REDRIVE_ADMIN_TOKEN";

/// Shows how a process is.
pub fn status(args: &AdminArgs) -> anyhow::Result<Exit> {
    let Some(client) = client(args)? else {
        return Ok(Exit::Problems);
    };
    let mut status = ask(client.status())?;
    if let Some(flow) = &args.flow {
        let flows = status["flows"].as_array_mut().map(std::mem::take).unwrap_or_default();
        let known: Vec<_> =
            flows.iter().filter_map(|it| it["topic"].as_str()).map(str::to_owned).collect();
        let meant: Vec<_> = flows.into_iter().filter(|it| it["topic"] == *flow).collect();
        if meant.is_empty() {
            bail!("no flow has the source topic `{flow}` (known: {})", known.join(", "));
        }
        status["flows"] = Value::Array(meant);
    }
    output::print(&match args.format {
        Format::Json => format!("{status:#}\n"),
        Format::Text => text(&status),
    })?;
    Ok(if status["ready"] == true { Exit::Fine } else { Exit::Problems })
}

/// Lets flows pause, or go on.
pub fn tell(args: &AdminArgs, command: Command) -> anyhow::Result<Exit> {
    let Some(client) = client(args)? else {
        return Ok(Exit::Problems);
    };
    let told = ask(client.tell(command, args.flow.as_deref()))?;
    let done = match command {
        Command::Pause => "paused",
        Command::Resume => "resumed",
    };
    output::print(&match args.format {
        Format::Json => format!("{:#}\n", json!({ done: told })),
        Format::Text => told
            .iter()
            .map(|it| format!("{} {} {done}\n", styled(GREEN, "✔"), styled(CYAN, it)))
            .collect(),
    })?;
    Ok(Exit::Fine)
}

/// Whom to ask. None if the config has problems, which were told.
fn client(args: &AdminArgs) -> anyhow::Result<Option<Client>> {
    let client = match &args.admin {
        Some(address) => Client::at(address)?,
        None => {
            let input = input::load(&args.file.config, None, None)?;
            let Some(config) = &input.loaded.config else {
                output::tell(&output::problems(&input.name, &input.loaded.problems));
                return Ok(None);
            };
            let admin = config.admin.as_ref().with_context(|| {
                format!(
                    "{} has no `admin`: add `admin: {{}}`, or give the address with --admin",
                    input.name
                )
            })?;
            Client::of(admin)?
        }
    };
    Ok(Some(match std::env::var(TOKEN) {
        Ok(token) => {
            let token = AdminToken::new(token);
            client.with_token(token.with_context(|| {
                format!(
                    "the variable {TOKEN} holds no token: at least 16 characters without blanks"
                )
            })?)
        }
        Err(_) => client,
    }))
}

fn ask<T>(asked: impl Future<Output = Result<T, ClientError>>) -> anyhow::Result<T> {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
    Ok(runtime.block_on(asked)?)
}

fn text(status: &Value) -> String {
    let mut text = String::new();
    let partitions = status["partitions"].as_u64().unwrap_or(0);
    if status["ready"] == true {
        let _ = writeln!(text, "{} ready, {partitions} partitions", styled(GREEN, "✔"));
    } else {
        let _ = writeln!(text, "{} not ready, {partitions} partitions", styled(RED, "✖"));
    }
    for trouble in list(&status["troubles"]).iter().filter_map(Value::as_str) {
        let _ = writeln!(text, "  {}", one_line(trouble));
    }
    list(&status["flows"]).iter().for_each(|it| flow(it, &mut text));
    text
}

fn flow(flow: &Value, text: &mut String) {
    let number = |it: &Value| it.as_u64().unwrap_or(0);
    let state = flow["state"].as_str().unwrap_or("");
    let style = match state {
        "running" => GREEN,
        "paused" => YELLOW,
        _ => RED,
    };
    let name = flow["topic"].as_str().unwrap_or("");
    let breaker = if flow["breaker_open"] == true { ", breaker open" } else { "" };
    let _ = writeln!(text, "\n{} {}{breaker}", styled(BOLD, name), styled(style, state));
    let _ = writeln!(
        text,
        "  {} of {} running, {} failed in the last minute, {} held unpublished",
        number(&flow["running"]),
        number(&flow["concurrency"]),
        number(&flow["failed_last_minute"]),
        number(&flow["unpublished"])
    );
    let records = &flow["records"];
    let _ = writeln!(
        text,
        "  {} done, {} retried, {} dead-lettered, {} dropped",
        number(&records["done"]),
        number(&records["retried"]),
        number(&records["dead_lettered"]),
        number(&records["dropped"])
    );
    let mut rows =
        vec![["topic", "tier", "lag", "waiting", "ready", "oldest", "overdue"].map(str::to_owned)];
    for topic in list(&flow["topics"]) {
        let age = |it: &Value| match it.as_f64() {
            Some(seconds) if seconds > 0.0 => format_duration(Duration::from_secs(
                Duration::from_secs_f64(seconds.min(1e9)).as_secs(),
            )),
            _ => "–".to_owned(),
        };
        rows.push([
            topic["topic"].as_str().unwrap_or("").to_owned(),
            topic["tier"].as_str().unwrap_or("").to_owned(),
            number(&topic["lag"]).to_string(),
            number(&topic["waiting"]).to_string(),
            number(&topic["ready"]).to_string(),
            age(&topic["oldest_seconds"]),
            age(&topic["overdue_seconds"]),
        ]);
    }
    if rows.len() > 1 {
        table(&rows, text);
    }
}

fn table<const N: usize>(rows: &[[String; N]], text: &mut String) {
    let width = |column: usize| {
        rows.iter().filter_map(|it| it.get(column)).map(|it| it.chars().count()).max().unwrap_or(0)
    };
    for (index, row) in rows.iter().enumerate() {
        let cells: Vec<_> = row
            .iter()
            .enumerate()
            .map(|(column, cell)| {
                let padding = " ".repeat(width(column) - cell.chars().count());
                // Names to the left, numbers to the right.
                if column < 2 { format!("{cell}{padding}") } else { format!("{padding}{cell}") }
            })
            .collect();
        let line = cells.join("  ");
        let line = line.trim_end();
        let _ =
            writeln!(text, "  {}", if index == 0 { styled(DIM, line) } else { line.to_owned() });
    }
}

fn list(value: &Value) -> &[Value] {
    value.as_array().map_or(&[], Vec::as_slice)
}

/// What somebody else wrote, without what would move the cursor.
fn one_line(text: &str) -> String {
    text.chars().map(|it| if it.is_control() { ' ' } else { it }).collect()
}
