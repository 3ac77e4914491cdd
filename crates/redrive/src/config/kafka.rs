//! How to reach Kafka: what a config may say to librdkafka, and what Redrive says itself.

use rdkafka::ClientConfig;
use rdkafka::error::KafkaError;
use rdkafka::types::RDKafkaConfRes;
use serde_json::{Value as Json, json};

use super::node::{Node, Value, quoted};
use super::problem::{Path, Place, shorten, show_key};
use super::raw::MAX_LIST;
use super::read::{FromNode, Reader, Sections, is_secret, shown, without_secrets};
use super::suggest::nearest;

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
const OWNED: [(&str, &str); 22] = [
    ("group.id", "set `group` at the top of the config"),
    ("enable.auto.commit", "Redrive commits a record when it is settled, not when it was read"),
    ("auto.commit.enable", "Redrive commits a record when it is settled, not when it was read"),
    ("auto.commit.interval.ms", "set `commit_interval` at the top of the config"),
    ("enable.auto.offset.store", "Redrive stores an offset when the record is settled"),
    ("auto.offset.reset", "retry topics always start at the earliest record"),
    ("offset.store.method", "progress is kept in the group's offsets alone"),
    ("offset.store.path", "progress is kept in the group's offsets alone"),
    ("offset.store.sync.interval.ms", "progress is kept in the group's offsets alone"),
    ("acks", "a hop counts only when all in-sync replicas have it"),
    ("request.required.acks", "a hop counts only when all in-sync replicas have it"),
    ("enable.idempotence", "hops are always published by an idempotent producer"),
    ("enable.gapless.guarantee", "Redrive tries a failed publish again itself"),
    ("delivery.report.only.error", "Redrive needs to know of every publish"),
    (
        "isolation.level",
        "of transactional producers Redrive reads what they committed, and nothing else",
    ),
    ("transactional.id", "it follows from whether hops are transactional"),
    ("partitioner", "hops keep their partition, or take the one that Java clients would"),
    ("enable.partition.eof", "Redrive finds out itself where a partition ends"),
    ("allow.auto.create.topics", "topics are made by `redrive topics apply` and never by accident"),
    ("enabled_events", "Redrive listens to the events that it needs"),
    ("log.queue", "Redrive brings what the client logs together itself"),
    ("opaque", "it is a pointer, which a file cannot hold"),
];

/// The properties that librdkafka documents, to find the one that was meant. Whether there is one, librdkafka says.
const KNOWN: &str = "
    api.version.fallback.ms api.version.request
    api.version.request.timeout.ms batch.num.messages batch.size bootstrap.servers
    broker.address.family broker.address.ttl broker.version.fallback check.crcs client.dns.lookup
    client.id client.rack compression.codec compression.level compression.type
    connections.max.idle.ms consume.callback.max.messages coordinator.query.interval.ms debug
    delivery.timeout.ms enable.metrics.push enable.random.seed
    enable.sasl.oauthbearer.unsecure.jwt enable.ssl.certificate.verification
    fetch.error.backoff.ms fetch.max.bytes fetch.message.max.bytes fetch.min.bytes
    fetch.queue.backoff.ms fetch.wait.max.ms group.instance.id group.protocol group.protocol.type
    group.remote.assignor heartbeat.interval.ms https.ca.location https.ca.pem
    internal.termination.signal linger.ms log.connection.close log.thread.name log_level
    max.in.flight max.in.flight.requests.per.connection max.partition.fetch.bytes
    max.poll.interval.ms message.copy.max.bytes message.max.bytes message.send.max.retries
    message.timeout.ms metadata.broker.list metadata.max.age.ms
    metadata.recovery.rebootstrap.trigger.ms metadata.recovery.strategy
    partition.assignment.strategy plugin.library.paths produce.offset.report
    queue.buffering.backpressure.threshold queue.buffering.max.kbytes queue.buffering.max.messages
    queue.buffering.max.ms queued.max.messages.kbytes queued.min.messages queuing.strategy
    receive.message.max.bytes reconnect.backoff.jitter.ms reconnect.backoff.max.ms
    reconnect.backoff.ms request.timeout.ms retries retry.backoff.max.ms retry.backoff.ms
    sasl.kerberos.keytab sasl.kerberos.kinit.cmd sasl.kerberos.min.time.before.relogin
    sasl.kerberos.principal sasl.kerberos.service.name sasl.mechanism sasl.mechanisms
    sasl.oauthbearer.assertion.algorithm sasl.oauthbearer.assertion.claim.aud
    sasl.oauthbearer.assertion.claim.exp.seconds sasl.oauthbearer.assertion.claim.iss
    sasl.oauthbearer.assertion.claim.jti.include sasl.oauthbearer.assertion.claim.nbf.seconds
    sasl.oauthbearer.assertion.claim.sub sasl.oauthbearer.assertion.file
    sasl.oauthbearer.assertion.jwt.template.file sasl.oauthbearer.assertion.private.key.file
    sasl.oauthbearer.assertion.private.key.passphrase sasl.oauthbearer.assertion.private.key.pem
    sasl.oauthbearer.client.credentials.client.id
    sasl.oauthbearer.client.credentials.client.secret sasl.oauthbearer.client.id
    sasl.oauthbearer.client.secret sasl.oauthbearer.config sasl.oauthbearer.extensions
    sasl.oauthbearer.grant.type sasl.oauthbearer.metadata.authentication.type
    sasl.oauthbearer.method sasl.oauthbearer.scope sasl.oauthbearer.token.endpoint.url
    sasl.password sasl.username security.protocol session.timeout.ms socket.blocking.max.ms
    socket.connection.setup.timeout.ms socket.keepalive.enable socket.max.fails
    socket.nagle.disable socket.receive.buffer.bytes socket.send.buffer.bytes socket.timeout.ms
    ssl.ca.certificate.stores ssl.ca.location ssl.ca.pem ssl.certificate.location
    ssl.certificate.pem ssl.cipher.suites ssl.crl.location ssl.curves.list
    ssl.endpoint.identification.algorithm ssl.engine.id ssl.engine.location ssl.key.location
    ssl.key.password ssl.key.pem ssl.keystore.location ssl.keystore.password ssl.providers
    ssl.sigalgs.list statistics.interval.ms sticky.partitioning.linger.ms topic.blacklist
    topic.metadata.propagation.max.ms topic.metadata.refresh.fast.cnt
    topic.metadata.refresh.fast.interval.ms topic.metadata.refresh.interval.ms
    topic.metadata.refresh.sparse transaction.timeout.ms
