//! Where a running process can be asked how it is, and how it writes its log.

use std::fmt;
use std::net::{IpAddr, Ipv4Addr, SocketAddr};

use serde_json::{Value as Json, json};

use super::node::Node;
use super::problem::Path;
use super::read::{FromNode, Reader, Sections, or_variable, section, shown, words};

/// Where a running process can be asked how it is.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Admin {
    /// Where it listens.
    pub listen: SocketAddr,
    /// What those must know who pause and resume flows.
    pub token: Option<AdminToken>,
}

/// # Defaults
///
/// Port 9464 of this machine alone, without a token.
impl Default for Admin {
    fn default() -> Self {
        Self { listen: SocketAddr::new(Ipv4Addr::LOCALHOST.into(), PORT), token: None }
    }
}

/// What those must know who pause and resume flows. It is never shown.
#[derive(Clone, PartialEq, Eq)]
pub struct AdminToken(String);

impl AdminToken {
    /// A token of visible ASCII characters, as it has to stand in a header.
    pub fn new(text: impl Into<String>) -> Option<Self> {
        let text = text.into();
        let is_fit = text.len() >= SHORTEST && text.bytes().all(|it| it.is_ascii_graphic());
        is_fit.then_some(Self(text))
    }

    /// The text itself.
    pub fn reveal(&self) -> &str {
        &self.0
    }
}

impl fmt::Debug for AdminToken {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("…")
    }
}

const PORT: u16 = 9464;
/// A token of fewer characters is guessed too soon.
const SHORTEST: usize = 16;

/// How the log is written.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Log {
    /// For people, or for programs.
    pub format: LogFormat,
    /// What is written.
    pub level: LogLevel,
}

words! {
    /// How a line of the log is written.
    #[derive(Default)]
    pub enum LogFormat {
        /// For people.
        #[default]
        Text = "text",
        /// An object for each line.
        Json = "json",
    }
}

words! {
    /// From which level on lines are written.
    #[derive(Default)]
    pub enum LogLevel {
        /// What must be looked after.
        Error = "error",
        /// What is worth a look, too.
        Warn = "warn",
        /// The usual course of things, too.
        #[default]
        Info = "info",
        /// Every single run in place, too.
        Debug = "debug",
        /// Everything.
        Trace = "trace",
    }
}

section! {
    /// Health, metrics and commands over HTTP: `/livez`, `/readyz`, `/metrics`, `/status`, and POST `/pause` and `/resume`.
    /// `{}` stands for its defaults.
    struct RawAdmin = "admin" {
        /// Where to listen: an IP address and a port.
        "listen" listen: Listen, default("`127.0.0.1:9464`");
        /// What POST requests must bring along, as `authorization: Bearer TOKEN`. Where others than this machine can
        /// reach the address, flows can be paused and resumed only with it.
        "token" token: AdminToken, optional;
    }
}

section! {
    /// How the log is written, to standard error. The variable `RUST_LOG` goes before `level`.
    struct RawLog = "log" {
        /// `text` for people, `json` for programs.
        "format" format: LogFormat, default("`text`");
        /// From which level on lines are written.
        "level" level: LogLevel, default("`info`");
    }
}

impl RawAdmin {
    pub(super) fn to_admin(&self) -> Admin {
        let usual = Admin::default();
        Admin {
            listen: self.listen.as_ref().map_or(usual.listen, |it| it.value.0),
            token: self.token.as_ref().map(|it| it.value.clone()),
        }
    }
}

impl RawLog {
    pub(super) fn to_log(&self) -> Log {
        Log {
            format: self.format.as_ref().map_or_else(LogFormat::default, |it| it.value),
            level: self.level.as_ref().map_or_else(LogLevel::default, |it| it.value),
        }
    }
}

/// An address to listen on.
#[derive(Clone, Copy, Debug)]
pub(super) struct Listen(SocketAddr);

fn listen(text: &str) -> Option<SocketAddr> {
    if let Some(port) = text.strip_prefix("localhost:") {
        let is_number = port.bytes().all(|it| it.is_ascii_digit());
        let port = port.parse().ok().filter(|_| is_number)?;
        return Some(SocketAddr::new(IpAddr::V4(Ipv4Addr::LOCALHOST), port));
    }
    text.parse().ok()
}

impl FromNode for Listen {
    fn read(node: &Node, path: &Path<'_>, reader: &mut Reader<'_>) -> Option<Self> {
        let text = reader.text(node, path)?;
        let found = listen(&text);
        if found.is_none() {
            let message = format!("{} is no address to listen on", shown(node, path));
            let hint = "write an IP address and a port, such as `127.0.0.1:9464` for this machine alone, `0.0.0.0:9464` for all others or `[::1]:9464`";
            reader.error(node, path, message, hint);
        }
        found.map(Listen)
    }

    fn schema(_: &mut Sections) -> Json {
        or_variable(json!({
            "type": "string", "pattern": r"^(localhost|[0-9.]+|\[[0-9a-fA-F:.]+\]):[0-9]{1,5}$",
        }))
    }

    fn describe() -> String {
        "address".to_owned()
    }
}

impl FromNode for AdminToken {
    fn read(node: &Node, path: &Path<'_>, reader: &mut Reader<'_>) -> Option<Self> {
        let found = AdminToken::new(reader.text(node, path)?);
        if found.is_none() {
            let message =
                "the token is too short, or has characters in it that a header cannot have";
            let hint = "use at least 16 letters, digits and signs without blanks, such as those of `openssl rand -hex 16`";
            reader.error(node, path, message.to_owned(), hint);
        }
        found
    }

    fn schema(_: &mut Sections) -> Json {
        or_variable(json!({ "type": "string", "pattern": "^[!-~]{16,}$" }))
    }

    fn describe() -> String {
        "text".to_owned()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn addresses_to_listen_on() {
        for text in ["127.0.0.1:9464", "0.0.0.0:80", "[::1]:9464", "localhost:0"] {
            assert!(listen(text).is_some(), "{text}");
        }
        for text in [
            "",
            ":80",
            "9464",
            "localhost",
            "example.com:80",
            "127.0.0.1:65536",
            "::1:80",
            "localhost:+5",
        ] {
            assert!(listen(text).is_none(), "{text}");
        }
    }

    #[test]
    fn a_token_is_never_shown() {
        let token = AdminToken::new("s3cr3t-s3cr3t-s3cr3t").unwrap();
        let admin = Admin { token: Some(token), ..Admin::default() };
        assert!(!format!("{admin:?}").contains("s3cr3t"));
        for unfit in [
            "",
            "short",
            "with a blank in the middle",
            "naïve-naïve-naïve-naïve",
            "line\nline-line-line-line",
        ] {
            assert_eq!(AdminToken::new(unfit), None);
        }
    }
}
