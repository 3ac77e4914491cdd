//! What happens: records are produced, members come and go, and in the end everything is counted.

use std::collections::{BTreeMap, BTreeSet};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

use anyhow::{Context, Result, bail};

use crate::broker::{Broker, Found};
use crate::ledger;
use crate::order::{self, Letter, Produced};
use crate::rng::Rng;
use crate::work::Task;

/// How members are treated while they work.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Treatment {
    /// They are left alone.
    Peace,
    /// Each in turn is told to end and started again.
    RollingRestart,
    /// One by chance is killed and started again, so often.
    Kills(u32),
    /// New ones come and old ones go.
    Rebalances,
    /// One by chance is stopped for so long that the group gives it up, and then goes on as if nothing were, so often; and
    /// one is killed, so often.
    Zombies {
        /// How often one is stopped.
        zombies: u32,
        /// How often one is killed.
        kills: u32,
    },
}

/// What is tried.
#[derive(Clone, Debug)]
pub struct Scenario {
    /// Its name.
    pub name: &'static str,
    /// How many records.
    pub records: u64,
    /// How many of a hundred fail at first.
    pub failing: u64,
    /// How many members.
    pub members: usize,
    /// What is done to them.
    pub treatment: Treatment,
    /// More properties of librdkafka, and what else the config has, as YAML lines.
    pub kafka: &'static str,
    /// The flow's `retry`, its policies and default, as YAML.
    pub retry: &'static str,
    /// The longest it may take.
    pub limit: Duration,
    /// How many entities there are, where the events of each run in order.
    pub entities: Option<u64>,
    /// In how many pieces records come while members work, and how long it is from one to the next.
    pub pieces: (usize, Duration),
}

/// Retries over one topic, with delays that are all over the place.
pub const MIXED: &str = "
    retry: { strategy: single, topics: [{ topic: TOPIC.retry }] }
    default: { delayed: { backoff: { random: { min: 10ms, max: 3s } } } }
";

/// Retries over three tiers.
pub const TIERS: &str = "
    retry:
      topics:
        - { topic: TOPIC.retry.1, delay: 100ms }
        - { topic: TOPIC.retry.2, delay: 500ms }
        - { topic: TOPIC.retry.3, delay: 2s }
    default: { delayed: {} }
";

/// One record after the other in each partition.
pub const ORDERED: &str = "
    ordering: partition
    retry: { strategy: single, topics: [{ topic: TOPIC.retry }] }
    default: { delayed: { backoff: { fixed: 200ms } } }
";

/// The events of each entity one after the other, over three tiers.
pub const BY_ENTITY: &str = "
    ordering: key
    retry:
      topics:
        - { topic: TOPIC.retry.1, delay: 100ms }
        - { topic: TOPIC.retry.2, delay: 500ms }
        - { topic: TOPIC.retry.3, delay: 1s }
    default: { delayed: {} }
";

/// The same over one topic, with delays that are all over the place.
pub const BY_ENTITY_MIXED: &str = "
    ordering: key
    retry: { strategy: single, topics: [{ topic: TOPIC.retry }] }
    default: { delayed: { backoff: { random: { min: 10ms, max: 3s } } } }
";

/// Members of the classic protocol that notice soon when one is gone.
const SESSION: &str = "session.timeout.ms: 6000";
const CLASSIC: &str = "  session.timeout.ms: 6000\n  heartbeat.interval.ms: 500\n";
/// The same, with all partitions taken away at each rebalance.
const EAGER: &str = "  session.timeout.ms: 6000\n  heartbeat.interval.ms: 500\n  partition.assignment.strategy: range\n";
/// Members of the newer protocol.
const NEW_PROTOCOL: &str = "  group.protocol: consumer\n";
/// Both, with hops and commits in one transaction.
const EXACTLY_ONCE: &str =
    "  session.timeout.ms: 6000\n  heartbeat.interval.ms: 500\nexactly_once: true\n";
const EXACTLY_ONCE_848: &str = "  group.protocol: consumer\nexactly_once: true\n";

