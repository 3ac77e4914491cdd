//! What a record asks of its handler: it is written in its value.

use serde_json::{Value, json};

use crate::rng::Rng;

/// What a record asks for.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Task {
    /// Who it is.
    pub id: u64,
    /// How often it fails in a way that is worth another try.
    pub fails: u64,
    /// Whether it then fails for good.
    pub is_hopeless: bool,
    /// How long a run takes, in milliseconds.
    pub takes: u64,
}

impl Task {
    /// A task by chance, failing in so many of a hundred cases.
    pub fn random(id: u64, failing: u64, rng: &mut Rng) -> Self {
        let fails = if rng.below(100) < failing { rng.between(1, 3) } else { 0 };
        let takes = if rng.one_in(50) { rng.between(1, 20) } else { 0 };
        Self { id, fails, is_hopeless: fails > 0 && rng.one_in(10), takes }
    }

    /// As it is produced.
    pub fn to_value(&self) -> String {
        json!({ "id": self.id, "fails": self.fails, "hopeless": self.is_hopeless, "takes": self.takes })
            .to_string()
    }

    /// From a record's value.
    pub fn from_value(value: &[u8]) -> Option<Self> {
        let value: Value = serde_json::from_slice(value).ok()?;
        Some(Self {
            id: value.get("id")?.as_u64()?,
            fails: value.get("fails")?.as_u64()?,
            is_hopeless: value.get("hopeless")?.as_bool()?,
            takes: value.get("takes")?.as_u64()?,
        })
    }
}
