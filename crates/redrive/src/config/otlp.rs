//! Where traces go.

use serde_json::{Value as Json, json};

use super::node::Node;
use super::problem::Path;
use super::read::{FromNode, Reader, Sections, or_variable, section, shown};

/// Where traces go: a collector that speaks OTLP over HTTP.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Otlp {
    /// Its host.
    pub host: String,
    /// Its port.
    pub port: u16,
    /// What stands before `/v1/traces`, without a slash at its end.
    pub path: String,
}

const PORT: u16 = 4318;

impl Otlp {
    /// The collector at this address, such as `http://127.0.0.1:4318`.
    pub fn at(address: &str) -> Option<Self> {
        let rest = address.strip_prefix("http://")?;
        let (authority, path) = rest.find('/').map_or((rest, ""), |at| rest.split_at(at));
        let is_plain = |it: char| it.is_ascii_graphic() && !"?#@".contains(it);
        if !rest.chars().all(is_plain) {
            return None;
        }
        let (host, port) = match authority.rsplit_once(':') {
            // The colons of an IPv6 address are within brackets.
            Some((host, port)) if !port.contains(']') => {
                let is_number = port.bytes().all(|it| it.is_ascii_digit());
                (host, port.parse().ok().filter(|it| is_number && *it > 0)?)
            }
            _ => (authority, PORT),
        };
        let host = host.strip_prefix('[').and_then(|it| it.strip_suffix(']')).unwrap_or(host);
        let path = path.trim_end_matches('/').to_owned();
        (!host.is_empty()).then(|| Self { host: host.to_owned(), port, path })
    }
}

section! {
    /// Traces over OTLP: each run of a record is a span, and all runs of a record are one trace. A record that carries a
    /// `traceparent` continues that trace.
    struct RawOtlp = "otlp" {
        /// The collector, by HTTP. Traces are posted to `/v1/traces` below it, as JSON.
        "endpoint" endpoint: Endpoint, default("`http://127.0.0.1:4318`");
    }
}

impl RawOtlp {
    pub(super) fn to_otlp(&self) -> Otlp {
        self.endpoint.as_ref().map_or_else(
            || Otlp { host: "127.0.0.1".to_owned(), port: PORT, path: String::new() },
            |it| it.value.0.clone(),
        )
    }
}

/// Where the collector is.
#[derive(Clone, Debug)]
pub(super) struct Endpoint(Otlp);

impl FromNode for Endpoint {
    fn read(node: &Node, path: &Path<'_>, reader: &mut Reader<'_>) -> Option<Self> {
        let text = reader.text(node, path)?;
        let found = Otlp::at(&text);
        if found.is_none() {
            let message = format!("{} is no address of a collector", shown(node, path));
            let hint = "write it like `http://127.0.0.1:4318`; for TLS and credentials let a collector beside it pass traces on";
            reader.error(node, path, message, hint);
        }
        found.map(Endpoint)
    }

    fn schema(_: &mut Sections) -> Json {
        or_variable(json!({ "type": "string", "pattern": "^http://[^\\s?#@]+$" }))
    }

    fn describe() -> String {
        "URL".to_owned()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn addresses_of_collectors() {
        let known = [
            ("http://127.0.0.1:4318", "127.0.0.1", 4318, ""),
            ("http://collector", "collector", 4318, ""),
            ("http://collector:80/otel/", "collector", 80, "/otel"),
            ("http://[::1]:9", "::1", 9, ""),
            ("http://[::1]", "::1", 4318, ""),
        ];
        for (address, host, port, path) in known {
            let (host, path) = (host.to_owned(), path.to_owned());
            assert_eq!(Otlp::at(address), Some(Otlp { host, port, path }), "{address}");
        }
        for wrong in [
            "",
            "http://",
            "https://collector",
            "collector:4318",
            "http://me:s3cr3t@host",
            "http://a:0",
            "http://a:b",
            "http://a?b",
            "http://a b",
        ] {
            assert_eq!(Otlp::at(wrong), None, "{wrong}");
        }
    }
}
