//! What is answered to whom.
//!
//! Anybody may look. Whoever wants to change something needs the token; where none is set, it has to come from this very
//! machine, and not from a web page that is open on it: a browser tells by `Origin` and `Sec-Fetch-Site` that a page of
//! somebody else asks, and by `Host` that a name of somebody else was made to point here.

use std::net::{IpAddr, SocketAddr};
use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use http_body_util::Full;
use hyper::header::{self, HeaderMap, HeaderValue};
use hyper::http::request::Parts;
use hyper::{Method, Response, StatusCode};
use redrive::config::{Admin, AdminToken};
use redrive::{ConsumerHandle, Report};
use serde_json::json;

use crate::{metrics, status};

/// A consumer, as far as it is looked at and told what to do.
pub trait Watched: Send + Sync + 'static {
    /// Everything that is counted.
    fn report(&self) -> Report;
    /// The groups whose thread that polls stands still.
    fn standing_still(&self) -> Vec<String>;
    /// Lets a flow take no more records. False if there is none.
    fn pause(&self, flow: &str) -> bool;
    /// Lets a flow go on. False if there is none.
    fn resume(&self, flow: &str) -> bool;
}

impl Watched for ConsumerHandle {
    fn report(&self) -> Report {
        ConsumerHandle::report(self)
    }

    fn standing_still(&self) -> Vec<String> {
        ConsumerHandle::standing_still(self)
    }

    fn pause(&self, flow: &str) -> bool {
        ConsumerHandle::pause(self, flow)
    }

    fn resume(&self, flow: &str) -> bool {
        ConsumerHandle::resume(self, flow)
    }
}

/// A process that was asleep as a whole gets this long to poll before it is said to stand still.
const LOOK_TWICE: Duration = Duration::from_secs(1);
/// How long a command may take to be seen in the state, and how often that is looked at.
const OBEYED: (Duration, u32) = (Duration::from_millis(20), 100);

const TEXT: &str = "text/plain; charset=utf-8";
const JSON: &str = "application/json";
/// What Prometheus calls its text format.
const METRICS: &str = "text/plain; version=0.0.4; charset=utf-8";

const INDEX: &str = "\
GET  /livez            whether it lives
GET  /readyz           whether all is well, and if not, why
GET  /metrics          for Prometheus
GET  /status           in JSON
POST /pause?flow=T     lets the flow of a source topic take no more records; all flows without `flow`
POST /resume?flow=T    lets it go on
";

/// Who may come in, and to whom.
pub(crate) struct Door {
    listen: SocketAddr,
    token: Option<AdminToken>,
    watched: Arc<dyn Watched>,
}

type Answer = Response<Full<Bytes>>;

impl Door {
    pub(crate) fn new(admin: &Admin, watched: Arc<dyn Watched>) -> Self {
        Self { listen: admin.listen, token: admin.token.clone(), watched }
    }

    /// The answer to the head of a request. Its body is not looked at.
    pub(crate) async fn answer(&self, request: &Parts, peer: SocketAddr) -> Answer {
        let path = request.uri.path();
        let is_look = matches!(request.method, Method::GET | Method::HEAD);
        let is_order = request.method == Method::POST;
        match path {
            "/livez" if is_look => self.livez().await,
            "/readyz" if is_look => self.readyz(),
            "/" | "/metrics" | "/status" if is_look => match self.may_look(&request.headers) {
                Err(why) => error(StatusCode::FORBIDDEN, why),
                Ok(()) => match path {
                    "/metrics" => {
                        answer(StatusCode::OK, METRICS, metrics::render(&self.watched.report()))
                    }
                    "/status" => {
                        answer(StatusCode::OK, JSON, pretty(&status::json(&self.watched.report())))
                    }
                    _ => answer(StatusCode::OK, TEXT, INDEX.to_owned()),
                },
            },
            "/pause" | "/resume" if is_order => match self.may_order(&request.headers, peer) {
                Err((status, why)) => {
                    let mut refused = error(status, why);
                    if status == StatusCode::UNAUTHORIZED {
                        let bearer = HeaderValue::from_static("Bearer");
                        refused.headers_mut().insert(header::WWW_AUTHENTICATE, bearer);
                    }
                    refused
                }
                Ok(()) => self.obey(path == "/pause", request.uri.query()).await,
            },
            "/livez" | "/readyz" | "/" | "/metrics" | "/status" => not_allowed("GET, HEAD"),
            "/pause" | "/resume" => not_allowed("POST"),
            _ => error(StatusCode::NOT_FOUND, "there is nothing here: GET / tells what there is"),
        }
    }

