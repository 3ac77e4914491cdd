//! A service that answers byte for byte as it is told, and keeps what it got.

use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::{TcpListener, TcpStream};

/// A request as it came.
#[derive(Clone, Debug)]
pub(crate) struct Got {
    pub(crate) line: String,
    /// Names in lower case, in their order.
    pub(crate) headers: Vec<(String, String)>,
    pub(crate) body: Vec<u8>,
}

impl Got {
    /// All values of a header.
    pub(crate) fn all(&self, name: &str) -> Vec<&str> {
        self.headers.iter().filter(|it| it.0 == name).map(|it| it.1.as_str()).collect()
    }

    /// A header that is there once.
    pub(crate) fn get(&self, name: &str) -> Option<&str> {
        let all = self.all(name);
        assert!(all.len() < 2, "{name} is there {} times", all.len());
        all.first().copied()
    }
}

/// A part of an answer.
#[derive(Clone, Debug)]
pub(crate) enum Part {
    Bytes(Vec<u8>),
    Wait(Duration),
    /// The same bytes again and again, with waits, for as long as somebody reads.
    Endless(Vec<u8>, Duration),
    Close,
}

/// An answer with a length, after which the connection goes on.
pub(crate) fn answer(status: u16, headers: &[(&str, &str)], body: &[u8]) -> Vec<Part> {
    let mut text = format!("HTTP/1.1 {status} Whatever\r\ncontent-length: {}\r\n", body.len());
    for (name, value) in headers {
        text += &format!("{name}: {value}\r\n");
    }
    let mut bytes = (text + "\r\n").into_bytes();
    bytes.extend_from_slice(body);
    vec![Part::Bytes(bytes)]
}

/// A service on a port of its own.
pub(crate) struct Server {
    pub(crate) url: String,
    got: Arc<Mutex<Vec<Got>>>,
    connections: Arc<AtomicUsize>,
}

impl Server {
    pub(crate) async fn start(answers: impl Fn(&Got) -> Vec<Part> + Send + Sync + 'static) -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let url = format!("http://{}/orders?token=s3cr3t", listener.local_addr().unwrap());
        let (got, connections) = (Arc::default(), Arc::new(AtomicUsize::new(0)));
        let server = Self { url, got: Arc::clone(&got), connections: Arc::clone(&connections) };
        let answers = Arc::new(answers);
        tokio::spawn(async move {
            while let Ok((stream, _)) = listener.accept().await {
                connections.fetch_add(1, Ordering::SeqCst);
                let (answers, got) = (Arc::clone(&answers), Arc::clone(&got));
                tokio::spawn(async move { serve(stream, &*answers, &got).await });
            }
        });
        server
    }

    /// One that always answers the same.
    pub(crate) async fn saying(status: u16, headers: &[(&str, &str)], body: &[u8]) -> Self {
        let answer = answer(status, headers, body);
        Self::start(move |_| answer.clone()).await
    }

    /// All requests so far.
    pub(crate) fn got(&self) -> Vec<Got> {
        self.got.lock().unwrap().clone()
    }

    /// The only request.
    pub(crate) fn only(&self) -> Got {
        let got = self.got();
        assert_eq!(got.len(), 1);
        got[0].clone()
    }

    pub(crate) fn connections(&self) -> usize {
        self.connections.load(Ordering::SeqCst)
    }
}

async fn serve(
    mut stream: TcpStream,
    answers: &(impl Fn(&Got) -> Vec<Part> + Sync),
    got: &Mutex<Vec<Got>>,
) {
    let mut buffer = Vec::new();
    while let Some(request) = read(&mut stream, &mut buffer).await {
        got.lock().unwrap().push(request.clone());
        for part in answers(&request) {
            let is_fine = match part {
                Part::Bytes(bytes) => stream.write_all(&bytes).await.is_ok(),
                Part::Wait(time) => {
                    tokio::time::sleep(time).await;
                    true
                }
                Part::Endless(bytes, wait) => {
                    while stream.write_all(&bytes).await.is_ok() {
                        tokio::time::sleep(wait).await;
                    }
                    false
                }
                Part::Close => false,
            };
            if !is_fine {
                return;
            }
        }
    }
}

/// The next request; None at the end of the connection.
async fn read(stream: &mut TcpStream, buffer: &mut Vec<u8>) -> Option<Got> {
    let end = loop {
        if let Some(end) = buffer.windows(4).position(|it| it == b"\r\n\r\n") {
            break end;
        }
        if stream.read_buf(buffer).await.ok()? == 0 {
            return None;
        }
    };
    let head = String::from_utf8(buffer[..end].to_vec()).unwrap();
    let mut lines = head.split("\r\n");
    let line = lines.next()?.to_owned();
    let headers: Vec<_> = lines
        .map(|it| it.split_once(':').unwrap())
        .map(|(name, value)| (name.to_ascii_lowercase(), value.trim().to_owned()))
        .collect();
    let length = headers.iter().find(|it| it.0 == "content-length").map(|it| it.1.as_str());
    let length: usize =
        length.map_or_else(|| panic!("{head} has no length"), |it| it.parse().unwrap());
    while buffer.len() < end + 4 + length {
        if stream.read_buf(buffer).await.ok()? == 0 {
            return None;
        }
    }
    let body = buffer[end + 4..end + 4 + length].to_vec();
    buffer.drain(..end + 4 + length);
    Some(Got { line, headers, body })
}
