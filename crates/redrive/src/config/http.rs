//! A service that gets records over HTTP: where it is, and how it is spoken to.

use std::fmt;
use std::path::PathBuf;
use std::time::Duration;

use serde_json::{Value as Json, json};

use super::node::{Node, quoted};
use super::problem::{Path, Place, Problems};
use super::raw::{RawAuth, RawHttp, RawTls};
use super::read::{At, FromNode, Reader, Sections, shown, without_secrets};

/// How long one request may take, where nothing else is said.
const TIMEOUT: Duration = Duration::from_secs(30);
/// How long a connection may take, where nothing else is said.
const CONNECT_TIMEOUT: Duration = Duration::from_secs(5);

/// A service that gets each record as a POST request.
///
/// ```
/// use redrive::config::{Auth, HttpConfig, Secret};
///
/// let service = HttpConfig { auth: Some(Auth::Bearer(Secret::new("t0k3n"))), ..HttpConfig::new("https://shop/orders") };
/// assert!(!format!("{service:?}").contains("t0k3n"));
/// ```
#[derive(Clone)]
pub struct HttpConfig {
    /// Where to.
    pub url: String,
    /// How long one request may take, with its response.
    pub timeout: Duration,
    /// How long a connection may take to be made, with looking up the name and TLS.
    pub connect_timeout: Duration,
    /// Headers of every request.
    pub headers: Vec<(String, Secret)>,
    /// Who we are.
    pub auth: Option<Auth>,
    /// What requests are signed with.
    pub sign: Option<Secret>,
    /// Whom we trust, and how we show who we are.
    pub tls: Tls,
    /// Whether the beginning of a response goes into the failure.
    pub capture_response: bool,
}

/// How a service is told who we are.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum Auth {
    /// By a token.
    Bearer(Secret),
    /// By name and password.
    Basic {
        /// The name.
        username: String,
        /// The password.
        password: Secret,
    },
}

/// Certificates.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Tls {
    /// A PEM file of the certificates that are trusted, instead of the system's.
    pub ca: Option<PathBuf>,
    /// A PEM file of our own certificate, with those that lead to its CA.
    pub cert: Option<PathBuf>,
    /// A PEM file of its key.
    pub key: Option<PathBuf>,
}

/// # Defaults
///
/// 30 s for a request and 5 s for a connection, the system's certificates, and responses are captured.
impl HttpConfig {
    /// The service at this address.
    pub fn new(url: impl Into<String>) -> Self {
        Self {
            url: url.into(),
            timeout: TIMEOUT,
            connect_timeout: CONNECT_TIMEOUT,
            headers: Vec::new(),
            auth: None,
            sign: None,
            tls: Tls::default(),
            capture_response: true,
        }
    }

    /// The address without what may be a secret in it, for people.
    pub fn shown_url(&self) -> String {
        without_secrets(&self.url)
    }
}

/// Without passwords and tokens.
impl fmt::Debug for HttpConfig {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("HttpConfig")
            .field("url", &self.shown_url())
            .field("timeout", &self.timeout)
            .field("connect_timeout", &self.connect_timeout)
            .field("headers", &self.headers)
            .field("auth", &self.auth)
            .field("sign", &self.sign)
            .field("tls", &self.tls)
            .field("capture_response", &self.capture_response)
            .finish()
    }
}

/// Text that nobody may see.
#[derive(Clone, PartialEq, Eq)]
pub struct Secret(String);

impl Secret {
    /// Hides this text.
    pub fn new(text: impl Into<String>) -> Self {
        Self(text.into())
    }

    /// The text itself.
    pub fn reveal(&self) -> &str {
        &self.0
    }
}

impl fmt::Debug for Secret {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("…")
    }
}

/// Text that can stand in a request's header, and is not shown.
impl FromNode for Secret {
    fn read(node: &Node, path: &Path<'_>, reader: &mut Reader<'_>) -> Option<Self> {
        let text = reader.scalar(node, path)?.text;
        let name = quoted(path.last_key()).into_owned();
        if text.trim().is_empty() {
            let hint = "give it a text, or leave the key out";
            reader.error(node, path, format!("{name} is empty"), hint);
            return None;
        }
        Some(Secret(text))
    }

