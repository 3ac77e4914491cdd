//! What is wrong with a config, and where.

use std::fmt;

use super::node::Position;

/// How bad a problem is.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Severity {
    /// The config cannot be used.
    Error,
    /// It can be used, but hardly does what was meant.
    Warning,
}

impl fmt::Display for Severity {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Severity::Error => "error",
            Severity::Warning => "warning",
        })
    }
}

/// One thing that is wrong with a config.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Problem {
    /// How bad it is.
    pub severity: Severity,
    /// Where in the config, such as `flows[0].retry.topics[0].delay`.
    pub path: String,
    /// What is wrong: the value and the rule.
    pub message: String,
    /// How to put it right.
    pub hint: Option<String>,
    /// Line and column in the file, from 1, where they are known.
    pub position: Option<Position>,
}

/// The way from the top of a config to one of its values.
#[derive(Clone, Copy)]
pub(super) enum Path<'a> {
    Root,
    Key(&'a Path<'a>, &'a str),
    Index(&'a Path<'a>, usize),
}

impl<'a> Path<'a> {
    pub(super) fn key(&'a self, key: &'a str) -> Path<'a> {
        Path::Key(self, key)
    }

    pub(super) fn index(&'a self, index: usize) -> Path<'a> {
        Path::Index(self, index)
    }

    /// The last key on the way.
    pub(super) fn last_key(&self) -> &str {
        match self {
            Path::Root => "",
            Path::Key(_, key) => key,
            Path::Index(parent, _) => parent.last_key(),
        }
    }
}

impl fmt::Display for Path<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Path::Root => Ok(()),
            Path::Key(Path::Root, key) => write!(f, "{}", show_key(key)),
            Path::Key(parent, key) => write!(f, "{parent}.{}", show_key(key)),
            Path::Index(parent, index) => write!(f, "{parent}[{index}]"),
        }
    }
}

/// A key from the file, made harmless for a terminal and cut to a readable length.
pub(super) fn show_key(key: &str) -> String {
    let mut shown = String::new();
    for it in shorten(key, 60).chars() {
        // Quotes are harmless; line ends, control characters and what turns text around are not.
        if matches!(it, '"' | '\'') { shown.push(it) } else { shown.extend(it.escape_debug()) }
    }
    shown
}

/// The beginning of `text`, with an ellipsis where something was cut.
pub(super) fn shorten(text: &str, max_chars: usize) -> String {
    match text.char_indices().nth(max_chars) {
        Some((end, _)) => format!("{}…", &text[..end]),
        None => text.to_owned(),
    }
}

/// Collects what is wrong, up to a limit that nobody reads beyond.
#[derive(Debug, Default)]
pub(super) struct Problems {
    list: Vec<Problem>,
    errors: usize,
    left_out: usize,
}

const MAX_PROBLEMS: usize = 200;

impl Problems {
    /// Adds a problem, once: a policy set that two flows use is not told of twice.
    pub(super) fn add(&mut self, problem: Problem) {
        if self.list.contains(&problem) {
            return;
        }
        self.errors += usize::from(problem.severity == Severity::Error);
        if self.list.len() < MAX_PROBLEMS {
            self.list.push(problem);
        } else {
            self.left_out += 1;
        }
    }

    /// Whether nobody will read what is told from here on.
    pub(super) fn is_full(&self) -> bool {
        self.list.len() >= MAX_PROBLEMS
    }

    /// How many errors there are so far.
    pub(super) fn errors(&self) -> usize {
        self.errors
    }

    pub(super) fn error(
        &mut self,
        at: impl Into<Place>,
        message: impl Into<String>,
        hint: impl Into<String>,
    ) {
        self.place(Severity::Error, at.into(), message.into(), hint.into());
    }

    pub(super) fn warning(
        &mut self,
        at: impl Into<Place>,
        message: impl Into<String>,
        hint: impl Into<String>,
    ) {
        self.place(Severity::Warning, at.into(), message.into(), hint.into());
    }

    fn place(&mut self, severity: Severity, at: Place, message: String, hint: String) {
        let hint = (!hint.is_empty()).then_some(hint);
        self.add(Problem { severity, path: at.path, message, hint, position: at.position });
    }

    pub(super) fn has_errors(&self) -> bool {
        self.errors > 0
    }

    /// Whether there is an error at this path or below it.
    pub(super) fn has_error_at(&self, path: &str) -> bool {
        let is_below = |it: &str| {
            it.strip_prefix(path)
                .is_some_and(|rest| rest.is_empty() || rest.starts_with(['.', '[']))
        };
        self.list.iter().any(|it| it.severity == Severity::Error && is_below(&it.path))
    }

    /// Everything in the order of the file, errors and warnings mixed.
    pub(super) fn into_list(mut self) -> Vec<Problem> {
        self.list.sort_by_key(|it| (it.position.is_none(), it.position));
        if self.left_out > 0 {
            let severity = if self.errors > 0 { Severity::Error } else { Severity::Warning };
            self.list.push(Problem {
                severity,
                path: String::new(),
                message: format!("{} more problems are not listed", self.left_out),
                hint: Some("mend the ones above first".to_owned()),
                position: None,
            });
        }
        self.list
    }
}

/// Where a problem is.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(super) struct Place {
    pub(super) path: String,
    pub(super) position: Option<Position>,
}

impl Place {
    pub(super) fn new(path: &Path<'_>, position: Position) -> Self {
        Self { path: path.to_string(), position: Some(position) }
    }

    /// The place of a key below this one.
    pub(super) fn below(&self, key: &str) -> Self {
        Self { path: format!("{}.{key}", self.path), position: self.position }
    }
}

impl From<&Place> for Place {
    fn from(place: &Place) -> Self {
        place.clone()
    }
}
