//! The plan as a Mermaid flow chart.

use std::fmt::Write;

use redrive::StepEnd;

use super::{Plan, spoken};

/// A chart with more boxes than this cannot be read; the middle is left out.
const MAX_STEPS: usize = 60;
const SHOWN_AT_END: usize = 5;

pub fn draw(plan: &Plan<'_>) -> String {
    let mut text = String::from("flowchart TD\n");
    let count = plan.steps.len();
    let hidden =
        if count > MAX_STEPS { MAX_STEPS - SHOWN_AT_END..count - SHOWN_AT_END } else { 0..0 };
    for (index, step) in plan.steps.iter().enumerate() {
        if hidden.contains(&index) {
            if index == hidden.start {
                let _ = writeln!(text, "    s{index}[\"{} more steps\"]", hidden.len());
                let _ = writeln!(text, "    s{index} --> s{}", hidden.end);
            }
            continue;
        }
        let next = if index + 1 == count { "end_".to_owned() } else { format!("s{}", index + 1) };
        let runs = match step.runs {
            0 => "relay".to_owned(),
            1 => "1 run".to_owned(),
            runs => format!("{runs} runs"),
        };
        let policy = step.policy.as_deref().filter(|_| step.runs > 0);
        let policy = policy.map(|it| format!(", {}", label(it))).unwrap_or_default();
        let _ = writeln!(text, "    s{index}[\"{}<br/>{runs}{policy}\"]", label(&step.from));
        let edge = match step.then {
            StepEnd::Publish => format!("waits {}", spoken(step.delay)),
            StepEnd::Relay => "due".to_owned(),
            StepEnd::DeadLetter(reason) => format!("dead letter: {reason}"),
            StepEnd::Drop(reason) => format!("drop: {reason}"),
            StepEnd::Stop(reason) => format!("stop: {reason}"),
        };
        let _ = writeln!(text, "    s{index} -->|\"{}\"| {next}", label(&edge));
    }
    if let Some(last) = plan.steps.last() {
        let name = last.to.as_deref().unwrap_or(super::word(last.then));
        let _ =
            writeln!(text, "    end_([\"{}<br/>after {}\"])", label(name), spoken(last.elapsed));
    }
    text
}

/// Text that Mermaid takes as text.
fn label(text: &str) -> String {
    text.chars().fold(String::with_capacity(text.len()), |mut out, it| {
        match it {
            'a'..='z' | 'A'..='Z' | '0'..='9' | ' ' | '.' | '_' | '-' | ':' | ',' | '(' | ')' => {
                out.push(it)
            }
            it if it.is_control() => out.push(' '),
            it => {
                let _ = write!(out, "#{};", u32::from(it));
            }
        }
        out
    })
}
