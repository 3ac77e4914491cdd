//! The handler: a record in, a request out, and from the answer to an outcome.

use std::error::Error as _;
use std::time::{Duration, SystemTime};

use bytes::Bytes;
use http::header::{
    AUTHORIZATION, CONTENT_LENGTH, CONTENT_TYPE, HeaderMap, HeaderName, HeaderValue, USER_AGENT,
};
use http::{Method, Request, Uri, Version};
use http_body_util::{BodyExt, Full};
use hyper::body::Incoming;
use hyper_util::client::legacy::{Client, Error};
use hyper_util::rt::{TokioExecutor, TokioTimer};
use redrive::config::{Auth, HttpConfig};
use redrive::{Context, Failure, Handler, Kind, Outcome, Record};
use tokio::time::{Instant, timeout_at};

use crate::connect::Connector;
use crate::guard::Guard;
use crate::sign::Signature;
use crate::{answer, encode, request, tls};

const SIGNATURE: HeaderName = HeaderName::from_static("redrive-signature");

/// How much of a response is read so that its connection can be used again. One that goes on is cut off.
const READ: usize = 64 * 1024;
/// How long the response of a failure is waited for: what it means is known already.
const RESPONSE_WITHIN: Duration = Duration::from_secs(5);
/// A connection that nothing was sent over for so long is closed. Many servers close it after 5 s, and a request that is just
/// then under way would fail.
const IDLE: Duration = Duration::from_secs(4);
/// The longest that a request may take, whatever the config says.
const LONGEST: Duration = Duration::from_hours(24 * 365);
/// How often an HTTP/2 connection is asked whether it is still there, and how long it may take to say so.
const PING: (Duration, Duration) = (Duration::from_secs(10), Duration::from_secs(10));

/// Sends each record to a service as a POST request.
///
/// What is sent and what answers mean is in `docs/http.md`. One handler is for one flow: it watches whether the first answers
/// show that the address is right, and stops the flow if they do not.
pub struct HttpHandler {
    client: Client<Connector, Full<Bytes>>,
    url: Uri,
    /// Headers of every request.
    fixed: HeaderMap,
    timeout: Duration,
    signature: Option<Signature>,
    captures: bool,
    guard: Guard,
}

/// Why a service's settings cannot be used.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{message}{}{hint}", if hint.is_empty() { "" } else { ": " })]
pub struct HttpError {
    /// The key below `http`, such as `tls.ca`.
    pub key: &'static str,
    /// What is wrong.
    pub message: String,
    /// How to put it right.
    pub hint: String,
}

impl HttpError {
    pub(crate) fn new(key: &'static str, message: impl Into<String>, hint: &str) -> Self {
        Self { key, message: message.into(), hint: hint.to_owned() }
    }
}

impl HttpHandler {
    /// A handler for this service. Nothing is connected before the first record.
    ///
    /// # Errors
    ///
    /// The address is none, a header cannot be sent, or a file with certificates cannot be used.
    pub fn new(config: &HttpConfig) -> Result<Self, HttpError> {
        let (url, named) = address(&config.url)?;
        let mut fixed = HeaderMap::new();
        let agent = concat!("redrive/", env!("CARGO_PKG_VERSION"));
        fixed.insert(USER_AGENT, HeaderValue::from_static(agent));
        fixed.insert(CONTENT_TYPE, HeaderValue::from_static("application/octet-stream"));
        for (name, value) in &config.headers {
            let wrong = |what| {
                HttpError::new("headers", format!("the {what} of {name:?} cannot be sent"), "")
            };
            let value = HeaderValue::from_str(value.reveal()).map_err(|_| wrong("value"))?;
            let name = HeaderName::from_bytes(name.as_bytes()).map_err(|_| wrong("name"))?;
            fixed.insert(name, hidden(value));
        }
        if let Some(value) = config.auth.as_ref().or(named.as_ref()).map(authorization) {
            let wrong = || HttpError::new("auth", "it has characters that cannot be sent", "");
            let value = HeaderValue::try_from(value).map_err(|_| wrong())?;
            fixed.insert(AUTHORIZATION, hidden(value));
        }
        let signature = config.sign.as_ref().map(Signature::new).transpose();
        let signature = signature
            .map_err(|error| HttpError::new("sign", format!("it cannot be used: {error}"), ""))?;
        let connector = Connector::new(tls::connector(&config.tls)?, config.connect_timeout);
        let mut builder = Client::builder(TokioExecutor::new());
        builder
            .timer(TokioTimer::new())
            .pool_timer(TokioTimer::new())
            .pool_idle_timeout(IDLE)
            .http2_keep_alive_interval(PING.0)
            .http2_keep_alive_timeout(PING.1);
        Ok(Self {
            client: builder.build(connector),
            url,
            fixed,
            timeout: config.timeout.min(LONGEST),
            signature,
            captures: config.capture_response,
            guard: Guard::new(config.shown_url()),
        })
    }

