//! Requests over real connections, friendly and not.

use std::io::{Read, Write};
use std::net::{SocketAddr, TcpStream};
use std::time::{Duration, Instant};

use redrive::config::{Admin, AdminToken};
use redrive_admin::{Client, ClientError, Command, Server, serve};

use crate::{Fake, sample};

const TOKEN: &str = "s3cr3t-s3cr3t-s3cr3t";

fn admin(listen: &str, token: Option<&str>) -> Admin {
    Admin { listen: listen.parse().unwrap(), token: token.map(|it| AdminToken::new(it).unwrap()) }
}

fn start(listen: &str, token: Option<&str>, fake: &Fake) -> Server {
    serve(&admin(listen, token), fake.clone()).unwrap()
}

/// Where this machine reaches it.
fn here(server: &Server) -> SocketAddr {
    format!("127.0.0.1:{}", server.address().port()).parse().unwrap()
}

/// Sends this request and gives the status, the head and the body.
fn send(to: SocketAddr, request: &str) -> (u16, String, String) {
    let mut stream = TcpStream::connect(to).unwrap();
    stream.set_read_timeout(Some(Duration::from_secs(20))).unwrap();
    stream.write_all(request.as_bytes()).unwrap();
    let mut answer = String::new();
    stream.read_to_string(&mut answer).unwrap();
    let (head, body) = answer.split_once("\r\n\r\n").unwrap_or_else(|| panic!("{answer:?}"));
    let status = head.split(' ').nth(1).unwrap().parse().unwrap();
    (status, head.to_ascii_lowercase(), body.to_owned())
}

fn request(to: SocketAddr, method: &str, path: &str, headers: &str) -> (u16, String, String) {
    send(to, &format!("{method} {path} HTTP/1.1\r\nhost: {to}\r\n{headers}\r\n"))
}

fn get(to: SocketAddr, path: &str) -> (u16, String, String) {
    request(to, "GET", path, "")
}

fn is_paused(fake: &Fake, flow: &str) -> bool {
    use redrive_admin::Watched;
    fake.report().state.flows.iter().any(|it| it.topic == flow && it.is_paused)
}

#[test]
fn it_lives_unless_a_poll_thread_stands_still() {
    let fake = Fake::default();
    let server = start("127.0.0.1:0", None, &fake);
    assert_eq!(get(here(&server), "/livez").0, 200, "before the brokers are there, too");
    fake.stand_still(&["billing"]);
    let (status, _, body) = get(here(&server), "/livez");
    assert_eq!(status, 503);
    assert!(body.contains("billing"), "{body}");
}

#[test]
fn a_process_that_was_asleep_as_a_whole_is_looked_at_twice() {
    let fake = Fake::default();
    fake.stand_still(&["billing"]);
    let server = start("127.0.0.1:0", None, &fake);
    let woken = fake.clone();
    let asked = std::thread::spawn(move || get(here(&server), "/livez"));
    std::thread::sleep(Duration::from_millis(100));
    woken.stand_still(&[]);
    assert_eq!(asked.join().unwrap().0, 200);
}

#[test]
fn ready_says_why_it_is_not() {
    let fake = Fake::default();
    let server = start("127.0.0.1:0", None, &fake);
    let ready = || get(here(&server), "/readyz");
    assert_eq!((ready().0, ready().2), (503, "the brokers have not answered yet\n".to_owned()));
    fake.change(|report| *report = sample());
    fake.change(|report| report.state.is_joined = false);
    assert_eq!((ready().0, ready().2), (503, "no partitions were assigned yet\n".to_owned()));
    fake.change(|report| report.state.is_joined = true);
    assert_eq!((ready().0, ready().2), (200, "ready\n".to_owned()));
    // A member that got no partitions is ready all the same.
    fake.change(|report| report.state.partitions = 0);
    assert_eq!(ready().0, 200);
    fake.change(|report| report.state.flows[0].unpublished = 1);
    assert_eq!(
        (ready().0, ready().2),
        (503, "a record of orders cannot be published and is held\n".to_owned())
    );
    fake.change(|report| report.state.flows[0].unpublished = 0);
    fake.change(|report| report.state.flows[1].stopped = Some("no database".to_owned()));
    assert_eq!(
        (ready().0, ready().2),
        (503, "the flow of refunds has stopped: no database\n".to_owned())
    );
    fake.change(|report| report.state.flows[1].stopped = None);
    // Whoever pauses a flow knows.
    fake.change(|report| report.state.flows[1].is_paused = true);
    assert_eq!(ready().0, 200);
    fake.change(|report| report.state.is_ending = true);
    assert_eq!(ready().0, 503);
}

