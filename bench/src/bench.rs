//! The bench: a broker, topics that are filled once, and engines' turns as processes.

use std::collections::BTreeMap;
use std::fs::File;
use std::io::{BufReader, Read};
#[cfg(target_os = "linux")]
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

use anyhow::{Context, Result, bail};
use indicatif::ProgressBar;

use crate::measure::{Sample, cpu_time, memory, read_from_disk};
use crate::task::Task;
use crate::topics::{self, Filling};
use crate::turn::{Engine, PARTITIONS, Turn};

/// How many records run at the same time where each takes a thread: with four times as many, Parallel Consumer was hardly faster, and once
/// did not come to its end within a minute.
const MOST_THREADS: u32 = 1024;

/// How much is done.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Scale {
    /// Only to see that it works.
    pub(crate) is_quick: bool,
    /// How long a measurement takes.
    pub(crate) seconds: u64,
}

impl Scale {
    /// What nearly all work is done on: as much as the fastest reads in the time, and no more than stays in memory.
    pub(crate) fn small(self) -> Filling {
        Filling::new(if self.is_quick { 300_000 } else { 80_000_000 }, 100)
    }

    /// The same with larger records.
    pub(crate) fn large(self) -> Filling {
        Filling::new(if self.is_quick { 50_000 } else { 16_000_000 }, 1000)
    }
}

/// Everything that the work needs.
pub(crate) struct Bench {
    pub(crate) kafka: String,
    pub(crate) scale: Scale,
    pub(crate) bar: ProgressBar,
    /// Where the Java engines are.
    jvm: PathBuf,
    /// Tells this run's topics from those of others.
    run: String,
    filled: BTreeMap<Filling, String>,
    turns: u64,
}

impl Bench {
    pub(crate) fn new(kafka: &str, jvm: PathBuf, scale: Scale, bar: ProgressBar) -> Self {
        let run = format!("bench-{}", std::process::id());
        let filled = BTreeMap::new();
        Self { kafka: kafka.to_owned(), scale, bar, jvm, run, filled, turns: 0 }
    }

    /// A topic with this in it. It is filled once, and only read.
    pub(crate) fn topic(&mut self, filling: Filling) -> Result<String> {
        if let Some(topic) = self.filled.get(&filling) {
            return Ok(topic.clone());
        }
        let topic = format!("{}-{}", self.run, self.filled.len());
        let message = self.bar.message();
        let Filling { records, size, .. } = filling;
        topics::fill(&self.kafka, &topic, filling, |done| {
            self.bar.set_message(format!("producing {done} of {records} records of {size} bytes"));
        })?;
        self.bar.set_message(message);
        self.filled.insert(filling, topic.clone());
        Ok(topic)
    }

    /// Reads what the broker keeps of a topic, if that is on this machine, until all of it is in memory: else the first to read it after a while would pay for
    /// all. Once is not enough, since what was read once is what the machine forgets first.
    pub(crate) fn bring_back(&self, filling: Filling) {
        /// How often it is tried, and when it is enough: what was read from disk, of what there is.
        const TRIES: usize = 4;
        const ENOUGH: u64 = 100;
        let (Some(directory), Some(topic)) =
            (std::env::var_os("KAFKA_DIR"), self.filled.get(&filling))
        else {
            return;
        };
        for _ in 0..TRIES {
            let before = read_from_disk("self").unwrap_or(0);
            let mut all = 0;
            for partition in 0..PARTITIONS {
                let log = Path::new(&directory).join("data").join(format!("{topic}-{partition}"));
                for entry in std::fs::read_dir(log).into_iter().flatten().flatten() {
                    // The broker may take a file away meanwhile.
                    let Ok(file) = File::open(entry.path()) else {
                        continue;
                    };
                    let mut file = BufReader::with_capacity(1 << 20, file);
                    all += std::io::copy(&mut file, &mut std::io::sink()).unwrap_or(0);
                }
            }
            if read_from_disk("self").unwrap_or(0).saturating_sub(before) <= all / ENOUGH {
                break;
            }
        }
    }

    /// The next turn, at all records of a topic with this in it.
    pub(crate) fn next_turn(&mut self, filling: Filling, task: Task) -> Result<Turn> {
        let topic = self.topic(filling)?;
        self.turns += 1;
        Ok(Turn::new(&topic, &format!("t{}", self.turns), filling.records, task))
    }

