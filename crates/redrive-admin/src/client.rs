//! The other end: what `redrive status`, `pause` and `resume` ask.

use std::fmt;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};
use std::time::Duration;

use bytes::Bytes;
use http_body_util::{BodyExt, Empty, Limited};
use hyper::header::{self, HeaderValue};
use hyper::{Method, Request, StatusCode};
use hyper_util::rt::TokioIo;
use redrive::config::{Admin, AdminToken};
use serde_json::Value;
use tokio::net::TcpStream;

/// How long an answer may take, and how large it may be.
const ANSWER: Duration = Duration::from_secs(10);
const ANSWER_BYTES: usize = 64 << 20;

/// Asks a running process.
#[derive(Clone, Debug)]
pub struct Client {
    host: String,
    port: u16,
    token: Option<AdminToken>,
}

/// What a flow is told.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Command {
    /// To take no more records.
    Pause,
    /// To go on.
    Resume,
}

impl Command {
    /// The word for it.
    pub const fn as_str(self) -> &'static str {
        match self {
            Command::Pause => "pause",
            Command::Resume => "resume",
        }
    }
}

/// Why there is no answer.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum ClientError {
    /// The address cannot be used.
    #[error("{0}")]
    Address(String),
    /// Nobody answers.
    #[error(
        "nobody answers at {address}: {error}; does `redrive run` run there, with `admin.listen` in its config?"
    )]
    NotThere {
        /// Where.
        address: String,
        /// What the system said.
        error: String,
    },
    /// It takes too long.
    #[error("no answer from {0} within {limit} s", limit = ANSWER.as_secs())]
    Timeout(String),
    /// Somebody else answers.
    #[error("what answers at {address} is not Redrive: {error}")]
    Stranger {
        /// Where.
        address: String,
        /// What is strange.
        error: String,
    },
    /// It says no.
    #[error("{address} says: {message}")]
    Refused {
        /// Where.
        address: String,
        /// The status.
        status: u16,
        /// Why.
        message: String,
    },
}

impl fmt::Display for Client {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if self.host.contains(':') {
            write!(f, "http://[{}]:{}", self.host, self.port)
        } else {
            write!(f, "http://{}:{}", self.host, self.port)
        }
    }
}

impl Client {
    /// For the process that has this config.
    ///
    /// # Errors
    ///
    /// Its port is any that is free, which nobody knows from the config.
    pub fn of(admin: &Admin) -> Result<Self, ClientError> {
        if admin.listen.port() == 0 {
            let message = "`admin.listen` has port 0, which is any that is free: give the address with --admin";
            return Err(ClientError::Address(message.to_owned()));
        }
        // Where it listens on all addresses, this machine's own is one of them.
        let ip = match admin.listen.ip() {
            IpAddr::V4(ip) if ip.is_unspecified() => Ipv4Addr::LOCALHOST.into(),
            IpAddr::V6(ip) if ip.is_unspecified() => Ipv6Addr::LOCALHOST.into(),
            ip => ip,
        };
        Ok(Self { host: ip.to_string(), port: admin.listen.port(), token: admin.token.clone() })
    }

    /// For the process at this address, such as `http://10.0.0.7:9464`.
    ///
    /// # Errors
    ///
    /// It is no such address.
    pub fn at(address: &str) -> Result<Self, ClientError> {
        let wrong = |why: &str| {
            let message = format!("the admin address {why}: write it like `http://localhost:9464`");
            Err(ClientError::Address(message))
        };
        if address.starts_with("https://") {
            return wrong("is `https`, which the admin listener does not speak");
        }
        let rest = address.strip_prefix("http://").unwrap_or(address);
        let rest = rest.strip_suffix('/').unwrap_or(rest);
        if rest.contains('@') {
            return wrong("has credentials in it, which are given as a token instead");
        }
        if rest.contains(['/', '?', '#']) || rest.contains(char::is_whitespace) {
            return wrong("has more than a host and a port");
        }
        let Some((host, port)) = rest.rsplit_once(':') else {
            return wrong("has no port");
        };
        let inner = host.strip_prefix('[').and_then(|it| it.strip_suffix(']'));
        let host = match inner {
            Some(ip) if ip.parse::<Ipv6Addr>().is_ok() => ip,
            None if !host.is_empty() && !host.contains([':', '[', ']']) => host,
            _ => return wrong("has no host"),
        };
        match port.parse() {
            Ok(port) if port > 0 => Ok(Self { host: host.to_owned(), port, token: None }),
            _ => wrong("has a port that is none"),
        }
    }

    /// Brings this token along.
    #[must_use]
    pub fn with_token(mut self, token: AdminToken) -> Self {
        self.token = Some(token);
        self
    }

    /// How the consumer is.
    ///
    /// # Errors
    ///
    /// There is no answer.
    pub async fn status(&self) -> Result<Value, ClientError> {
        self.ask(Method::GET, "/status".to_owned()).await
    }

