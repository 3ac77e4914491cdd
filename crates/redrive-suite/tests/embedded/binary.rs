//! `redrive run --embedded` and `redrive broker`, with a service and clients in Python.

use std::fs::File;
use std::io::{BufRead, BufReader, Read};
use std::net::{Ipv4Addr, TcpListener};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Output, Stdio};
use std::sync::atomic::{AtomicU32, Ordering};
use std::time::Instant;

use anyhow::{Context, Result, ensure};
use redrive_suite::foreign::{self, python};
use redrive_suite::trial::{SOON, until};
use serde_json::{Value, json};

/// A config in front of a service.
fn config(kafka: &str, service: u16) -> String {
    format!(
        "kafka: {kafka}\ngroup: billing\nflows:\n- topic: orders\n  handler: {{ http: {{ url: 'http://127.0.0.1:{service}/orders' }} }}\n  retry:\n    topics:\n    - {{ topic: orders.retry.1, delay: 200ms }}\n    - {{ topic: orders.retry.2, delay: 500ms }}\n  default: {{ delayed: {{}} }}\n"
    )
}

/// A directory for the files of one test.
fn directory() -> Result<PathBuf> {
    static COUNT: AtomicU32 = AtomicU32::new(0);
    let count = COUNT.fetch_add(1, Ordering::Relaxed);
    let directory = format!("embedded-{}-{count}", std::process::id());
    let directory = Path::new(env!("CARGO_TARGET_TMPDIR")).join(directory);
    std::fs::create_dir_all(&directory)?;
    Ok(directory)
}

/// The binary is beside the tests' own directory.
fn redrive(arguments: &[&str]) -> Result<Command> {
    let test = std::env::current_exe()?;
    let binary = test.parent().and_then(Path::parent).context("no directory")?.join("redrive");
    ensure!(binary.exists(), "{} is not there: run `cargo build --workspace`", binary.display());
    let mut command = Command::new(binary);
    command.args(arguments).env_remove("RUST_LOG").stdin(Stdio::null());
    Ok(command)
}

fn output(arguments: &[&str]) -> Result<Output> {
    Ok(redrive(arguments)?.output()?)
}

/// A process that is killed with this.
struct Process(Child);

impl Process {
    fn start(command: &mut Command) -> Result<Self> {
        let started = command.spawn();
        Ok(Self(started.with_context(|| format!("{command:?} could not be started"))?))
    }

    /// Tells it to end, and gives its exit code.
    fn stop(mut self, signal: &str) -> Result<Option<i32>> {
        let told = Command::new("kill").args([signal, &self.0.id().to_string()]).status()?;
        ensure!(told.success(), "it has ended before");
        let limit = Instant::now() + SOON;
        loop {
            if let Some(status) = self.0.try_wait()? {
                return Ok(status.code());
            }
            ensure!(Instant::now() < limit, "it does not end");
            std::thread::sleep(std::time::Duration::from_millis(10));
        }
    }
}

impl Drop for Process {
    fn drop(&mut self) {
        _ = self.0.kill();
        _ = self.0.wait();
    }
}

/// The first line that a process writes, and its last word as a number.
fn first_line(from: Option<impl Read>) -> Result<String> {
    let mut line = String::new();
    BufReader::new(from.context("no output")?).read_line(&mut line)?;
    Ok(line.trim().to_owned())
}

/// A flaky service with its port, and where it writes what it was asked.
fn service(directory: &Path) -> Result<(Process, u16, PathBuf)> {
    let script = concat!(env!("CARGO_MANIFEST_DIR"), "/tests/service/flaky.py");
    let ledger = directory.join("ledger");
    let mut command = Command::new(python());
    let mut service = Process::start(command.arg(script).arg(&ledger).stdout(Stdio::piped()))?;
    let line = first_line(service.0.stdout.take())?;
    let port = line.rsplit(' ').next().unwrap_or_default().parse();
    Ok((service, port.with_context(|| format!("no port: {line}"))?, ledger))
}

/// How often each record was answered with success, and how often not.
fn answers(ledger: &Path, name: &str) -> (usize, usize) {
    let text = std::fs::read_to_string(ledger).unwrap_or_default();
    let lines = text.lines().filter_map(|it| serde_json::from_str::<Value>(it).ok());
    let of = lines.filter(|it| {
        let value = it["value"].as_str().unwrap_or_default();
        serde_json::from_str::<Value>(value).is_ok_and(|it| it["name"] == *name)
    });
    let (good, bad): (Vec<_>, Vec<_>) = of.partition(|it| it["status"] == 200);
    (good.len(), bad.len())
}

fn record(name: &str, statuses: &[u16]) -> (String, String) {
    let answers: Vec<_> = statuses.iter().map(|it| json!({ "status": it })).collect();
    (name.to_owned(), json!({ "name": name, "answers": answers }).to_string())
}