impl Default for Scenario {
    fn default() -> Self {
        Self {
            name: "peace",
            records: 3000,
            failing: 20,
            members: 3,
            treatment: Treatment::Peace,
            kafka: CLASSIC,
            retry: MIXED,
            limit: Duration::from_secs(60),
            entities: None,
            pieces: (10, Duration::from_millis(200)),
        }
    }
}

/// Longer than a session, and than the group takes to change.
const ASLEEP: Duration = Duration::from_secs(9);

/// The suite.
pub fn all() -> Vec<Scenario> {
    let one = |name, treatment| Scenario { name, treatment, ..Scenario::default() };
    let by_entity = |name, treatment| Scenario {
        entities: Some(300),
        retry: BY_ENTITY,
        ..one(name, treatment)
    };
    let asleep = |name| Scenario {
        pieces: (50, Duration::from_millis(400)),
        retry: BY_ENTITY_MIXED,
        ..by_entity(name, Treatment::Zombies { zombies: 2, kills: 1 })
    };
    vec![
        one("mixed-delays", Treatment::Peace),
        Scenario { retry: TIERS, ..one("tiers", Treatment::Peace) },
        one("rolling-restart", Treatment::RollingRestart),
        Scenario { kafka: EAGER, ..one("rolling-restart-eager", Treatment::RollingRestart) },
        Scenario { kafka: NEW_PROTOCOL, ..one("rolling-restart-848", Treatment::RollingRestart) },
        one("rebalances", Treatment::Rebalances),
        Scenario { kafka: NEW_PROTOCOL, ..one("rebalances-848", Treatment::Rebalances) },
        Scenario { retry: TIERS, ..one("kill", Treatment::Kills(3)) },
        Scenario { kafka: NEW_PROTOCOL, ..one("kill-848", Treatment::Kills(2)) },
        Scenario { retry: ORDERED, ..one("ordered", Treatment::RollingRestart) },
        by_entity("entities", Treatment::RollingRestart),
        Scenario {
            kafka: EAGER,
            retry: BY_ENTITY_MIXED,
            ..by_entity("entities-eager", Treatment::RollingRestart)
        },
        Scenario { kafka: NEW_PROTOCOL, ..by_entity("entities-848", Treatment::Rebalances) },
        Scenario { retry: BY_ENTITY_MIXED, ..by_entity("entities-kill", Treatment::Kills(3)) },
        Scenario { kafka: NEW_PROTOCOL, ..by_entity("entities-kill-848", Treatment::Kills(2)) },
        Scenario {
            kafka: EXACTLY_ONCE,
            retry: BY_ENTITY_MIXED,
            ..by_entity("entities-once", Treatment::Kills(2))
        },
        Scenario {
            kafka: EXACTLY_ONCE_848,
            ..by_entity("entities-once-848", Treatment::Rebalances)
        },
        asleep("entities-asleep"),
        Scenario { kafka: NEW_PROTOCOL, ..asleep("entities-asleep-848") },
        Scenario { kafka: EXACTLY_ONCE, retry: TIERS, ..one("exactly-once", Treatment::Kills(3)) },
        Scenario { kafka: EXACTLY_ONCE_848, ..one("exactly-once-848", Treatment::Rebalances) },
    ]
}

/// What came of it.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Report {
    /// How many were produced.
    pub produced: u64,
    /// How many were done.
    pub done: u64,
    /// How many are in the dead-letter topic.
    pub dead_lettered: u64,
    /// How many are neither.
    pub lost: u64,
    /// How many are dead letters that should be done, or done that should be dead letters.
    pub misplaced: u64,
    /// How many ran before their time.
    pub early: u64,
    /// How many ran more than once for the same attempt.
    pub run_twice: u64,
    /// How many ran before one that was produced before them to the same partition, where that is not to be.
    pub out_of_order: u64,
    /// How many dead letters are there twice.
    pub dead_twice: u64,
    /// How many copies in retry topics are there twice.
    pub hop_twice: u64,
    /// How late retries ran, in milliseconds: half of them, all but one in a hundred, and the latest.
    pub late: (i64, i64, i64),
    /// How many partitions were lost to somebody else before anything could be committed.
    pub deposed: u64,
    /// How long it took, in milliseconds.
    pub took: u128,
}

