//! The plan as a picture for the terminal.

use std::fmt::Write;

use redrive::{Reason, Span, Step, StepEnd};

use super::{Plan, facts, spoken, spoken_duration};
use crate::output::{BOLD, CYAN, DIM, GREEN, RED, YELLOW, plural, styled};

/// Longer plans are folded in the middle.
const MAX_STEPS: usize = 40;
const SHOWN_AT_START: usize = 15;
const SHOWN_AT_END: usize = 5;

pub fn draw(plan: &Plan<'_>) -> String {
    let mut text = heading(plan);
    let steps = &plan.steps;
    let times: Vec<_> = arrivals(steps).into_iter().map(spoken).collect();
    let stops = steps.iter().map(|it| short(&it.from).chars().count());
    let last_stop = steps.last().and_then(|it| it.to.as_ref()).map(|it| short(it).chars().count());
    let time_width = times.iter().map(|it| it.chars().count()).max().unwrap_or(0);
    let topic_width = stops.chain(last_stop).max().unwrap_or(0);
    let columns = Columns { time_width, topic_width };
    let folded = (steps.len() > MAX_STEPS).then(|| SHOWN_AT_START..steps.len() - SHOWN_AT_END);
    let mut failures = plan.failures.iter();
    for (index, step) in steps.iter().enumerate() {
        let failure = if step.runs > 0 { failures.next().or(plan.failures.last()) } else { None };
        if let Some(hidden) = folded.as_ref().filter(|it| it.contains(&index)) {
            if index == hidden.start {
                let line = format!("{} more steps like these", hidden.len());
                columns.line(&mut text, "", &styled(DIM, "⋮"), "", &styled(DIM, line));
            }
            continue;
        }
        let failure = failure.filter(|_| plan.failures.len() > 1).map(facts::describe);
        delivery(&mut text, &columns, &times[index], step, failure.as_deref());
    }
    if let (Some(step), Some(time)) = (steps.last(), times.last()) {
        end(&mut text, &columns, time, step, plan);
    }
    text.push_str(&summary(steps));
    text
}

fn heading(plan: &Plan<'_>) -> String {
    let what = match plan.failures {
        [] => "a retryable failure that no policy names".to_owned(),
        [only] => facts::describe(only),
        several => format!("{} in turn", plural(several.len(), "failure")),
    };
    let topic = styled(BOLD, plan.flow.source());
    format!("\n  {topic}: every delivery of a record fails ({what})\n\n")
}

/// When each step begins, and last of all when the plan ends.
fn arrivals(steps: &[Step]) -> Vec<Span> {
    let mut at = vec![Span::default()];
    at.extend(steps.iter().map(|it| it.elapsed));
    at
}

struct Columns {
    time_width: usize,
    topic_width: usize,
}

impl Columns {
    fn line(&self, text: &mut String, time: &str, mark: &str, topic: &str, rest: &str) {
        let (time_width, topic_width) = (self.time_width, self.topic_width);
        let time = styled(DIM, format!("{time:>time_width$}"));
        let topic = format!("{:<topic_width$}", short(topic));
        let topic = if topic.trim().is_empty() { topic } else { styled(CYAN, topic) };
        let line = format!("  {time}  {mark} {topic}  {rest}");
        text.push_str(line.trim_end());
        text.push('\n');
    }
}

fn delivery(text: &mut String, columns: &Columns, time: &str, step: &Step, failure: Option<&str>) {
    if step.then == StepEnd::Relay {
        let target = step.to.as_deref().unwrap_or_default();
        columns.line(text, time, "○", &step.from, &format!("due: moved to {}", short(target)));
        columns.line(text, "", &styled(DIM, "│"), "", "");
        return;
    }
    let mut runs = match step.runs {
        1 => "1 run".to_owned(),
        runs => format!("{runs} runs, {} in place", runs - 1),
    };
    if let Some(failure) = failure {
        let _ = write!(runs, ", {failure}");
    }
    if let Some(policy) = &step.policy {
        let _ = write!(runs, "  {}", styled(GREEN, policy));
    }
    columns.line(text, time, "●", &step.from, &runs);
    if step.then == StepEnd::Publish {
        let wait = format!("{} {}", styled(YELLOW, "waits"), spoken(step.delay));
        let count = styled(DIM, format!("retry {}", step.overall_attempt));
        let mark = styled(DIM, "│");
        columns.line(text, "", &mark, "", &format!("{wait}  {count}"));
    } else {
        columns.line(text, "", &styled(DIM, "│"), "", "");
    }
}

fn end(text: &mut String, columns: &Columns, time: &str, step: &Step, plan: &Plan<'_>) {
    let (mark, topic, what, reason) = match step.then {
        StepEnd::DeadLetter(reason) => {
            ("✖", step.to.as_deref().unwrap_or_default(), "dead letter", reason)
        }
        StepEnd::Drop(reason) => ("✖", "", "dropped", reason),
        StepEnd::Stop(reason) => ("■", "", "the flow stops", reason),
        StepEnd::Publish | StepEnd::Relay => return,
    };
    let why = because(reason, plan);
    columns.line(text, time, &styled(RED, mark), topic, &format!("{}: {why}", styled(RED, what)));
}

fn because(reason: Reason, plan: &Plan<'_>) -> String {
    match reason {
        Reason::Attempts => "the attempts are spent".to_owned(),
        Reason::Overall => {
            format!("the flow's cap of {} is reached", retries(plan.flow.max_overall_attempts()))
        }
        Reason::Elapsed => {
            let max = plan.flow.max_elapsed().unwrap_or_default();
            format!(
                "the next retry would be due more than {} after the first failure",
                spoken_duration(max)
            )
        }
        Reason::NotRetryable => "a failure of this class is not worth a retry".to_owned(),
        Reason::Policy => "the policy does not retry".to_owned(),
        other => other.to_string(),
    }
}

fn summary(steps: &[Step]) -> String {
    let runs: usize = steps.iter().map(|it| it.runs as usize).sum();
    let published = steps.last().map_or(0, |it| it.overall_attempt);
    let elapsed = steps.last().map(|it| spoken(it.elapsed)).unwrap_or_default();
    format!("\n  {} and {} in {elapsed}\n\n", plural(runs, "run"), retries(published))
}

/// A name that fits its column: a long one loses its middle.
fn short(topic: &str) -> String {
    const LONGEST: usize = 40;
    if topic.len() <= LONGEST {
        return topic.to_owned();
    }
    let half = LONGEST / 2;
    let start = &topic[..topic.floor_char_boundary(half)];
    format!("{start}…{}", &topic[topic.ceil_char_boundary(topic.len() - half + 1)..])
}

fn retries(number: u32) -> String {
    match number {
        0 => "no retry".to_owned(),
        1 => "1 retry".to_owned(),
        many => format!("{many} retries"),
    }
}