/// Produces with Python's client, and waits until the service and the dead-letter topic have what they should.
async fn works(address: &str, ledger: &Path) -> Result<()> {
    let records =
        [record("fine", &[200]), record("flaky", &[503, 503, 200]), record("poison", &[422])];
    foreign::produce(address, "orders", &records)?;
    until("the flaky one is done", || answers(ledger, "flaky") == (1, 2)).await?;
    until("the fine one is done", || answers(ledger, "fine") == (1, 0)).await?;
    until("the poison is refused", || answers(ledger, "poison") == (0, 1)).await?;
    let letters = || foreign::read(address, "orders.dlt");
    until("there is a dead letter", || letters().is_ok_and(|it| it.len() == 1)).await?;
    let letter = letters()?.remove(0);
    let hex = |text: &str| text.bytes().map(|it| format!("{it:02x}")).collect::<String>();
    assert_eq!(letter["key"], hex("poison"));
    let headers = letter["headers"].as_array().unwrap();
    assert!(headers.contains(&json!(["redrive-status", hex("422")])), "{headers:?}");
    Ok(())
}

#[tokio::test(flavor = "multi_thread")]
async fn a_run_with_its_own_broker_serves_clients_of_any_kind() -> Result<()> {
    let directory = directory()?;
    let (_service, port, ledger) = service(&directory)?;
    let (file, log) = (directory.join("redrive.yaml"), directory.join("log"));
    // Those are not asked, and need not be there.
    let elsewhere = "{ bootstrap.servers: '127.0.0.1:1', security.protocol: SASL_SSL }";
    for (kafka, options) in [("embedded", &[][..]), (elsewhere, &["--embedded"][..])] {
        // The service has it open, and goes on at its end.
        File::create(&ledger)?;
        std::fs::write(&file, config(kafka, port))?;
        let mut command = redrive(&["run", "-c", file.to_str().unwrap()])?;
        let run = Process::start(command.args(options).stderr(File::create(&log)?))?;
        let logged = || std::fs::read_to_string(&log).unwrap_or_default();
        until("it says where the broker is", || logged().contains("listens at ")).await?;
        let told = logged();
        let line = told.lines().find(|it| it.contains("listens at ")).unwrap();
        assert!(line.contains("all that is in it ends with this process"), "{line}");
        let address = line.split("listens at ").nth(1).unwrap().split(": ").next().unwrap();
        until("it runs", || logged().contains("orders/0 is assigned")).await?;
        works(address, &ledger).await.with_context(logged)?;
        assert_eq!(run.stop("-TERM")?, Some(0), "{}", logged());
        assert!(!logged().contains("refused"), "{}", logged());
    }
    std::fs::remove_dir_all(directory)?;
    Ok(())
}

#[tokio::test(flavor = "multi_thread")]
async fn a_broker_that_is_kept_up_outlives_those_who_run_on_it() -> Result<()> {
    let directory = directory()?;
    let (_service, service, ledger) = service(&directory)?;
    let file = directory.join("redrive.yaml");
    let port = TcpListener::bind((Ipv4Addr::LOCALHOST, 0))?.local_addr()?.port();
    std::fs::write(
        &file,
        config(&format!("{{ bootstrap.servers: '127.0.0.1:{port}' }}"), service),
    )?;
    let file = file.to_str().unwrap();
    let mut command = redrive(&["broker", "--port", &port.to_string(), "--config", file])?;
    let mut broker = Process::start(command.args(["--topic", "orders:2"]).stdout(Stdio::piped()))?;
    let address = first_line(broker.0.stdout.take())?;
    assert_eq!(address, format!("127.0.0.1:{port}"));
    for _ in 0..2 {
        let log = directory.join("log");
        let run = Process::start(redrive(&["run", "-c", file])?.stderr(File::create(&log)?))?;
        let logged = || std::fs::read_to_string(&log).unwrap_or_default();
        until("it runs", || logged().contains("orders/0 is assigned")).await?;
        if answers(&ledger, "fine") == (0, 0) {
            works(&address, &ledger).await.with_context(logged)?;
        }
        assert_eq!(run.stop("-INT")?, Some(0), "{}", logged());
    }
    // What the first one has done, the second one knew of.
    assert_eq!((answers(&ledger, "fine"), answers(&ledger, "poison")), ((1, 0), (0, 1)));
    // What it has not got, it cannot be asked for, and says so.
    let text = std::fs::read_to_string(file)?.replace("topic: orders\n", "topic: other\n");
    let other = directory.join("other.yaml");
    std::fs::write(&other, text)?;
    let other = other.to_str().unwrap();
    let made = output(&["topics", "apply", "-c", other, "--create-sources", "3"])?;
    assert_eq!(made.status.code(), Some(1));
    let told = String::from_utf8_lossy(&made.stdout);
    assert!(told.contains("redrive broker --topic NAME:PARTITIONS"), "{told}");
    // And nobody else may have its port.
    let second = output(&["broker", "--port", &port.to_string()])?;
    assert_eq!(second.status.code(), Some(3));
    let told = String::from_utf8_lossy(&second.stderr);
    assert!(told.contains(&format!("cannot listen on 127.0.0.1:{port}")), "{told}");
    let second = output(&["run", "-c", file, &format!("--embedded={port}")])?;
    assert_eq!(second.status.code(), Some(3));
    assert_eq!(broker.stop("-TERM")?, Some(0));
    std::fs::remove_dir_all(directory)?;
    Ok(())
}