    /// The next turn for as long as a measurement takes, on a topic that has more in it than most read in that time.
    pub(crate) fn next_timed(&mut self, filling: Filling, task: Task) -> Result<Turn> {
        let window = self.scale.seconds;
        Ok(Turn { window, ..self.next_turn(filling, task)? })
    }

    /// A file for a ledger, which is not there yet.
    pub(crate) fn ledger(&self, turn: &str) -> PathBuf {
        std::env::temp_dir().join(format!("{}-{turn}.ledger", self.run))
    }

    /// Makes the topics that an engine does not make by itself.
    pub(crate) fn prepare(&mut self, engine: Engine, turn: &mut Turn) -> Result<()> {
        match engine {
            Engine::Poll | Engine::Batch | Engine::Redrive | Engine::Ordered => Ok(()),
            Engine::Pipe => topics::make(&self.kafka, &[&turn.retry()]),
            Engine::Spring | Engine::SpringTuned | Engine::Parallel => {
                turn.concurrency = turn.concurrency.min(MOST_THREADS);
                topics::make(&self.kafka, &[&turn.retry(), &turn.dead()])?;
                self.warm_up(turn)
            }
        }
    }

    /// Java machines get faster while they run. So they do the same work for a while before, on the topic of nearly all work.
    fn warm_up(&mut self, turn: &mut Turn) -> Result<()> {
        if turn.endless {
            return Ok(());
        }
        let filling = self.scale.small();
        (turn.warm, turn.warm_records) = (Some(self.topic(filling)?), filling.records);
        match turn.warming() {
            Some(other) => topics::make(&self.kafka, &[&other.retry(), &other.dead()]),
            None => Ok(()),
        }
    }

    /// Deletes what the turn left behind.
    pub(crate) fn clean(&self, turn: &Turn) -> Result<()> {
        let mut topics = vec![turn.retry(), turn.dead(), turn.state()];
        if let Some(other) = turn.warming() {
            topics.extend([other.retry(), other.dead()]);
        }
        if let Some(ledger) = &turn.ledger {
            _ = std::fs::remove_file(ledger);
        }
        let topics: Vec<_> = topics.iter().map(String::as_str).collect();
        topics::delete(&self.kafka, &topics)
    }

    /// Deletes what it read, which a broker that stays would keep.
    pub(crate) fn end(self) -> Result<()> {
        let topics: Vec<_> = self.filled.values().map(String::as_str).collect();
        topics::delete(&self.kafka, &topics)
    }

    fn command(&self, engine: Engine) -> Result<Command> {
        let directory = match engine {
            Engine::Spring | Engine::SpringTuned => "spring",
            Engine::Parallel => "parallel",
            _ => {
                let mut command = Command::new(std::env::current_exe()?);
                command.args(["--engine", engine.name()]);
                return Ok(command);
            }
        };
        let home = self.jvm.join(directory);
        let path = format!("{}:{}/*", home.join("classes").display(), home.join("libs").display());
        let java = std::env::var("JAVA_HOME").map_or("java".into(), |it| format!("{it}/bin/java"));
        let mut command = Command::new(java);
        // Failures are the work here, and not worth a line each.
        command.args(["-Xms512m", "-Xmx2g", "-Dorg.slf4j.simpleLogger.defaultLogLevel=off"]);
        command.args(["-cp", &path]);
        match engine {
            Engine::Parallel => command.arg("Parallel"),
            _ => {
                command.args(["Spring", "--tuned"]).arg((engine == Engine::SpringTuned).to_string())
            }
        };
        Ok(command)
    }

