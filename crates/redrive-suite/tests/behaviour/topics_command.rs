//! `redrive topics`, as a shell sees it.

use std::path::PathBuf;
use std::process::{Command, Output};

use anyhow::{Context as _, Result, ensure};
use redrive_suite::broker::Broker;
use redrive_suite::own::free_port;
use redrive_suite::trial::Trial;
use serde_json::Value;

/// The command line, built beside these tests.
fn program() -> Result<PathBuf> {
    let own = std::env::current_exe()?;
    let directory = own.parent().and_then(|it| it.parent()).context("no directory")?;
    let program = directory.join("redrive");
    ensure!(program.exists(), "{} is missing: cargo build --workspace", program.display());
    Ok(program)
}

struct Shell {
    program: PathBuf,
    config: PathBuf,
}

impl Shell {
    fn new(trial: &Trial) -> Result<Self> {
        let config = std::env::temp_dir().join(format!("{}.yaml", trial.topic));
        let (broker, group, topic) = (&trial.broker.address, &trial.group, &trial.topic);
        let text = format!(
            "kafka: {{ bootstrap.servers: \"{broker}\", sasl.password: s3cr3t }}\ngroup: {group}\nflows:\n- topic: {topic}\n  retry: {{ strategy: single }}\n"
        );
        std::fs::write(&config, text)?;
        Ok(Self { program: program()?, config })
    }

    fn topics(&self, arguments: &[&str]) -> Result<(Option<i32>, String, String)> {
        let mut command = Command::new(&self.program);
        command.arg("topics").args(arguments).arg("-c").arg(&self.config);
        let Output { status, stdout, stderr } = command.output()?;
        let (out, err) = (String::from_utf8(stdout)?, String::from_utf8(stderr)?);
        assert!(!out.contains("s3cr3t") && !err.contains("s3cr3t"), "{out}{err}");
        Ok((status.code(), out, err))
    }
}

impl Drop for Shell {
    fn drop(&mut self) {
        _ = std::fs::remove_file(&self.config);
    }
}

fn statuses(json: &str) -> Result<Vec<String>> {
    let report: Value = serde_json::from_str(json)?;
    let topics = report["topics"].as_array().context("no topics")?;
    Ok(topics.iter().map(|it| it["status"].as_str().unwrap_or_default().to_owned()).collect())
}

#[tokio::test(flavor = "multi_thread")]
async fn exit_codes_say_what_is_missing_and_apply_puts_it_right() -> Result<()> {
    let trial = Trial::without_topic(Broker::from_env()?, "command");
    let shell = Shell::new(&trial)?;
    // Without the source nothing is made.
    let (code, out, err) = shell.topics(&["apply"])?;
    assert_eq!(code, Some(1), "{out}{err}");
    assert!(out.contains("--create-sources"), "{out}");
    let (code, out, _) = shell.topics(&["plan", "--format", "json"])?;
    assert_eq!(code, Some(1));
    assert_eq!(statuses(&out)?, ["blocked", "blocked", "blocked", "present"]);

    trial.broker.make_topics(&[(&trial.topic, 2)], &[]).await?;
    let (code, out, err) = shell.topics(&["plan"])?;
    assert_eq!(code, Some(1), "{out}{err}");
    for words in ["missing", "redrive topics apply", "retention.ms=604800000", "kafka-acls.sh"] {
        assert!(out.contains(words), "{words}: {out}");
    }
    let (code, out, _) = shell.topics(&["apply", "--dry-run"])?;
    assert_eq!(code, Some(0), "{out}");
    assert!(out.contains("would be made"), "{out}");
    assert_eq!(shell.topics(&["plan"])?.0, Some(1), "a dry run made something");

    let (code, out, err) = shell.topics(&["apply"])?;
    assert_eq!(code, Some(0), "{out}{err}");
    for topic in [trial.retry(), trial.dead_letters()] {
        assert!(out.contains(&format!("{topic} is made: 2 partitions, replication 1")), "{out}");
    }
    let (code, out, _) = shell.topics(&["apply", "--format", "json"])?;
    assert_eq!(code, Some(0));
    let report: Value = serde_json::from_str(&out)?;
    assert_eq!((&report["made"], &report["complete"]), (&Value::Array(Vec::new()), &true.into()));
    assert_eq!(shell.topics(&["plan", "--strict"])?.0, Some(0));

    trial.broker.set(&trial.dead_letters(), &[("retention.ms", "1000")]).await?;
    let (code, out, _) = shell.topics(&["plan"])?;
    assert_eq!(code, Some(0), "{out}");
    assert!(out.contains("kafka-configs.sh") && out.contains("1 topic differs"), "{out}");
    assert_eq!(shell.topics(&["plan", "--strict"])?.0, Some(1));
    Ok(())
}

