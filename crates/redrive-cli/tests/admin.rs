//! `redrive status`, `pause` and `resume`, against a listener that speaks of a consumer which is made up.

#![expect(clippy::unwrap_used, reason = "a run that cannot be started fails the test")]

mod common;

use std::process::Stdio;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use common::{Ran, redrive, run, run_with};
use redrive::config::{Admin, AdminToken};
use redrive::{FlowReport, FlowStatus, PartitionReport, Report};
use redrive_admin::{Server, Watched, serve};

const TOKEN: &str = "s3cr3t-s3cr3t-s3cr3t";

#[derive(Clone)]
struct Fake(Arc<Mutex<Report>>);

impl Watched for Fake {
    fn report(&self) -> Report {
        self.0.lock().unwrap().clone()
    }

    fn standing_still(&self) -> Vec<String> {
        Vec::new()
    }

    fn pause(&self, flow: &str) -> bool {
        self.0
            .lock()
            .unwrap()
            .state
            .flows
            .iter_mut()
            .filter(|it| it.topic == flow)
            .for_each(|it| it.is_paused = true);
        true
    }

    fn resume(&self, flow: &str) -> bool {
        self.0
            .lock()
            .unwrap()
            .state
            .flows
            .iter_mut()
            .filter(|it| it.topic == flow)
            .for_each(|it| it.is_paused = false);
        true
    }
}

fn start(token: Option<&str>) -> (Fake, Server) {
    let mut report = Report::default();
    report.state.is_joined = true;
    report.state.partitions = 3;
    for topic in ["orders", "refunds"] {
        let mut status = FlowStatus::default();
        status.topic = topic.to_owned();
        (status.succeeded, status.retried) = (1200, 7);
        let mut flow = FlowReport::default();
        flow.topic = topic.to_owned();
        flow.concurrency = 16;
        for (name, tier) in [(format!("{topic}.retry"), "0"), (topic.to_owned(), "source")] {
            let mut partition = PartitionReport::default();
            (partition.topic, partition.tier) = (name.into(), tier.to_owned());
            (partition.position, partition.end, partition.waiting) = (10, Some(52), 6);
            partition.oldest = Some(Duration::from_millis(3_723_500));
            flow.partitions.push(partition);
        }
        report.state.flows.push(status);
        report.flows.push(flow);
    }
    let fake = Fake(Arc::new(Mutex::new(report)));
    let admin = Admin {
        listen: "127.0.0.1:0".parse().unwrap(),
        token: token.map(|it| AdminToken::new(it).unwrap()),
    };
    let server = serve(&admin, fake.clone()).unwrap();
    (fake, server)
}

fn asked(server: &Server, args: &[&str]) -> Ran {
    let address = format!("http://{}", server.address());
    run(&[args, &["--admin", &address]].concat())
}

#[test]
fn status_shows_flows_and_topics() {
    let (_, server) = start(None);
    let ran = asked(&server, &["status"]);
    assert_eq!(ran.code, Some(0), "{}", ran.err);
    let expected = "\
✔ ready, 3 partitions

orders running
  0 of 16 running, 0 failed in the last minute, 0 held unpublished
  1200 done, 7 retried, 0 dead-lettered, 0 dropped
  topic         tier    lag  waiting  ready  oldest  overdue
  orders        source   42        6      0  1h2m3s        –
  orders.retry  0        42        6      0  1h2m3s        –
";
    assert!(ran.out.starts_with(expected), "{}", ran.out);
    let ran = asked(&server, &["status", "--flow", "refunds", "--format", "json"]);
    let json: serde_json::Value = serde_json::from_str(&ran.out).unwrap();
    assert_eq!(json["flows"].as_array().unwrap().len(), 1);
    let ran = asked(&server, &["status", "--flow", "nobody"]);
    assert!(ran.code == Some(2) && ran.err.contains("known: orders, refunds"), "{}", ran.err);
}

