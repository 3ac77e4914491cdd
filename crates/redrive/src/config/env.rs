//! Fills in `${NAME}` and `${NAME:-default}` from the environment.
//!
//! It happens inside single values, after the file was taken apart, so that a variable can never
//! bring keys or lines of its own. `$${` stands for `${` itself.

/// Looks a variable up.
pub type Lookup<'a> = &'a dyn Fn(&str) -> Option<String>;

/// Why a text cannot be filled in.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum ExpandError {
    /// The variable is not set and has no default.
    Unset(String),
    /// `${` without its end, or without a name.
    Malformed,
}

const MAX_NESTING: usize = 8;

/// `text` with its variables filled in.
pub(super) fn expand(text: &str, lookup: Lookup<'_>) -> Result<String, ExpandError> {
    expand_nested(text, lookup, 0)
}

/// Whether there is anything to fill in.
pub(super) fn is_expandable(text: &str) -> bool {
    text.contains("${")
}

fn expand_nested(text: &str, lookup: Lookup<'_>, nesting: usize) -> Result<String, ExpandError> {
    if nesting > MAX_NESTING {
        return Err(ExpandError::Malformed);
    }
    let mut out = String::with_capacity(text.len());
    let mut rest = text;
    while let Some(start) = rest.find("${") {
        if let Some(before) = rest[..start].strip_suffix('$') {
            out.push_str(before);
            out.push_str("${");
            rest = &rest[start + 2..];
            continue;
        }
        out.push_str(&rest[..start]);
        let inner = &rest[start + 2..];
        let end = closing(inner).ok_or(ExpandError::Malformed)?;
        let (name, default) = match inner[..end].split_once(":-") {
            Some((name, default)) => (name, Some(default)),
            None => (&inner[..end], None),
        };
        if !is_name(name) {
            return Err(ExpandError::Malformed);
        }
        match (lookup(name), default) {
            // As in a shell: an empty variable takes the default, too.
            (Some(value), default) if !value.is_empty() || default.is_none() => {
                out.push_str(&value)
            }
            (_, Some(default)) => out.push_str(&expand_nested(default, lookup, nesting + 1)?),
            (_, None) => return Err(ExpandError::Unset(name.to_owned())),
        }
        rest = &inner[end + 1..];
    }
    out.push_str(rest);
    Ok(out)
}

/// Where the brace ends that was opened just before `text`.
fn closing(text: &str) -> Option<usize> {
    let mut depth = 0usize;
    let mut before = ' ';
    for (at, it) in text.char_indices() {
        match it {
            '{' if before == '$' => depth += 1,
            '}' if depth == 0 => return Some(at),
            '}' => depth -= 1,
            _ => {}
        }
        before = it;
    }
    None
}

fn is_name(name: &str) -> bool {
    name.starts_with(|it: char| it.is_ascii_alphabetic() || it == '_')
        && name.bytes().all(|it| it.is_ascii_alphanumeric() || it == b'_')
}

#[cfg(test)]
mod tests {
    use super::*;

    fn fill(text: &str) -> Result<String, ExpandError> {
        expand(text, &|name| match name {
            "HOST" => Some("kafka-1".to_owned()),
            "EMPTY" => Some(String::new()),
            "TRICKY" => Some("${HOST}".to_owned()),
            _ => None,
        })
    }

    #[test]
    fn variables_and_defaults_are_filled_in() {
        for (text, expected) in [
            ("plain", "plain"),
            ("${HOST}:9092", "kafka-1:9092"),
            ("${NONE:-localhost:9092}", "localhost:9092"),
            ("${HOST:-x}${NONE:-y}", "kafka-1y"),
            ("${NONE:-}", ""),
            ("${EMPTY}", ""),
            ("${EMPTY:-d}", "d"),
            ("${NONE:-${HOST}}", "kafka-1"),
            ("${NONE:-{}}", "{}"),
            ("$${HOST}", "${HOST}"),
            ("costs $5 {x}", "costs $5 {x}"),
            ("${TRICKY}", "${HOST}"),
        ] {
            assert_eq!(fill(text).as_deref(), Ok(expected), "{text}");
        }
    }

    #[test]
    fn what_cannot_be_filled_in_is_refused() {
        assert_eq!(fill("${NONE}"), Err(ExpandError::Unset("NONE".into())));
        for text in ["${", "${}", "${HOST", "${1A}", "${A B}", "${:-x}", "${A:-${B:-x}"] {
            assert_eq!(fill(text), Err(ExpandError::Malformed), "{text}");
        }
        assert_eq!(fill(&"${N:-".repeat(5000)), Err(ExpandError::Malformed));
    }
}