    /// Sends a record. The outcome is what its answer alone would mean, with the status if there was one.
    async fn send(
        &self,
        record: &Record,
        context: &Context,
        key: &str,
    ) -> Result<(u16, Outcome), Failure> {
        let until = Instant::now() + self.timeout;
        let body = request::body(record);
        let mut headers = request::headers(&self.fixed, record, context, key)?;
        if let Some(signature) = &self.signature {
            let signed = signature.header(&body, SystemTime::now());
            let signed = signed.map_err(|error| {
                Failure::default().with_message(format!("the request cannot be signed: {error}"))
            })?;
            headers.insert(SIGNATURE, signed);
        }
        // Also where it is 0, which some services want to be told.
        headers.insert(CONTENT_LENGTH, HeaderValue::from(body.len()));
        let mut request = Request::new(Full::new(body));
        *request.method_mut() = Method::POST;
        *request.uri_mut() = self.url.clone();
        *request.version_mut() = Version::HTTP_11;
        *request.headers_mut() = headers;
        let response = match timeout_at(until, self.client.request(request)).await {
            Ok(Ok(response)) => response,
            Ok(Err(error)) => return Err(unanswered(&error)),
            Err(_) => return Err(late(format!("no answer within {:?}", self.timeout))),
        };
        let (parts, body) = response.into_parts();
        let status = parts.status;
        let until =
            if status.is_success() { until } else { until.min(Instant::now() + RESPONSE_WITHIN) };
        let read = read(body, until).await;
        if status.is_success() && !parts.headers.contains_key("redrive-action") {
            // Whoever dies in the middle of saying that it worked may not have done all of it.
            let said = answer::shown(status);
            match read.end {
                End::Whole | End::Cut => {}
                End::Broken(error) => {
                    let message = format!("answered {said}, but the response broke off: {error}");
                    return Err(Failure::of_kind(Kind::NETWORK).with_message(message));
                }
                End::Late => {
                    let message = format!(
                        "answered {said}, but the response did not end within {:?}",
                        self.timeout
                    );
                    return Err(late(message));
                }
            }
        }
        let is_all = read.is_all();
        let response = self.captures.then(|| answer::readable(&read.start, is_all));
        let outcome = answer::outcome(status, &parts.headers, response, SystemTime::now());
        Ok((status.as_u16(), outcome))
    }
}

impl Handler for HttpHandler {
    async fn handle(&self, record: Record, context: Context) -> Outcome {
        let key = context.idempotency_key();
        match self.send(&record, &context, &key).await {
            Ok((status, outcome)) => {
                self.guard.judge(&key, status, outcome, std::time::Instant::now())
            }
            Err(failure) => Outcome::Failed(failure),
        }
    }

    /// Whoever lets it go on may have put the address or the credentials right.
    fn resumed(&self) {
        self.guard.reset();
    }
}

/// Without what it is sent with.
impl std::fmt::Debug for HttpHandler {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("HttpHandler").field("guard", &self.guard).finish_non_exhaustive()
    }
}

