//! Whose event a record is.

use std::borrow::Cow;
use std::fmt;

use serde_core::de::{
    DeserializeSeed, Deserializer, Error, IgnoredAny, MapAccess, SeqAccess, Visitor,
};

use crate::config::{Entity, Pointer};
use crate::record::Record;

impl Entity {
    /// The name of the record's entity, if it has one.
    pub(crate) fn name<'a>(&self, record: &'a Record) -> Option<Cow<'a, [u8]>> {
        match self {
            Entity::Key => record.key().map(Cow::Borrowed),
            Entity::Header(name) => record.header(name).map(Cow::Borrowed),
            Entity::Pointer(pointer) => find(record.value()?, pointer),
        }
    }
}

/// The text or number that a pointer leads to. A value that is no JSON has none.
fn find<'a>(value: &'a [u8], pointer: &Pointer) -> Option<Cow<'a, [u8]>> {
    let mut json = serde_json::Deserializer::from_slice(value);
    let found = Seek(pointer.steps()).deserialize(&mut json).ok()?;
    json.end().ok()?;
    Some(match found? {
        Cow::Borrowed(text) => Cow::Borrowed(text.as_bytes()),
        Cow::Owned(text) => Cow::Owned(text.into_bytes()),
    })
}

/// Follows a pointer, and passes over everything else.
#[derive(Clone, Copy)]
struct Seek<'s>(&'s [String]);

type Found<'de> = Option<Cow<'de, str>>;

impl Seek<'_> {
    /// What is here, if this is where the pointer leads to.
    fn here<'de>(self, text: impl Into<Cow<'de, str>>) -> Found<'de> {
        self.0.is_empty().then(|| text.into())
    }
}

impl<'de> DeserializeSeed<'de> for Seek<'_> {
    type Value = Found<'de>;

    fn deserialize<D: Deserializer<'de>>(self, deserializer: D) -> Result<Self::Value, D::Error> {
        deserializer.deserialize_any(self)
    }
}

impl<'de> Visitor<'de> for Seek<'_> {
    type Value = Found<'de>;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("JSON")
    }

    fn visit_bool<E: Error>(self, _: bool) -> Result<Self::Value, E> {
        Ok(None)
    }

    fn visit_unit<E: Error>(self) -> Result<Self::Value, E> {
        Ok(None)
    }

    fn visit_i64<E: Error>(self, number: i64) -> Result<Self::Value, E> {
        Ok(self.here(number.to_string()))
    }

    fn visit_u64<E: Error>(self, number: u64) -> Result<Self::Value, E> {
        Ok(self.here(number.to_string()))
    }

    fn visit_f64<E: Error>(self, number: f64) -> Result<Self::Value, E> {
        Ok(self.here(number.to_string()))
    }

    fn visit_borrowed_str<E: Error>(self, text: &'de str) -> Result<Self::Value, E> {
        Ok(self.here(text))
    }

    fn visit_str<E: Error>(self, text: &str) -> Result<Self::Value, E> {
        Ok(self.here(text.to_owned()))
    }

    fn visit_map<A: MapAccess<'de>>(self, mut map: A) -> Result<Self::Value, A::Error> {
        let (mut found, step) = (None, self.0.split_first());
        while let Some(is_it) = map.next_key_seed(Is(step.map(|it| it.0.as_str())))? {
            match step.filter(|_| is_it) {
                // Of several of the same name the last one counts.
                Some((_, rest)) => found = map.next_value_seed(Seek(rest))?,
                None => _ = map.next_value::<IgnoredAny>()?,
            }
        }
        Ok(found)
    }

    fn visit_seq<A: SeqAccess<'de>>(self, mut list: A) -> Result<Self::Value, A::Error> {
        let step = self.0.split_first();
        let is_number = |it: &str| it == "0" || !it.starts_with('0');
        let wanted = step.filter(|it| is_number(it.0)).and_then(|it| it.0.parse::<usize>().ok());
        let (mut found, mut index) = (None, 0);
        loop {
            match step.filter(|_| wanted == Some(index)) {
                Some((_, rest)) => match list.next_element_seed(Seek(rest))? {
                    Some(it) => found = it,
                    None => return Ok(found),
                },
                None => {
                    if list.next_element::<IgnoredAny>()?.is_none() {
                        return Ok(found);
                    }
                }
            }
            index += 1;
        }
    }
}

