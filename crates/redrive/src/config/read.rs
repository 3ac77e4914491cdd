//! From the tree to typed values, with every problem told and none in the way of the next.
//!
//! Each type that may stand in a config says three things in one place: how it is read, what its
//! JSON Schema is, and how the reference describes it. A [`section!`] is a map with known keys; its
//! comments are the reference's text.

use std::time::Duration;

use serde_json::{Value as Json, json};

use super::duration::{DurationError, parse_duration};
use super::env::{self, ExpandError, Lookup};
use super::node::{Entry, Node, Position, Value, is_plain_text, quoted};
use super::problem::{Path, Place, Problems, show_key};
use super::suggest::nearest;

/// What readers need besides the tree.
pub(super) struct Reader<'a> {
    pub(super) env: Lookup<'a>,
    pub(super) out: Problems,
}

/// A type that may stand in a config.
pub(super) trait FromNode: Sized {
    /// The value, or nothing where a problem was told.
    fn read(node: &Node, path: &Path<'_>, reader: &mut Reader<'_>) -> Option<Self>;

    /// Its JSON Schema.
    fn schema(sections: &mut Sections) -> Json;

    /// What the reference calls it.
    fn describe() -> String;
}

/// A value together with where it stands.
#[derive(Clone, Debug)]
pub(super) struct At<T> {
    pub(super) value: T,
    pub(super) place: Place,
    /// How it is written, for a message.
    pub(super) shown: String,
}

impl<T: FromNode> FromNode for At<T> {
    fn read(node: &Node, path: &Path<'_>, reader: &mut Reader<'_>) -> Option<Self> {
        let value = T::read(node, path, reader)?;
        Some(At { value, place: Place::new(path, node.at), shown: shown(node, path) })
    }

    fn schema(sections: &mut Sections) -> Json {
        T::schema(sections)
    }

    fn describe() -> String {
        T::describe()
    }
}

/// A list. Items that cannot be read are told of and left out.
impl<T: FromNode> FromNode for Vec<T> {
    fn read(node: &Node, path: &Path<'_>, reader: &mut Reader<'_>) -> Option<Self> {
        let Value::List(items) = &node.value else {
            reader.wrong_sort(node, path, "a list", "put `- ` before each entry");
            return None;
        };
        let read = |(index, item): (usize, &Node)| T::read(item, &path.index(index), reader);
        Some(items.iter().enumerate().filter_map(read).collect())
    }

    fn schema(sections: &mut Sections) -> Json {
        json!({ "type": "array", "items": T::schema(sections) })
    }

    fn describe() -> String {
        format!("list of {}", T::describe())
    }
}

/// A map whose keys are the user's own.
#[derive(Clone, Debug)]
pub(super) struct Named<T>(pub(super) Vec<(String, T)>);

impl<T: FromNode> FromNode for Named<T> {
    fn read(node: &Node, path: &Path<'_>, reader: &mut Reader<'_>) -> Option<Self> {
        let entries = reader.map(node, path)?;
        let read = |it: &Entry| {
            T::read(&it.value, &path.key(&it.key), reader).map(|value| (it.key.clone(), value))
        };
        Some(Named(entries.iter().filter_map(read).collect()))
    }

    fn schema(sections: &mut Sections) -> Json {
        json!({ "type": "object", "additionalProperties": T::schema(sections) })
    }

    fn describe() -> String {
        format!("map of names to {}", T::describe())
    }
}

/// A single value, with the environment filled in.
pub(super) struct Text {
    pub(super) text: String,
    /// It may stand for a number, too: it is not quoted, or came from the environment.
    pub(super) loose: bool,
    /// It is certainly no text as it stands: a number, boolean or null without quotes.
    pub(super) is_text: bool,
}