/// What a plan looks like, with names that are always the same and without columns.
#[tokio::test(flavor = "multi_thread")]
async fn a_plan_is_shown_as_it_was_written() -> Result<()> {
    let trial = Trial::new("shown", 2).await?;
    trial.broker.make_topics(&[(&trial.dead_letters(), 1)], &[("retention.ms", "-1")]).await?;
    let out = Shell::new(&trial)?.topics(&["plan"])?.1;
    let out = out.replace(&trial.broker.address, "BROKER");
    let out = out.replace(&trial.group, "billing").replace(&trial.topic, "orders");
    let lines = out.lines().map(|it| it.split_whitespace().collect::<Vec<_>>().join(" "));
    let shown: Vec<_> = lines.filter(|it| !it.is_empty()).collect();
    let acl = "kafka-acls.sh --bootstrap-server BROKER --add --allow-principal User:NAME";
    let expected = [
        "billing on BROKER: 1 broker".to_owned(),
        "✔ orders source 2 partitions replication 1".to_owned(),
        "+ orders.retry retry 2 partitions replication 1 missing".to_owned(),
        "cleanup.policy=delete retention.ms=604800000 retention.bytes=-1 message.timestamp.type=LogAppendTime".to_owned(),
        "note: replication 3 would be safer, but only 1 broker is up".to_owned(),
        "! orders.dlt dead letter 1 partition replication 1".to_owned(),
        "partitions is 1, should be 2".to_owned(),
        "records of source partitions from 1 on go to whichever partition their key gives, and fewer members can share the work".to_owned(),
        "→ kafka-topics.sh --bootstrap-server BROKER --alter --topic orders.dlt --partitions 2".to_owned(),
        "+ billing.redrive state 1 partition replication 1 missing".to_owned(),
        "cleanup.policy=compact".to_owned(),
        "note: replication 3 would be safer, but only 1 broker is up".to_owned(),
        "2 of 4 topics are missing: `redrive topics apply` makes what is missing; 1 topic differs".to_owned(),
        "Where the brokers ask who one is, these must be allowed; NAME is the user's name:".to_owned(),
        "to run".to_owned(),
        format!("{acl} --operation Read --group billing"),
        format!("{acl} --operation Read --operation DescribeConfigs --topic orders"),
        format!("{acl} --operation Read --operation Write --operation DescribeConfigs --topic orders.retry --topic billing.redrive"),
        format!("{acl} --operation Write --operation DescribeConfigs --topic orders.dlt"),
        "to make topics".to_owned(),
        format!("{acl} --operation Create --topic orders.retry --topic orders.dlt --topic billing.redrive"),
    ];
    assert_eq!(shown, expected);
    Ok(())
}

#[tokio::test(flavor = "multi_thread")]
async fn source_topics_are_made_where_that_is_asked_for() -> Result<()> {
    let trial = Trial::without_topic(Broker::from_env()?, "sources");
    let shell = Shell::new(&trial)?;
    let (code, out, err) = shell.topics(&["apply", "--create-sources", "5"])?;
    assert_eq!(code, Some(0), "{out}{err}");
    for topic in [&trial.topic, &trial.retry(), &trial.dead_letters()] {
        assert_eq!(trial.broker.bounds(topic)?.len(), 5, "{topic}");
    }
    Ok(())
}

#[test]
fn brokers_that_are_away_have_an_exit_code_of_their_own() -> Result<()> {
    let broker = Broker::at(format!("127.0.0.1:{}", free_port()?));
    let shell = Shell::new(&Trial::without_topic(broker.clone(), "away"))?;
    let (code, out, err) = shell.topics(&["plan", "--timeout", "2s"])?;
    assert_eq!((code, out.as_str()), (Some(3), ""), "{err}");
    assert!(err.contains(&broker.address) && err.contains("2s"), "{err}");
    Ok(())
}