    async fn livez(&self) -> Answer {
        if self.watched.standing_still().is_empty() {
            return answer(StatusCode::OK, TEXT, "ok\n".to_owned());
        }
        tokio::time::sleep(LOOK_TWICE).await;
        let still = self.watched.standing_still();
        if still.is_empty() {
            return answer(StatusCode::OK, TEXT, "ok\n".to_owned());
        }
        let why: String = still
            .iter()
            .map(|it| format!("the thread that polls for {it} stands still\n"))
            .collect();
        answer(StatusCode::SERVICE_UNAVAILABLE, TEXT, why)
    }

    fn readyz(&self) -> Answer {
        let troubles = self.watched.report().state.troubles();
        if troubles.is_empty() {
            return answer(StatusCode::OK, TEXT, "ready\n".to_owned());
        }
        let why: String = troubles.iter().map(|it| format!("{it}\n")).collect();
        answer(StatusCode::SERVICE_UNAVAILABLE, TEXT, why)
    }

    /// A page that is open in a browser on this machine must not read what is for this machine alone.
    fn may_look(&self, headers: &HeaderMap) -> Result<(), &'static str> {
        if self.listen.ip().is_loopback() && !is_local_host(headers) {
            return Err(
                "this address is for this machine alone: ask for it by `localhost` or its IP address",
            );
        }
        Ok(())
    }

    fn may_order(
        &self,
        headers: &HeaderMap,
        peer: SocketAddr,
    ) -> Result<(), (StatusCode, &'static str)> {
        if let Some(token) = &self.token {
            let given = headers.get(header::AUTHORIZATION).map(HeaderValue::as_bytes);
            let given =
                given.and_then(|it| it.strip_prefix(b"Bearer ").or(it.strip_prefix(b"bearer ")));
            return match given {
                Some(given) if is_same(given, token.reveal().as_bytes()) => Ok(()),
                Some(_) => {
                    Err((StatusCode::UNAUTHORIZED, "the token is not the one of `admin.token`"))
                }
                None => Err((
                    StatusCode::UNAUTHORIZED,
                    "`authorization: Bearer TOKEN` is needed, with the token of `admin.token`",
                )),
            };
        }
        let is_here = self.listen.ip().is_loopback() && peer.ip().to_canonical().is_loopback();
        if !is_here {
            return Err((
                StatusCode::FORBIDDEN,
                "flows are paused and resumed from another machine only with a token: set `admin.token` in the config",
            ));
        }
        if !is_local_host(headers) || is_of_another_site(headers) {
            return Err((
                StatusCode::FORBIDDEN,
                "a web page of another site must not pause and resume flows: set `admin.token` in the config to allow it with the token",
            ));
        }
        Ok(())
    }

    async fn obey(&self, is_pause: bool, query: Option<&str>) -> Answer {
        let flow = match flow_of(query.unwrap_or("")) {
            Ok(flow) => flow,
            Err(why) => return error(StatusCode::BAD_REQUEST, &why),
        };
        let known: Vec<String> =
            self.watched.report().state.flows.into_iter().map(|it| it.topic).collect();
        if known.is_empty() {
            let why = "no flow runs yet: the brokers have not answered";
            return error(StatusCode::SERVICE_UNAVAILABLE, why);
        }
        let meant = match &flow {
            None => known,
            Some(flow) if known.contains(flow) => vec![flow.clone()],
            Some(flow) => {
                let why =
                    format!("no flow has the source topic `{flow}` (known: {})", known.join(", "));
                return error(StatusCode::NOT_FOUND, &why);
            }
        };
        for flow in &meant {
            let is_there =
                if is_pause { self.watched.pause(flow) } else { self.watched.resume(flow) };
            if !is_there {
                let why = format!("the flow of `{flow}` does not run any more");
                return error(StatusCode::SERVICE_UNAVAILABLE, &why);
            }
        }
        tracing::info!(
            flows = meant.join(","),
            "told to {}",
            if is_pause { "pause" } else { "resume" }
        );
        self.seen(is_pause, &meant).await;
        let done = if is_pause { "paused" } else { "resumed" };
        answer(StatusCode::OK, JSON, pretty(&json!({ done: meant })))
    }

    /// Waits a moment until the flows are as they were told to be, so that whoever looks next sees it.
    async fn seen(&self, is_pause: bool, flows: &[String]) {
        let (every, times) = OBEYED;
        for _ in 0..times {
            let state = self.watched.report().state;
            let mut meant = state.flows.iter().filter(|it| flows.contains(&it.topic));
            let is_so =
                meant.all(|it| it.is_paused == is_pause && (is_pause || it.stopped.is_none()));
            if is_so {
                return;
            }
            tokio::time::sleep(every).await;
        }
    }
}

