//! What operators see: events, numbers, health and commands.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use anyhow::Result;
use redrive::config::{Admin, AdminToken, FlowConfig};
use redrive::{
    Context, DelayBy, Delayed, Event, Failure, FlowReport, Histogram, Policy, Reason, Record,
    Strategy, Tier,
};
use redrive_admin::{Client, Command, Server};
use redrive_suite::broker::Broker;
use redrive_suite::own::free_port;
use redrive_suite::trial::{Member, Trial, until};

use super::single;

fn serve(member: &Member) -> Result<(Server, Client)> {
    let listen = "127.0.0.1:0".parse()?;
    let server = redrive_admin::serve(&Admin { listen, token: None }, member.handle.clone())?;
    let client = Client::at(&format!("http://{}", server.address()))?;
    Ok((server, client))
}

/// The status and the body of an answer.
fn get(server: &Server, path: &str) -> Result<(u16, String)> {
    use std::io::{Read, Write};
    let mut stream = std::net::TcpStream::connect(server.address())?;
    write!(stream, "GET {path} HTTP/1.1\r\nhost: localhost\r\n\r\n")?;
    let mut answer = String::new();
    stream.read_to_string(&mut answer)?;
    let (head, body) = answer.split_once("\r\n\r\n").unwrap_or((&answer, ""));
    Ok((head.split(' ').nth(1).unwrap_or("0").parse()?, body.to_owned()))
}

/// A sample of the page, by its name with its labels.
fn sample(server: &Server, name: &str) -> Result<Option<f64>> {
    let page = get(server, "/metrics")?.1;
    let found = page.lines().find_map(|it| it.strip_prefix(name)?.strip_prefix(' ')?.parse().ok());
    Ok(found)
}

fn report(member: &Member) -> FlowReport {
    member.handle.report().flows.into_iter().next().unwrap()
}

fn count(histogram: &Histogram) -> u64 {
    histogram.count()
}

/// The layout of the document: three attempts, then two, then one.
fn document(trial: &Trial) -> redrive::Flow {
    let tier = |name: &str, attempts| {
        Tier::new(format!("{}.retry.{name}", trial.topic), Duration::from_millis(60))
            .with_attempts(attempts)
    };
    trial
        .flow()
        .with_strategy(Strategy::Tiers(vec![
            tier("immediate", 3),
            tier("short", 2),
            tier("long", 1),
        ]))
        .with_dead_letter(format!("{}.error", trial.topic))
        .with_default(Policy::named("Anything").with_delayed(Delayed::default()))
}

#[tokio::test(flavor = "multi_thread")]
async fn the_three_situations_of_the_tiered_document_are_told_and_counted() -> Result<()> {
    let trial = Trial::new("told", 1).await?;
    let member = trial
        .start_with(trial.plain_config(document(&trial)), |_: Record, _: Context| async {
            Err::<(), _>(Failure::of_type("shop::DatabaseTimeout"))
        })
        .await?;
    let (server, _) = serve(&member)?;
    trial.produce(["order"])?;
    trial.records(&format!("{}.error", trial.topic), 1).await?;
    member.told("the end", |it| matches!(it, Event::DeadLettered { .. })).await?;
    let topic = &trial.topic;
    let told: Vec<String> = member
        .events()
        .iter()
        .filter(|it| matches!(it, Event::Retries { .. } | Event::DeadLettered { .. }))
        .map(|it| it.to_string().replace(topic.as_str(), "orders"))
        .collect();
    assert_eq!(
        told,
        [
            "orders/0/0 failed and goes to orders.retry.immediate (attempt 1/3 in this topic, total 1), due in 60ms by tier: DatabaseTimeout",
            "orders.retry.immediate/0/0 failed and goes to the same topic orders.retry.immediate again (attempt 2/3 in this topic, total 2), due in 60ms by tier: DatabaseTimeout",
            "orders.retry.immediate/0/1 failed and goes to the same topic orders.retry.immediate again (attempt 3/3 in this topic, total 3), due in 60ms by tier: DatabaseTimeout",
            "orders.retry.immediate/0/2 failed, its attempts there are spent, and it moves on to orders.retry.short (attempt 1/2 in this topic, total 4), due in 60ms by tier: DatabaseTimeout",
            "orders.retry.short/0/0 failed and goes to the same topic orders.retry.short again (attempt 2/2 in this topic, total 5), due in 60ms by tier: DatabaseTimeout",
            "orders.retry.short/0/1 failed, its attempts there are spent, and it moves on to orders.retry.long (attempt 1/1 in this topic, total 6), due in 60ms by tier: DatabaseTimeout",
            "all attempts of orders.retry.long/0/0 are spent (total 6), and it goes to the dead-letter topic orders.error: DatabaseTimeout",
        ]
    );
    trial.settled(&[topic.as_str()]).await?;
    let report = report(&member);
    let retried: BTreeMap<_, _> =
        report.retries.iter().map(|it| ((it.tier.as_str(), &*it.policy), it.count)).collect();
    let expected = [(("0", "Anything"), 3), (("1", "Anything"), 2), (("2", "Anything"), 1)];
    assert_eq!(retried, BTreeMap::from(expected));
    assert!(report.dead_letters.contains(&(Reason::Attempts, 1)));
    assert_eq!((count(&report.lateness), count(&report.run_time)), (6, 7));
    assert!(report.lateness.sum < Duration::from_secs(30), "{:?}", report.lateness);
    let status = member.flow()?;
    assert_eq!((status.failed, status.failed_last_minute, status.succeeded), (7, 7, 0));
    let tier = format!(
        "redrive_retries_total{{flow=\"{topic}\",topic=\"{topic}.retry.short\",tier=\"1\",policy=\"Anything\"}}"
    );
    assert_eq!(sample(&server, &tier)?, Some(2.0));
    let dead = format!("redrive_dead_letters_total{{flow=\"{topic}\",reason=\"attempts\"}}");
    assert_eq!(sample(&server, &dead)?, Some(1.0));
    member.stop().await?;
    Ok(())
}

