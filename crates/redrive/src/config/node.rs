//! A config file as a tree of plain values that know where they stand.
//!
//! YAML and JSON both come to this, so that everything after it has one form to deal with.

use std::borrow::Cow;
use std::collections::BTreeMap;

use super::problem::{Path, Place, Problems};

/// A place in a file, both from 1.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Position {
    /// The line.
    pub line: u32,
    /// The column, in characters.
    pub column: u32,
}

#[derive(Clone, Debug)]
pub(super) struct Node {
    pub(super) at: Position,
    pub(super) value: Value,
}

#[derive(Clone, Debug)]
pub(super) enum Value {
    Scalar(Scalar),
    List(Vec<Node>),
    Map(Vec<Entry>),
}

#[derive(Clone, Debug)]
pub(super) struct Entry {
    pub(super) key: String,
    pub(super) key_at: Position,
    pub(super) value: Node,
}

/// A value as it is written. What it is, a number or text, is seen when it is read: after the
/// environment was filled in.
#[derive(Clone, Debug)]
pub(super) struct Scalar {
    pub(super) text: String,
    /// Not quoted: it may be a number, true, false or null.
    pub(super) plain: bool,
}

impl Node {
    pub(super) fn map(&self) -> Option<&[Entry]> {
        match &self.value {
            Value::Map(entries) => Some(entries),
            _ => None,
        }
    }

    pub(super) fn get(&self, key: &str) -> Option<&Node> {
        self.map()?.iter().find(|it| it.key == key).map(|it| &it.value)
    }

    /// The value of a key in any case, as .NET looks it up.
    pub(super) fn get_any_case(&self, key: &str) -> Option<&Entry> {
        self.map()?.iter().find(|it| it.key.eq_ignore_ascii_case(key))
    }

    /// How deep it is nested.
    pub(super) fn depth(&self) -> usize {
        match &self.value {
            Value::Scalar(_) => 0,
            Value::List(items) => 1 + items.iter().map(Node::depth).max().unwrap_or(0),
            Value::Map(entries) => 1 + entries.iter().map(|it| it.value.depth()).max().unwrap_or(0),
        }
    }

    /// What it is, for a message.
    pub(super) fn sort(&self) -> &'static str {
        match &self.value {
            Value::Scalar(scalar) if scalar.is_null() => "nothing",
            Value::Scalar(_) => "a single value",
            Value::List(_) => "a list",
            Value::Map(_) => "a map",
        }
    }
}

impl Scalar {
    /// YAML 1.2's null, as a plain scalar.
    pub(super) fn is_null(&self) -> bool {
        self.plain && matches!(self.text.as_str(), "" | "~" | "null" | "Null" | "NULL")
    }
}

/// Whether an unquoted text is text by the rules of YAML 1.2, not a number, boolean or null.
pub(super) fn is_plain_text(text: &str) -> bool {
    !matches!(
        text,
        "" | "~"
            | "null"
            | "Null"
            | "NULL"
            | "true"
            | "True"
            | "TRUE"
            | "false"
            | "False"
            | "FALSE"
    ) && !is_number(text)
}

/// Whether an unquoted text is a number by the rules of YAML 1.2.
fn is_number(text: &str) -> bool {
    let unsigned = text.strip_prefix(['-', '+']).unwrap_or(text);
    if let Some(octal) = text.strip_prefix("0o") {
        return !octal.is_empty() && octal.bytes().all(|it| (b'0'..=b'7').contains(&it));
    }
    if let Some(hex) = text.strip_prefix("0x") {
        return !hex.is_empty() && hex.bytes().all(|it| it.is_ascii_hexdigit());
    }
    let is_special =
        matches!(unsigned, ".inf" | ".Inf" | ".INF") || matches!(text, ".nan" | ".NaN" | ".NAN");
    let looks_like_one = unsigned.starts_with(|it: char| it.is_ascii_digit() || it == '.')
        && !unsigned.ends_with('_');
    is_special || (looks_like_one && unsigned != "." && unsigned.parse::<f64>().is_ok())
}

/// Builds maps and keeps what is read within its limits.
pub(super) struct Limits {
    nodes: usize,
    bytes: usize,
}

/// The largest file.
pub(super) const MAX_BYTES: usize = 1 << 20;
/// The deepest nesting.
pub(super) const MAX_DEPTH: usize = 64;
/// The most values, aliases written out.
const MAX_NODES: usize = 500_000;
/// The most text, aliases written out.
const MAX_TEXT: usize = 8 * MAX_BYTES;

impl Limits {
    pub(super) fn new() -> Self {
        Self { nodes: 0, bytes: 0 }
    }

    /// Counts one more value; false when it is too many.
    pub(super) fn take(&mut self, text: usize) -> bool {
        self.nodes += 1;
        self.bytes += text;
        self.nodes <= MAX_NODES && self.bytes <= MAX_TEXT
    }

    /// Counts a copy of `node`; false when it is too many.
    pub(super) fn take_copy(&mut self, node: &Node) -> bool {
        match &node.value {
            Value::Scalar(scalar) => self.take(scalar.text.len()),
            Value::List(items) => self.take(0) && items.iter().all(|it| self.take_copy(it)),
            Value::Map(entries) => {
                let keys = entries.iter().map(|it| it.key.len()).sum();
                self.take(keys) && entries.iter().all(|it| self.take_copy(&it.value))
            }
        }
    }
}

/// A map in the making: a key that is there already is told of and left out.
#[derive(Default)]
pub(super) struct Entries {
    list: Vec<Entry>,
    seen: BTreeMap<String, Position>,
}

impl Entries {
    pub(super) fn add(&mut self, entry: Entry, path: &Path<'_>, out: &mut Problems) {
        match self.seen.get(&entry.key) {
            Some(first) => out.error(
                Place::new(&path.key(&entry.key), entry.key_at),
                format!("the key `{}` is there twice", super::problem::show_key(&entry.key)),
                format!("keep one of them: the first is in line {}", first.line),
            ),
            None => {
                self.seen.insert(entry.key.clone(), entry.key_at);
                self.list.push(entry);
            }
        }
    }

    pub(super) fn into_list(self) -> Vec<Entry> {
        self.list
    }
}

/// A file's text without the mark that some editors put at its beginning.
pub(super) fn without_byte_order_mark(text: &str) -> &str {
    text.strip_prefix('\u{FEFF}').unwrap_or(text)
}

/// `text` in quotes for a message: harmless for a terminal, cut to a readable length.
pub(super) fn quoted(text: &str) -> Cow<'static, str> {
    Cow::Owned(format!("`{}`", super::problem::show_key(text)))
}
