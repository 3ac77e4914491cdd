//! How to reach Kafka: what a config may say to librdkafka, and what Redrive says itself.

use serde_json::{Value as Json, json};

use super::node::{Node, Value};
use super::problem::{Path, Place, show_key};
use super::raw::MAX_LIST;
use super::read::{FromNode, Reader, Sections};
use super::suggest::nearest_within;

/// How to reach Kafka.
#[derive(Clone)]
pub enum Kafka {
    /// The broker that Redrive brings along.
    Embedded,
    /// Properties for librdkafka.
    Properties(Vec<(String, String)>),
}

/// Without the properties' values, which may be secrets.
impl std::fmt::Debug for Kafka {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            Kafka::Embedded => f.write_str("Embedded"),
            Kafka::Properties(properties) => {
                f.debug_list().entries(properties.iter().map(|it| &it.0)).finish()
            }
        }
    }
}

/// What Redrive sets itself, and why.
const OWNED: [(&str, &str); 16] = [
    ("group.id", "set `group` at the top of the config"),
    ("enable.auto.commit", "Redrive commits a record when it is settled, not when it was read"),
    ("auto.commit.interval.ms", "Redrive commits a record when it is settled"),
    ("enable.auto.offset.store", "Redrive stores an offset when the record is settled"),
    ("auto.offset.reset", "retry topics always start at the earliest record"),
    ("offset.store.method", "progress is kept in the group's offsets alone"),
    ("acks", "a hop counts only when all in-sync replicas have it"),
    ("request.required.acks", "a hop counts only when all in-sync replicas have it"),
    ("enable.idempotence", "hops are always published by an idempotent producer"),
    ("enable.gapless.guarantee", "Redrive tries a failed publish again itself"),
    ("delivery.report.only.error", "Redrive needs to know of every publish"),
    ("isolation.level", "it follows from whether hops are transactional"),
    ("transactional.id", "it follows from whether hops are transactional"),
    ("partitioner", "hops keep their partition, or take the one that Java clients would"),
    ("enable.partition.eof", "Redrive needs to know where a partition ends"),
    ("opaque", "it is a pointer, which a file cannot hold"),
];

/// Properties that are often set, to find slips.
const COMMON: [&str; 32] = [
    "bootstrap.servers",
    "broker.address.family",
    "client.id",
    "client.rack",
    "compression.type",
    "debug",
    "fetch.max.bytes",
    "fetch.min.bytes",
    "fetch.wait.max.ms",
    "group.instance.id",
    "group.protocol",
    "heartbeat.interval.ms",
    "linger.ms",
    "max.poll.interval.ms",
    "message.max.bytes",
    "message.timeout.ms",
    "metadata.broker.list",
    "partition.assignment.strategy",
    "queued.max.messages.kbytes",
    "reconnect.backoff.ms",
    "request.timeout.ms",
    "sasl.mechanism",
    "sasl.mechanisms",
    "sasl.password",
    "sasl.username",
    "security.protocol",
    "session.timeout.ms",
    "socket.keepalive.enable",
    "socket.timeout.ms",
    "ssl.ca.location",
    "ssl.certificate.location",
    "ssl.key.location",
];

impl FromNode for Kafka {
    fn read(node: &Node, path: &Path<'_>, reader: &mut Reader<'_>) -> Option<Self> {
        if let Value::Scalar(scalar) = &node.value
            && !scalar.is_null()
        {
            let text = reader.scalar(node, path)?.text;
            if text == "embedded" {
                return Some(Kafka::Embedded);
            }
            // What stands here may be properties with a password among them.
            let message = "`kafka` should be `embedded` or a map of properties".to_owned();
            reader.error(
                node,
                path,
                message,
                "write it like `kafka: { bootstrap.servers: \"localhost:9092\" }`",
            );
            return None;
        }
        let entries = reader.map(node, path)?;
        if entries.len() > MAX_LIST {
            let message =
                format!("`kafka` has {} properties, but 1,000 is the limit", entries.len());
            reader.error(node, path, message, "librdkafka knows about 200: take the others out");
            return None;
        }
        let mut properties = Vec::with_capacity(entries.len());
        for entry in entries {
            let path = path.key(&entry.key);
            let owned = OWNED.iter().find(|it| it.0 == entry.key);
            if entry.key.trim().is_empty() {
                let place = Place::new(&path, entry.key_at);
                reader.out.error(place, "a property has no name", "name it, or take it out");
                continue;
            }
            if owned.is_some() || entry.key.ends_with("_cb") {
                let reason = owned.map_or("it is a function, which a file cannot hold", |it| it.1);
                let message = format!("Redrive sets `{}` itself", show_key(&entry.key));
                reader.out.error(
                    Place::new(&path, entry.key_at),
                    message,
                    format!("take it out: {reason}"),
                );
                continue;
            }
            if !reader.out.is_full()
                && !COMMON.contains(&entry.key.as_str())
                && let Some(near) = nearest_within(1, &entry.key, COMMON)
            {
                let message = format!("`{}` looks like a slip", show_key(&entry.key));
                let hint = format!("did you mean `{near}`?");
                reader.out.warning(Place::new(&path, entry.key_at), message, hint);
            }
            if let Some(value) = reader.scalar(&entry.value, &path) {
                properties.push((entry.key.clone(), value.text));
            }
        }
        Some(Kafka::Properties(properties))
    }

    fn schema(_: &mut Sections) -> Json {
        json!({
            "anyOf": [
                { "const": "embedded" },
                { "type": "string", "pattern": r"\$\{" },
                {
                    "type": "object",
                    "propertyNames": { "not": { "enum": OWNED.map(|it| it.0) } },
                    "additionalProperties": { "type": ["string", "number", "boolean"] },
                },
            ]
        })
    }

    fn describe() -> String {
        "`embedded`, or map of properties".to_owned()
    }
}
