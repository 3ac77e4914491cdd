//! Loading configs and looking at what came of it.

use std::time::Duration;

use redrive::config::{Config, FlowConfig, Loaded, Options, Problem, Severity, Syntax};
use redrive::{Failure, RecordView, Step, StepEnd, plan};

/// What every variable of the tests' environment begins with, if it is set.
pub const FROM_ENV: &str = "s3cr3t";

pub fn env(name: &str) -> Option<String> {
    match name {
        "N" => Some("8".to_owned()),
        "TOPIC" => Some("orders".to_owned()),
        "WAIT" => Some("90s".to_owned()),
        "YES" => Some("true".to_owned()),
        "EMPTY" => Some(String::new()),
        "SECRET" => Some(FROM_ENV.to_owned()),
        "SECRET_SPACED" => Some(format!("{FROM_ENV} with spaces")),
        "SECRET_BRACED" => Some(format!("{{{FROM_ENV}}}")),
        "SECRET_NUMBER" => Some("77".to_owned()),
        _ => None,
    }
}

pub fn load(text: &str, syntax: Syntax) -> Loaded {
    let options = Options { topic: None, group: None, env: &env };
    Config::load(text, syntax, &options).unwrap()
}

pub fn yaml(text: &str) -> Loaded {
    load(text, Syntax::Yaml)
}

pub fn json(text: &str) -> Loaded {
    load(text, Syntax::Json)
}

/// Another library's file, with `orders` as the source topic.
pub fn foreign(text: &str) -> Loaded {
    let options = Options { topic: Some("orders"), group: None, env: &env };
    Config::load(text, Syntax::Json, &options).unwrap()
}

/// The config of a YAML text without a single problem.
pub fn valid(text: &str) -> Config {
    accepted(yaml(text))
}

/// The only flow of a YAML text without a single problem.
pub fn valid_flow(text: &str) -> FlowConfig {
    only_flow(valid(text))
}

pub fn accepted(loaded: Loaded) -> Config {
    assert_eq!(loaded.problems, [], "no problem was expected");
    loaded.config.unwrap()
}

pub fn only_flow(config: Config) -> FlowConfig {
    let [flow] = <[FlowConfig; 1]>::try_from(config.flows).unwrap();
    flow
}

/// Each problem as `severity path @line:column`.
pub fn places(loaded: &Loaded) -> Vec<String> {
    loaded.problems.iter().map(place).collect()
}

fn place(it: &Problem) -> String {
    let at = it.position.map_or(String::new(), |at| format!(" @{}:{}", at.line, at.column));
    format!("{} {}{at}", it.severity, it.path)
}

/// Each problem in full, for a snapshot.
pub fn told(loaded: &Loaded) -> String {
    let line = |it: &Problem| {
        let hint = it.hint.as_deref().map_or(String::new(), |it| format!("\n  hint: {it}"));
        format!("{}\n  {}{hint}\n", place(it), it.message)
    };
    loaded.problems.iter().map(line).collect()
}

/// The one problem of a YAML text.
pub fn problem(text: &str) -> Problem {
    the_only(yaml(text))
}

pub fn the_only(loaded: Loaded) -> Problem {
    match <[Problem; 1]>::try_from(loaded.problems) {
        Ok([problem]) => problem,
        Err(problems) => panic!("one problem was expected, but there are {problems:#?}"),
    }
}

/// Checks that a YAML text has one error, at this place, that says these words.
pub fn refused(text: &str, at: &str, words: &[&str]) {
    refused_as(the_error(yaml(text), text), at, words);
}

pub fn refused_as(problem: Problem, at: &str, words: &[&str]) {
    assert_eq!(problem.severity, Severity::Error, "{problem:?}");
    said(&problem, at, words);
}

/// Checks that a YAML text loads with one warning, at this place, that says these words.
pub fn warned(text: &str, at: &str, words: &[&str]) {
    let loaded = yaml(text);
    assert!(loaded.config.is_some(), "{loaded:#?}");
    let problem = the_only(loaded);
    assert_eq!(problem.severity, Severity::Warning, "{problem:?}");
    said(&problem, at, words);
}

fn the_error(loaded: Loaded, text: &str) -> Problem {
    assert!(loaded.config.is_none(), "a config with errors must not be used:\n{text}");
    the_only(loaded)
}

fn said(problem: &Problem, at: &str, words: &[&str]) {
    let found = place(problem);
    let found = found.split_once(' ').map_or("", |it| it.1);
    assert_eq!(found, at, "{problem:?}");
    let text = format!("{} ({})", problem.message, problem.hint.as_deref().unwrap_or_default());
    for word in words {
        assert!(text.contains(word), "`{word}` is not in: {text}");
    }
}

/// The warnings alone.
pub fn warnings(loaded: &Loaded) -> Vec<&Problem> {
    loaded.problems.iter().filter(|it| it.severity == Severity::Warning).collect()
}

pub fn steps(flow: &FlowConfig, failure: &Failure) -> Vec<Step> {
    plan(&flow.flow, RecordView::default(), std::slice::from_ref(failure))
}

/// A record's way as text: each stop with the longest wait before it.
pub fn way(flow: &FlowConfig, failure: &Failure) -> String {
    let stop = |it: &Step| match it.then {
        StepEnd::Publish => format!("{} +{:?}", it.to.as_deref().unwrap_or("?"), it.delay.max),
        StepEnd::Relay => format!("relay {}", it.to.as_deref().unwrap_or("?")),
        StepEnd::DeadLetter(_) => it.to.clone().unwrap_or_default(),
        StepEnd::Drop(_) => "drop".to_owned(),
        StepEnd::Stop(_) => "stop".to_owned(),
    };
    steps(flow, failure).iter().map(stop).collect::<Vec<_>>().join(", ")
}

/// Every failure that tells one policy from another in these tests.
pub fn failures() -> Vec<Failure> {
    use redrive::Kind;
    let mut all: Vec<_> =
        [400, 404, 408, 409, 425, 429, 500, 503, 599].map(Failure::of_status).into();
    all.extend(Kind::KNOWN.iter().cloned().map(Failure::of_kind));
    all.push(Failure::default());
    all.push(Failure::of_type("shop::PaymentTimeout"));
    all.push(Failure::of_status(503).with_retry_after(Duration::from_secs(45)));
    all
}

/// The plans of both flows for all of [`failures`] are the same.
pub fn assert_same_plans(one: &FlowConfig, other: &FlowConfig) {
    for failure in failures() {
        assert_eq!(steps(one, &failure), steps(other, &failure), "{failure:?}");
    }
}