#[test]
fn metrics_and_status_are_there() {
    let server = start("127.0.0.1:0", None, &Fake::with(sample()));
    let (status, head, page) = get(here(&server), "/metrics");
    assert_eq!(status, 200);
    assert!(head.contains("content-type: text/plain; version=0.0.4"), "{head}");
    crate::prometheus::read(&page);
    let (status, _, body) = get(here(&server), "/status");
    assert_eq!(status, 200);
    let json: serde_json::Value = serde_json::from_str(&body).unwrap();
    assert_eq!((&json["ready"], &json["flows"][1]["topic"]), (&true.into(), &"refunds".into()));
    assert_eq!(json["flows"][0]["topics"][0]["lag"], 60);
    let (status, head, body) = request(here(&server), "HEAD", "/metrics", "");
    assert!(status == 200 && body.is_empty() && head.contains("content-length"), "{head}");
}

#[test]
fn other_paths_and_methods_are_told_what_there_is() {
    let server = start("127.0.0.1:0", None, &Fake::with(sample()));
    assert!(get(here(&server), "/").2.contains("/readyz"));
    assert_eq!(get(here(&server), "/metrics/").0, 404);
    let (status, head, _) = request(here(&server), "POST", "/metrics", "content-length: 0\r\n");
    assert!(status == 405 && head.contains("allow: get, head"), "{head}");
    let (status, head, _) = get(here(&server), "/pause");
    assert!(status == 405 && head.contains("allow: post"), "{head}");
    assert_eq!(request(here(&server), "DELETE", "/livez", "").0, 405);
}

#[test]
fn on_this_machine_flows_are_paused_and_resumed_without_a_token() {
    let fake = Fake::with(sample());
    let server = start("127.0.0.1:0", None, &fake);
    let post = |path: &str| request(here(&server), "POST", path, "content-length: 0\r\n");
    let (status, _, body) = post("/pause?flow=orders");
    assert_eq!(status, 200, "{body}");
    assert!(is_paused(&fake, "orders") && !is_paused(&fake, "refunds"));
    assert_eq!(post("/pause").0, 200);
    assert!(is_paused(&fake, "refunds"), "all of them");
    assert_eq!(post("/resume?flow=orders").0, 200);
    assert!(!is_paused(&fake, "orders") && is_paused(&fake, "refunds"));
    let (status, _, body) = post("/pause?flow=nobody");
    assert!(status == 404 && body.contains("known: orders, refunds"), "{body}");
    assert_eq!(post("/pause?topic=orders").0, 400);
    fake.change(|report| *report = redrive::Report::default());
    assert_eq!(post("/pause").0, 503, "nothing runs yet");
}