#[tokio::test(flavor = "multi_thread")]
async fn events_tell_how_a_delay_was_found() -> Result<()> {
    let trial = Trial::new("delays", 1).await?;
    let member = trial
        .start(single(&trial), |record: Record, context: Context| async move {
            let failure = Failure::of_type("Busy");
            match (record.value(), context.overall_attempts()) {
                (Some(b"after"), 0) => Err(failure.with_retry_after(Duration::from_millis(300))),
                (Some(b"plain"), 0) => Err(failure),
                _ => Ok(()),
            }
        })
        .await?;
    trial.produce(["after", "plain"])?;
    member.until("both are done", |state| state.flows[0].succeeded == 2).await?;
    let found = |is_it: fn(&Event) -> Option<(i64, DelayBy, Duration)>| -> Vec<_> {
        member.events().iter().filter_map(is_it).collect()
    };
    let published = found(|it| match it {
        Event::Retries { spot, by, delay, .. } => Some((spot.offset, *by, *delay)),
        _ => None,
    });
    assert!(
        published.contains(&(0, DelayBy::RetryAfter, Duration::from_millis(300))),
        "{published:?}"
    );
    assert!(
        published.contains(&(1, DelayBy::Backoff, Duration::from_millis(200))),
        "{published:?}"
    );
    let in_place = found(|it| match it {
        Event::RunsAgain { spot, by, wait, .. } => Some((spot.offset, *by, *wait)),
        _ => None,
    });
    assert_eq!(in_place, [(1, DelayBy::Backoff, Duration::from_millis(10)); 2]);
    let report = report(&member);
    let quick: Vec<_> = report
        .in_memory_retries
        .iter()
        .map(|it| (it.tier.as_str(), &*it.policy, it.count))
        .collect();
    assert_eq!(quick, [("source", "Busy", 2)]);
    member.stop().await?;
    Ok(())
}

#[tokio::test(flavor = "multi_thread")]
async fn before_its_brokers_are_there_it_lives_and_is_not_ready() -> Result<()> {
    let broker = Broker::at(format!("127.0.0.1:{}", free_port()?));
    let trial = Trial::without_topic(broker, "unborn");
    let member = trial.spawn(trial.config(single(&trial)), |_: Record, _: Context| async {});
    let (server, client) = serve(&member)?;
    assert_eq!(get(&server, "/livez")?.0, 200);
    let (status, why) = get(&server, "/readyz")?;
    assert!(status == 503 && why.contains("brokers"), "{status} {why}");
    assert_eq!(sample(&server, "redrive_ready")?, Some(0.0));
    let told = client.tell(Command::Pause, None).await.unwrap_err().to_string();
    assert!(told.contains("no flow runs yet"), "{told}");
    member.stop().await?;
    Ok(())
}