    fn schema(_: &mut Sections) -> Json {
        json!({ "type": ["string", "number", "boolean"], "minLength": 1 })
    }

    fn describe() -> String {
        "text".to_owned()
    }
}

/// A secret that goes into a header as it is.
#[derive(Clone, Debug)]
pub(super) struct HeaderText(pub(super) Secret);

impl FromNode for HeaderText {
    fn read(node: &Node, path: &Path<'_>, reader: &mut Reader<'_>) -> Option<Self> {
        let secret = Secret::read(node, path, reader)?;
        let text = secret.reveal();
        if text.bytes().all(|it| matches!(it, b' '..=b'~')) && text.trim() == text {
            return Some(HeaderText(secret));
        }
        let message = format!(
            "the value of {} has characters that a request's header cannot have",
            quoted(path.last_key())
        );
        let hint = "use visible ASCII characters, with no space or line end around them";
        reader.error(node, path, message, hint);
        None
    }

    fn schema(_: &mut Sections) -> Json {
        json!({ "type": ["string", "number", "boolean"], "minLength": 1 })
    }

    fn describe() -> String {
        "text".to_owned()
    }
}

/// The headers of every request.
#[derive(Clone, Debug)]
pub(super) struct RequestHeaders(pub(super) Vec<(String, Secret)>);

/// Headers that belong to the connection, to Redrive or to `auth`, and why they cannot be set.
fn refused_header(name: &str) -> Option<&'static str> {
    const CONNECTION: [&str; 9] = [
        "connection",
        "content-length",
        "expect",
        "host",
        "keep-alive",
        "proxy-connection",
        "te",
        "transfer-encoding",
        "upgrade",
    ];
    if CONNECTION.contains(&name) {
        Some("it belongs to the connection")
    } else if name.starts_with("redrive-") || name == "idempotency-key" {
        Some("Redrive tells of the record by it")
    } else {
        None
    }
}

impl FromNode for RequestHeaders {
    fn read(node: &Node, path: &Path<'_>, reader: &mut Reader<'_>) -> Option<Self> {
        let mut headers: Vec<(String, Secret)> = Vec::new();
        for entry in reader.map(node, path)? {
            let path = path.key(&entry.key);
            let place = Place::new(&path, entry.key_at);
            let name = entry.key.to_ascii_lowercase();
            let shown = quoted(&entry.key).into_owned();
            if name.is_empty() || !name.bytes().all(is_header_name) {
                let message = format!("{shown} cannot be the name of a header");
                reader.out.error(place, message, "use letters, digits and `-`");
            } else if let Some(reason) = refused_header(&name) {
                let message = format!("the header {shown} cannot be set");
                reader.out.error(place, message, format!("take it out: {reason}"));
            } else if headers.iter().any(|it| it.0 == name) {
                let message = format!("the header {shown} is there twice");
                reader.out.error(place, message, "keep one of them: case makes no difference");
            } else if let Some(value) = HeaderText::read(&entry.value, &path, reader) {
                headers.push((name, value.0));
            }
        }
        Some(RequestHeaders(headers))
    }

    fn schema(_: &mut Sections) -> Json {
        json!({
            "type": "object",
            "propertyNames": { "pattern": "^[A-Za-z0-9!#$%&'*+.^_`|~-]+$" },
            "additionalProperties": { "type": ["string", "number", "boolean"] },
        })
    }

    fn describe() -> String {
        "map of names to text".to_owned()
    }
}

/// The characters of a token, as RFC 9110 has it.
fn is_header_name(byte: u8) -> bool {
    byte.is_ascii_alphanumeric() || b"!#$%&'*+-.^_`|~".contains(&byte)
}

/// The address of a service.
#[derive(Clone)]
pub(super) struct Url(pub(super) String);

