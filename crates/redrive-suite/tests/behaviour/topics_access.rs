//! Brokers that allow what `redrive topics plan` lists, and nothing else.

use std::time::Duration;

use anyhow::Result;
use redrive::config::{Config, FlowConfig};
use redrive::topics::{MadeHow, NeededTo, Plan, Resource, Status, Topics};
use redrive::{Context, Failure, Record, RunError};
use redrive_suite::own::OwnBroker;
use redrive_suite::trial::{Runs, Trial};

use super::single;
use super::topics::connect;

/// Allows what a plan lists, as far as it is asked for.
fn allow(
    own: &OwnBroker,
    plan: &Plan,
    is_it: impl Fn(NeededTo, Resource, &str) -> bool,
) -> Result<()> {
    let chosen = plan.access.iter().filter(|it| is_it(it.needed_to, it.resource, &it.name));
    let mut alike: Vec<(Vec<&str>, Vec<&str>)> = Vec::new();
    for access in chosen {
        let flag = match access.resource {
            Resource::Topic => "--topic",
            Resource::Group => "--group",
            _ => "--transactional-id",
        };
        let mut what = vec!["--add", "--allow-principal", "User:orders"];
        what.extend(access.operations.iter().flat_map(|it| ["--operation", it]));
        if access.is_prefix {
            what.extend(["--resource-pattern-type", "prefixed"]);
        }
        let is_alike =
            |it: &&mut (Vec<&str>, Vec<&str>)| it.0 == what && it.1.first() == Some(&flag);
        match alike.iter_mut().find(is_alike) {
            Some(found) => found.1.extend([flag, &access.name]),
            None => alike.push((what, vec![flag, &access.name])),
        }
    }
    alike.iter().try_for_each(|(what, names)| own.acl(&[what.as_slice(), names].concat()))
}

fn login(own: &OwnBroker, config: Config) -> Result<Config> {
    Ok(config
        .with_kafka("bootstrap.servers", own.get("KAFKA_SASL")?)
        .with_kafka("security.protocol", "SASL_PLAINTEXT")
        .with_kafka("sasl.mechanism", "SCRAM-SHA-256")
        .with_kafka("sasl.username", "orders")
        .with_kafka("sasl.password", "orders-secret"))
}

#[tokio::test(flavor = "multi_thread")]
async fn what_the_plan_lists_is_enough_and_what_is_denied_is_named() -> Result<()> {
    let own = OwnBroker::start(&["--secure", "--set", "allow.everyone.if.no.acl.found=false"])?;
    let trial = Trial::on(own.broker()?, "acl", 2).await?;
    let flow = FlowConfig {
        retry_group: Some(format!("{}-retry", trial.group)),
        ..FlowConfig::new(single(&trial))
    };
    let config = login(&own, trial.config(flow))?;
    let wrong = config.clone().with_kafka("sasl.password", "guessed");
    let error = Topics::connect(&wrong, Duration::from_secs(30)).await.err().unwrap();
    assert!(matches!(error, RunError::Refused(_)), "{error:?}");
    assert!(!error.to_string().contains("guessed"), "{error}");
    let topics = connect(&config).await?;

    // Who may do nothing is not told that topics are missing.
    let plan = topics.plan().await?;
    assert!(plan.topics.iter().all(|it| it.status == Status::Hidden), "{plan:?}");
    let member = trial.spawn(config.clone(), |_: Record, _: Context| async {});
    let error = member.ended().await?.unwrap_err().to_string();
    assert!(error.contains(&trial.topic) && error.contains("redrive topics plan"), "{error}");

    let letters = trial.dead_letters();
    allow(&own, &plan, |to, _, name| to == NeededTo::Run || name != letters)?;
    let plan = topics.plan().await?;
    assert_eq!(plan.missing().count(), 3);
    assert_eq!(plan.auto_creates, None, "nobody may look at the brokers' settings");
    let made = topics.apply(&plan, false, |_| {}).await;
    for made in &made {
        match &made.result {
            Err(error) => {
                assert_eq!(*made.topic, *letters);
                assert!(error.contains("allow Create") && error.contains(&letters), "{error}");
            }
            made => assert_eq!(*made, Ok(MadeHow::Made)),
        }
    }
    assert!(made.iter().any(|it| it.result.is_err()), "{made:?}");
    let plan = topics.plan().await?;
    assert_eq!(plan.missing().map(|it| &*it.name).collect::<Vec<_>>(), [&*letters]);

    allow(&own, &plan, |to, _, name| to == NeededTo::Apply && name == letters)?;
    let made = topics.apply(&plan, false, |_| {}).await;
    assert_eq!(made.len(), 1);
    assert!(topics.plan().await?.is_complete());

    goes_all_the_way(&trial, config.clone(), 1).await?;

    // With transactions, their ids are all that is to be allowed beside.
    let config = config.with_exactly_once();
    let plan = connect(&config).await?.plan().await?;
    allow(&own, &plan, |_, resource, _| resource == Resource::TransactionalId)?;
    goes_all_the_way(&trial, config, 2).await
}

/// Runs a record over the retry topic to the dead-letter topic, which has so many then.
async fn goes_all_the_way(trial: &Trial, config: Config, letters: usize) -> Result<()> {
    let runs = Runs::default();
    let noted = runs.clone();
    let member = trial
        .start_with(config, move |record: Record, context: Context| {
            let run = noted.note(&record, &context);
            async move {
                let status = if run.attempt == 0 { 503 } else { 404 };
                Err::<(), _>(Failure::of_status(status))
            }
        })
        .await?;
    trial.produce(["order"])?;
    assert_eq!(trial.letters(letters).await?.len(), letters);
    trial.settled(&[&trial.topic]).await?;
    assert_eq!(runs.all().last().map(|it| it.topic.clone()), Some(trial.retry()));
    member.stop().await?;
    Ok(())
}