#[tokio::test(flavor = "multi_thread")]
async fn health_follows_what_happens_and_commands_are_obeyed() -> Result<()> {
    let trial = Trial::new("health", 2).await?;
    let is_repaired = Arc::new(AtomicBool::new(false));
    let repaired = Arc::clone(&is_repaired);
    let member = trial
        .start(single(&trial), move |record: Record, _: Context| {
            let is_fine = repaired.load(Ordering::SeqCst) || record.value() != Some(b"bad");
            async move {
                if is_fine {
                    redrive::Outcome::Done
                } else {
                    redrive::Outcome::stop(Failure::of_type("Broken"))
                }
            }
        })
        .await?;
    let (server, client) = serve(&member)?;
    assert_eq!(get(&server, "/readyz")?, (200, "ready\n".to_owned()));
    assert_eq!(get(&server, "/livez")?.0, 200);

    assert_eq!(client.tell(Command::Pause, Some(&trial.topic)).await?.join(","), trial.topic);
    assert_eq!(client.status().await?["flows"][0]["state"], "paused");
    assert_eq!(get(&server, "/readyz")?.0, 200, "whoever paused it knows");
    trial.produce(["good"])?;
    let ready =
        format!("redrive_ready_records{{flow=\"{0}\",topic=\"{0}\",tier=\"source\"}}", trial.topic);
    until("the record is ready", || sample(&server, &ready).is_ok_and(|it| it == Some(1.0)))
        .await?;
    assert_eq!(member.flow()?.succeeded, 0);
    client.tell(Command::Resume, None).await?;
    member.until("it ran", |state| state.flows[0].succeeded == 1).await?;

    trial.produce(["bad"])?;
    until("it is not ready", || get(&server, "/readyz").is_ok_and(|it| it.0 == 503)).await?;
    let why = get(&server, "/readyz")?.1;
    assert!(why.contains("Broken") && why.contains(&trial.topic), "{why}");
    let stopped = format!("redrive_stopped{{flow=\"{}\"}}", trial.topic);
    assert_eq!(sample(&server, &stopped)?, Some(1.0));
    assert_eq!(get(&server, "/livez")?.0, 200);
    is_repaired.store(true, Ordering::SeqCst);
    client.tell(Command::Resume, Some(&trial.topic)).await?;
    until("it is ready again", || get(&server, "/readyz").is_ok_and(|it| it.0 == 200)).await?;
    let events = member.stop().await?;
    for (name, times) in
        [("started", 1), ("paused", 1), ("stopped", 1), ("resumed", 2), ("ended", 1)]
    {
        assert_eq!(events.iter().filter(|it| it.name() == name).count(), times, "{name}");
    }
    // The listener outlives the consumer, and says that it is over.
    let (status, why) = get(&server, "/readyz")?;
    assert!(status == 503 && why.contains("ending"), "{why}");
    Ok(())
}

#[tokio::test(flavor = "multi_thread")]
async fn it_is_not_ready_while_a_publish_fails() -> Result<()> {
    let trial = Trial::new("unready", 1).await?;
    let member = trial
        .start(single(&trial), |_: Record, _: Context| async {
            Err::<(), _>(Failure::of_status(404))
        })
        .await?;
    let (server, _) = serve(&member)?;
    trial.broker.delete_topic(&trial.dead_letters()).await?;
    trial.produce(["bad"])?;
    until("it is not ready", || get(&server, "/readyz").is_ok_and(|it| it.0 == 503)).await?;
    let why = get(&server, "/readyz")?.1;
    assert!(why.contains("cannot be published"), "{why}");
    assert!(report(&member).publish_failures > 0);
    trial.broker.make_topics(&[(&trial.dead_letters(), 1)], &[]).await?;
    until("it is ready again", || get(&server, "/readyz").is_ok_and(|it| it.0 == 200)).await?;
    member.told("that all is published", |it| matches!(it, Event::Recovered)).await?;
    // A run that ends by itself is not ready any more either.
    let handle = member.handle.clone();
    member.stop().await?;
    assert!(!handle.state().is_ready());
    Ok(())
}

