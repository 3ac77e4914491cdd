//! TLS: whom we trust, who we are, and HTTP/2.

use std::path::{Path, PathBuf};
use std::pin::Pin;
use std::process::Command;
use std::sync::{Arc, Mutex};

use bytes::Bytes;
use http::{Request, Response, StatusCode, Version};
use http_body_util::{BodyExt, Full};
use hyper::body::Incoming;
use hyper::service::service_fn;
use hyper_util::rt::{TokioExecutor, TokioIo};
use openssl::ssl::{
    AlpnError, SslAcceptor, SslFiletype, SslMethod, SslVerifyMode, select_next_proto,
};
use redrive::config::{HttpConfig, Tls};
use redrive::{Kind, Record};
use redrive_http::HttpHandler;
use tokio::net::TcpListener;

use super::{failure, record, send};

/// Certificates made by the `openssl` program: a CA, a service for 127.0.0.1, and a client.
struct Files(PathBuf);

impl Files {
    fn make(name: &str) -> Self {
        let directory = Path::new(env!("CARGO_TARGET_TMPDIR")).join(name);
        std::fs::create_dir_all(&directory).unwrap();
        let files = Self(directory);
        let run = |arguments: &str| {
            let output = Command::new("openssl")
                .args(arguments.split(' '))
                .current_dir(&files.0)
                .output()
                .unwrap_or_else(|error| panic!("openssl is needed for this test: {error}"));
            assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
        };
        let key = "req -newkey ec -pkeyopt ec_paramgen_curve:prime256v1 -nodes";
        run(&format!("{key} -x509 -keyout ca.key -out ca.pem -days 2 -subj /CN=test-ca"));
        std::fs::write(files.0.join("service.ext"), "subjectAltName=IP:127.0.0.1").unwrap();
        for (name, extensions) in [("service", " -extfile service.ext"), ("client", "")] {
            run(&format!("{key} -keyout {name}.key -out {name}.csr -subj /CN={name}"));
            run(&format!(
                "x509 -req -in {name}.csr -CA ca.pem -CAkey ca.key -CAcreateserial -out {name}.pem -days 2{extensions}"
            ));
        }
        files
    }

    fn path(&self, name: &str) -> PathBuf {
        self.0.join(name)
    }
}

type Seen = Arc<Mutex<Vec<(Version, Vec<u8>)>>>;

/// A service that wants TLS, speaks HTTP/2 where `protocols` offer it, and may want to know who the client is.
async fn start(files: &Files, protocols: &'static [u8], wants_client: bool) -> (String, Seen) {
    let mut acceptor = SslAcceptor::mozilla_intermediate_v5(SslMethod::tls_server()).unwrap();
    acceptor.set_private_key_file(files.path("service.key"), SslFiletype::PEM).unwrap();
    acceptor.set_certificate_chain_file(files.path("service.pem")).unwrap();
    acceptor.set_alpn_select_callback(move |_, offered| {
        select_next_proto(protocols, offered).ok_or(AlpnError::NOACK)
    });
    if wants_client {
        acceptor.set_ca_file(files.path("ca.pem")).unwrap();
        acceptor.set_verify(SslVerifyMode::PEER | SslVerifyMode::FAIL_IF_NO_PEER_CERT);
    }
    let acceptor = acceptor.build();
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let url = format!("https://{}/orders", listener.local_addr().unwrap());
    let seen = Seen::default();
    let noted = Arc::clone(&seen);
    tokio::spawn(async move {
        while let Ok((tcp, _)) = listener.accept().await {
            let ssl = openssl::ssl::Ssl::new(acceptor.context()).unwrap();
            let mut stream = tokio_openssl::SslStream::new(ssl, tcp).unwrap();
            let noted = Arc::clone(&noted);
            tokio::spawn(async move {
                if Pin::new(&mut stream).accept().await.is_err() {
                    return;
                }
                let is_h2 = stream.ssl().selected_alpn_protocol() == Some(b"h2");
                let service = service_fn(move |request: Request<Incoming>| {
                    let noted = Arc::clone(&noted);
                    async move {
                        let version = request.version();
                        let body = request.into_body().collect().await?.to_bytes().to_vec();
                        noted.lock().unwrap().push((version, body));
                        let mut response = Response::new(Full::new(Bytes::from_static(b"wait")));
                        *response.status_mut() = StatusCode::SERVICE_UNAVAILABLE;
                        Ok::<_, hyper::Error>(response)
                    }
                });
                let io = TokioIo::new(stream);
                if is_h2 {
                    let server = hyper::server::conn::http2::Builder::new(TokioExecutor::new());
                    _ = server.serve_connection(io, service).await;
                } else {
                    let server = hyper::server::conn::http1::Builder::new();
                    _ = server.serve_connection(io, service).await;
                }
            });
        }
    });
    (url, seen)
}