#[test]
fn web_pages_of_others_cannot_pause_a_flow() {
    let fake = Fake::with(sample());
    let server = start("127.0.0.1:0", None, &fake);
    let to = here(&server);
    for headers in [
        "origin: https://evil.example\r\n",
        "origin: null\r\n",
        "sec-fetch-site: cross-site\r\n",
        "sec-fetch-site: same-site\r\norigin: http://127.0.0.1:1\r\n",
    ] {
        let (status, _, body) =
            request(to, "POST", "/pause", &format!("{headers}content-length: 0\r\n"));
        assert!(status == 403 && body.contains("admin.token"), "{headers}: {body}");
    }
    // A name of somebody else that was made to point here.
    let rebound = |method: &str, path: &str| {
        let own = "origin: http://evil.example:9464\r\nsec-fetch-site: same-origin\r\ncontent-length: 0\r\n";
        send(to, &format!("{method} {path} HTTP/1.1\r\nhost: evil.example:9464\r\n{own}\r\n")).0
    };
    assert_eq!(rebound("POST", "/pause"), 403);
    assert_eq!((rebound("GET", "/status"), rebound("GET", "/metrics")), (403, 403));
    assert_eq!(rebound("GET", "/readyz"), 200, "probes may come by any name");
    assert!(!is_paused(&fake, "orders"));
    // A page of our own may.
    let own =
        format!("origin: http://{to}\r\nsec-fetch-site: same-origin\r\ncontent-length: 0\r\n");
    assert_eq!(request(to, "POST", "/pause", &own).0, 200);
    let localhost = format!(
        "POST /resume HTTP/1.1\r\nhost: localhost:{}\r\ncontent-length: 0\r\n\r\n",
        to.port()
    );
    assert_eq!(send(to, &localhost).0, 200);
}

#[test]
fn off_this_machine_only_the_commands_need_the_token() {
    let fake = Fake::with(sample());
    let server = start("0.0.0.0:0", None, &fake);
    assert_eq!(get(here(&server), "/metrics").0, 200);
    let anyhow = "host: metrics.example:9464\r\n";
    assert_eq!(send(here(&server), &format!("GET /status HTTP/1.1\r\n{anyhow}\r\n")).0, 200);
    let (status, _, body) = request(here(&server), "POST", "/pause", "content-length: 0\r\n");
    assert!(status == 403 && body.contains("set `admin.token`"), "{body}");
    drop(server);

    let server = start("0.0.0.0:0", Some(TOKEN), &fake);
    let post = |headers: &str| {
        request(here(&server), "POST", "/pause", &format!("{headers}content-length: 0\r\n"))
    };
    let (status, head, body) = post("");
    assert!(status == 401 && head.contains("www-authenticate: bearer"), "{head}");
    assert!(!body.contains(TOKEN));
    for wrong in [
        "Bearer x",
        "Bearer ",
        TOKEN,
        "Basic czNjcjN0",
        "Bearer s3cr3t-s3cr3t-s3cr3T",
        "Bearer s3cr3t-s3cr3t-s3cr3t-",
    ] {
        assert_eq!(post(&format!("authorization: {wrong}\r\n")).0, 401, "{wrong}");
    }
    assert!(!is_paused(&fake, "orders"));
    // The token proves enough, wherever the request comes from.
    assert_eq!(
        post(&format!("authorization: Bearer {TOKEN}\r\norigin: https://ops.example\r\n")).0,
        200
    );
    assert!(is_paused(&fake, "orders"));
    assert_eq!(get(here(&server), "/metrics").0, 200);
}

#[test]
fn a_token_that_is_set_is_needed_on_this_machine_too() {
    let server = start("127.0.0.1:0", Some(TOKEN), &Fake::with(sample()));
    assert_eq!(request(here(&server), "POST", "/pause", "content-length: 0\r\n").0, 401);
}

#[test]
fn clients_that_never_finish_do_not_keep_others_out() {
    let server = start("127.0.0.1:0", None, &Fake::with(sample()));
    let slow: Vec<_> = (0..200)
        .map(|_| {
            let mut stream = TcpStream::connect(here(&server)).unwrap();
            stream.write_all(b"GET /metrics HTTP/1.1\r\nhost:").unwrap();
            stream
        })
        .collect();
    let began = Instant::now();
    assert_eq!(get(here(&server), "/livez").0, 200);
    assert!(began.elapsed() < Duration::from_secs(4), "it took {:?}", began.elapsed());
    // And they are not kept for ever.
    let mut last = slow.into_iter().next_back().unwrap();
    last.set_read_timeout(Some(Duration::from_secs(30))).unwrap();
    let mut answer = Vec::new();
    _ = last.read_to_end(&mut answer);
    assert!(began.elapsed() < Duration::from_secs(25), "it took {:?}", began.elapsed());
}

