//! `redrive check`: valid, or all problems.

use std::fmt::Write;

use redrive::config::{Config, FlowConfig, Loaded, Problem, Severity};
use serde_json::json;

use crate::args::{CheckArgs, Format};
use crate::input;
use crate::output::{self, CYAN, DIM, Exit, GREEN, RED, plural, styled};

pub fn run(args: &CheckArgs) -> anyhow::Result<Exit> {
    let input = args.config.load()?;
    let loaded = &input.loaded;
    if let (Some(config), Some(topic)) = (&loaded.config, &args.config.topic) {
        input::choose(config, Some(topic))?;
    }
    let text = match args.format {
        Format::Json => json_text(loaded.config.is_some(), &loaded.problems),
        Format::Text => {
            let mut text = output::problems(&input.name, &loaded.problems);
            text.push_str(&match &loaded.config {
                Some(config) => summary(&input.name, config, loaded),
                None => {
                    let count = output::count(&loaded.problems);
                    format!("{} {}: {count}\n", styled(RED, "✖"), input.name)
                }
            });
            text
        }
    };
    output::print(&text)?;
    Ok(if loaded.config.is_some() { Exit::Fine } else { Exit::Problems })
}

fn json_text(valid: bool, problems: &[Problem]) -> String {
    let problems: Vec<_> = problems
        .iter()
        .map(|it| {
            json!({
                "severity": it.severity.to_string(),
                "path": it.path,
                "message": it.message,
                "hint": it.hint,
                "line": it.position.map(|it| it.line),
                "column": it.position.map(|it| it.column),
            })
        })
        .collect();
    let mut text = format!("{:#}", json!({ "valid": valid, "problems": problems }));
    text.push('\n');
    text
}

/// What a valid config says, in a few lines.
fn summary(file: &str, config: &Config, loaded: &Loaded) -> String {
    let problems = &loaded.problems;
    let flows = plural(config.flows.len(), "flow");
    let warnings = problems.iter().any(|it| it.severity == Severity::Warning);
    let warnings = if warnings { format!(", {}", output::count(problems)) } else { String::new() };
    let mut text = format!("{} {file} is valid: {flows}{warnings}\n", styled(GREEN, "✔"));
    for flow in &config.flows {
        let flow = &flow.flow;
        let mut stops = vec![flow.source()];
        stops.extend(flow.strategy().tiers().iter().map(|it| &it.topic));
        let target = flow.strategy().relay_target(flow.source());
        stops.extend(target);
        stops.push(flow.dead_letter());
        let stops: Vec<_> = stops.into_iter().map(|it| styled(CYAN, it)).collect();
        let _ = writeln!(text, "  {}", stops.join(" → "));
    }
    let needed = needed_to_run(config, |_| true);
    if !needed.is_empty() {
        let convert = if loaded.converted.is_some() { "convert it and " } else { "" };
        let line = format!("to run it, {convert}add {}", needed.join(" and "));
        let _ = writeln!(text, "  {}", styled(DIM, line));
    }
    text
}

/// What planning does without and running does not.
pub fn needed_to_run(config: &Config, is_run: impl Fn(&FlowConfig) -> bool) -> Vec<String> {
    let mut needed = Vec::new();
    if config.kafka.is_none() {
        needed.push("`kafka`".to_owned());
    }
    if config.group.is_none() {
        needed.push("`group`".to_owned());
    }
    let without: Vec<_> =
        config.flows.iter().filter(|it| it.handler.is_none() && is_run(it)).collect();
    match without.as_slice() {
        [] => {}
        [flow] => needed.push(format!("the `handler` of {}", flow.flow.source())),
        flows => needed.push(format!("the `handler` of {}", plural(flows.len(), "flow"))),
    }
    needed
}
