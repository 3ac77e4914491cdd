//! The service, the binary and the topics of one test.

use std::fs::File;
use std::io::{BufRead, BufReader, Read};
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, ExitStatus, Stdio};
use std::sync::Mutex;
use std::sync::atomic::{AtomicU32, Ordering};
use std::time::{Duration, Instant};

use anyhow::{Context, Result, bail, ensure};
use redrive_suite::foreign::{self, python};
use redrive_suite::own::free_port;
use redrive_suite::trial::{SOON, Trial};
use serde_json::{Value, json};

/// A flaky service, and a place for files.
pub(crate) struct Stand<'a> {
    pub(crate) trial: &'a Trial,
    directory: PathBuf,
    service: Child,
    port: u16,
}

/// A request that the service answered.
#[derive(Clone, Debug)]
pub(crate) struct Entry {
    /// When it came, and when it was answered.
    pub(crate) came: i64,
    pub(crate) at: i64,
    pub(crate) status: u16,
    value: Value,
    headers: Value,
}

impl Entry {
    /// The name of the record.
    pub(crate) fn name(&self) -> String {
        self.value["name"].as_str().unwrap_or_default().to_owned()
    }

    pub(crate) fn header(&self, name: &str) -> Option<&str> {
        self.headers[name].as_str()
    }

    pub(crate) fn attempts(&self) -> u32 {
        self.header("redrive-overall-attempts").unwrap_or_default().parse().unwrap()
    }
}

/// The settings of the example, and what they are for a test: the same shape with short delays.
const SHORTER: [(&str, &str); 11] = [
    ("timeout: 10s", "timeout: 1s"),
    ("delay: 30s", "delay: 1s"),
    ("delay: \"00:05:00\"", "delay: 2s"),
    ("delay: 1h", "delay: 4s"),
    ("initial: 60s", "initial: 1s"),
    ("max: 30m", "max: 8s"),
    ("base: 10s", "base: 500ms"),
    ("min: 1s", "min: 100ms"),
    ("max: 10m", "max: 8s"),
    ("linear: { initial: 100ms }", "linear: { initial: 20ms }"),
    ("fixed: 200ms", "fixed: 20ms"),
];

impl<'a> Stand<'a> {
    /// Starts the flaky service.
    pub(crate) fn new(trial: &'a Trial) -> Result<Self> {
        let directory = directory()?;
        let script = concat!(env!("CARGO_MANIFEST_DIR"), "/tests/service/flaky.py");
        let mut command = Command::new(python());
        command.arg(script).arg(directory.join("ledger")).stdout(Stdio::piped());
        let mut service = spawn(&mut command)?;
        let port = port(service.stdout.take())?;
        Ok(Self { trial, directory, service, port })
    }

    /// Starts one of the examples.
    pub(crate) fn example(trial: &'a Trial, program: &str, file: &str) -> Result<Self> {
        let directory = directory()?;
        let example = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../examples/http").join(file);
        let mut command = Command::new(program);
        command.arg(example).arg("0").env_remove("SECRET");
        command.stdout(File::create(directory.join("output"))?).stderr(Stdio::piped());
        let mut service = spawn(&mut command)?;
        let port = port(service.stderr.take())?;
        Ok(Self { trial, directory, service, port })
    }

    pub(crate) fn url(&self, path: &str) -> String {
        format!("http://127.0.0.1:{}{path}", self.port)
    }

    /// The example's config with short delays, the test's names, and this service.
    pub(crate) fn config(&self, path: &str) -> Result<String> {
        SHORTER
            .iter()
            .try_fold(self.example_config(path)?, |config, (old, new)| replaced(&config, old, new))
    }

    /// The example's config with the test's names and this service.
    pub(crate) fn example_config(&self, path: &str) -> Result<String> {
        let example = concat!(env!("CARGO_MANIFEST_DIR"), "/../../examples/orders.yaml");
        let config = std::fs::read_to_string(example)?;
        let Trial { broker, topic, group } = self.trial;
        // A member that was killed is noticed soon.
        let kafka =
            format!("{}\n  session.timeout.ms: 6000\n  heartbeat.interval.ms: 500", broker.address);
        let names = [
            ("${KAFKA:-localhost:9092}", kafka),
            ("http://localhost:8080/orders", self.url(path)),
            ("group: billing", format!("group: {group}")),
            ("topic: orders", format!("topic: {topic}")),
        ];
        names.iter().try_fold(config, |config, (old, new)| replaced(&config, old, new))
    }

