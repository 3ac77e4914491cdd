//! The listener: few connections, none of them for long.
//!
//! Whoever asks for health must get an answer, however many slow clients there are. So the oldest connection makes way for a new
//! one, and each has a few seconds in all.

use std::collections::VecDeque;
use std::convert::Infallible;
use std::io;
use std::net::{SocketAddr, TcpListener};
use std::sync::Arc;
use std::thread::{self, JoinHandle};
use std::time::Duration;

use hyper::Request;
use hyper::body::Incoming;
use hyper::server::conn::http1;
use hyper::service::service_fn;
use hyper_util::rt::{TokioIo, TokioTimer};
use redrive::config::Admin;
use tokio::net::TcpStream;
use tokio::sync::oneshot;
use tokio::task::AbortHandle;

use crate::answer::{Door, Watched};

/// How many connections there are at the same time.
const CONNECTIONS: usize = 64;
/// How long a request's head may take to come.
const HEAD: Duration = Duration::from_secs(5);
/// How long a connection may take in all.
const CONNECTION: Duration = Duration::from_secs(15);
/// How large a request's head may be.
const HEAD_BYTES: usize = 16 << 10;
const HEADERS: usize = 64;

/// Why nobody can be answered.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum ServeError {
    /// The address cannot be listened on.
    #[error("cannot listen on {address} (`admin.listen`): {error}")]
    Listen {
        /// The address.
        address: SocketAddr,
        /// What the system said.
        error: io::Error,
    },
    /// The thread cannot be started.
    #[error("cannot start the thread that answers on `admin.listen`: {0}")]
    Thread(io::Error),
}

/// A listener that runs. It ends when this is dropped.
#[derive(Debug)]
pub struct Server {
    address: SocketAddr,
    stop: Option<oneshot::Sender<()>>,
    thread: Option<JoinHandle<()>>,
}

impl Server {
    /// Where it listens: the port is the real one where the config asks for any.
    pub fn address(&self) -> SocketAddr {
        self.address
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        drop(self.stop.take());
        if let Some(thread) = self.thread.take() {
            _ = thread.join();
        }
    }
}

/// Answers requests about a consumer, from now on: before its brokers are there, too.
///
/// # Errors
///
/// The address cannot be listened on.
pub fn serve(admin: &Admin, watched: impl Watched) -> Result<Server, ServeError> {
    let listen = |error| ServeError::Listen { address: admin.listen, error };
    let listener = TcpListener::bind(admin.listen).map_err(listen)?;
    listener.set_nonblocking(true).map_err(listen)?;
    let address = listener.local_addr().map_err(listen)?;
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build();
    let runtime = runtime.map_err(ServeError::Thread)?;
    let listener = {
        let _inside = runtime.enter();
        tokio::net::TcpListener::from_std(listener).map_err(listen)?
    };
    let door = Arc::new(Door::new(admin, Arc::new(watched)));
    let (stop, stopped) = oneshot::channel();
    let run = move || runtime.block_on(accept(listener, door, stopped));
    let thread = thread::Builder::new().name("redrive-admin".to_owned()).spawn(run);
    let thread = Some(thread.map_err(ServeError::Thread)?);
    tracing::info!("health and metrics are at http://{address}");
    if !address.ip().is_loopback() && admin.token.is_none() {
        tracing::warn!(
            "{address} can be reached from outside and `admin.token` is not set: requests to pause and resume are refused"
        );
    }
    Ok(Server { address, stop: Some(stop), thread })
}

async fn accept(
    listener: tokio::net::TcpListener,
    door: Arc<Door>,
    mut stopped: oneshot::Receiver<()>,
) {
    let mut open: VecDeque<AbortHandle> = VecDeque::new();
    loop {
        let accepted = tokio::select! {
            accepted = listener.accept() => accepted,
            _ = &mut stopped => return,
        };
        let Ok((stream, peer)) = accepted else {
            // There are no more files to be had, for now.
            tokio::time::sleep(Duration::from_millis(50)).await;
            continue;
        };
        open.retain(|it| !it.is_finished());
        while open.len() >= CONNECTIONS {
            open.pop_front().iter().for_each(AbortHandle::abort);
        }
        let connection = tokio::spawn(connection(stream, peer, Arc::clone(&door)));
        open.push_back(connection.abort_handle());
    }
}

async fn connection(stream: TcpStream, peer: SocketAddr, door: Arc<Door>) {
    let service = service_fn(move |request: Request<Incoming>| {
        let (door, head) = (Arc::clone(&door), request.into_parts().0);
        async move { Ok::<_, Infallible>(door.answer(&head, peer).await) }
    });
    let served = http1::Builder::new()
        .keep_alive(false)
        .timer(TokioTimer::new())
        .header_read_timeout(HEAD)
        .max_buf_size(HEAD_BYTES)
        .max_headers(HEADERS)
        .serve_connection(TokioIo::new(stream), service);
    // Whoever takes too long, or goes away, gets no answer.
    _ = tokio::time::timeout(CONNECTION, served).await;
}
