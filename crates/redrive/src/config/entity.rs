//! Whose events run in order: what names the entity of a record.

use std::fmt;
use std::str::FromStr;

use redrive_core::lane::OnDeadLetter;
use serde_json::{Value as Json, json};

use super::node::{Node, Value};
use super::problem::Path;
use super::raw::one_key;
use super::read::{FromNode, Reader, Sections, or_variable, shown, words_schema};

/// What names the entity of a record, such as an order.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub enum Entity {
    /// The record's key. One without a key has no entity.
    #[default]
    Key,
    /// The last header of this name. One without it, or whose value is null, has no entity.
    Header(String),
    /// A text or a number in the record's value, which is JSON. What is something else has no entity.
    Pointer(Pointer),
}

/// Where something is in a JSON value, by RFC 6901: `/order/id`.
#[derive(Clone, PartialEq, Eq)]
pub struct Pointer {
    text: String,
    steps: Vec<String>,
}

impl Pointer {
    /// The names and numbers on the way, from the outside.
    pub(crate) fn steps(&self) -> &[String] {
        &self.steps
    }
}

/// Why a text is no pointer.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum PointerError {
    /// It is empty, and so points to the value as a whole.
    #[error("it is empty")]
    Empty,
    /// It does not begin with a slash.
    #[error("it does not begin with `/`")]
    NoSlash,
    /// A `~` stands for itself as `~0` and for a slash as `~1`.
    #[error("it has a `~` that is not followed by `0` or `1`")]
    Tilde,
}

impl FromStr for Pointer {
    type Err = PointerError;

    fn from_str(text: &str) -> Result<Self, PointerError> {
        if text.is_empty() {
            return Err(PointerError::Empty);
        }
        let steps = text.strip_prefix('/').ok_or(PointerError::NoSlash)?;
        let read = |step: &str| {
            let is_escape = |it: &str| it.starts_with(['0', '1']);
            let is_fine = step.split('~').skip(1).all(is_escape);
            is_fine.then(|| step.replace("~1", "/").replace("~0", "~"))
        };
        let steps: Option<_> = steps.split('/').map(read).collect();
        Ok(Self { text: text.to_owned(), steps: steps.ok_or(PointerError::Tilde)? })
    }
}

impl fmt::Display for Pointer {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.text)
    }
}

impl fmt::Debug for Pointer {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Pointer({:?})", self.text)
    }
}

impl FromNode for Entity {
    fn read(node: &Node, path: &Path<'_>, reader: &mut Reader<'_>) -> Option<Self> {
        if let Value::Scalar(_) = node.value {
            let is_key = reader.scalar(node, path)?.text == "key";
            if !is_key {
                let message = format!(
                    "`entity` should be `key`, a `header` or a `pointer`, but is {}",
                    shown(node, path)
                );
                let hint = "write `key`, `{ header: NAME }` or `{ pointer: /order/id }`";
                reader.error(node, path, message, hint);
            }
            return is_key.then_some(Entity::Key);
        }
        let (key, value) = one_key(node, path, reader, &["header", "pointer"])?;
        let path = path.key(key);
        let text = reader.text(value, &path)?;
        if key == "header" {
            if text.is_empty() {
                let message = "`header` is empty, and no record has such a header".to_owned();
                reader.error(value, &path, message, "give it the header's name");
                return None;
            }
            return Some(Entity::Header(text));
        }
        match text.parse() {
            Ok(pointer) => Some(Entity::Pointer(pointer)),
            Err(error) => {
                let message = format!("{} is no JSON pointer: {error}", shown(value, &path));
                let hint = "write the way to it with a `/` before each name, such as `/order/id`";
                reader.error(value, &path, message, hint);
                None
            }
        }
    }

    fn schema(_: &mut Sections) -> Json {
        let long = |key: &str, pattern: &str| {
            json!({
                "type": "object",
                "properties": { key: { "type": "string", "pattern": pattern } },
                "required": [key],
                "additionalProperties": false,
            })
        };
        let pointer = long("pointer", r"^(/([^~]|~[01])*)$|\$\{");
        json!({ "anyOf": [words_schema(&["key"]), long("header", "."), pointer] })
    }

    fn describe() -> String {
        "`key`, `{ header: NAME }`, or `{ pointer: /PATH }`".to_owned()
    }
}

const ON_DEAD_LETTER: [(&str, OnDeadLetter); 2] =
    [("hold", OnDeadLetter::Hold), ("release", OnDeadLetter::Release)];

impl FromNode for OnDeadLetter {
    fn read(node: &Node, path: &Path<'_>, reader: &mut Reader<'_>) -> Option<Self> {
        reader.word(node, path, &ON_DEAD_LETTER)
    }

    fn schema(_: &mut Sections) -> Json {
        or_variable(json!({ "enum": ON_DEAD_LETTER.map(|it| it.0) }))
    }

    fn describe() -> String {
        ON_DEAD_LETTER.map(|it| format!("`{}`", it.0)).join(", ")
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn pointers_are_read_by_the_book() {
        let steps = |text: &str| text.parse::<Pointer>().map(|it| it.steps);
        assert_eq!(steps("/order/id").unwrap(), ["order", "id"]);
        assert_eq!(steps("/a~1b/~0/~01").unwrap(), ["a/b", "~", "~1"]);
        assert_eq!(steps("/").unwrap(), [""], "a field without a name");
        assert_eq!(steps("").unwrap_err(), PointerError::Empty);
        assert_eq!(steps("order/id").unwrap_err(), PointerError::NoSlash);
        assert_eq!(steps("/a~").unwrap_err(), PointerError::Tilde);
        assert_eq!(steps("/a~2b").unwrap_err(), PointerError::Tilde);
    }
}