    /// Writes a file beside the others.
    pub(crate) fn file(&self, name: &str, text: &str) -> Result<PathBuf> {
        let file = self.directory.join(name);
        std::fs::write(&file, text)?;
        Ok(file)
    }

    /// Produces values as they are.
    pub(crate) fn send(&self, values: &[&str]) -> Result<()> {
        self.trial.produce(values)
    }

    /// Produces a record that is answered like this.
    pub(crate) fn produce(&self, name: &str, answers: &Value) -> Result<()> {
        self.produce_all(&[(name.to_owned(), answers.clone())])
    }

    pub(crate) fn produce_all(&self, records: &[(String, Value)]) -> Result<()> {
        let value = |(name, answers): &(String, Value)| json!({ "name": name, "answers": answers });
        let records: Vec<_> =
            records.iter().map(|it| (it.0.clone(), value(it).to_string())).collect();
        let partitions = self.trial.broker.bounds(&self.trial.topic)?.len();
        self.trial.broker.produce(&self.trial.topic, i32::try_from(partitions)?, &records)
    }

    /// Starts `redrive run` with this config, which makes its topics.
    pub(crate) fn run(&self, config: &str) -> Result<Redrive> {
        self.run_with(config, &["--create-topics"])
    }

    /// Starts `redrive run` with this config and these options.
    pub(crate) fn run_with(&self, config: &str, options: &[&str]) -> Result<Redrive> {
        static COUNT: AtomicU32 = AtomicU32::new(0);
        let count = COUNT.fetch_add(1, Ordering::Relaxed);
        let file = self.directory.join(format!("{count}.yaml"));
        std::fs::write(&file, config)?;
        let log = self.directory.join(format!("{count}.log"));
        let binary = binaries()?.join("redrive");
        let child = Command::new(&binary)
            .args(["run", "-c"])
            .arg(file)
            .args(options)
            .env_remove("RUST_LOG")
            .stdin(Stdio::null())
            .stdout(Stdio::null())
            .stderr(File::create(&log)?)
            .spawn()
            .with_context(|| {
                format!("{} could not be started: run `cargo build --workspace`", binary.display())
            })?;
        Ok(Redrive { child: Mutex::new(child), log })
    }

    /// All requests that were answered, in the order of that.
    pub(crate) fn ledger(&self) -> Vec<Entry> {
        let lines = self.lines();
        let answered = lines.iter().filter(|it| it.get("status").is_some());
        let number = |it: &Value| it.as_i64().unwrap_or_default();
        let entry = |it: &Value| Entry {
            came: number(&it["came"]),
            at: number(&it["at"]),
            status: u16::try_from(number(&it["status"])).unwrap_or_default(),
            value: serde_json::from_str(it["value"].as_str().unwrap_or_default())
                .unwrap_or_default(),
            headers: it["headers"].clone(),
        };
        answered.map(entry).collect()
    }

    /// Whether a request came that is not answered yet.
    pub(crate) fn is_busy(&self) -> bool {
        let lines = self.lines();
        let answered = lines.iter().filter(|it| it.get("status").is_some()).count();
        lines.len() > 2 * answered
    }

    fn lines(&self) -> Vec<Value> {
        let text = std::fs::read_to_string(self.directory.join("ledger")).unwrap_or_default();
        // The last line may be half written.
        text.lines().filter_map(|it| serde_json::from_str(it).ok()).collect()
    }

    /// Every retry came at least as long after the answer before it as the shortest delay is.
    pub(crate) fn never_early(&self) {
        const SHORTEST: i64 = 400;
        let ledger = self.ledger();
        for entry in ledger.iter().filter(|it| it.attempts() > 0) {
            let (name, before) = (entry.name(), entry.attempts() - 1);
            let last = ledger.iter().find(|it| it.name() == name && it.attempts() == before);
            let last =
                last.unwrap_or_else(|| panic!("{name} came {before} + 1 times, and not before"));
            assert!(entry.came >= last.at + SHORTEST, "{name} came early: {last:?} {entry:?}");
        }
    }
}

