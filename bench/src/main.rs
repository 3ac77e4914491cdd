//! Redrive beside the raw client, on one broker in one run.
//!
//! Each engine reads the same topic in a process of its own; rounds are interleaved, because machines are noisy. What counts
//! are ratios, and CPU time more than time.

mod engines;
mod measure;

use std::io::Write;
use std::process::Command;
use std::time::Duration;

use anyhow::{Context, Result};
use clap::{Parser, ValueEnum};
use indicatif::{ProgressBar, ProgressStyle};

use engines::Work;
use measure::Measured;

/// The binary's, for all engines.
#[global_allocator]
static ALLOCATOR: mimalloc::MiMalloc = mimalloc::MiMalloc;

/// Redrive beside the raw client: `scripts/kafka with -- cargo run --release -p redrive-bench`
#[derive(Parser)]
struct Args {
    /// The broker.
    #[arg(long, env = "KAFKA", default_value = "127.0.0.1:9092")]
    kafka: String,
    /// How many records are read.
    #[arg(long, default_value_t = 2_000_000)]
    records: u64,
    /// How many bytes each has.
    #[arg(long, default_value_t = 100)]
    size: usize,
    /// How often each engine has its turn.
    #[arg(long, default_value_t = 5)]
    rounds: usize,
    /// How many records of Redrive run at the same time.
    #[arg(long, default_value_t = 1024)]
    concurrency: u32,
    /// Less of everything: only to see that it works.
    #[arg(long)]
    quick: bool,
    /// One engine alone, in this process.
    #[arg(long, hide = true)]
    engine: Option<Engine>,
    /// The topic, for one engine alone.
    #[arg(long, hide = true)]
    topic: Option<String>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
enum Engine {
    /// `BaseConsumer::poll`, record by record.
    Poll,
    /// Reading in batches, and nothing else.
    Batch,
    /// Redrive, with a handler that does nothing.
    Redrive,
    /// The same, with order per key.
    Ordered,
}

impl Engine {
    const ALL: [Engine; 4] = [Engine::Poll, Engine::Batch, Engine::Redrive, Engine::Ordered];

    fn name(self) -> &'static str {
        match self {
            Engine::Poll => "poll loop",
            Engine::Batch => "batch read",
            Engine::Redrive => "redrive",
            Engine::Ordered => "ordered",
        }
    }
}

fn main() -> Result<()> {
    let mut args = Args::parse();
    let log = tracing_subscriber::fmt().with_writer(std::io::stderr);
    log.with_max_level(tracing_subscriber::filter::LevelFilter::WARN).init();
    if args.quick {
        args.records = args.records.min(100_000);
        args.rounds = args.rounds.min(2);
    }
    match (args.engine, args.topic.clone()) {
        (Some(engine), Some(topic)) => {
            let work = Work {
                kafka: args.kafka,
                topic,
                records: args.records,
                concurrency: args.concurrency,
            };
            let measured = match engine {
                Engine::Poll => engines::poll(&work)?,
                Engine::Batch => engines::batch(&work)?,
                Engine::Redrive => engines::redrive(&work, false)?,
                Engine::Ordered => engines::redrive(&work, true)?,
            };
            println!("{}", measured.to_json());
            Ok(())
        }
        _ => compare(&args),
    }
}

fn compare(args: &Args) -> Result<()> {
    let topic = format!("bench-{}-{}", args.size, measure::now());
    let bar = ProgressBar::new(args.records);
    bar.set_style(ProgressStyle::with_template("{msg:40} [{bar:30}] {pos}/{len}")?);
    bar.set_message(format!("producing records of {} bytes", args.size));
    engines::fill(&args.kafka, &topic, args.records, args.size, |done| bar.set_position(done))?;
    let turns = args.rounds * Engine::ALL.len();
    bar.set_length(turns as u64);
    bar.set_position(0);
    bar.enable_steady_tick(Duration::from_millis(200));
    let mut all: Vec<Vec<Measured>> = vec![Vec::new(); Engine::ALL.len()];
    for round in 0..args.rounds {
        for (engine, measured) in Engine::ALL.iter().zip(&mut all) {
            bar.set_message(format!("round {} of {}: {}", round + 1, args.rounds, engine.name()));
            measured.push(one(args, *engine, &topic)?);
            bar.inc(1);
        }
    }
    bar.finish_and_clear();
    let mut out = std::io::stdout().lock();
    writeln!(
        out,
        "{} records of {} bytes, {} rounds, concurrency {}",
        args.records, args.size, args.rounds, args.concurrency
    )?;
    writeln!(
        out,
        "{:12} {:>12} {:>18} {:>10} {:>10}",
        "engine", "records/s", "CPU ns/record", "spread", "RSS MiB"
    )?;
    let batch = measure::median(&all[1], Measured::cpu_nanos);
    for (engine, measured) in Engine::ALL.iter().zip(&all) {
        let cpu = measure::median(measured, Measured::cpu_nanos);
        writeln!(
            out,
            "{:12} {:>12.0} {:>18.0} {:>9.0}% {:>10.0}   {:+.0} ns over the batch read",
            engine.name(),
            measure::median(measured, Measured::rate),
            cpu,
            measure::spread(measured, Measured::cpu_nanos) * 100.0,
            measure::median(measured, Measured::rss_mib),
            cpu - batch,
        )?;
    }
    let rate = |index: usize| measure::median(&all[index], Measured::rate);
    writeln!(
        out,
        "redrive / poll loop {:.2}, redrive / batch read {:.2}, ordered / redrive {:.2} (records per second)",
        rate(2) / rate(0),
        rate(2) / rate(1),
        rate(3) / rate(2)
    )?;
    Ok(())
}

/// One engine's turn, in a process of its own.
fn one(args: &Args, engine: Engine, topic: &str) -> Result<Measured> {
    let name = engine.to_possible_value().context("an engine without a name")?;
    let output = Command::new(std::env::current_exe()?)
        .args(["--kafka", &args.kafka, "--topic", topic, "--engine", name.get_name()])
        .args(["--records", &args.records.to_string()])
        .args(["--concurrency", &args.concurrency.to_string()])
        .output()?;
    anyhow::ensure!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    Measured::from_json(&output.stdout)
}
