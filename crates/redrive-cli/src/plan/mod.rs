//! `redrive plan`: what happens to a record that fails every time.

mod facts;
mod json;
mod mermaid;
mod text;

use std::time::Duration;

use redrive::headers::Header;
use redrive::{Failure, Flow, RecordView, Span, Step, StepEnd};

use crate::args::{PlanArgs, PlanFormat};
use crate::input;
use crate::output::{self, Exit};

/// A record's way through a flow.
pub struct Plan<'a> {
    pub flow: &'a Flow,
    pub failures: &'a [Failure],
    pub steps: Vec<Step>,
}

pub fn run(args: &PlanArgs) -> anyhow::Result<Exit> {
    let failures =
        args.failure.iter().map(|it| facts::failure(it)).collect::<Result<Vec<_>, _>>()?;
    let headers = args.header.iter().map(|it| facts::header(it)).collect::<Result<Vec<_>, _>>()?;
    let input = args.config.load()?;
    output::tell(&output::problems(&input.name, &input.loaded.problems));
    let Some(config) = &input.loaded.config else {
        return Ok(Exit::Problems);
    };
    let flow = &input::choose(config, args.config.topic.as_deref())?.flow;
    let headers: Vec<_> =
        headers.iter().map(|(name, value)| Header::new(name, value.as_bytes())).collect();
    let record = RecordView { topic: flow.source(), headers: &headers, ..RecordView::default() };
    let steps = redrive::plan(flow, record, &failures);
    let plan = Plan { flow, failures: &failures, steps };
    output::print(&match args.format {
        PlanFormat::Text => text::draw(&plan),
        PlanFormat::Json => json::write(&plan),
        PlanFormat::Mermaid => mermaid::draw(&plan),
    })?;
    Ok(Exit::Fine)
}

/// The step's end in one word.
fn word(end: StepEnd) -> &'static str {
    match end {
        StepEnd::Publish => "publish",
        StepEnd::Relay => "relay",
        StepEnd::DeadLetter(_) => "dead_letter",
        StepEnd::Drop(_) => "drop",
        StepEnd::Stop(_) => "stop",
    }
}

/// "30s", or "27s to 33s" where it depends on chance.
fn spoken(span: Span) -> String {
    let (min, max) = (spoken_duration(span.min), spoken_duration(span.max));
    if min == max { min } else { format!("{min} to {max}") }
}

/// Like the config writes it, but with a point in the seconds: "1m3.6s".
fn spoken_duration(duration: Duration) -> String {
    let duration = Duration::from_millis(millis(duration));
    let whole_minutes = Duration::from_secs(duration.as_secs() / 60 * 60);
    let millis = (duration - whole_minutes).as_millis();
    let text = redrive::config::format_duration(duration);
    if (millis < 1000 && whole_minutes.is_zero()) || millis.is_multiple_of(1000) {
        return text;
    }
    let minutes = if whole_minutes.is_zero() {
        String::new()
    } else {
        redrive::config::format_duration(whole_minutes)
    };
    let seconds = format!("{}.{:03}", millis / 1000, millis % 1000);
    format!("{minutes}{}s", seconds.trim_end_matches('0'))
}

/// To the nearest millisecond.
fn millis(duration: Duration) -> u64 {
    u64::try_from((duration.as_nanos() + 500_000) / 1_000_000).unwrap_or(u64::MAX)
}