fn replaced(config: &str, old: &str, new: &str) -> Result<String> {
    ensure!(config.contains(old), "the example has no `{old}` any more");
    Ok(config.replace(old, new))
}

/// A new directory.
fn directory() -> Result<PathBuf> {
    static COUNT: AtomicU32 = AtomicU32::new(0);
    let count = COUNT.fetch_add(1, Ordering::Relaxed);
    let directory = format!("service-{}-{count}", std::process::id());
    let directory = Path::new(env!("CARGO_TARGET_TMPDIR")).join(directory);
    std::fs::create_dir_all(&directory)?;
    Ok(directory)
}

fn spawn(command: &mut Command) -> Result<Child> {
    let spawned = command.stdin(Stdio::null()).spawn();
    spawned.with_context(|| format!("{:?} could not be started", command.get_program()))
}

/// The number at the end of the first line.
fn port(output: Option<impl Read>) -> Result<u16> {
    let mut line = String::new();
    BufReader::new(output.context("the service has no output")?).read_line(&mut line)?;
    let port = line.rsplit(' ').next().unwrap_or_default().trim();
    port.parse().with_context(|| format!("the service does not say its port: {line}"))
}

impl Drop for Stand<'_> {
    fn drop(&mut self) {
        _ = self.service.kill();
        _ = self.service.wait();
        // What a test that fails has written is worth a look.
        if !std::thread::panicking() {
            _ = std::fs::remove_dir_all(&self.directory);
        }
    }
}

/// A process of `redrive run`. It is killed with this.
pub(crate) struct Redrive {
    child: Mutex<Child>,
    log: PathBuf,
}

impl Redrive {
    /// The program that the README shows, which embeds it.
    pub(crate) fn library_example(trial: &Trial) -> Result<Self> {
        let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("../..");
        let source = std::fs::read_to_string(root.join("crates/redrive/examples/library.rs"))?;
        let shown = source.split_once("\n\n").context("no heading")?.1;
        let readme = std::fs::read_to_string(root.join("README.md"))?;
        ensure!(
            readme.contains(shown),
            "the README shows another program than examples/library.rs"
        );
        let program = binaries()?.join("examples/library");
        ensure!(program.exists(), "`cargo build --workspace --all-targets` makes the example");
        let log = directory()?.join("log");
        let output = File::create(&log)?;
        let mut command = Command::new(program);
        command.env("KAFKA", &trial.broker.address).stdout(output.try_clone()?).stderr(output);
        Ok(Self { child: Mutex::new(spawn(&mut command)?), log })
    }

    /// What it has logged so far.
    pub(crate) fn log(&self) -> String {
        std::fs::read_to_string(&self.log).unwrap_or_default()
    }

    fn ended(&self) -> Option<ExitStatus> {
        self.child.lock().unwrap().try_wait().unwrap()
    }

    pub(crate) fn has_ended(&self) -> bool {
        self.ended().is_some()
    }

    /// Its exit code, once it has ended.
    pub(crate) fn code(&self) -> Option<i32> {
        self.ended()?.code()
    }

    /// The power cut.
    pub(crate) fn kill(self) -> Result<()> {
        let mut child = self.child.lock().unwrap();
        child.kill()?;
        child.wait()?;
        Ok(())
    }

    /// Tells it to stop, and waits until it has ended well.
    pub(crate) fn stop(self) -> Result<()> {
        let id = self.child.lock().unwrap().id();
        let told = Command::new("kill").args(["-TERM", &id.to_string()]).status()?;
        ensure!(told.success(), "redrive has ended before: {}", self.log());
        let limit = Instant::now() + SOON;
        loop {
            match self.ended() {
                Some(status) if status.success() => return Ok(()),
                Some(status) => bail!("redrive ended with {status}: {}", self.log()),
                None if Instant::now() > limit => bail!("redrive does not end: {}", self.log()),
                None => std::thread::sleep(Duration::from_millis(10)),
            }
        }
    }
}

