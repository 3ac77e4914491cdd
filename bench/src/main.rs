//! Redrive beside the raw client and its peers: one broker, one machine, one run.
//!
//! Every engine does the same work in a process of its own; rounds are interleaved, because machines are noisy. What counts
//! are ratios, and CPU time more than time. `bench/run` fetches and builds what is needed and starts this.

/// The binary's, for all engines.
#[path = "../../crates/redrive-cli/src/allocator.rs"]
mod allocator;
mod bench;
mod check;
mod engine;
mod ledger;
mod measure;
mod report;
mod results;
mod run;
mod stats;
mod svg;
mod targets;
mod task;
mod topics;
mod turn;
mod witness;
mod work;

use std::path::PathBuf;

use anyhow::Result;
use clap::Parser;

use bench::Scale;
use results::Results;
use run::Order;
use topics::Filling;
use turn::{Engine, Turn};

/// Redrive beside the raw client and its peers: run it by bench/run, or with a broker at hand by itself.
#[derive(Parser)]
struct Args {
    /// The broker.
    #[arg(long, env = "KAFKA", default_value = "127.0.0.1:9092")]
    kafka: String,
    /// Only this work: success, failing, delays, keys, stuck, pending, killed, exactly-once.
    #[arg(long, value_name = "NAME", num_args = 1.., value_delimiter = ',')]
    work: Vec<String>,
    /// Only these engines.
    #[arg(long, value_name = "NAME", num_args = 1.., value_delimiter = ',')]
    engines: Vec<Engine>,
    /// How often each engine has its turn.
    #[arg(long, default_value_t = 5)]
    rounds: usize,
    /// How long a measurement takes, where the number of records is not a part of the work.
    #[arg(long, default_value_t = 10)]
    seconds: u64,
    /// Less of everything, Redrive and the raw client only: to see that it works. Nothing is written.
    #[arg(long)]
    quick: bool,
    /// Draws the report again from what was measured before.
    #[arg(long)]
    report: bool,
    /// Where results and report are.
    #[arg(long, default_value = "bench", value_name = "DIRECTORY")]
    out: PathBuf,
    /// Where the Java engines are.
    #[arg(long, default_value = "target/bench/jvm", value_name = "DIRECTORY")]
    jvm: PathBuf,
    /// One engine alone, in this process, on a topic that is filled.
    #[arg(long, hide = true)]
    engine: Option<Engine>,
    /// Makes a topic with --records and --size, and fills it.
    #[arg(long, hide = true)]
    fill: Option<String>,
    /// Bytes of a record, with --fill.
    #[arg(long, hide = true, default_value_t = 100)]
    size: usize,
    #[command(flatten)]
    turn: Turn,
}

fn main() -> Result<()> {
    allocator::set_up();
    let args = Args::parse();
    let log = tracing_subscriber::fmt().with_writer(std::io::stderr);
    log.with_max_level(tracing_subscriber::filter::LevelFilter::ERROR).init();
    if let Some(engine) = args.engine {
        println!("{}", engine::run(engine, &args.kafka, args.turn)?.to_json());
        return Ok(());
    }
    if let Some(topic) = args.fill {
        return topics::fill(
            &args.kafka,
            &topic,
            Filling::new(args.turn.records, args.size),
            |_| {},
        );
    }
    let scale = Scale { is_quick: args.quick, seconds: if args.quick { 2 } else { args.seconds } };
    let kept = args.out.join("results.json");
    let order = Order {
        kafka: args.kafka,
        jvm: args.jvm,
        scale,
        rounds: if args.quick { 1 } else { args.rounds },
        works: args.work,
        engines: args.engines,
    };
    if args.report {
        return report::write(&Results::read(&kept)?, &args.out);
    }
    if args.quick {
        let results = run::run(&order, None)?;
        print!("{}", report::rates(&results));
        return check::check(&results);
    }
    // What is measured goes beside what was measured before of other work, once all is over.
    let part = args.out.join("results.part.json");
    let results = run::run(&order, Some(&part))?;
    print!("{}{}", report::rates(&results), report::verdicts(&results));
    let is_whole = order.engines.is_empty();
    let failures = results.rows.iter().map(|it| it.failures.len()).sum::<usize>();
    if is_whole {
        let mut all = Results::read(&kept).unwrap_or_default();
        all.replace(results);
        all.write(&kept)?;
        report::write(&all, &args.out)?;
    }
    _ = std::fs::remove_file(part);
    anyhow::ensure!(failures == 0, "{failures} turns failed: see above");
    Ok(())
}