";

/// Why a property cannot be used, and what to do about it. The value is not in it, but for `shown`.
pub(crate) struct Refusal {
    /// Whether it is the name that is wrong, and not the value.
    is_name: bool,
    message: String,
    hint: String,
}

impl Refusal {
    fn of_name(message: impl Into<String>, hint: impl Into<String>) -> Self {
        Self { is_name: true, message: message.into(), hint: hint.into() }
    }

    fn of_value(message: impl Into<String>, hint: impl Into<String>) -> Self {
        Self { is_name: false, message: message.into(), hint: hint.into() }
    }
}

/// Where librdkafka says what its properties take.
const SEE: &str = "CONFIGURATION.md of librdkafka says what it takes";

/// Whether the property can have no value from a config.
fn refused_name(key: &str) -> Option<Refusal> {
    let name = show_key(key);
    // librdkafka takes properties of topics with and without this.
    let short = key.strip_prefix("topic.").unwrap_or(key);
    let owned = OWNED.iter().find(|it| it.0 == short).map(|it| it.1);
    let function = key.ends_with("_cb").then_some("it is a function, which a file cannot hold");
    if key.trim().is_empty() {
        Some(Refusal::of_name("a property has no name", "name it, or take it out"))
    } else if let Some(reason) = owned.or(function) {
        let message = format!("Redrive sets `{name}` itself");
        Some(Refusal::of_name(message, format!("take it out: {reason}")))
    } else {
        None
    }
}

/// What librdkafka says to a property: nothing, if it takes it.
fn ask(key: &str, value: &str) -> Option<(RDKafkaConfRes, String)> {
    match ClientConfig::new().set(key, value).create_native_config() {
        Err(KafkaError::ClientConfig(code, reason, ..)) => Some((code, reason)),
        // Only characters that a C string cannot have.
        Err(_) => Some((RDKafkaConfRes::RD_KAFKA_CONF_INVALID, String::new())),
        Ok(_) => None,
    }
}

