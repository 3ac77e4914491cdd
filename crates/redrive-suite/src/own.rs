//! A broker that a test has for itself, to kill it or to be kept out by it.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::sync::atomic::{AtomicU32, Ordering};
use std::sync::{Arc, Weak};
use std::time::Duration;

use anyhow::{Context, Result, bail};
use parking_lot::Mutex;

use crate::broker::Broker;

/// A broker that was started by `scripts/kafka`. It ends with this.
#[derive(Debug)]
pub struct OwnBroker {
    env: BTreeMap<String, String>,
    is_ours: bool,
}

impl OwnBroker {
    /// Starts one with these options.
    ///
    /// # Errors
    ///
    /// It does not start.
    pub fn start(options: &[&str]) -> Result<Self> {
        let output = script("start", options)?;
        Ok(Self { env: read_env(&output), is_ours: true })
    }

    /// One with listeners that want to know who one is: the environment's if it has them, else one that the tests share
    /// that run at the same time.
    ///
    /// # Errors
    ///
    /// It does not start.
    pub fn secure() -> Result<Arc<Self>> {
        static SHARED: Mutex<Weak<OwnBroker>> = Mutex::new(Weak::new());
        let mut shared = SHARED.lock();
        if let Some(broker) = shared.upgrade() {
            return Ok(broker);
        }
        let broker = if std::env::var_os("KAFKA_SASL").is_some() {
            Self {
                env: std::env::vars().filter(|it| it.0.starts_with("KAFKA")).collect(),
                is_ours: false,
            }
        } else {
            Self::start(&["--secure"])?
        };
        let broker = Arc::new(broker);
        *shared = Arc::downgrade(&broker);
        Ok(broker)
    }

    /// What `scripts/kafka` told of it.
    ///
    /// # Errors
    ///
    /// It did not tell that.
    pub fn get(&self, name: &str) -> Result<&str> {
        self.env.get(name).map(String::as_str).with_context(|| format!("the broker has no {name}"))
    }

    /// By its plaintext listener.
    ///
    /// # Errors
    ///
    /// It has none.
    pub fn broker(&self) -> Result<Broker> {
        Ok(Broker::at(self.get("KAFKA")?))
    }

    /// The power cut.
    ///
    /// # Errors
    ///
    /// It outlives that.
    pub fn kill(&self) -> Result<()> {
        script("kill", &[self.get("KAFKA_DIR")?]).map(drop)
    }

    /// It does nothing for a while, as on a machine that stands still.
    ///
    /// # Errors
    ///
    /// It is not there.
    pub fn stall(&self, time: Duration) -> Result<()> {
        self.signal("-STOP")?;
        std::thread::sleep(time);
        self.signal("-CONT")
    }

    fn signal(&self, signal: &str) -> Result<()> {
        let kill = Command::new("kill").args([signal, self.get("KAFKA_PID")?]).status()?;
        if !kill.success() {
            bail!("kill {signal}: {kill}");
        }
        Ok(())
    }

    /// How often its log has this.
    ///
    /// # Errors
    ///
    /// It cannot be read.
    pub fn logged(&self, text: &str) -> Result<usize> {
        let log = std::fs::read_to_string(Path::new(self.get("KAFKA_DIR")?).join("broker.log"))?;
        Ok(log.matches(text).count())
    }

    /// And back.
    ///
    /// # Errors
    ///
    /// It does not start.
    pub fn restart(&self) -> Result<()> {
        script("restart", &[self.get("KAFKA_DIR")?]).map(drop)
    }

    /// Runs Kafka's own tool for access rules.
    ///
    /// # Errors
    ///
    /// The tool fails.
    pub fn acl(&self, arguments: &[&str]) -> Result<()> {
        tool("AclCommand", self.get("KAFKA")?, arguments).map(drop)
    }
}

/// Runs one of Kafka's own tools, and gives what it prints.
///
/// # Errors
///
/// The tool fails.
pub fn tool(name: &str, address: &str, arguments: &[&str]) -> Result<String> {
    let libs = repository().join("target/kafka/libs/*");
    let java = std::env::var("JAVA_HOME").map_or("java".to_owned(), |it| format!("{it}/bin/java"));
    let output = Command::new(java)
        .args(["-Xshare:auto", "-XX:TieredStopAtLevel=1", "-XX:+UseSerialGC", "-cp"])
        .arg(libs)
        .arg(format!("org.apache.kafka.tools.{name}"))
        .args(["--bootstrap-server", address])
        .args(arguments)
        .stdin(Stdio::null())
        .output()?;
    if !output.status.success() {
        let (out, err) =
            (String::from_utf8_lossy(&output.stdout), String::from_utf8_lossy(&output.stderr));
        bail!("{name} failed: {out}{err}");
    }
    Ok(String::from_utf8(output.stdout)?)
}

impl Drop for OwnBroker {
    fn drop(&mut self) {
        if self.is_ours
            && let Ok(directory) = self.get("KAFKA_DIR")
        {
            let directory = PathBuf::from(directory);
            if self.kill().is_ok() {
                _ = std::fs::remove_dir_all(directory);
            }
        }
    }
}

/// A port that nobody listens on, from those that `scripts/kafka` takes its own from.
///
/// # Errors
///
/// There is none.
pub fn free_port() -> Result<u16> {
    // Not the same for two that ask.
    static ASKED: AtomicU32 = AtomicU32::new(0);
    let start = std::process::id() + 50 * ASKED.fetch_add(1, Ordering::Relaxed);
    (0..5000)
        .filter_map(|step| u16::try_from(20000 + (start + step) % 5000).ok())
        .find(|port| std::net::TcpListener::bind(("127.0.0.1", *port)).is_ok())
        .context("no free port")
}

fn repository() -> &'static Path {
    let own = Path::new(env!("CARGO_MANIFEST_DIR"));
    own.parent().and_then(Path::parent).unwrap_or(own)
}

fn script(command: &str, arguments: &[&str]) -> Result<String> {
    let output = Command::new(repository().join("scripts/kafka"))
        .arg(command)
        .args(arguments)
        // A broker of one's own is wanted, whatever the environment has.
        .env_remove("KAFKA")
        .stdin(Stdio::null())
        .output()
        .context("scripts/kafka could not be started")?;
    if !output.status.success() {
        bail!("scripts/kafka {command} failed: {}", String::from_utf8_lossy(&output.stderr));
    }
    Ok(String::from_utf8(output.stdout)?)
}

fn read_env(text: &str) -> BTreeMap<String, String> {
    let lines = text.lines().filter_map(|it| it.split_once('='));
    lines.map(|(name, value)| (name.to_owned(), value.to_owned())).collect()
}