fn trusting(url: &str, files: &Files) -> HttpConfig {
    let tls = Tls { ca: Some(files.path("ca.pem")), ..Tls::default() };
    HttpConfig { tls, ..HttpConfig::new(url) }
}

#[tokio::test(flavor = "multi_thread")]
async fn http_2_is_spoken_where_it_is_offered() {
    let files = Files::make("offered");
    for (protocols, version) in
        [(&b"\x02h2\x08http/1.1"[..], Version::HTTP_2), (b"\x08http/1.1", Version::HTTP_11)]
    {
        let (url, seen) = start(&files, protocols, false).await;
        let handler = Arc::new(HttpHandler::new(&trusting(&url, &files)).unwrap());
        let mut runs = tokio::task::JoinSet::new();
        for offset in 0..50 {
            let handler = Arc::clone(&handler);
            let record = Record::made_up("orders", 0, offset).with_value("{}");
            runs.spawn(async move { send(&handler, &record).await });
        }
        for outcome in runs.join_all().await {
            let failed = failure(outcome);
            assert_eq!(failed.status, Some(503), "{failed:?}");
            assert_eq!(failed.response.as_deref(), Some("wait"));
        }
        let seen = seen.lock().unwrap();
        assert_eq!(seen.len(), 50);
        assert!(seen.iter().all(|it| *it == (version, b"{}".to_vec())), "{seen:?}");
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_service_that_nobody_vouches_for_gets_nothing() {
    let files = Files::make("unknown");
    let (url, seen) = start(&files, b"\x02h2", false).await;
    for (config, words) in [
        (HttpConfig::new(&url), "certificate"),
        (trusting(&url.replace("127.0.0.1", "localhost"), &files), "mismatch"),
    ] {
        let failed = failure(send(&HttpHandler::new(&config).unwrap(), &record()).await);
        assert_eq!(failed.kind, Some(Kind::CONNECT), "{failed:?}");
        let message = failed.message.unwrap().to_lowercase();
        assert!(message.contains("not accepted") && message.contains(words), "{message}");
    }
    assert!(seen.lock().unwrap().is_empty());
}

#[tokio::test(flavor = "multi_thread")]
async fn we_can_show_who_we_are() {
    let files = Files::make("client");
    let (url, seen) = start(&files, b"\x02h2\x08http/1.1", true).await;
    let unknown = send(&HttpHandler::new(&trusting(&url, &files)).unwrap(), &record()).await;
    assert!(failure(unknown).status.is_none());
    let mut config = trusting(&url, &files);
    config.tls.cert = Some(files.path("client.pem"));
    config.tls.key = Some(files.path("client.key"));
    let outcome = send(&HttpHandler::new(&config).unwrap(), &record()).await;
    assert_eq!(failure(outcome).status, Some(503));
    assert_eq!(seen.lock().unwrap().len(), 1);
}

#[test]
fn files_that_cannot_be_used_are_told_with_their_key() {
    let files = Files::make("wrong");
    let path = |name: &str| Some(files.path(name));
    std::fs::write(files.path("empty.pem"), "").unwrap();
    let (cert, key) = (path("client.pem"), path("client.key"));
    for (tls, told, words) in [
        (Tls { ca: path("none.pem"), ..Tls::default() }, "tls.ca", "cannot be read"),
        (Tls { ca: path("empty.pem"), ..Tls::default() }, "tls.ca", "no certificate"),
        (Tls { ca: key.clone(), ..Tls::default() }, "tls.ca", "no certificate"),
        (Tls { cert: path("none.pem"), key: key.clone(), ca: None }, "tls.cert", "cannot be read"),
        (Tls { cert: cert.clone(), key: path("none.key"), ca: None }, "tls.key", "cannot be read"),
        (Tls { cert: cert.clone(), key: cert.clone(), ca: None }, "tls.key", "no key"),
        (Tls { cert, key: path("service.key"), ca: None }, "tls.key", "not the key"),
    ] {
        let config = HttpConfig { tls, ..HttpConfig::new("https://localhost/") };
        let error = HttpHandler::new(&config).unwrap_err();
        assert_eq!(error.key, told, "{error}");
        assert!(error.message.contains(words) && !error.hint.is_empty(), "{error}");
    }
    for url in ["", "localhost", "ftp://h/", "http://", "http://me:s3cr3t@", "http://h /s3cr3t"] {
        let error = HttpHandler::new(&HttpConfig::new(url)).unwrap_err();
        assert_eq!(error.key, "url");
        assert!(!error.to_string().contains("s3cr3t"), "{error}");
    }
}