const PARTITIONS: i32 = 6;

/// The members of a group, and where they write.
struct Members<'a> {
    program: &'a Path,
    config: PathBuf,
    directory: PathBuf,
    running: Vec<Child>,
    started: u32,
}

impl Members<'_> {
    fn start(&mut self) -> Result<Child> {
        self.started += 1;
        let ledger = self.directory.join(format!("{}.ledger", self.started));
        let log = std::fs::File::create(self.directory.join(format!("{}.log", self.started)))?;
        let mut command = Command::new(self.program);
        command.arg("member").arg("--config").arg(&self.config).arg("--ledger").arg(ledger);
        command.stdin(Stdio::null()).stdout(Stdio::null()).stderr(log);
        command.spawn().context("a member could not be started")
    }

    fn add(&mut self) -> Result<()> {
        let member = self.start()?;
        self.running.push(member);
        Ok(())
    }

    fn kill(&mut self, index: usize) -> Result<()> {
        let member = &mut self.running[index];
        member.kill()?;
        member.wait()?;
        self.running[index] = self.start()?;
        Ok(())
    }

    fn signal(&self, index: usize, signal: &str) -> Result<()> {
        let id = self.running[index].id().to_string();
        let status = Command::new("kill").arg(signal).arg(id).status()?;
        anyhow::ensure!(status.success(), "the member is gone already");
        Ok(())
    }

    fn terminate(&mut self, index: usize) -> Result<()> {
        let mut member = self.running.remove(index);
        terminate(&mut member)
    }
}

impl Drop for Members<'_> {
    fn drop(&mut self) {
        for member in &mut self.running {
            _ = member.kill();
            _ = member.wait();
        }
    }
}

/// Tells a process to end, and waits for it.
fn terminate(member: &mut Child) -> Result<()> {
    let status = Command::new("kill").arg("-TERM").arg(member.id().to_string()).status()?;
    if !status.success() {
        bail!("the member is gone already");
    }
    let until = Instant::now() + Duration::from_secs(40);
    while Instant::now() < until {
        if let Some(status) = member.try_wait()? {
            if !status.success() {
                bail!("a member ended with {status}");
            }
            return Ok(());
        }
        std::thread::sleep(Duration::from_millis(10));
    }
    bail!("a member did not end within 40 s")
}

impl Scenario {
    fn config(&self, broker: &Broker, group: &str, topic: &str) -> String {
        let retry = self.retry.replace("TOPIC", topic);
        let mut kafka = format!("  bootstrap.servers: {}\n{}", broker.address, self.kafka);
        if broker.embedded.is_some() {
            // It lets a group that changes wait for as long, but for a second, and a member that ends may wait in vain for its last
            // commit.
            kafka = kafka.replace(SESSION, "session.timeout.ms: 2500");
            kafka.push_str("drain: { revoke: 2s, shutdown: 5s }\n");
        }
        format!(
            "kafka:\n{kafka}group: {group}\nflows:\n  - topic: {topic}\n    concurrency: 64\n{retry}"
        )
    }