/// Whether a field has this name.
struct Is<'s>(Option<&'s str>);

impl<'de> DeserializeSeed<'de> for Is<'_> {
    type Value = bool;

    fn deserialize<D: Deserializer<'de>>(self, deserializer: D) -> Result<bool, D::Error> {
        deserializer.deserialize_str(self)
    }
}

impl Visitor<'_> for Is<'_> {
    type Value = bool;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("a name")
    }

    fn visit_str<E: Error>(self, name: &str) -> Result<bool, E> {
        Ok(self.0 == Some(name))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn at(value: &str, pointer: &str) -> Option<String> {
        let found = find(value.as_bytes(), &pointer.parse().unwrap());
        found.map(|it| String::from_utf8(it.into_owned()).unwrap())
    }

    #[test]
    fn a_pointer_leads_to_texts_and_numbers() {
        let value = r#"{ "order": { "id": "A\u002d7", "lines": [{ "n": 1 }, { "n": -2 }] }, "/": 1.5, "": { "": "x" } }"#;
        assert_eq!(at(value, "/order/id").as_deref(), Some("A-7"));
        assert_eq!(at(value, "/order/lines/1/n").as_deref(), Some("-2"));
        assert_eq!(at(value, "/~1").as_deref(), Some("1.5"));
        assert_eq!(at(value, "//").as_deref(), Some("x"));
        assert_eq!(at(r#"["a", "b"]"#, "/1").as_deref(), Some("b"));
        assert_eq!(at(r#"{ "id": 1, "id": "2" }"#, "/id").as_deref(), Some("2"));
        // A number and the same number as text are one entity.
        assert_eq!(at(r#"{ "id": 7 }"#, "/id"), at(r#"{ "id": "7" }"#, "/id"));
    }

    #[test]
    fn what_is_no_name_is_none() {
        for value in [
            r#"{ "id": null }"#,
            r#"{ "id": true }"#,
            r#"{ "id": {} }"#,
            r#"{ "id": ["a"] }"#,
            r#"{ "other": 1 }"#,
            r#"{ "id": "a""#,
            r#"{ "id": "a" } trailing"#,
            r#""id""#,
            "7",
            "",
            "\u{1}\u{2}",
        ] {
            assert_eq!(at(value, "/id"), None, "{value}");
        }
        assert_eq!(at(r#"["a"]"#, "/00"), None, "no number by the book");
        assert_eq!(at(r#"["a"]"#, "/9"), None);
        assert_eq!(find(b"{\"id\": \"\xFF\"}", &"/id".parse().unwrap()), None, "not UTF-8");
        let deep = format!("{}1{}", "[".repeat(100_000), "]".repeat(100_000));
        assert_eq!(at(&deep, "/id"), None);
    }

    #[test]
    fn keys_and_headers_are_bytes() {
        let record = Record::made_up("orders", 0, 1)
            .with_key([0xFF])
            .with_header("id", Some(b"old"))
            .with_header("id", Some(b"new"))
            .with_header("none", None);
        let name = |entity: Entity| entity.name(&record).map(Cow::into_owned);
        assert_eq!(name(Entity::Key), Some(vec![0xFF]));
        assert_eq!(name(Entity::Header("id".to_owned())), Some(b"new".to_vec()));
        assert_eq!(name(Entity::Header("none".to_owned())), None);
        assert_eq!(name(Entity::Header("other".to_owned())), None);
        assert_eq!(Entity::Key.name(&Record::made_up("orders", 0, 1)), None);
    }
}