#[tokio::test(flavor = "multi_thread")]
async fn lag_is_what_was_not_read_and_what_waits_holds_back_the_commit_point_alone() -> Result<()> {
    const RECORDS: usize = 60_000;
    let trial = Trial::new("lag", 1).await?;
    let flow = trial
        .flow()
        .with_strategy(Strategy::Single(
            Tier::endless(trial.retry()).with_delay(Duration::from_secs(3600)),
        ))
        .with_default(Policy::default().with_delayed(Delayed::attempts(1)));
    // What librdkafka keeps for itself is small, so that it stops fetching while the flow is paused.
    let config = trial
        .plain_config(FlowConfig::new(flow))
        .with_kafka("queued.max.messages.kbytes", "64")
        .with_kafka("queued.min.messages", "10");
    let member = trial
        .start_with(config, |record: Record, _: Context| async move {
            if record.value() == Some(b"0") { Err(Failure::of_status(503)) } else { Ok(()) }
        })
        .await?;
    let (server, _) = serve(&member)?;
    trial.produce(["0"])?;
    let of = |name: &str, topic: &str| {
        let (flow, group) = (&trial.topic, &trial.group);
        sample(
            &server,
            &format!(
                "{name}{{flow=\"{flow}\",topic=\"{topic}\",partition=\"0\",group=\"{group}\"}}"
            ),
        )
    };
    let waiting = format!(
        "redrive_waiting_records{{flow=\"{}\",topic=\"{}\",tier=\"0\"}}",
        trial.topic,
        trial.retry()
    );
    until("a record waits", || sample(&server, &waiting).is_ok_and(|it| it == Some(1.0))).await?;
    until("the end is known", || {
        of("redrive_uncommitted_records", &trial.retry()).is_ok_and(|it| it == Some(1.0))
    })
    .await?;
    assert_eq!(of("redrive_lag_records", &trial.retry())?, Some(0.0), "it was read");

    member.handle.pause(&trial.topic);
    member.until("it is paused", |state| state.flows[0].is_paused).await?;
    trial.produce(0..RECORDS / 2)?;
    trial.produce(0..RECORDS / 2)?;
    until("it is behind", || {
        of("redrive_lag_records", &trial.topic).is_ok_and(|it| it.is_some_and(|it| it > 1_000.0))
    })
    .await?;
    // Fetching rests, and yet the end of the log is known.
    let all = u32::try_from(RECORDS)?;
    until("all that is behind is known", || {
        of("redrive_uncommitted_records", &trial.topic).is_ok_and(|it| it == Some(f64::from(all)))
    })
    .await?;
    assert!(of("redrive_lag_records", &trial.topic)?.is_some_and(|it| it < f64::from(all)));
    assert!(report(&member).partitions.iter().any(|it| it.tier == "source" && it.oldest.is_some()));
    member.handle.resume(&trial.topic);
    until("it has caught up", || {
        of("redrive_lag_records", &trial.topic).is_ok_and(|it| it == Some(0.0))
    })
    .await?;
    until("all is committed", || {
        of("redrive_uncommitted_records", &trial.topic).is_ok_and(|it| it == Some(0.0))
    })
    .await?;
    member.stop().await?;
    Ok(())
}

#[tokio::test(flavor = "multi_thread")]
async fn a_breaker_that_opens_is_told_and_seen() -> Result<()> {
    let trial = Trial::new("breaker", 1).await?;
    let is_up = Arc::new(AtomicBool::new(false));
    let up = Arc::clone(&is_up);
    let breaker = redrive::config::BreakerConfig {
        minimum: 5,
        probe: Duration::from_millis(100),
        ..redrive::config::BreakerConfig::default()
    };
    let flow = FlowConfig::new(single(&trial)).with_breaker(breaker);
    let member = trial
        .start(flow, move |_: Record, _: Context| {
            let is_up = up.load(Ordering::SeqCst);
            async move { if is_up { Ok(()) } else { Err(Failure::of_status(503)) } }
        })
        .await?;
    let (server, _) = serve(&member)?;
    trial.produce(0..20)?;
    let open = format!("redrive_breaker_open{{flow=\"{}\"}}", trial.topic);
    until("it is open", || sample(&server, &open).is_ok_and(|it| it == Some(1.0))).await?;
    is_up.store(true, Ordering::SeqCst);
    until("it is closed", || sample(&server, &open).is_ok_and(|it| it == Some(0.0))).await?;
    member.told("that it opened", |it| matches!(it, Event::BreakerOpened)).await?;
    member.told("that it closed", |it| matches!(it, Event::BreakerClosed)).await?;
    member.stop().await?;
    Ok(())
}

