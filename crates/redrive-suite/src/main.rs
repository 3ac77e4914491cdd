//! Runs the guarantee suite by hand, and is its members.

use std::path::PathBuf;
use std::time::Duration;

use anyhow::Result;
use clap::{Parser, Subcommand};
use indicatif::{ProgressBar, ProgressStyle};
use redrive_suite::broker::Broker;
use redrive_suite::member;
use redrive_suite::scenario::{BY_ENTITY_MIXED, MIXED, Scenario, Treatment};

/// Redrive's promises, tried on a real broker: `scripts/kafka with -- cargo run --release -p redrive-suite -- run`
#[derive(Parser)]
struct Args {
    #[command(subcommand)]
    command: What,
}

#[derive(Subcommand)]
enum What {
    /// Runs all scenarios so many times, and prints what was lost, early, out of order and run twice. Exits non-zero if a promise broke.
    Run {
        /// How often.
        #[arg(long, default_value_t = 1)]
        repeat: u64,
        /// What chance follows from.
        #[arg(long, default_value_t = 1)]
        seed: u64,
        /// Only scenarios whose name contains this.
        #[arg(long)]
        only: Option<String>,
        /// On the embedded broker, as far as it can.
        #[arg(long)]
        embedded: bool,
    },
    /// One long run: many records, a fifth failing, mixed delays, and members killed.
    Kill {
        /// How many records.
        #[arg(long, default_value_t = 100_000)]
        records: u64,
        /// How many times a member is killed.
        #[arg(long, default_value_t = 10)]
        kills: u32,
        /// What chance follows from.
        #[arg(long, default_value_t = 1)]
        seed: u64,
    },
    /// One long run with the events of each entity in order: many records, a tenth failing, members killed, and members that sleep
    /// through their session.
    Order {
        /// How many records.
        #[arg(long, default_value_t = 100_000)]
        records: u64,
        /// How many entities.
        #[arg(long, default_value_t = 5_000)]
        entities: u64,
        /// How many times a member is killed.
        #[arg(long, default_value_t = 10)]
        kills: u32,
        /// How many times one sleeps.
        #[arg(long, default_value_t = 3)]
        zombies: u32,
        /// What chance follows from.
        #[arg(long, default_value_t = 1)]
        seed: u64,
    },
    /// A member of a group.
    #[command(hide = true)]
    Member {
        #[arg(long)]
        config: PathBuf,
        #[arg(long)]
        ledger: PathBuf,
    },
}

#[tokio::main]
async fn main() -> Result<()> {
    match Args::parse().command {
        What::Member { config, ledger } => {
            tracing_subscriber::fmt().with_writer(std::io::stderr).with_ansi(false).init();
            member::run(&std::fs::read_to_string(config)?, &ledger).await
        }
        What::Run { repeat, seed, only, embedded } => {
            let scenarios: Vec<_> = redrive_suite::scenario::all()
                .into_iter()
                .filter(|it| only.as_ref().is_none_or(|only| it.name.contains(only.as_str())))
                .collect();
            let mut is_kept = true;
            for round in 0..repeat {
                for scenario in &scenarios {
                    match scenario.not_embedded().filter(|_| embedded) {
                        Some(why) => println!("{:20} not embedded: {why}", scenario.name),
                        None => is_kept &= one(scenario, &broker(embedded)?, seed + round).await?,
                    }
                }
            }
            anyhow::ensure!(is_kept, "a promise was broken");
            Ok(())
        }
        What::Order { records, entities, kills, zombies, seed } => {
            let scenario = Scenario {
                name: "order",
                records,
                failing: 10,
                members: 3,
                treatment: Treatment::Zombies { zombies, kills },
                limit: Duration::from_secs(300),
                retry: BY_ENTITY_MIXED,
                entities: Some(entities),
                pieces: (120, Duration::from_millis(500)),
                ..Scenario::default()
            };
            anyhow::ensure!(one(&scenario, &broker(false)?, seed).await?, "a promise was broken");
            Ok(())
        }
        What::Kill { records, kills, seed } => {
            let scenario = Scenario {
                name: "kill",
                records,
                failing: 20,
                members: 3,
                treatment: Treatment::Kills(kills),
                limit: Duration::from_secs(300),
                retry: MIXED,
                ..Scenario::default()
            };
            anyhow::ensure!(one(&scenario, &broker(false)?, seed).await?, "a promise was broken");
            Ok(())
        }
    }
}

/// One of the environment's, or one for a single scenario.
fn broker(embedded: bool) -> Result<Broker> {
    if embedded { Broker::embedded() } else { Broker::from_env() }
}

async fn one(scenario: &Scenario, broker: &Broker, seed: u64) -> Result<bool> {
    let style = ProgressStyle::with_template("{msg:28} [{bar:30}] {pos}/{len}")?;
    let bar = ProgressBar::new(scenario.records).with_style(style);
    bar.set_message(format!("{} seed {seed}", scenario.name));
    bar.enable_steady_tick(Duration::from_millis(200));
    let program = std::env::current_exe()?;
    let report = scenario.run(broker, &program, seed, |ended| bar.set_position(ended)).await?;
    bar.finish_and_clear();
    println!("{:20} seed {seed}: {report}", scenario.name);
    Ok(report.is_kept() && scenario.is_once(&report))
}