    /// Tells a flow, or all of them. Returns those that were told.
    ///
    /// # Errors
    ///
    /// There is no answer, or it says no.
    pub async fn tell(
        &self,
        command: Command,
        flow: Option<&str>,
    ) -> Result<Vec<String>, ClientError> {
        let query = flow.map(|it| format!("?flow={}", encoded(it))).unwrap_or_default();
        let answer = self.ask(Method::POST, format!("/{}{query}", command.as_str())).await?;
        let told = answer.as_object().and_then(|it| it.values().next()).and_then(Value::as_array);
        let names = told.into_iter().flatten().filter_map(Value::as_str).map(str::to_owned);
        Ok(names.collect())
    }

    async fn ask(&self, method: Method, path: String) -> Result<Value, ClientError> {
        let asked = tokio::time::timeout(ANSWER, self.exchange(method, path));
        let (status, body) = asked.await.map_err(|_| ClientError::Timeout(self.to_string()))??;
        let stranger = |error: String| ClientError::Stranger { address: self.to_string(), error };
        let json: Value = serde_json::from_slice(&body).map_err(|_| {
            stranger(format!("its answer with status {} is no JSON", status.as_u16()))
        })?;
        if status.is_success() {
            return Ok(json);
        }
        match json["error"].as_str() {
            None => Err(stranger(format!("its answer has status {}", status.as_u16()))),
            Some(message) => Err(ClientError::Refused {
                address: self.to_string(),
                status: status.as_u16(),
                message: message.to_owned(),
            }),
        }
    }

    async fn exchange(
        &self,
        method: Method,
        path: String,
    ) -> Result<(StatusCode, Bytes), ClientError> {
        let not_there = |error: String| ClientError::NotThere { address: self.to_string(), error };
        let stranger = |error: String| ClientError::Stranger { address: self.to_string(), error };
        let stream = TcpStream::connect((self.host.as_str(), self.port)).await;
        let stream = stream.map_err(|error| not_there(error.to_string()))?;
        let (mut sender, connection) = hyper::client::conn::http1::handshake(TokioIo::new(stream))
            .await
            .map_err(|error| not_there(error.to_string()))?;
        tokio::spawn(connection);
        let host = self.to_string();
        let mut request = Request::builder()
            .method(method)
            .uri(path)
            .header(header::HOST, host.trim_start_matches("http://"))
            .header(header::ACCEPT, "application/json");
        if let Some(token) = &self.token {
            let bearer = HeaderValue::from_str(&format!("Bearer {}", token.reveal()));
            let mut bearer = bearer.map_err(|_| {
                ClientError::Address("the token cannot stand in a header".to_owned())
            })?;
            bearer.set_sensitive(true);
            request = request.header(header::AUTHORIZATION, bearer);
        }
        let request =
            request.body(Empty::<Bytes>::new()).map_err(|error| stranger(error.to_string()))?;
        let answer =
            sender.send_request(request).await.map_err(|error| stranger(error.to_string()))?;
        let status = answer.status();
        let body = Limited::new(answer.into_body(), ANSWER_BYTES).collect().await;
        let body = body.map_err(|error| stranger(error.to_string()))?;
        Ok((status, body.to_bytes()))
    }
}

/// With what a query cannot have percent-encoded.
fn encoded(text: &str) -> String {
    let plain = |it: u8| it.is_ascii_alphanumeric() || b"-._~".contains(&it);
    text.bytes()
        .map(|it| if plain(it) { char::from(it).to_string() } else { format!("%{it:02X}") })
        .collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn addresses() {
        let known = [
            ("http://localhost:9464", "http://localhost:9464"),
            ("localhost:9464", "http://localhost:9464"),
            ("http://10.0.0.7:80/", "http://10.0.0.7:80"),
            ("http://[::1]:9464", "http://[::1]:9464"),
        ];
        for (text, shown) in known {
            assert_eq!(Client::at(text).unwrap().to_string(), shown);
        }
        for wrong in [
            "",
            "http://",
            "localhost",
            "https://localhost:9464",
            "http://:9464",
            "http://a:0",
            "http://a:b",
            "http://a:9464/metrics",
            "http://::1:9464",
            "http://[::1:9464",
            "http://a b:1",
        ] {
            let error = Client::at(wrong).unwrap_err().to_string();
            assert!(error.contains("http://localhost:9464"), "{wrong}: {error}");
        }
        let error = Client::at("http://me:s3cr3t@host:9464").unwrap_err().to_string();
        assert!(error.contains("credentials") && !error.contains("s3cr3t"), "{error}");
    }

    #[test]
    fn a_listener_on_all_addresses_is_asked_on_this_machine() {
        let of = |listen: &str| Client::of(&Admin { listen: listen.parse().unwrap(), token: None });
        assert_eq!(of("0.0.0.0:9464").unwrap().to_string(), "http://127.0.0.1:9464");
        assert_eq!(of("[::]:9464").unwrap().to_string(), "http://[::1]:9464");
        assert_eq!(of("10.0.0.7:9464").unwrap().to_string(), "http://10.0.0.7:9464");
        assert!(of("127.0.0.1:0").unwrap_err().to_string().contains("--admin"));
    }
}
