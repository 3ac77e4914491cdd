//! The service: it takes orders over HTTP, is flaky on purpose, and keeps a ledger of every request.

use std::collections::HashMap;
use std::fmt;
use std::io;
use std::net::{Ipv4Addr, SocketAddr};
use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use http_body_util::{BodyExt, Full};
use hyper::body::Incoming;
use hyper::header::{HeaderMap, HeaderValue, RETRY_AFTER};
use hyper::server::conn::http1;
use hyper::service::service_fn;
use hyper::{Response, StatusCode};
use hyper_util::rt::TokioIo;
use parking_lot::{Mutex, MutexGuard};
use tokio::net::{TcpListener, TcpSocket, TcpStream};
use tokio::sync::watch;

use crate::board::SharedBoard;
use crate::clock;
use crate::history::{Place, Request};
use crate::orders::{self, Answer, Orders};

/// How long it takes for an order, in ms, and how much that differs.
const WORK: (u32, u32) = (3, 20);

/// What the service has seen.
#[derive(Default)]
struct Ledger {
    requests: Vec<Request>,
    /// How often each order was here.
    seen: HashMap<u32, u32>,
}

/// The connection goes, without an answer.
#[derive(Debug)]
struct Cut;

impl fmt::Display for Cut {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("the service went down")
    }
}

impl std::error::Error for Cut {}

/// A service that runs. It ends when the runtime does.
#[derive(Clone)]
pub(crate) struct Service {
    address: SocketAddr,
    desk: Arc<Desk>,
    is_down: watch::Sender<bool>,
}

/// What every connection needs.
struct Desk {
    orders: Arc<Orders>,
    board: SharedBoard,
    ledger: Mutex<Ledger>,
    is_down: watch::Receiver<bool>,
    /// Nobody else gets the port while nobody listens on it.
    _port: TcpSocket,
}

impl Service {
    /// Starts it on a free port of this machine.
    ///
    /// # Errors
    ///
    /// There is none.
    pub(crate) fn start(orders: Arc<Orders>, board: SharedBoard) -> io::Result<Self> {
        let port = socket()?;
        port.bind((Ipv4Addr::LOCALHOST, 0).into())?;
        let address = port.local_addr()?;
        let (is_down, seen_down) = watch::channel(false);
        let ledger = Mutex::default();
        let desk = Arc::new(Desk { orders, board, ledger, is_down: seen_down, _port: port });
        tokio::spawn(open_and_close(listen(address)?, address, Arc::clone(&desk)));
        Ok(Self { address, desk, is_down })
    }

    /// Where records are sent to.
    pub(crate) fn url(&self) -> String {
        format!("http://{}/orders", self.address)
    }

    /// Refuses connections for so long. Those that are there are closed.
    pub(crate) async fn outage(&self, length: Duration) {
        self.is_down.send_replace(true);
        tokio::time::sleep(length).await;
        self.is_down.send_replace(false);
    }

    /// All requests so far.
    pub(crate) fn ledger(&self) -> Vec<Request> {
        self.desk.ledger().requests.clone()
    }
}

fn socket() -> io::Result<TcpSocket> {
    let socket = TcpSocket::new_v4()?;
    socket.set_reuseport(true)?;
    socket.set_reuseaddr(true)?;
    Ok(socket)
}

fn listen(address: SocketAddr) -> io::Result<TcpListener> {
    let socket = socket()?;
    socket.bind(address)?;
    socket.listen(1024)
}

/// Takes connections, but not while it is down.
async fn open_and_close(first: TcpListener, address: SocketAddr, desk: Arc<Desk>) {
    let mut is_down = desk.is_down.clone();
    let mut listener = Some(first);
    loop {
        if let Some(open) = listener.take() {
            let mut going_down = desk.is_down.clone();
            loop {
                tokio::select! {
                    accepted = open.accept() => {
                        if let Ok((stream, _)) = accepted {
                            tokio::spawn(serve(stream, Arc::clone(&desk)));
                        }
                    }
                    _ = going_down.wait_for(|it| *it) => break,
                }
            }
        }
        if is_down.wait_for(|it| !*it).await.is_err() {
            return;
        }
        listener = listen(address).ok();
        if listener.is_none() {
            tokio::time::sleep(Duration::from_millis(20)).await;
        }
    }
}