    /// Why it cannot be tried on the embedded broker, if that is so.
    pub fn not_embedded(&self) -> Option<&'static str> {
        if self.kafka.contains("exactly_once") {
            Some("its transactions hide nothing that was aborted, and fence nobody")
        } else if self.kafka == EAGER {
            Some(
                "it takes no commits while a group changes, when eager members give back all they have: nothing is lost, but most of it runs twice, which takes a minute",
            )
        } else {
            None
        }
    }

    /// Whether the broker takes commits while members come and go, as they do at every start. The embedded one refuses them to the
    /// classic protocol until a group is whole again, so that what a member did last may run again.
    pub fn commits_while_it_changes(&self, broker: &Broker) -> bool {
        let is_new = self.kafka.contains("group.protocol: consumer");
        broker.embedded.is_none() || is_new
    }

    /// Tries it, with members that are this program. `progress` is told how many records have ended.
    ///
    /// # Errors
    ///
    /// It could not be tried: that says nothing about the promises.
    pub async fn run(
        &self,
        broker: &Broker,
        program: &Path,
        seed: u64,
        mut progress: impl FnMut(u64),
    ) -> Result<Report> {
        let began = Instant::now();
        let mut rng = Rng::new(seed);
        let name = format!("suite-{}-{:x}-{}", self.name, seed, ledger::now() % 1_000_000_000);
        let directory = std::env::temp_dir().join(&name);
        std::fs::create_dir_all(&directory)?;
        let config = directory.join("config.yaml");
        std::fs::write(&config, self.config(broker, &name, &name))?;
        let topics: Vec<String> = ["", ".retry", ".retry.1", ".retry.2", ".retry.3", ".dlt"]
            .iter()
            .map(|it| format!("{name}{it}"))
            .collect();
        let all: Vec<_> = topics.iter().map(|it| (it.as_str(), PARTITIONS)).collect();
        broker.make_topics(&all, &[]).await?;
        let state = format!("{name}.redrive");
        broker.make_topics(&[(&state, 1)], &[("cleanup.policy", "compact")]).await?;

        let tasks: Vec<_> =
            (0..self.records).map(|id| Task::random(id, self.failing, &mut rng)).collect();
        let values: Vec<_> = tasks
            .iter()
            .map(|it| {
                let entity = self.entity(it.id);
                let partition = i32::try_from(entity.unwrap_or(it.id) % PARTITIONS as u64)?;
                Ok((partition, format!("k{}", entity.unwrap_or(it.id % 97)), it.to_value()))
            })
            .collect::<Result<_>>()?;
        // Some are there before the members are, and some come while they work.
        let (first, rest) = values.split_at(values.len() / 4);
        let producer = broker.producer()?;
        let produce = |producer: &_, topic: &str, values: &[(i32, String, String)]| {
            Broker::produce_to(producer, topic, values.iter().map(|it| (it.0, &it.1, &it.2)))
        };
        produce(&producer, &name, first)?;
        let mut members = Members {
            program,
            config,
            directory: directory.clone(),
            running: Vec::new(),
            started: 0,
        };
        for _ in 0..self.members {
            members.add()?;
        }
        let (count, pause) = self.pieces;
        let pieces =
            rest.chunks(rest.len().div_ceil(count).max(1)).map(<[_]>::to_vec).collect::<Vec<_>>();
        let producing = {
            let topic = name.clone();
            std::thread::spawn(move || -> Result<()> {
                for piece in pieces {
                    produce(&producer, &topic, &piece)?;
                    std::thread::sleep(pause);
                }
                Ok(())
            })
        };
        self.treat(&mut members, &mut rng)?;
        producing.join().map_err(|_| anyhow::anyhow!("the producer panicked"))??;

        let until = Instant::now() + self.limit;
        let report = loop {
            let report = self.count(broker, &directory, &topics, &tasks)?;
            progress(report.done + report.dead_lettered);
            if report.lost == 0 || Instant::now() > until {
                break report;
            }
            for member in &mut members.running {
                if let Some(status) = member.try_wait()? {
                    bail!("a member ended with {status}: see {}", directory.display());
                }
            }
            std::thread::sleep(Duration::from_millis(300));
        };
        while !members.running.is_empty() {
            members.terminate(0)?;
        }
        // Whatever was still under way when the last one ended would show up twice.
        let after = self.count(broker, &directory, &topics, &tasks)?;
        let faults = self.faults(broker, &directory, &name)?;
        let report = Report {
            lost: report.lost.max(after.lost),
            out_of_order: after.out_of_order + faults,
            deposed: deposed(&directory)?,
            took: began.elapsed().as_millis(),
            ..after
        };
        if report.is_kept() && self.is_once(&report) {
            std::fs::remove_dir_all(&directory)?;
        }
        Ok(report)
    }

    /// Whether nothing was published twice, where that is promised.
    pub fn is_once(&self, report: &Report) -> bool {
        !self.kafka.contains("exactly_once") || (report.hop_twice, report.dead_twice) == (0, 0)
    }

    /// Whose event a record is.
    fn entity(&self, id: u64) -> Option<u64> {
        // Neighbours are of different entities, and each entity's events are spread over the whole run.
        self.entities.map(|count| id.wrapping_mul(7) % count)
    }

    /// How often the order of an entity was broken. What that was stands beside the ledgers.
    fn faults(&self, broker: &Broker, directory: &Path, topic: &str) -> Result<u64> {
        if self.entities.is_none() {
            return Ok(0);
        }
        let id = |it: &Found| it.value.as_deref().and_then(Task::from_value).map(|it| it.id);
        let produced = broker.read(topic)?;
        let produced: Vec<_> = produced
            .iter()
            .filter_map(|it| {
                let (id, partition, offset) = (id(it)?, it.partition, it.offset);
                Some(Produced { id, entity: self.entity(id)?, partition, offset })
            })
            .collect();
        let letters = broker.read(&format!("{topic}.dlt"))?;
        let letters = letters.iter().filter_map(|it| {
            Some(Letter { id: id(it)?, is_follower: it.header("redrive-reason")? == "follower" })
        });
        let faults = order::faults(directory, topic, &produced, &letters.collect::<Vec<_>>())?;
        if !faults.is_empty() {
            std::fs::write(directory.join("faults.txt"), faults.join("\n"))?;
        }
        Ok(faults.len() as u64)
    }

    fn treat(&self, members: &mut Members<'_>, rng: &mut Rng) -> Result<()> {
        let pause = |rng: &mut Rng, low, high| {
            std::thread::sleep(Duration::from_millis(rng.between(low, high)));
        };
        match self.treatment {
            Treatment::Peace => {}
            Treatment::RollingRestart => {
                for _ in 0..self.members {
                    pause(rng, 300, 1500);
                    members.terminate(0)?;
                    members.add()?;
                }
            }
            Treatment::Kills(times) => {
                for _ in 0..times {
                    pause(rng, 100, 4000);
                    let count = u64::try_from(members.running.len())?;
                    let index = usize::try_from(rng.below(count))?;
                    members.kill(index)?;
                }
            }
            Treatment::Zombies { zombies, kills } => {
                let mut left = (zombies, kills);
                while left != (0, 0) {
                    // A group that changes already has nobody to give up.
                    pause(rng, 500, 9000);
                    let count = u64::try_from(members.running.len())?;
                    let index = usize::try_from(rng.below(count))?;
                    if rng.below(u64::from(left.0 + left.1)) < u64::from(left.0) {
                        left.0 -= 1;
                        members.signal(index, "-STOP")?;
                        std::thread::sleep(ASLEEP);
                        members.signal(index, "-CONT")?;
                    } else {
                        left.1 -= 1;
                        members.kill(index)?;
                    }
                }
            }
            Treatment::Rebalances => {
                for _ in 0..3 {
                    pause(rng, 200, 1500);
                    members.add()?;
                    pause(rng, 200, 1500);
                    let count = u64::try_from(members.running.len())?;
                    let index = usize::try_from(rng.below(count))?;
                    members.terminate(index)?;
                }
            }
        }
        Ok(())
    }

    fn count(
        &self,
        broker: &Broker,
        directory: &Path,
        topics: &[String],
        tasks: &[Task],
    ) -> Result<Report> {
        let lives = ledger::read(directory)?;
        // By record, and how often it was published.
        let mut copies: BTreeMap<(u64, String), u64> = BTreeMap::new();
        let mut dead: BTreeMap<u64, u64> = BTreeMap::new();
        let mut misplaced = BTreeSet::new();
        for topic in topics.iter().skip(1) {
            for copy in broker.read(topic)? {
                let Some(task) = copy.value.as_deref().and_then(Task::from_value) else {
                    continue;
                };
                if topic.ends_with(".dlt") {
                    *dead.entry(task.id).or_default() += 1;
                    // Those behind a dead letter of their entity follow it, whatever they are.
                    if !task.is_hopeless && copy.header("redrive-reason") != Some("follower") {
                        misplaced.insert(task.id);
                    }
                } else {
                    let attempt = copy.header("redrive-overall-attempts").unwrap_or_default();
                    *copies.entry((task.id, attempt.to_owned())).or_default() += 1;
                }
            }
        }
        let mut report = Report { produced: self.records, ..Report::default() };
        let mut late = Vec::new();
        for task in tasks {
            let life = lives.get(&task.id).cloned().unwrap_or_default();
            let letters = dead.get(&task.id).copied().unwrap_or_default();
            report.done += u64::from(life.done > 0);
            report.dead_lettered += u64::from(letters > 0);
            report.lost += u64::from(life.done == 0 && letters == 0);
            let is_wrong = misplaced.contains(&task.id) || life.done > 0 && task.is_hopeless;
            report.misplaced += u64::from(is_wrong);
            report.early += u64::from(life.early > 0);
            report.run_twice += u64::from(life.starts.values().any(|it| *it > 1));
            report.dead_twice += u64::from(letters > 1);
            late.extend(life.late);
        }
        report.hop_twice = copies.values().filter(|it| **it > 1).count() as u64;
        if self.retry.contains("ordering: partition") {
            let source = topics.first().map(|it| broker.read(it)).transpose()?;
            report.out_of_order = out_of_order(&source.unwrap_or_default(), &lives);
        }
        late.sort_unstable();
        let share = |per_mille: usize| {
            let index = late.len().saturating_sub(1) * per_mille / 1000;
            late.get(index).copied().unwrap_or(0)
        };
        report.late = (share(500), share(990), share(1000));
        Ok(report)
    }
}