    /// Starts an engine's turn. On Linux it ends with this process, however that ends.
    #[cfg_attr(
        target_os = "linux",
        expect(unsafe_code, reason = "the standard library cannot tie a child to its parent")
    )]
    pub(crate) fn start(&self, engine: Engine, turn: &Turn) -> Result<Running> {
        let mut command = self.command(engine)?;
        command.args(["--kafka", &self.kafka]).args(turn.flags());
        command.stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::piped());
        #[cfg(target_os = "linux")]
        // SAFETY: between fork and exec there is nothing but this one call, which allocates nothing.
        unsafe {
            command.pre_exec(|| {
                libc::prctl(libc::PR_SET_PDEATHSIG, libc::SIGKILL);
                Ok(())
            });
        }
        let child = command.spawn().with_context(|| format!("{} does not start", engine.name()))?;
        Ok(Running { child: Some(child), engine })
    }

    /// A whole turn, with its topics made before and deleted after it.
    pub(crate) fn turn(&mut self, engine: Engine, mut turn: Turn) -> Result<Sample> {
        self.prepare(engine, &mut turn)?;
        let sample = self.start(engine, &turn)?.wait(self.limit());
        let cleaned = self.clean(&turn);
        let sample = sample?;
        cleaned?;
        let ended = sample.get("records").unwrap_or(0.0);
        let least = if turn.window > 0 { 1 } else { turn.records };
        anyhow::ensure!(
            ended >= least as f64,
            "{} ended with {ended} of {} records",
            engine.name(),
            turn.records
        );
        Ok(sample)
    }

    /// After which time a turn is given up.
    pub(crate) fn limit(&self) -> Duration {
        Duration::from_secs(if self.scale.is_quick { 60 } else { 60 + self.scale.seconds * 12 })
    }
}

/// An engine at work. It is killed when nobody wants it any more.
pub(crate) struct Running {
    child: Option<Child>,
    engine: Engine,
}

impl Running {
    /// Waits for its end and reads what it says.
    pub(crate) fn wait(mut self, limit: Duration) -> Result<Sample> {
        let until = Instant::now() + limit;
        let child = self.child.as_mut().context("it was taken already")?;
        let status = loop {
            match child.try_wait()? {
                Some(status) => break status,
                None if Instant::now() > until => {
                    bail!("{} was given up after {} s", self.engine.name(), limit.as_secs())
                }
                None => std::thread::sleep(Duration::from_millis(10)),
            }
        };
        let (mut said, mut told) = (String::new(), String::new());
        if let (Some(out), Some(err)) = (child.stdout.as_mut(), child.stderr.as_mut()) {
            out.read_to_string(&mut said)?;
            err.read_to_string(&mut told)?;
        }
        let line = said.lines().last().unwrap_or_default();
        // 143: a Java machine that was told to stop.
        if !status.success() && status.code() != Some(143) || line.is_empty() {
            bail!("{} ended with {status}: {}", self.engine.name(), last_of(&told));
        }
        let value = serde_json::from_str(line)
            .with_context(|| format!("{} said {line}", self.engine.name()))?;
        Sample::from_json(&value)
    }

    /// How much memory it has, in MiB.
    pub(crate) fn memory(&self) -> f64 {
        self.process().map_or(0.0, |it| memory(&it, "VmRSS"))
    }

    /// How much CPU time it has used.
    pub(crate) fn cpu(&self) -> Duration {
        self.process().map_or(Duration::ZERO, |it| cpu_time(&it))
    }

    fn process(&self) -> Option<String> {
        self.child.as_ref().map(|it| it.id().to_string())
    }

    /// Ends it as an operator would.
    pub(crate) fn stop(&self) -> Result<()> {
        let pid = self.child.as_ref().map(Child::id).context("it was taken already")?;
        // The standard library has no other signal than the last one.
        let status = Command::new("kill").args(["-TERM", &pid.to_string()]).status()?;
        anyhow::ensure!(status.success(), "process {pid} cannot be told to stop");
        Ok(())
    }

    /// kill -9.
    pub(crate) fn kill(mut self) -> Result<()> {
        if let Some(mut child) = self.child.take() {
            child.kill()?;
            child.wait()?;
        }
        Ok(())
    }

    /// Whether it still works.
    pub(crate) fn is_alive(&mut self) -> Result<bool> {
        Ok(self.child.as_mut().map(Child::try_wait).transpose()?.flatten().is_none())
    }
}

impl Drop for Running {
    fn drop(&mut self) {
        if let Some(child) = &mut self.child {
            _ = child.kill();
            _ = child.wait();
        }
    }
}

/// What of an engine's last words says most: the causes of a Java machine, else the last lines.
fn last_of(text: &str) -> String {
    let causes: Vec<_> = text.lines().filter(|it| it.starts_with("Caused by: ")).collect();
    let lines = if causes.is_empty() { text.lines().collect() } else { causes };
    lines.get(lines.len().saturating_sub(5)..).unwrap_or_default().join("\n")
}