/// Why librdkafka would not take a property. What it says itself may have the value in it, and so is not passed on.
fn refused_by_client(key: &str, value: &str, shown: &str, finds: bool) -> Option<Refusal> {
    // A value for this one would load the libraries, which a check must not do.
    if key == "plugin.library.paths" {
        return None;
    }
    // Pointers for librdkafka's own tests, which it takes from any text.
    let is_pointer = key.starts_with("ut_");
    let (code, reason) = match ask(key, value) {
        None if !is_pointer => return None,
        answer => answer.unwrap_or((RDKafkaConfRes::RD_KAFKA_CONF_UNKNOWN, String::new())),
    };
    let name = show_key(key);
    if code == RDKafkaConfRes::RD_KAFKA_CONF_UNKNOWN || is_pointer {
        let known = KNOWN.split_whitespace().chain(OWNED.iter().map(|it| it.0));
        let near = if finds { nearest(key, known) } else { None };
        let hint = near.map_or_else(
            || "CONFIGURATION.md of librdkafka lists those that there are".to_owned(),
            |it| format!("did you mean `{it}`?"),
        );
        return Some(Refusal::of_name(format!("librdkafka has no property `{name}`"), hint));
    }
    if reason.contains("dedicated") || reason.contains("not settable") {
        let message = format!("`{name}` cannot be set in a config");
        return Some(Refusal::of_name(message, "take it out: it is for programs alone"));
    }
    if let Some((_, why)) = reason.split_once("not supported in this build: ") {
        let message = format!("Redrive's librdkafka is built without `{name}`");
        return Some(Refusal::of_name(message, show_key(why)));
    }
    // Of Java's properties it says what to do instead.
    if reason.starts_with("Java ") {
        let message = format!("`{name}` is a property of Java's client, not of librdkafka");
        return Some(Refusal::of_name(message, shorten(reason.trim(), 300)));
    }
    // No property takes this number, so librdkafka says which ones it does take.
    let rule = ask(key, "-2147483648").map(|it| it.1).unwrap_or_default();
    let bounds = rule.split_once("allowed range ").and_then(|it| it.1.trim().split_once(".."));
    Some(match bounds {
        Some((min, max)) => Refusal::of_value(
            format!("`{name}` should be a whole number from {min} to {max}, but is {shown}"),
            "write a number within these bounds",
        ),
        None if rule.starts_with("Expected bool") || rule.starts_with("Bool") => Refusal::of_value(
            format!("`{name}` should be true or false, but is {shown}"),
            "use one of these words",
        ),
        None => Refusal::of_value(format!("librdkafka takes no `{name}` that is {shown}"), SEE),
    })
}

/// Whether the value of a property must not be shown.
fn is_secret_property(key: &str) -> bool {
    is_secret(key) || key.to_lowercase().contains("key")
}

const HIDDEN: &str = "a value that is not shown";

/// Every property that cannot be used, for a config that was not read from a file.
pub(crate) fn refused(properties: &[(String, String)]) -> Vec<String> {
    let one = |(key, value): &(String, String)| {
        let text = quoted(&without_secrets(value)).into_owned();
        let shown = if is_secret_property(key) { HIDDEN } else { &text };
        let refusal = refused_name(key).or_else(|| refused_by_client(key, value, shown, true))?;
        Some(format!("{} ({})", refusal.message, refusal.hint))
    };
    properties.iter().filter_map(one).collect()
}

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
            if let Some(it) = refused_name(&entry.key) {
                reader.out.error(Place::new(&path, entry.key_at), it.message, it.hint);
                continue;
            }
            let Some(value) = reader.scalar(&entry.value, &path) else {
                continue;
            };
            let text = shown(&entry.value, &path);
            let text = if is_secret_property(&entry.key) { HIDDEN } else { &text };
            let finds = !reader.out.is_full();
            if let Some(it) = refused_by_client(&entry.key, &value.text, text, finds) {
                let at = if it.is_name { entry.key_at } else { entry.value.at };
                reader.out.error(Place::new(&path, at), it.message, it.hint);
            }
            properties.push((entry.key.clone(), value.text));
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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn librdkafka_knows_every_property_that_is_suggested() {
        for key in KNOWN.split_whitespace() {
            let answer = ask(key, "-2147483648").map(|it| it.0);
            assert_ne!(answer, Some(RDKafkaConfRes::RD_KAFKA_CONF_UNKNOWN), "{key}");
            assert!(refused_name(key).is_none(), "{key}");
        }
    }

    #[test]
    fn all_properties_of_a_program_that_cannot_be_used_are_told_without_secrets() {
        let properties = [
            ("bootstrap.servers", "b"),
            ("bootstrap.server", "s3cr3t"),
            ("linger.ms", "soon"),
            ("sasl.password", "s3cr3t"),
            ("ssl.key.password", "s3cr3t\0"),
            ("group.id", "g"),
        ];
        let properties = properties.map(|(key, value)| (key.to_owned(), value.to_owned()));
        let told = refused(&properties);
        assert_eq!(told.len(), 4, "{told:#?}");
        for (told, words) in told.iter().zip([
            "did you mean `bootstrap.servers`?",
            "`linger.ms` should be a whole number from 0 to 900000, but is `soon`",
            "no `ssl.key.password` that is a value that is not shown",
            "set `group`",
        ]) {
            assert!(told.contains(words) && !told.contains("s3cr3t"), "{told}");
        }
    }
}
