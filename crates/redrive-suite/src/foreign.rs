//! Another client of Kafka: Python's confluent-kafka. `scripts/python` makes an interpreter that has it.

use std::io::Write;
use std::process::{Command, Stdio};

use anyhow::{Context, Result, ensure};
use serde_json::Value;

/// The interpreter.
pub fn python() -> String {
    std::env::var("REDRIVE_PYTHON").unwrap_or_else(|_| "python3".to_owned())
}

/// Everything that it reads in a topic, a JSON object for each record: bytes are written as hex.
///
/// # Errors
///
/// It could not read to the end.
pub fn read(address: &str, topic: &str) -> Result<Vec<Value>> {
    let output = run("read.py", address, topic, "")?;
    output.lines().map(|it| Ok(serde_json::from_str(it)?)).collect()
}

/// Has it produce values with their keys.
///
/// # Errors
///
/// They were not acknowledged.
pub fn produce(address: &str, topic: &str, records: &[(String, String)]) -> Result<()> {
    let lines: String = records.iter().map(|(key, value)| format!("{key}\t{value}\n")).collect();
    run("produce.py", address, topic, &lines).map(drop)
}

fn run(script: &str, address: &str, topic: &str, input: &str) -> Result<String> {
    let python = python();
    let script = format!("{}/tests/foreign/{script}", env!("CARGO_MANIFEST_DIR"));
    let mut command = Command::new(&python);
    command.args([&script, address, topic]);
    let child = command.stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::piped()).spawn();
    let mut child = child.with_context(|| format!("{python} could not be started"))?;
    // What it has to say to a script that fails at once is more than that it does not listen.
    _ = child.stdin.take().context("no input")?.write_all(input.as_bytes());
    let output = child.wait_with_output()?;
    ensure!(
        output.status.success(),
        "{script} failed; `scripts/python` makes an interpreter for REDRIVE_PYTHON: {}",
        String::from_utf8_lossy(&output.stderr)
    );
    Ok(String::from_utf8(output.stdout)?)
}
