//! What `--failure` and `--header` say.

use anyhow::{Context, bail};
use redrive::config::parse_duration;
use redrive::{Failure, Kind};

const FACTS: [&str; 5] = ["status", "kind", "error", "retryable", "retry_after"];

/// A failure from facts such as `status=503,kind=timeout`.
pub fn failure(text: &str) -> anyhow::Result<Failure> {
    let mut failure = Failure::default();
    let mut seen: Vec<&str> = Vec::new();
    for (fact, value) in split(text)? {
        if seen.contains(&fact) {
            bail!("--failure {text}: `{fact}` is there twice");
        }
        seen.push(fact);
        let value = value.trim();
        if value.is_empty() {
            bail!("--failure {text}: `{fact}` has no value");
        }
        let wrong =
            |rule: &str| format!("--failure {text}: `{fact}` should be {rule}, but is `{value}`");
        match fact {
            "status" => {
                let is_status = value.len() == 3 && value.bytes().all(|it| it.is_ascii_digit());
                let status = value.parse().ok().filter(|it| is_status && *it >= 100);
                failure.status = Some(status.with_context(|| wrong("an HTTP status"))?);
            }
            "kind" => failure.kind = Some(Kind::new(value.to_owned())),
            "error" => failure.error_type = Some(value.to_owned().into()),
            "retryable" => {
                failure.retryable =
                    Some(value.parse().ok().with_context(|| wrong("true or false"))?);
            }
            _ => {
                let wait = parse_duration(value).ok();
                failure.retry_after = Some(wait.with_context(|| wrong("a duration such as 90s"))?);
            }
        }
    }
    Ok(failure)
}

/// Splits at commas that another fact follows: a type's name may have commas in it.
fn split(text: &str) -> anyhow::Result<Vec<(&'static str, &str)>> {
    let fact_at = |text: &str| {
        FACTS.into_iter().find(|it| text.strip_prefix(it).is_some_and(|rest| rest.starts_with('=')))
    };
    let mut facts = Vec::new();
    let mut rest = text;
    loop {
        let Some(fact) = fact_at(rest) else {
            bail!(
                "--failure {text}: write it as FACT=VALUE, such as status=503; known are {}",
                FACTS.join(", ")
            );
        };
        let value = &rest[fact.len() + 1..];
        let is_end = |at: &usize| fact_at(value[at + 1..].trim_start()).is_some();
        let end = value.match_indices(',').map(|it| it.0).find(is_end);
        // What a comma ends must be a fact, unless it is a type's name.
        let Some(end) = end else {
            if fact != "error" && value.contains(',') {
                bail!("--failure {text}: after the comma should be one of {}", FACTS.join(", "));
            }
            facts.push((fact, value));
            return Ok(facts);
        };
        facts.push((fact, &value[..end]));
        rest = value[end + 1..].trim_start();
    }
}

/// A header's name and value from `NAME=VALUE`.
pub fn header(text: &str) -> anyhow::Result<(&str, &str)> {
    match text.split_once('=') {
        Some((name, value)) if !name.is_empty() => Ok((name, value)),
        _ => bail!("--header {text}: write it as NAME=VALUE, such as x-kind=sync"),
    }
}

/// A failure in words.
pub fn describe(failure: &Failure) -> String {
    let mut facts = Vec::new();
    if let Some(it) = failure.status {
        facts.push(format!("status {it}"));
    }
    if let Some(it) = &failure.kind {
        facts.push(format!("kind {it}"));
    }
    if let Some(it) = &failure.error_type {
        facts.push(it.to_string());
    }
    if let Some(it) = failure.retryable {
        facts.push(if it { "retryable" } else { "not retryable" }.to_owned());
    }
    if let Some(it) = failure.retry_after {
        facts.push(format!("retry after {}", redrive::config::format_duration(it)));
    }
    if facts.is_empty() { "a failure that no policy names".to_owned() } else { facts.join(", ") }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::time::Duration;

    #[test]
    fn facts_are_read() {
        let it = failure("status=429,retry_after=90s").unwrap();
        assert_eq!((it.status, it.retry_after), (Some(429), Some(Duration::from_secs(90))));
        let it = failure("error=my::Error<A, B>,kind=timeout,retryable=false").unwrap();
        assert_eq!(it.error_type.as_deref(), Some("my::Error<A, B>"));
        assert_eq!((it.kind, it.retryable), (Some(Kind::TIMEOUT), Some(false)));
        assert_eq!(failure("error=a,b").unwrap().error_type.as_deref(), Some("a,b"));
    }

    #[test]
    fn wrong_facts_are_refused() {
        for text in [
            "",
            "503",
            "status",
            "status=",
            "status=5xx",
            "status=99",
            "status=+503",
            "code=503",
            "kind=",
            "status=503,",
            "status=503,banana",
            "status=503,status=504",
            "retry_after=90",
            "retryable=maybe",
            "error= ",
        ] {
            assert!(failure(text).is_err(), "{text}");
        }
    }
}
