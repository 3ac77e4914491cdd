//! `redrive demo`: Redrive at work, with the proof in the end.

use clap::{Args, ValueEnum};
use redrive_demo::{DemoError, Life, Options, Share};

use crate::output::{self, Exit};

#[derive(Args, Debug)]
pub struct DemoArgs {
    /// How many records are produced
    #[arg(long, value_name = "NUMBER", default_value_t = Options::default().records)]
    records: u32,

    /// The share of them that fails at first: 0.25 or 25%. With 0 there is no outage either
    #[arg(long, value_name = "SHARE", default_value_t = Options::default().failure_rate)]
    failure_rate: Share,

    /// What all chance is drawn from: the same seed brings the same troubles
    #[arg(long, value_name = "NUMBER", default_value_t = Options::default().seed)]
    seed: u64,

    /// How many times as fast as usual, from 0.1 to 20
    #[arg(long, value_name = "FACTOR", default_value_t = Options::default().speed, allow_negative_numbers = true)]
    speed: f64,

    /// Neither colours nor redraws, as where there is no terminal
    #[arg(long)]
    plain: bool,

    /// How the summary is printed
    #[arg(long, value_enum, value_name = "FORMAT", default_value_t = Summary::Text)]
    summary: Summary,

    /// A broker to run on, instead of one within the process. Plaintext, without a password
    #[arg(long, value_name = "HOST:PORT")]
    kafka: Option<String>,

    /// Leave the topics on that broker, to look at them
    #[arg(long)]
    keep_topics: bool,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
enum Summary {
    /// For people
    Text,
    /// One object, as the last line of standard output; all else goes to standard error
    Json,
}

impl DemoArgs {
    pub const AFTER_HELP: &str = "\
An orders flow with three retry topics runs in front of an HTTP service that is flaky on purpose:
it times out, answers 429 with Retry-After and 500, gets a poison record, never gets one customer's
orders done, and is down for a while. In the end it is proven that nothing was lost and nothing ran
early, by the service's own ledger and a read of all topics, not by Redrive's counters.

Ctrl-C ends it early, with a summary.

The summary as JSON:
  {\"produced\", \"handled\", \"dead_lettered\", \"dropped\", \"lost\", \"early\", \"run_twice\",
   \"late_ms\": {\"p50\", \"p99\", \"max\"}}, and \"unfinished\" where it was cut short

Examples:
  redrive demo
  redrive demo --seed 7 --failure-rate 60%              # a worse day at the service
  redrive demo --records 20000 --speed 2
  redrive demo --kafka localhost:9092 --keep-topics     # the same on your own broker
  redrive demo --plain --summary json 2>/dev/null       # for a script

Exit codes: 0 nothing was lost or early, 1 something was (the records are named), 2 wrong use,
3 it could not go on.";
}

pub fn run(args: &DemoArgs) -> anyhow::Result<Exit> {
    let options = Options {
        records: args.records,
        failure_rate: args.failure_rate,
        seed: args.seed,
        speed: args.speed,
        plain: args.plain,
        life: if args.summary == Summary::Json { Life::Stderr } else { Life::Stdout },
        kafka: args.kafka.clone(),
        keep_topics: args.keep_topics,
    };
    let outcome = match redrive_demo::run(&options) {
        Ok(outcome) => outcome,
        Err(DemoError::Options(error)) => return Err(error.into()),
        Err(error) => {
            output::fail(&error.into());
            return Ok(Exit::Failed);
        }
    };
    match args.summary {
        Summary::Text => output::print(&outcome.text)?,
        Summary::Json => {
            output::tell(&outcome.text);
            output::print(&format!("{}\n", outcome.json))?;
        }
    }
    Ok(if outcome.is_kept { Exit::Fine } else { Exit::Problems })
}