/// How many records ran before an earlier one of the same partition did. Only the first run counts: what was retried has lost
/// its place, and what a killed member had run comes again.
fn out_of_order(source: &[Found], lives: &BTreeMap<u64, ledger::Life>) -> u64 {
    let mut in_order: Vec<_> = source.iter().collect();
    in_order.sort_by_key(|it| (it.partition, it.offset));
    let mut last: BTreeMap<i32, i64> = BTreeMap::new();
    let mut count = 0;
    for record in in_order {
        let task = record.value.as_deref().and_then(Task::from_value);
        let first = task.and_then(|it| lives.get(&it.id)?.first);
        let last = last.entry(record.partition).or_insert(i64::MIN);
        if let Some(first) = first {
            count += u64::from(first < *last);
            *last = first.max(*last);
        }
    }
    count
}

/// How often members say in their logs that they lost a partition.
fn deposed(directory: &Path) -> Result<u64> {
    let mut count = 0;
    for entry in std::fs::read_dir(directory)? {
        let path = entry?.path();
        if path.extension().is_some_and(|it| it == "log") {
            let log = std::fs::read_to_string(&path)?;
            count += log.lines().filter(|it| it.contains(" is lost: ")).count() as u64;
        }
    }
    Ok(count)
}

impl Report {
    /// Whether the promises were kept that hold whatever happens: nothing lost or in the wrong place, nothing early, nothing out of order.
    pub fn is_kept(&self) -> bool {
        self.lost == 0 && self.misplaced == 0 && self.early == 0 && self.out_of_order == 0
    }
}

impl std::fmt::Display for Report {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let (half, most, all) = self.late;
        write!(
            f,
            "produced {} done {} dead-lettered {} | lost {} misplaced {} early {} out of order {} run twice {} | published twice {} dead twice {} deposed {} | late p50 {half} p99 {most} max {all} ms | {:.1} s",
            self.produced,
            self.done,
            self.dead_lettered,
            self.lost,
            self.misplaced,
            self.early,
            self.out_of_order,
            self.run_twice,
            self.hop_twice,
            self.dead_twice,
            self.deposed,
            Duration::from_millis(u64::try_from(self.took).unwrap_or(u64::MAX)).as_secs_f64()
        )
    }
}