impl Drop for Redrive {
    fn drop(&mut self) {
        let mut child = self.child.lock().unwrap();
        _ = child.kill();
        _ = child.wait();
    }
}

/// What the README shows, run by a shell that is ended with this.
pub(crate) struct Shown {
    shell: Child,
    directory: PathBuf,
}

impl Shown {
    pub(crate) fn start(trial: &Trial) -> Result<Self> {
        let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("../..");
        let readme = std::fs::read_to_string(root.join("README.md"))?;
        let section = readme.split("## In front of a service").nth(1).context("no such section")?;
        let lines = section.split("```sh\n").nth(1).and_then(|it| it.split("```").next());
        let port = free_port()?.to_string();
        let lines = replaced(lines.context("no commands")?, "8080", &port)?;
        let directory = directory()?;
        let status =
            Command::new("cp").arg("-r").arg(root.join("examples")).arg(&directory).status()?;
        ensure!(status.success(), "the examples could not be copied");
        let config = directory.join("examples/orders.yaml");
        std::fs::write(&config, replaced(&std::fs::read_to_string(&config)?, "8080", &port)?)?;
        let output = File::create(directory.join("output"))?;
        let path = format!("{}:{}", binaries()?.display(), std::env::var("PATH")?);
        let shell = Command::new("bash")
            .args(["-e", "-c", &lines])
            .current_dir(&directory)
            .env("PATH", path)
            .env("KAFKA", &trial.broker.address)
            .stdin(Stdio::null())
            .stdout(output.try_clone()?)
            .stderr(output)
            .process_group(0)
            .spawn()?;
        Ok(Self { shell, directory })
    }

    /// Ends it, and gives what it has written.
    pub(crate) fn stop(self) -> Result<String> {
        Ok(std::fs::read_to_string(self.directory.join("output"))?)
    }
}

impl Drop for Shown {
    fn drop(&mut self) {
        if std::thread::panicking() {
            eprintln!(
                "{}",
                std::fs::read_to_string(self.directory.join("output")).unwrap_or_default()
            );
        }
        // The shell, the service and redrive.
        let group = format!("-{}", self.shell.id());
        _ = Command::new("kill").args(["-KILL", "--", &group]).status();
        _ = self.shell.wait();
        _ = std::fs::remove_dir_all(&self.directory);
    }
}

/// Where the binaries are: tests are in `deps`, beside them.
pub(crate) fn binaries() -> Result<PathBuf> {
    let test = std::env::current_exe()?;
    Ok(test.parent().and_then(Path::parent).context("no directory")?.to_owned())
}

/// A dead letter, as Python's client reads it.
pub(crate) struct Letter {
    /// The name of the record.
    pub(crate) name: String,
    headers: Vec<(String, String)>,
}

impl Letter {
    pub(crate) fn header(&self, name: &str) -> Option<&str> {
        self.headers.iter().rfind(|it| it.0 == name).map(|it| it.1.as_str())
    }
}

/// All dead letters of a test.
pub(crate) fn letters(trial: &Trial) -> Result<Vec<Letter>> {
    foreign::read(&trial.broker.address, &trial.dead_letters())?.iter().map(letter).collect()
}

fn letter(read: &Value) -> Result<Letter> {
    let value: Value = serde_json::from_str(&text(&read["value"])?)?;
    let name = value["name"].as_str().context("a record without a name")?.to_owned();
    let headers = read["headers"].as_array().context("no headers")?;
    let headers = headers.iter().map(|it| {
        Ok((it[0].as_str().context("a header without a name")?.to_owned(), text(&it[1])?))
    });
    Ok(Letter { name, headers: headers.collect::<Result<_>>()? })
}

/// The text behind hex digits.
fn text(hex: &Value) -> Result<String> {
    let hex = hex.as_str().context("null")?;
    let mut bytes = Vec::new();
    for at in (0..hex.len()).step_by(2) {
        bytes.push(u8::from_str_radix(hex.get(at..at + 2).context("half a byte")?, 16)?);
    }
    Ok(String::from_utf8(bytes)?)
}