/// Without a password that it may have.
impl fmt::Debug for Url {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&without_secrets(&self.0))
    }
}

/// Why a text is no address, and what to do about it. Neither shows the text.
fn url_problem(text: &str) -> Option<(&'static str, &'static str)> {
    const FORM: &str = "write it like `http://localhost:8080/orders`";
    let rest = text.strip_prefix("http://").or_else(|| text.strip_prefix("https://"));
    let Some(rest) = rest else {
        return Some(("is not the address of a service", FORM));
    };
    if text.contains(|it: char| it.is_whitespace() || it.is_control()) {
        return Some(("is not the address of a service", FORM));
    }
    let authority = rest.split(['/', '?', '#']).next().unwrap_or(rest);
    let host = authority.rsplit('@').next().unwrap_or(authority);
    let (name, port) = match host.strip_prefix('[').and_then(|it| it.split_once(']')) {
        Some((name, port)) => (name, port.strip_prefix(':').or((!port.is_empty()).then_some("?"))),
        None => host.split_once(':').map_or((host, None), |(name, port)| (name, Some(port))),
    };
    if name.is_empty() {
        return Some(("is not the address of a service", FORM));
    }
    let is_port = |it: &str| {
        it.bytes().all(|it| it.is_ascii_digit()) && it.parse().is_ok_and(|it: u16| it > 0)
    };
    if port.is_some_and(|it| !is_port(it)) {
        return Some(("has a port that is none", "use a number from 1 to 65535"));
    }
    if rest.contains('#') {
        return Some(("has a part behind `#`, which is never sent", "take it out"));
    }
    let is_allowed = |it: char| it.is_ascii_graphic() && !"\"<>\\^`{|}".contains(it);
    if !rest.chars().all(is_allowed) {
        return Some((
            "has characters that an address cannot have",
            "write them percent-encoded, and a name of a host in ASCII",
        ));
    }
    None
}

impl FromNode for Url {
    fn read(node: &Node, path: &Path<'_>, reader: &mut Reader<'_>) -> Option<Self> {
        let text = reader.text(node, path)?;
        match url_problem(&text) {
            None => Some(Url(text)),
            Some((problem, hint)) => {
                let message = format!("{} {problem}", shown(node, path));
                reader.error(node, path, message, hint);
                None
            }
        }
    }

    fn schema(_: &mut Sections) -> Json {
        json!({ "type": "string", "pattern": r"^https?://[^\s]+$|\$\{" })
    }

    fn describe() -> String {
        "URL".to_owned()
    }
}

/// The service, as far as it can be understood. `timeout` is the flow's.
pub(super) fn build(
    at: &At<RawHttp>,
    timeout: Option<Duration>,
    out: &mut Problems,
) -> Option<HttpConfig> {
    let raw = &at.value;
    let auth = raw.auth.as_ref().and_then(|it| build_auth(it, out));
    let tls = raw.tls.as_ref().map(|it| build_tls(it, out)).unwrap_or_default();
    let url = raw.url.as_ref()?;
    let headers = raw.headers.as_ref().map(|it| it.value.0.clone()).unwrap_or_default();
    // Between `://` and the path.
    let is_named = url.value.0.split(['/', '?']).nth(2).is_some_and(|it| it.contains('@'));
    if let Some(it) = raw.auth.as_ref().filter(|_| is_named) {
        let message = "there is `auth`, but the address has a name and a password, too";
        out.error(&it.place, message, "take them out of the address");
    }
    let is_authorization = |it: &(String, Secret)| it.0 == "authorization";
    if let Some(it) = raw
        .headers
        .as_ref()
        .filter(|_| (auth.is_some() || is_named) && headers.iter().any(is_authorization))
    {
        let message = "the header `authorization` is set, and so is who we are";
        out.error(it.place.below("authorization"), message, "keep one of them");
    }
    let is_plain = url.value.0.starts_with("http://");
    if let Some(it) = raw.tls.as_ref().filter(|_| is_plain) {
        let message = "`tls` has no effect: the address begins with `http://`";
        out.warning(&it.place, message, "write `https://`, or take it out");
    }
    let usual = HttpConfig::new(url.value.0.as_str());
    let own = raw.timeout.as_ref().map(|it| it.value.0);
    Some(HttpConfig {
        timeout: own.or(timeout).unwrap_or(usual.timeout),
        connect_timeout: raw
            .connect_timeout
            .as_ref()
            .map_or(usual.connect_timeout, |it| it.value.0),
        headers,
        auth,
        sign: raw.sign.as_ref().and_then(|it| it.value.secret.as_ref()).map(|it| it.value.clone()),
        tls,
        capture_response: raw
            .capture_response
            .as_ref()
            .map_or(usual.capture_response, |it| it.value),
        ..usual
    })
}