#[tokio::test(flavor = "multi_thread")]
async fn secrets_are_in_no_event_status_or_metric() -> Result<()> {
    const SECRET: &str = "s3cr3t-s3cr3t-s3cr3t";
    let broker = Broker::at(format!("127.0.0.1:{}", free_port()?));
    let trial = Trial::without_topic(broker, "secret");
    let config = trial
        .config(single(&trial))
        .with_kafka("security.protocol", "SASL_PLAINTEXT")
        .with_kafka("sasl.mechanism", "PLAIN")
        .with_kafka("sasl.username", "me")
        .with_kafka("sasl.password", SECRET);
    let member = trial.spawn(config, |_: Record, _: Context| async {});
    let admin = Admin { listen: "127.0.0.1:0".parse()?, token: AdminToken::new(SECRET) };
    let server = redrive_admin::serve(&admin, member.handle.clone())?;
    member.told("that nobody is there", |it| matches!(it, Event::Client { .. })).await?;
    for path in ["/metrics", "/status", "/readyz", "/"] {
        assert!(!get(&server, path)?.1.contains(SECRET), "{path}");
    }
    let told: String = member.events().iter().map(|it| format!("{it} {it:?}")).collect();
    assert!(!told.contains(SECRET), "{told}");
    member.stop().await?;
    Ok(())
}

/// The variable that tells a process of its own what to consume, and how many records there are.
const LOGGED: &str = "REDRIVE_LOGGED";
const FAILING: u64 = 3000;

#[tokio::test(flavor = "multi_thread")]
async fn a_flow_that_fails_does_not_flood_the_log_and_every_line_is_counted() -> Result<()> {
    let trial = Trial::new("flood", 1).await?;
    trial.produce(0..FAILING)?;
    let test = "observing::a_process_of_its_own_that_fails";
    let output = std::process::Command::new(std::env::current_exe()?)
        .args(["--ignored", "--exact", test, "--nocapture"])
        .env(LOGGED, format!("{} {}", trial.topic, trial.group))
        .env_remove("RUST_LOG")
        .output()?;
    let log = String::from_utf8(output.stderr)?;
    assert!(output.status.success(), "{log}");
    let lines: Vec<serde_json::Value> =
        log.lines().filter_map(|it| serde_json::from_str(it).ok()).collect();
    let of = |event: &str| -> Vec<_> { lines.iter().filter(|it| it["event"] == event).collect() };
    let written = of("dead_lettered");
    let sums = of("summed_up").into_iter().filter(|it| it["of"] == "dead_lettered");
    let summed: Vec<u64> = sums.map(|it| it["count"].as_u64().unwrap()).collect();
    assert_eq!(written.len() as u64 + summed.iter().sum::<u64>(), FAILING, "{summed:?}");
    assert!(
        !summed.is_empty() && written.len() <= 5 * summed.len(),
        "{} lines, {summed:?}",
        written.len()
    );
    let first = written[0];
    assert_eq!((&first["level"], &first["flow"]), (&"ERROR".into(), &trial.topic.as_str().into()));
    // Runs are side by side, so any of them may be the first to be dead-lettered.
    assert!(first["offset"].as_u64().is_some_and(|it| it < FAILING), "{first}");
    assert_eq!(first["reason"], "not-retryable");
    assert_eq!((&first["to"], &first["total"]), (&trial.dead_letters().into(), &0.into()));
    assert_eq!(first["error"], "status 404: no such order");
    assert_eq!(
        (of("started").len(), of("ended").len()),
        (1, 1),
        "its beginning and its end are told"
    );
    Ok(())
}

#[tokio::test(flavor = "multi_thread")]
#[ignore = "started by another test, as a process of its own"]
async fn a_process_of_its_own_that_fails() -> Result<()> {
    let Ok(names) = std::env::var(LOGGED) else {
        return Ok(());
    };
    let (topic, group) = names.split_once(' ').unwrap();
    let trial =
        Trial { broker: Broker::from_env()?, topic: topic.to_owned(), group: group.to_owned() };
    let format = redrive::config::LogFormat::Json;
    redrive_admin::log::init(redrive::config::Log { format, ..redrive::config::Log::default() })?;
    let member = trial
        .start(single(&trial), |_: Record, _: Context| async {
            Err::<(), _>(Failure::of_status(404).with_message("no such order"))
        })
        .await?;
    member.until("all have failed", |state| state.flows[0].dead_lettered == FAILING).await?;
    trial.settled(&[&trial.topic]).await?;
    member.stop().await?;
    Ok(())
}