/// The flow that a query names, if it names one.
fn flow_of(query: &str) -> Result<Option<String>, String> {
    let mut flow = None;
    for pair in query.split('&').filter(|it| !it.is_empty()) {
        match pair.split_once('=') {
            Some(("flow", value)) if !value.is_empty() && flow.is_none() => {
                flow = Some(decoded(value).ok_or("`flow` is not percent-encoded UTF-8")?);
            }
            _ => return Err("the query may have `flow=TOPIC` once, and nothing else".to_owned()),
        }
    }
    Ok(flow)
}

/// Without percent-encoding.
fn decoded(text: &str) -> Option<String> {
    let mut bytes = Vec::with_capacity(text.len());
    let mut rest = text.as_bytes();
    while let [first, after @ ..] = rest {
        rest = after;
        if *first == b'%' {
            let [high, low, after @ ..] = rest else {
                return None;
            };
            let digit = |it: u8| char::from(it).to_digit(16).and_then(|it| u8::try_from(it).ok());
            bytes.push(digit(*high)? << 4 | digit(*low)?);
            rest = after;
        } else {
            bytes.push(*first);
        }
    }
    String::from_utf8(bytes).ok()
}

/// Whether both are the same. How long that takes tells nothing about the second.
fn is_same(given: &[u8], token: &[u8]) -> bool {
    let mut differs = u8::from(given.len() != token.len());
    for (index, byte) in given.iter().enumerate() {
        differs |= byte ^ token.get(index % token.len().max(1)).copied().unwrap_or(0);
    }
    std::hint::black_box(differs) == 0
}

/// Whether the request was made to this machine by a name that nobody else can give it. One without a name comes from no browser.
fn is_local_host(headers: &HeaderMap) -> bool {
    let Some(host) = headers.get(header::HOST) else {
        return true;
    };
    let Ok(host) = host.to_str() else {
        return false;
    };
    let name = match host.strip_prefix('[') {
        Some(rest) => rest.split(']').next().unwrap_or(rest),
        None => host.rsplit_once(':').map_or(host, |it| it.0),
    };
    name.eq_ignore_ascii_case("localhost") || name.parse::<IpAddr>().is_ok()
}

/// Whether a browser says that the page of another site asks.
fn is_of_another_site(headers: &HeaderMap) -> bool {
    if let Some(site) = headers.get("sec-fetch-site") {
        return !matches!(site.as_bytes(), b"same-origin" | b"none");
    }
    let Some(origin) = headers.get(header::ORIGIN) else {
        return false;
    };
    let origin = origin.to_str().unwrap_or("null");
    let host = headers.get(header::HOST).and_then(|it| it.to_str().ok()).unwrap_or("");
    origin.split_once("://").is_none_or(|(_, authority)| !authority.eq_ignore_ascii_case(host))
}

fn pretty(json: &serde_json::Value) -> String {
    format!("{json:#}\n")
}

fn answer(status: StatusCode, kind: &'static str, body: String) -> Answer {
    let mut answer = Response::new(Full::new(Bytes::from(body)));
    *answer.status_mut() = status;
    let headers = answer.headers_mut();
    headers.insert(header::CONTENT_TYPE, HeaderValue::from_static(kind));
    headers.insert(header::CACHE_CONTROL, HeaderValue::from_static("no-store"));
    headers.insert(header::X_CONTENT_TYPE_OPTIONS, HeaderValue::from_static("nosniff"));
    answer
}

fn error(status: StatusCode, why: &str) -> Answer {
    answer(status, JSON, pretty(&json!({ "error": why })))
}

fn not_allowed(allowed: &'static str) -> Answer {
    let mut answer = error(StatusCode::METHOD_NOT_ALLOWED, &format!("use {allowed} here"));
    answer.headers_mut().insert(header::ALLOW, HeaderValue::from_static(allowed));
    answer
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn tokens_are_compared_whole() {
        assert!(is_same(b"abcabc", b"abcabc"));
        for other in ["", "abc", "abcabd", "abcabcabcabc", "bbcabc"] {
            assert!(!is_same(other.as_bytes(), b"abcabc"), "{other}");
        }
    }

    #[test]
    fn queries_name_a_flow_or_none() {
        assert_eq!(flow_of(""), Ok(None));
        assert_eq!(flow_of("flow=orders"), Ok(Some("orders".to_owned())));
        assert_eq!(flow_of("flow=a%2Eb%20c"), Ok(Some("a.b c".to_owned())));
        for wrong in
            ["flow", "flow=", "topic=orders", "flow=a&flow=b", "flow=%", "flow=%ff", "flow=%zz"]
        {
            assert!(flow_of(wrong).is_err(), "{wrong}");
        }
    }
}