fn build_auth(at: &At<RawAuth>, out: &mut Problems) -> Option<Auth> {
    let RawAuth { bearer, basic } = &at.value;
    match (bearer, basic) {
        (Some(it), None) => Some(Auth::Bearer(it.value.0.clone())),
        (None, Some(it)) => {
            let (username, password) = (it.value.username.as_ref()?, it.value.password.as_ref()?);
            if username.value.contains(':') {
                let message = "a `username` cannot have a `:` in it";
                out.error(&username.place, message, "take it out: it ends the name");
            }
            Some(Auth::Basic { username: username.value.clone(), password: password.value.clone() })
        }
        (Some(_), Some(it)) => {
            let message = "there are both `bearer` and `basic`";
            out.error(&it.place, message, "keep one of them");
            None
        }
        (None, None) => {
            if !out.has_error_at(&at.place.path) {
                let message = "`auth` says nothing";
                out.error(&at.place, message, "add `bearer` or `basic`, or take it out");
            }
            None
        }
    }
}

fn build_tls(at: &At<RawTls>, out: &mut Problems) -> Tls {
    let RawTls { ca, cert, key } = &at.value;
    let alone = match (cert, key) {
        (Some(it), None) => Some((it, "cert", "key")),
        (None, Some(it)) => Some((it, "key", "cert")),
        _ => None,
    };
    if let Some((it, there, missing)) = alone
        && !out.has_error_at(&at.place.below(missing).path)
    {
        let message = format!("there is a `{there}`, but no `{missing}`");
        out.error(&it.place, message, format!("add `{missing}`, a PEM file"));
    }
    let file = |it: &Option<At<String>>| it.as_ref().map(|it| it.value.as_str().into());
    Tls { ca: file(ca), cert: file(cert), key: file(key) }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn addresses_are_told_from_what_is_none() {
        for url in [
            "http://h",
            "https://h:1/a?b=c",
            "http://[::1]:8080/",
            "http://[::1]",
            "http://me:secret@h/x",
            "http://h/%C3%A4",
        ] {
            assert!(url_problem(url).is_none(), "{url}");
        }
        for url in [
            "h",
            "ftp://h",
            "http://",
            "http://:80",
            "http://h:0",
            "http://h:65536",
            "http://h:",
            "http://h:x/",
            "http://[::1]x",
            "http://h/ä",
            "http://h/{id}",
            "http://h/a#b",
            "http:///a",
        ] {
            assert!(url_problem(url).is_some(), "{url}");
        }
    }

    #[test]
    fn what_is_secret_is_not_shown() {
        let config = HttpConfig {
            headers: vec![("x-api-key".to_owned(), Secret::new("s3cr3t"))],
            auth: Some(Auth::Basic { username: "me".to_owned(), password: Secret::new("s3cr3t") }),
            sign: Some(Secret::new("s3cr3t")),
            ..HttpConfig::new("https://me:s3cr3t@h/x?token=s3cr3t")
        };
        let text = format!("{config:?}");
        assert!(!text.contains("s3cr3t") && text.contains("x-api-key"), "{text}");
    }
}
