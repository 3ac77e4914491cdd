//! Connections to a service, plain or encrypted, made within a limit.

use std::error::Error;
use std::future::Future;
use std::io;
use std::pin::Pin;
use std::task::{Context, Poll};
use std::time::Duration;

use http::Uri;
use hyper::rt::{Read, ReadBufCursor, Write};
use hyper_util::client::legacy::connect::{Connected, Connection, HttpConnector};
use hyper_util::rt::TokioIo;
use openssl::ssl::SslConnector;
use tokio::net::TcpStream;
use tokio_openssl::SslStream;
use tower_service::Service;

type Failed = Box<dyn Error + Send + Sync>;

/// Makes connections.
#[derive(Clone)]
pub(crate) struct Connector {
    tcp: HttpConnector,
    tls: SslConnector,
    limit: Duration,
}

impl Connector {
    /// With looking up a name, TCP and TLS all within this limit.
    pub(crate) fn new(tls: SslConnector, limit: Duration) -> Self {
        let mut tcp = HttpConnector::new();
        tcp.enforce_http(false);
        tcp.set_nodelay(true);
        tcp.set_keepalive(Some(Duration::from_secs(60)));
        Self { tcp, tls, limit }
    }
}

impl Service<Uri> for Connector {
    type Response = Stream;
    type Error = Failed;
    type Future = Pin<Box<dyn Future<Output = Result<Stream, Failed>> + Send>>;

    fn poll_ready(&mut self, context: &mut Context<'_>) -> Poll<Result<(), Failed>> {
        self.tcp.poll_ready(context).map_err(Into::into)
    }

    fn call(&mut self, uri: Uri) -> Self::Future {
        let (connecting, tls, limit) = (self.tcp.call(uri.clone()), self.tls.clone(), self.limit);
        let connect = async move {
            let tcp = connecting.await?;
            if uri.scheme_str() != Some("https") {
                return Ok(Stream::Plain(tcp));
            }
            let host = uri.host().unwrap_or_default();
            let host = host.trim_start_matches('[').trim_end_matches(']');
            let ssl = tls.configure()?.into_ssl(host)?;
            let mut stream = SslStream::new(ssl, tcp.into_inner())?;
            Pin::new(&mut stream).connect().await.map_err(|error| told(&stream, &error))?;
            Ok(Stream::Encrypted(TokioIo::new(stream)))
        };
        Box::pin(async move {
            match tokio::time::timeout(limit, connect).await {
                Ok(result) => result,
                Err(_) => Err(format!("no connection within {limit:?}").into()),
            }
        })
    }
}

/// Why there is no encrypted connection: a certificate's fault is told by name.
fn told(stream: &SslStream<TcpStream>, error: &openssl::ssl::Error) -> Failed {
    let verified = stream.ssl().verify_result();
    if verified == openssl::x509::X509VerifyResult::OK {
        format!("no TLS: {error}").into()
    } else {
        format!("no TLS: the certificate of the service is not accepted: {verified}").into()
    }
}

/// A connection.
pub(crate) enum Stream {
    Plain(TokioIo<TcpStream>),
    Encrypted(TokioIo<SslStream<TcpStream>>),
}

impl Connection for Stream {
    fn connected(&self) -> Connected {
        match self {
            Stream::Plain(tcp) => tcp.inner().connected(),
            Stream::Encrypted(tls) => {
                let connected = tls.inner().get_ref().connected();
                let chosen = tls.inner().ssl().selected_alpn_protocol();
                if chosen == Some(b"h2") { connected.negotiated_h2() } else { connected }
            }
        }
    }
}

impl Read for Stream {
    fn poll_read(
        self: Pin<&mut Self>,
        context: &mut Context<'_>,
        buffer: ReadBufCursor<'_>,
    ) -> Poll<io::Result<()>> {
        match self.get_mut() {
            Stream::Plain(it) => Pin::new(it).poll_read(context, buffer),
            Stream::Encrypted(it) => Pin::new(it).poll_read(context, buffer),
        }
    }
}

impl Write for Stream {
    fn poll_write(
        self: Pin<&mut Self>,
        context: &mut Context<'_>,
        bytes: &[u8],
    ) -> Poll<io::Result<usize>> {
        match self.get_mut() {
            Stream::Plain(it) => Pin::new(it).poll_write(context, bytes),
            Stream::Encrypted(it) => Pin::new(it).poll_write(context, bytes),
        }
    }

    fn poll_flush(self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        match self.get_mut() {
            Stream::Plain(it) => Pin::new(it).poll_flush(context),
            Stream::Encrypted(it) => Pin::new(it).poll_flush(context),
        }
    }

    fn poll_shutdown(self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        match self.get_mut() {
            Stream::Plain(it) => Pin::new(it).poll_shutdown(context),
            Stream::Encrypted(it) => Pin::new(it).poll_shutdown(context),
        }
    }

    fn is_write_vectored(&self) -> bool {
        match self {
            Stream::Plain(it) => it.is_write_vectored(),
            Stream::Encrypted(it) => it.is_write_vectored(),
        }
    }

    fn poll_write_vectored(
        self: Pin<&mut Self>,
        context: &mut Context<'_>,
        parts: &[io::IoSlice<'_>],
    ) -> Poll<io::Result<usize>> {
        match self.get_mut() {
            Stream::Plain(it) => Pin::new(it).poll_write_vectored(context, parts),
            Stream::Encrypted(it) => Pin::new(it).poll_write_vectored(context, parts),
        }
    }
}