impl Reader<'_> {
    pub(super) fn error(&mut self, node: &Node, path: &Path<'_>, message: String, hint: &str) {
        self.out.error(Place::new(path, node.at), message, hint);
    }

    fn wrong_sort(&mut self, node: &Node, path: &Path<'_>, wanted: &str, hint: &str) {
        let message = format!("{} should be {wanted}, but is {}", name(path), node.sort());
        self.error(node, path, message, hint);
    }

    pub(super) fn map<'n>(&mut self, node: &'n Node, path: &Path<'_>) -> Option<&'n [Entry]> {
        let entries = node.map();
        if let Value::Scalar(scalar) = &node.value
            && scalar.is_null()
        {
            let message = format!("{} has no value", name(path));
            let hint = format!(
                "write `{}: {{}}` for its defaults, or leave the key out",
                show_key(path.last_key())
            );
            self.error(node, path, message, &hint);
        } else if entries.is_none() {
            self.wrong_sort(node, path, "a map", "write its keys below it, or as `{ key: value }`");
        }
        entries
    }

    /// A single value with its variables filled in.
    pub(super) fn scalar(&mut self, node: &Node, path: &Path<'_>) -> Option<Text> {
        let Value::Scalar(scalar) = &node.value else {
            self.wrong_sort(node, path, "a single value", "write one value, not several");
            return None;
        };
        if scalar.is_null() {
            let message = format!("{} has no value", name(path));
            self.error(node, path, message, "give it one, or leave the key out");
            return None;
        }
        if !env::is_expandable(&scalar.text) {
            let is_text = !scalar.plain || is_plain_text(&scalar.text);
            return Some(Text { text: scalar.text.clone(), loose: scalar.plain, is_text });
        }
        match env::expand(&scalar.text, self.env) {
            Ok(text) => Some(Text { text, loose: true, is_text: true }),
            Err(ExpandError::Unset(variable)) => {
                let variable = show_key(&variable);
                let hint = format!("set it, or give a default: `${{{variable}:-…}}`");
                let message = format!("the environment variable `{variable}` is not set");
                self.error(node, path, message, &hint);
                None
            }
            Err(ExpandError::Malformed) => {
                let message =
                    format!("{} is not a variable that can be filled in", shown(node, path));
                self.error(
                    node,
                    path,
                    message,
                    "write `${NAME}` or `${NAME:-default}`, and `$${` for the characters themselves",
                );
                None
            }
        }
    }

    /// Text that is meant as text: a bare number is a slip.
    pub(super) fn text(&mut self, node: &Node, path: &Path<'_>) -> Option<String> {
        let scalar = self.scalar(node, path)?;
        if !scalar.is_text {
            let message =
                format!("{} should be text, but {} is not", name(path), shown(node, path));
            self.error(node, path, message, "put it in quotes");
            return None;
        }
        Some(scalar.text)
    }

    /// One of several words.
    pub(super) fn word<T: Copy>(
        &mut self,
        node: &Node,
        path: &Path<'_>,
        words: &[(&'static str, T)],
    ) -> Option<T> {
        let text = self.scalar(node, path)?.text;
        if let Some((_, value)) = words.iter().find(|it| it.0 == text) {
            return Some(*value);
        }
        let known = words.iter().map(|it| it.0);
        let message = format!(
            "{} should be one of {}, but is {}",
            name(path),
            known.clone().collect::<Vec<_>>().join(", "),
            shown(node, path)
        );
        let hint = nearest(&text, known).map(|it| format!("did you mean `{it}`?"));
        self.error(node, path, message, hint.as_deref().unwrap_or("use one of these words"));
        None
    }

    pub(super) fn number(
        &mut self,
        node: &Node,
        path: &Path<'_>,
        range: std::ops::RangeInclusive<u64>,
    ) -> Option<u64> {
        let scalar = self.scalar(node, path)?;
        let number = scalar.loose.then(|| whole_number(&scalar.text)).flatten();
        let fits = number.and_then(|it| u64::try_from(it).ok()).filter(|it| range.contains(it));
        if fits.is_none() {
            let (min, max) = (range.start(), range.end());
            let message = format!(
                "{} should be a whole number from {min} to {max}, but is {}",
                name(path),
                shown(node, path)
            );
            let quotes = number.is_none() && whole_number(&scalar.text).is_some();
            let hint = if quotes {
                "take it out of its quotes"
            } else {
                "write a number within these bounds"
            };
            self.error(node, path, message, hint);
        }
        fits
    }

    /// Tells of a key that the section does not have.
    pub(super) fn unknown_key(
        &mut self,
        entry: &Entry,
        path: &Path<'_>,
        known: &[&'static str],
        later: &[&'static str],
    ) {
        let key = show_key(&entry.key);
        let (message, hint) = if later.contains(&entry.key.as_str()) {
            let message =
                format!("unknown key `{key}`: this version of Redrive does not have it yet");
            (message, "take it out".to_owned())
        } else {
            let near =
                if self.out.is_full() { None } else { nearest(&entry.key, known.iter().copied()) };
            let hint = match near {
                _ if entry.key == "<<" => "YAML 1.2 has no merge keys: write it out".to_owned(),
                Some(it) => format!("did you mean `{it}`?"),
                None => format!("known here: {}", known.join(", ")),
            };
            (format!("unknown key `{key}`"), hint)
        };
        self.out.error(Place::new(&path.key(&entry.key), entry.key_at), message, hint);
    }

    pub(super) fn missing_key(&mut self, at: Position, path: &Path<'_>, key: &str) {
        let message = format!("the key `{key}` is missing");
        self.out.error(Place::new(&path.key(key), at), message, "add it");
    }
}

/// A whole number as YAML 1.2 writes it: in decimal, or with `0x` or `0o` before it.
fn whole_number(text: &str) -> Option<i128> {
    for (prefix, radix) in [("0x", 16), ("0o", 8)] {
        if let Some(digits) = text.strip_prefix(prefix).filter(|it| !it.starts_with(['-', '+'])) {
            return i128::from_str_radix(digits, radix).ok();
        }
    }
    let digits = text.strip_prefix(['-', '+']).unwrap_or(text);
    let is_whole = !digits.is_empty() && digits.bytes().all(|it| it.is_ascii_digit());
    is_whole.then(|| text.parse().ok()).flatten()
}

fn name(path: &Path<'_>) -> String {
    match path {
        Path::Root => "the config".to_owned(),
        Path::Index(..) => "an entry".to_owned(),
        Path::Key(_, key) => quoted(key).into_owned(),
    }
}

/// The value for a message: as it is written, before variables were filled in, and never a secret.
pub(super) fn shown(node: &Node, path: &Path<'_>) -> String {
    match &node.value {
        Value::Scalar(_) if is_secret(path.last_key()) || is_request_header(path) => {
            "a value that is not shown".to_owned()
        }
        Value::Scalar(scalar) if scalar.is_null() => "empty".to_owned(),
        Value::Scalar(scalar) => quoted(&without_secrets(&scalar.text)).into_owned(),
        Value::List(_) | Value::Map(_) => node.sort().to_owned(),
    }
}

/// Whether the value is written as a variable, so that what stands for it must not be shown.
pub(super) fn is_filled_in(node: &Node) -> bool {
    matches!(&node.value, Value::Scalar(scalar) if env::is_expandable(&scalar.text))
}

/// Whether it is a header of requests to a service, which may have a key of any name.
fn is_request_header(path: &Path<'_>) -> bool {
    matches!(path, Path::Key(Path::Key(http, "headers"), _) if http.last_key() == "http")
}

/// Whether the value of such a key must not be shown.
pub(super) fn is_secret(key: &str) -> bool {
    const PARTS: [&str; 9] = [
        "password",
        "secret",
        "token",
        "credential",
        "jaas",
        "passphrase",
        "pem",
        "authorization",
        "bearer",
    ];
    let key = key.to_lowercase();
    PARTS.iter().any(|it| key.contains(it))
}

/// The text without what may be a secret in it: defaults of variables, and what stands in an address before the `@` or
/// behind the `?`.
pub(super) fn without_secrets(text: &str) -> String {
    let mut shown = String::new();
    let mut rest = text;
    while let Some(at) = rest.find(":-").filter(|_| env::is_expandable(text)) {
        shown.push_str(&rest[..at]);
        shown.push_str(":-…");
        rest = rest[at..].find('}').map_or("", |end| &rest[at + end..]);
    }
    shown.push_str(rest);
    // What is no proper address may have its password anywhere before the `@`.
    if let Some(at) = shown.rfind('@') {
        let start = shown.find("://").map_or(0, |it| it + 3).min(at);
        shown.replace_range(start..at, "…");
    }
    if let Some(query) = shown.find("://").and_then(|_| shown.find('?')) {
        shown.replace_range(query + 1.., "…");
    }
    shown
}

impl FromNode for String {
    fn read(node: &Node, path: &Path<'_>, reader: &mut Reader<'_>) -> Option<Self> {
        let text = reader.text(node, path)?;
        if text.trim().is_empty() {
            let message = format!("{} is empty", name(path));
            reader.error(node, path, message, "give it a text, or leave the key out");
            return None;
        }
        Some(text)
    }

    fn schema(_: &mut Sections) -> Json {
        json!({ "type": "string", "minLength": 1 })
    }

    fn describe() -> String {
        "text".to_owned()
    }
}

impl FromNode for bool {
    fn read(node: &Node, path: &Path<'_>, reader: &mut Reader<'_>) -> Option<Self> {
        if let Value::Scalar(scalar) = &node.value
            && scalar.plain
        {
            match scalar.text.as_str() {
                "True" | "TRUE" => return Some(true),
                "False" | "FALSE" => return Some(false),
                _ => {}
            }
        }
        if !reader.scalar(node, path)?.loose {
            let message = format!("{} should be true or false, but is text", name(path));
            reader.error(node, path, message, "take it out of its quotes");
            return None;
        }
        reader.word(node, path, &[("true", true), ("false", false)])
    }

    fn schema(_: &mut Sections) -> Json {
        or_variable(json!({ "type": "boolean" }))
    }

    fn describe() -> String {
        "`true` or `false`".to_owned()
    }
}

impl FromNode for Duration {
    fn read(node: &Node, path: &Path<'_>, reader: &mut Reader<'_>) -> Option<Self> {
        let scalar = reader.scalar(node, path)?;
        let error = match parse_duration(&scalar.text) {
            Ok(duration) => return Some(duration),
            Err(error) => error,
        };
        let value = shown(node, path);
        let (message, hint) = match error {
            DurationError::NoUnit => {
                let hint = if is_filled_in(node) || scalar.text.len() > 12 {
                    "add a unit: ms, s, m, h or d".to_owned()
                } else {
                    let text = &scalar.text;
                    format!("add a unit: `{text}ms`, `{text}s`, `{text}m`, `{text}h` or `{text}d`")
                };
                (format!("{value} is a number without a unit"), hint)
            }
            DurationError::YearsOrMonths => (
                format!("{value} has years or months, which differ in length"),
                "write days: `365d`".to_owned(),
            ),
            DurationError::TooLong => {
                (format!("{value} is longer than 1,000 years"), "write a shorter time".to_owned())
            }
            DurationError::Malformed => (
                format!("{value} is not a length of time"),
                "write it like `250ms`, `30s`, `5m`, `1h30m`, `2d`, `00:05:00` or `PT5M`"
                    .to_owned(),
            ),
        };
        reader.error(node, path, message, &hint);
        None
    }

    fn schema(_: &mut Sections) -> Json {
        let units = "([0-9]+d)?([0-9]+h)?([0-9]+m)?([0-9]+s)?([0-9]+ms)?";
        let clock = "[0-9]{2,}:[0-5][0-9]:[0-5][0-9]";
        let iso = "P([0-9]+W|([0-9]+D)?(T([0-9]+H)?([0-9]+M)?([0-9]+([.,][0-9]{1,3})?S)?)?)";
        json!({ "type": "string", "minLength": 2, "pattern": format!(r"^(?=.*[0-9])({units}|{clock}|{iso})$|\$\{{") })
    }

    fn describe() -> String {
        "duration".to_owned()
    }
}

/// A Kafka topic's name.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) struct Topic(pub(super) String);

/// Why a text is no topic's name, and what to do about it.
pub(super) fn topic_problem(name: &str, shown: &str) -> Option<(String, &'static str)> {
    let is_allowed = |it: char| it.is_ascii_alphanumeric() || "._-".contains(it);
    if name.is_empty() {
        Some(("a topic's name is empty".to_owned(), "give it a name"))
    } else if matches!(name, "." | "..") {
        Some((format!("{shown} cannot be a topic's name"), "choose another name"))
    } else if name.len() > 249 {
        let message = format!("the topic's name {shown} has {} characters", name.len());
        Some((message, "Kafka allows 249"))
    } else if !name.chars().all(is_allowed) {
        let message = format!("the topic's name {shown} has characters that Kafka does not allow");
        Some((message, "use letters, digits, `.`, `_` and `-`"))
    } else {
        None
    }
}

impl FromNode for Topic {
    fn read(node: &Node, path: &Path<'_>, reader: &mut Reader<'_>) -> Option<Self> {
        let name = reader.text(node, path)?;
        match topic_problem(&name, &shown(node, path)) {
            None => Some(Topic(name)),
            Some((message, hint)) => {
                reader.error(node, path, message, hint);
                None
            }
        }
    }

    fn schema(_: &mut Sections) -> Json {
        json!({ "type": "string", "pattern": r"^(?!\.{1,2}$)[A-Za-z0-9._-]{1,249}$|\$\{" })
    }

    fn describe() -> String {
        "topic name".to_owned()
    }
}

/// The sections met so far, for the schema's definitions and the reference's chapters.
#[derive(Default)]
pub(super) struct Sections(pub(super) Vec<(&'static str, Json)>);

impl Sections {
    /// A reference to a section, which is described once.
    pub(super) fn refer(&mut self, title: &'static str, make: fn(&mut Sections) -> Json) -> Json {
        if !self.0.iter().any(|it| it.0 == title) {
            self.0.push((title, Json::Null));
            let schema = make(self);
            if let Some(slot) = self.0.iter_mut().find(|it| it.0 == title) {
                slot.1 = schema;
            }
        }
        json!({ "$ref": format!("#/$defs/{title}") })
    }
}

/// A value that may come from the environment instead.
pub(super) fn or_variable(schema: Json) -> Json {
    json!({ "anyOf": [schema, { "type": "string", "pattern": r"\$\{" }] })
}

/// One of several words, as a schema.
pub(super) fn words_schema(words: &[&str]) -> Json {
    or_variable(json!({ "enum": words }))
}

/// One key of a section, for the schema and the reference.
pub(super) struct Field {
    pub(super) key: &'static str,
    pub(super) doc: &'static [&'static str],
    pub(super) required: bool,
    pub(super) default: Option<&'static str>,
    pub(super) sort: fn() -> String,
    pub(super) schema: fn(&mut Sections) -> Json,
}

/// A section as the schema and the reference see it.
pub(super) struct Section {
    pub(super) title: &'static str,
    pub(super) doc: &'static [&'static str],
    pub(super) fields: &'static [Field],
}

/// The lines of a comment as one text.
pub(super) fn doc_text(lines: &[&str]) -> String {
    lines.iter().map(|it| it.trim()).collect::<Vec<_>>().join(" ").trim().to_owned()
}

pub(super) fn section_schema(section: &Section, sections: &mut Sections) -> Json {
    let mut properties = serde_json::Map::new();
    for field in section.fields {
        let mut schema = (field.schema)(sections);
        if let Some(map) = schema.as_object_mut() {
            let mut text = doc_text(field.doc);
            if let Some(default) = field.default {
                text = format!("{text} Default: {default}.");
            }
            map.insert("description".to_owned(), Json::String(text));
        }
        properties.insert(field.key.to_owned(), schema);
    }
    let required: Vec<_> =
        section.fields.iter().filter(|it| it.required).map(|it| it.key).collect();
    let mut schema = json!({
        "type": "object",
        "description": doc_text(section.doc),
        "properties": properties,
        "additionalProperties": false,
    });
    if !required.is_empty() {
        schema["required"] = json!(required);
    }
    schema
}

/// A map with known keys: the struct, its reader, its schema and its page in the reference.
///
/// Every field is optional in the struct, so that the rest can be looked at where one is wrong;
/// `required` ones are told of when they are missing.
macro_rules! section {
    (
        $(#[doc = $doc:literal])+
        struct $name:ident = $title:literal {
            $(
                $(#[doc = $field_doc:literal])+
                $key:literal $field:ident: $ty:ty, $mode:ident $(($default:literal))?;
            )*
        }
        $(later $($later:literal),+;)?
    ) => {
        $(#[doc = $doc])+
        #[derive(Clone, Debug)]
        pub(super) struct $name {
            $($(#[doc = $field_doc])+ pub(super) $field: Option<$crate::config::read::At<$ty>>,)*
        }

        impl $name {
            pub(super) const SECTION: $crate::config::read::Section = $crate::config::read::Section {
                title: $title,
                doc: &[$($doc),+],
                fields: &[$(
                    $crate::config::read::Field {
                        key: $key,
                        doc: &[$($field_doc),+],
                        required: section!(@required $mode),
                        default: section!(@default $($default)?),
                        sort: <$ty as $crate::config::read::FromNode>::describe,
                        schema: <$ty as $crate::config::read::FromNode>::schema,
                    },
                )*],
            };
        }

        impl $crate::config::read::FromNode for $name {
            fn read(
                node: &$crate::config::node::Node,
                path: &$crate::config::problem::Path<'_>,
                reader: &mut $crate::config::read::Reader<'_>,
            ) -> Option<Self> {
                let entries = reader.map(node, path)?;
                let mut section = $name { $($field: None,)* };
                for entry in entries {
                    match entry.key.as_str() {
                        $($key => {
                            section.$field = <$crate::config::read::At<$ty>>::read(
                                &entry.value,
                                &path.key($key),
                                reader,
                            );
                        })*
                        _ => reader.unknown_key(entry, path, &[$($key),*], &[$($($later),+)?]),
                    }
                }
                $(
                    if section!(@required $mode) && !entries.iter().any(|it| it.key == $key) {
                        reader.missing_key(node.at, path, $key);
                    }
                )*
                Some(section)
            }

            fn schema(sections: &mut $crate::config::read::Sections) -> serde_json::Value {
                sections.refer($title, |sections| {
                    $crate::config::read::section_schema(&$name::SECTION, sections)
                })
            }

            fn describe() -> String {
                concat!("[", $title, "](#", $title, ")").to_owned()
            }
        }
    };
    (@required required) => { true };
    (@required optional) => { false };
    (@required default) => { false };
    (@default $default:literal) => { Some($default) };
    (@default) => { None };
}
pub(super) use section;

/// An enum of words.
macro_rules! words {
    (
        $(#[$meta:meta])*
        $vis:vis enum $name:ident { $($(#[$variant_meta:meta])* $variant:ident = $word:literal,)+ }
    ) => {
        $(#[$meta])*
        #[derive(Clone, Copy, Debug, PartialEq, Eq)]
        $vis enum $name { $($(#[$variant_meta])* $variant,)+ }

        impl $name {
            const WORDS: &'static [(&'static str, $name)] = &[$(($word, $name::$variant)),+];

            /// The word in the config.
            #[must_use]
            pub fn as_str(self) -> &'static str {
                match self { $($name::$variant => $word,)+ }
            }
        }

        impl $crate::config::read::FromNode for $name {
            fn read(
                node: &$crate::config::node::Node,
                path: &$crate::config::problem::Path<'_>,
                reader: &mut $crate::config::read::Reader<'_>,
            ) -> Option<Self> {
                reader.word(node, path, Self::WORDS)
            }

            fn schema(_: &mut $crate::config::read::Sections) -> serde_json::Value {
                $crate::config::read::words_schema(&[$($word),+])
            }

            fn describe() -> String {
                [$(concat!("`", $word, "`")),+].join(", ")
            }
        }
    };
}
pub(super) use words;