/// The address without name and password, and these.
fn address(url: &str) -> Result<(Uri, Option<Auth>), HttpError> {
    let wrong = |message: &str| {
        HttpError::new("url", message, "write it like `http://localhost:8080/orders`")
    };
    let (scheme, rest) = url.split_once("://").ok_or_else(|| wrong("it is no address"))?;
    let end = rest.find(['/', '?']).unwrap_or(rest.len());
    let (authority, path) = rest.split_at(end);
    let (named, host) = match authority.rsplit_once('@') {
        Some((named, host)) => (Some(named), host),
        None => (None, authority),
    };
    // What the parser says may have a secret in it.
    let uri: Uri =
        format!("{scheme}://{host}{path}").parse().map_err(|_| wrong("it is no address"))?;
    if !matches!(uri.scheme_str(), Some("http" | "https")) || uri.host().is_none_or(str::is_empty) {
        return Err(wrong("it is not the address of a service"));
    }
    let text = |it: &str| String::from_utf8_lossy(&encode::decode(it)).into_owned();
    let auth = named.map(|it| {
        let (username, password) = it.split_once(':').unwrap_or((it, ""));
        Auth::Basic {
            username: text(username),
            password: redrive::config::Secret::new(text(password)),
        }
    });
    Ok((uri, auth))
}

fn authorization(auth: &Auth) -> String {
    match auth {
        Auth::Basic { username, password } => {
            let pair = format!("{username}:{}", password.reveal());
            format!("Basic {}", openssl::base64::encode_block(pair.as_bytes()))
        }
        Auth::Bearer(token) => format!("Bearer {}", token.reveal()),
        _ => String::new(),
    }
}

/// A value that is not shown by anything that shows headers, and not kept in an index of HTTP/2.
fn hidden(mut value: HeaderValue) -> HeaderValue {
    value.set_sensitive(true);
    value
}

fn late(message: String) -> Failure {
    Failure::of_kind(Kind::TIMEOUT).with_message(message)
}

/// Why there was no answer.
fn unanswered(error: &Error) -> Failure {
    let kind = if error.is_connect() { Kind::CONNECT } else { Kind::NETWORK };
    // The outermost error only says in which part of the client it happened.
    let mut causes: Vec<String> = Vec::new();
    let mut next = error.source();
    while let Some(cause) = next {
        let text = cause.to_string();
        // Some say what their cause says, too.
        if !causes.iter().any(|it| it.contains(&text)) {
            causes.push(text);
        }
        next = cause.source();
    }
    let what = if error.is_connect() { "no connection" } else { "no answer" };
    let message = match causes.is_empty() {
        true => what.to_owned(),
        false => format!("{what}: {}", causes.join(": ")),
    };
    Failure::of_kind(kind).with_message(message)
}

/// What was read of a response.
struct ReadSoFar {
    /// The beginning.
    start: Vec<u8>,
    length: usize,
    end: End,
}

impl ReadSoFar {
    /// Whether the beginning is all that there was.
    fn is_all(&self) -> bool {
        matches!(self.end, End::Whole) && self.start.len() == self.length
    }
}

enum End {
    Whole,
    /// There is more than anybody wants to read.
    Cut,
    Broken(hyper::Error),
    Late,
}

/// Reads a response to its end, unless it takes too long or is too long.
async fn read(mut body: Incoming, until: Instant) -> ReadSoFar {
    let mut read = ReadSoFar { start: Vec::new(), length: 0, end: End::Whole };
    loop {
        let frame = match timeout_at(until, body.frame()).await {
            Err(_) => {
                read.end = End::Late;
                return read;
            }
            Ok(None) => return read,
            Ok(Some(Err(error))) => {
                read.end = End::Broken(error);
                return read;
            }
            Ok(Some(Ok(frame))) => frame,
        };
        let Ok(data) = frame.into_data() else {
            continue;
        };
        let wanted = answer::KEPT.saturating_sub(read.start.len()).min(data.len());
        read.start.extend_from_slice(data.get(..wanted).unwrap_or_default());
        read.length = read.length.saturating_add(data.len());
        if read.length > READ {
            read.end = End::Cut;
            return read;
        }
    }
}