#[test]
fn requests_that_are_none_or_too_large_are_no_trouble() {
    let server = start("127.0.0.1:0", None, &Fake::with(sample()));
    let long = "x".repeat(100_000);
    for request in [
        "\0\x01\x02\r\n\r\n".to_owned(),
        "GET\r\n\r\n".to_owned(),
        format!("GET /{long} HTTP/1.1\r\n\r\n"),
        format!("GET / HTTP/1.1\r\nx: {long}\r\n\r\n"),
        format!("GET / HTTP/1.1\r\n{}\r\n", "a: b\r\n".repeat(1_000)),
        "PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n".to_owned(),
    ] {
        let mut stream = TcpStream::connect(here(&server)).unwrap();
        stream.set_read_timeout(Some(Duration::from_secs(20))).unwrap();
        // It may be closed before all is written.
        _ = stream.write_all(request.as_bytes());
        _ = stream.read_to_end(&mut Vec::new());
    }
    assert_eq!(get(here(&server), "/livez").0, 200);
}

#[test]
fn an_address_that_is_taken_is_told() {
    let first = start("127.0.0.1:0", None, &Fake::default());
    let taken = first.address();
    let error = serve(&admin(&taken.to_string(), None), Fake::default()).unwrap_err().to_string();
    assert!(error.contains(&taken.to_string()) && error.contains("admin.listen"), "{error}");
    drop(first);
    start(&taken.to_string(), None, &Fake::default());
}

fn block_on<T>(future: impl Future<Output = T>) -> T {
    tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap().block_on(future)
}

#[test]
fn the_client_asks_and_tells() {
    let fake = Fake::with(sample());
    let server = start("0.0.0.0:0", Some(TOKEN), &fake);
    let client = Client::of(&admin(&server.address().to_string(), Some(TOKEN))).unwrap();
    let status = block_on(client.status()).unwrap();
    assert_eq!(status["flows"][0]["state"], "running");
    assert_eq!(block_on(client.tell(Command::Pause, Some("orders"))).unwrap(), ["orders"]);
    assert!(is_paused(&fake, "orders"));
    assert_eq!(block_on(client.tell(Command::Resume, None)).unwrap(), ["orders", "refunds"]);
    assert!(!is_paused(&fake, "orders"));

    let without = Client::at(&format!("http://127.0.0.1:{}", server.address().port())).unwrap();
    let error = block_on(without.tell(Command::Pause, None)).unwrap_err();
    assert!(matches!(&error, ClientError::Refused { status: 401, .. }), "{error}");
    let error = block_on(client.tell(Command::Pause, Some("a&b"))).unwrap_err().to_string();
    assert!(error.contains("`a&b`") && error.contains("known: orders"), "{error}");
}

#[test]
fn the_client_says_when_nobody_is_there_or_somebody_else_is() {
    let free = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
    let address = free.local_addr().unwrap();
    let client = Client::at(&format!("http://{address}")).unwrap();
    let other = std::thread::spawn(move || {
        let mut stream = free.accept().unwrap().0;
        _ = stream.read(&mut [0; 1024]);
        stream.write_all(b"HTTP/1.1 200 OK\r\ncontent-length: 2\r\n\r\nhi").unwrap();
    });
    let error = block_on(client.status()).unwrap_err();
    assert!(matches!(&error, ClientError::Stranger { .. }), "{error}");
    other.join().unwrap();
    let error = block_on(client.status()).unwrap_err().to_string();
    assert!(error.contains(&format!("nobody answers at http://{address}")), "{error}");
    assert!(error.contains("redrive run"), "{error}");
}