#[test]
fn status_is_1_where_something_is_wrong_and_says_what() {
    let (fake, server) = start(None);
    fake.0.lock().unwrap().state.flows[0].stopped = Some("no\u{1b}[2J database".to_owned());
    let ran = asked(&server, &["status"]);
    assert_eq!(ran.code, Some(1));
    assert!(
        ran.out.contains("✖ not ready")
            && ran.out.contains("the flow of orders has stopped: no [2J database"),
        "{}",
        ran.out
    );
    assert!(ran.out.contains("orders stopped"), "{}", ran.out);
}

#[test]
fn pause_and_resume_are_obeyed() {
    let (fake, server) = start(None);
    let is_paused = |flow: usize| fake.0.lock().unwrap().state.flows[flow].is_paused;
    let ran = asked(&server, &["pause", "--flow", "orders"]);
    assert_eq!((ran.code, ran.out.as_str()), (Some(0), "✔ orders paused\n"), "{}", ran.err);
    assert!(is_paused(0) && !is_paused(1));
    let ran = asked(&server, &["resume", "--format", "json"]);
    let json: serde_json::Value = serde_json::from_str(&ran.out).unwrap();
    assert_eq!(json, serde_json::json!({ "resumed": ["orders", "refunds"] }));
    assert!(!is_paused(0));
}

#[test]
fn the_token_comes_from_the_environment_or_the_config_and_is_never_shown() {
    let (fake, server) = start(Some(TOKEN));
    let ran = asked(&server, &["pause"]);
    assert!(
        ran.code == Some(2) && ran.err.contains("admin.token") && !ran.err.contains(TOKEN),
        "{}",
        ran.err
    );
    let address = format!("http://{}", server.address());
    let ran: Ran = redrive(&["pause", "--admin", &address])
        .env("REDRIVE_ADMIN_TOKEN", TOKEN)
        .output()
        .unwrap()
        .into();
    assert_eq!(ran.code, Some(0), "{}", ran.err);
    assert!(fake.0.lock().unwrap().state.flows[1].is_paused);
    let config = format!(
        "flows: [{{ topic: orders }}]\nadmin: {{ listen: \"{}\", token: {TOKEN} }}\n",
        server.address()
    );
    let ran = run_with(&["resume", "-c", "-"], &config);
    assert_eq!(ran.code, Some(0), "{}", ran.err);
    assert!(!fake.0.lock().unwrap().state.flows[1].is_paused);
    let ran: Ran = redrive(&["pause", "--admin", &address])
        .env("REDRIVE_ADMIN_TOKEN", "s3cr3t")
        .output()
        .unwrap()
        .into();
    assert!(
        ran.code == Some(2)
            && ran.err.contains("REDRIVE_ADMIN_TOKEN")
            && !ran.err.contains("s3cr3t"),
        "{}",
        ran.err
    );
}

#[test]
fn nobody_there_is_2_and_says_where() {
    let (_, server) = start(None);
    let address = format!("http://{}", server.address());
    drop(server);
    for command in ["status", "pause", "resume"] {
        let ran = run(&[command, "--admin", &address]);
        assert_eq!(ran.code, Some(2), "{command}");
        assert!(ran.err.contains(&format!("nobody answers at {address}")), "{}", ran.err);
    }
}

#[test]
fn a_config_without_a_listener_is_told_what_to_add() {
    let ran = run_with(&["status", "-c", "-"], "flows: [{ topic: orders }]\n");
    assert!(ran.code == Some(2) && ran.err.contains("add `admin: {}`"), "{}", ran.err);
    let ran = run_with(
        &["status", "-c", "-"],
        "flows: [{ topic: orders }]\nadmin: { listen: \":80\" }\n",
    );
    assert!(ran.code == Some(1) && ran.err.contains("admin.listen"), "{}", ran.err);
    let ran: Ran = redrive(&["status", "--admin", "https://me:s3cr3t@host"])
        .stdin(Stdio::null())
        .output()
        .unwrap()
        .into();
    assert!(ran.code == Some(2) && !ran.err.contains("s3cr3t"), "{}", ran.err);
}