async fn serve(stream: TcpStream, desk: Arc<Desk>) {
    _ = stream.set_nodelay(true);
    let mut is_down = desk.is_down.clone();
    let answer = service_fn(move |request| {
        let desk = Arc::clone(&desk);
        async move { desk.answer(request).await }
    });
    let connection = http1::Builder::new().serve_connection(TokioIo::new(stream), answer);
    tokio::pin!(connection);
    tokio::select! {
        _ = &mut connection => return,
        _ = is_down.wait_for(|it| *it) => connection.as_mut().graceful_shutdown(),
    }
    // What was said already is still said.
    _ = connection.await;
}

impl Desk {
    fn ledger(&self) -> MutexGuard<'_, Ledger> {
        self.ledger.lock()
    }

    async fn answer(
        &self,
        request: hyper::Request<Incoming>,
    ) -> Result<Response<Full<Bytes>>, Cut> {
        let arrived = clock::micros();
        let (head, body) = request.into_parts();
        let value = body.collect().await.map_err(|_| Cut)?.to_bytes();
        let (Some(place), Some(number)) = (place(&head.headers), orders::number(&value)) else {
            return Ok(response(StatusCode::BAD_REQUEST, "no order of ours"));
        };
        let overall = text(&head.headers, "redrive-overall-attempts");
        let overall = overall.and_then(|it| it.parse().ok()).unwrap_or(0);
        let (index, before) = {
            let mut ledger = self.ledger();
            let seen = ledger.seen.entry(number).or_default();
            let before = *seen;
            *seen += 1;
            ledger.requests.push(Request { place, value, overall, arrived, said: None });
            (ledger.requests.len() - 1, before)
        };
        let answer = self.orders.answer(number, before);
        let work = WORK.0 + number.wrapping_mul(2_654_435_761) % WORK.1;
        let mut is_down = self.is_down.clone();
        tokio::select! {
            () = work_on(answer, Duration::from_millis(work.into())) => {}
            _ = is_down.wait_for(|it| *it) => return Err(Cut),
        }
        let at = clock::micros();
        if let Some(request) = self.ledger().requests.get_mut(index) {
            request.said = Some((answer, at));
        }
        self.board.lock().answered(number, answer, at / 1000);
        Ok(match answer {
            Answer::Busy { seconds } => {
                let mut busy = response(StatusCode::TOO_MANY_REQUESTS, "too many orders at once");
                busy.headers_mut().insert(RETRY_AFTER, HeaderValue::from(u16::from(seconds)));
                busy
            }
            Answer::Cancelled => {
                let mut gone = response(StatusCode::GONE, "the order was cancelled");
                gone.headers_mut().insert("redrive-action", HeaderValue::from_static("drop"));
                gone
            }
            Answer::Broken => response(StatusCode::INTERNAL_SERVER_ERROR, "the stock is locked"),
            Answer::Unavailable => response(StatusCode::SERVICE_UNAVAILABLE, "the shop restarts"),
            Answer::Poison => response(StatusCode::UNPROCESSABLE_ENTITY, "there is no such item"),
            Answer::Done | Answer::Silent => response(StatusCode::OK, ""),
        })
    }
}

/// Takes its time. Who is silent never ends, and is let go when the other side hangs up.
async fn work_on(answer: Answer, time: Duration) {
    match answer {
        Answer::Silent => std::future::pending().await,
        _ => tokio::time::sleep(time).await,
    }
}

fn response(status: StatusCode, text: &'static str) -> Response<Full<Bytes>> {
    let mut response = Response::new(Full::new(Bytes::from_static(text.as_bytes())));
    *response.status_mut() = status;
    response
}

fn text<'a>(headers: &'a HeaderMap, name: &str) -> Option<&'a str> {
    headers.get(name)?.to_str().ok()
}

/// Whose request it is: `GROUP/TOPIC/PARTITION/OFFSET/REDRIVEN`.
fn place(headers: &HeaderMap) -> Option<Place> {
    let mut parts = text(headers, "idempotency-key")?.rsplit('/').skip(1);
    let offset = parts.next()?.parse().ok()?;
    Some(Place { partition: parts.next()?.parse().ok()?, offset })
}
