//! `redrive entities`: which entities are held back, by which record and why, and letting go on those that are closed.

mod json;
mod text;

use std::collections::BTreeMap;
use std::time::Duration;

use clap::{Args, Subcommand};
use indicatif::{ProgressBar, ProgressStyle};
use redrive::config::{Config, Ordering};
use redrive::entities::{BlockedEntity, ClosedEntity, Entities};
use redrive::{RunError, Spot};

use crate::args::{FileArg, Format, duration};
use crate::output::{self, Exit};
use crate::{brokers, input};

#[derive(Args, Debug)]
pub struct EntitiesArgs {
    #[command(subcommand)]
    pub command: EntitiesCommand,
}

impl EntitiesArgs {
    pub const AFTER_HELP: &str = "\
An entity is blocked while its first record waits to be retried: it goes on by itself. It is closed
when that record is in the dead-letter topic and `on_dead_letter` is `hold`: all that comes for it
goes there, too, until somebody opens it. docs/ordering.md tells all about it.

Examples:
  redrive entities list -c orders.yaml
        What is held back, by which record, since when and why?
  redrive entities show -c orders.yaml --key order-17
        All that waits of one entity, in its order.
  redrive entities release -c orders.yaml --key order-17
        Let a closed entity go on: members that run notice at once.

Exit codes: 0 fine, 1 nothing there to release, or the config has problems, 2 wrong use, 3 the brokers
do not answer.";
}

#[derive(Debug, Subcommand)]
pub enum EntitiesCommand {
    /// List entities that are closed or blocked, with their heads, since when, how many follow, and why
    List(LookArgs),

    /// Show one entity: whether it flows, and all its records that wait
    Show(LookArgs),

    /// Open closed entities: what comes for them from now on runs
    #[command(after_help = "\
What has gone to the dead-letter topic stays there: the head, and those that followed it. New records
run as soon as members have read of the release, which takes them a moment.

Examples:
  redrive entities release -c orders.yaml --key order-17
  redrive entities release -c orders.yaml --topic orders --all --dry-run")]
    Release(ReleaseArgs),
}

/// Whose entities, and which.
#[derive(Args, Debug)]
pub struct Which {
    #[command(flatten)]
    pub file: FileArg,

    /// Only those of the flow with this source topic
    #[arg(long)]
    pub topic: Option<String>,

    /// How to print the result
    #[arg(long, value_enum, default_value_t = Format::Text)]
    pub format: Format,

    /// How long brokers may take to answer
    #[arg(long, value_name = "DURATION", default_value = "30s", value_parser = duration)]
    pub timeout: Duration,
}

/// One of them.
#[derive(Args, Clone, Debug)]
pub struct Named {
    /// The entity: its key, or what the header or the pointer gives
    #[arg(long, value_name = "NAME")]
    pub key: Option<String>,

    /// The entity by its hash, as `list` shows it: for names that are no text
    #[arg(long, value_name = "HASH", conflicts_with = "key")]
    pub id: Option<String>,
}

impl Named {
    fn is_meant(&self, id: &str) -> bool {
        match (&self.key, &self.id) {
            (Some(key), _) => redrive::entities::id_of(key.as_bytes()) == id,
            (None, Some(wanted)) => wanted.eq_ignore_ascii_case(id),
            (None, None) => true,
        }
    }

    fn is_some(&self) -> bool {
        self.key.is_some() || self.id.is_some()
    }
}

#[derive(Args, Debug)]
pub struct LookArgs {
    #[command(flatten)]
    pub which: Which,
    #[command(flatten)]
    pub named: Named,
}

#[derive(Args, Debug)]
pub struct ReleaseArgs {
    #[command(flatten)]
    pub which: Which,
    #[command(flatten)]
    pub named: Named,

    /// All that are closed
    #[arg(long, conflicts_with_all = ["key", "id"])]
    pub all: bool,

    /// Only say which would be opened
    #[arg(long)]
    pub dry_run: bool,
}

/// What was found.
pub struct Found {
    pub closed: Vec<ClosedEntity>,
    /// How many follow each head into the dead-letter topic.
    pub followers: BTreeMap<Spot, u64>,
    pub blocked: Vec<BlockedEntity>,
}

pub fn run(args: &EntitiesArgs) -> anyhow::Result<Exit> {
    let (which, named) = match &args.command {
        EntitiesCommand::List(args) | EntitiesCommand::Show(args) => (&args.which, &args.named),
        EntitiesCommand::Release(args) => (&args.which, &args.named),
    };
    match &args.command {
        EntitiesCommand::Show(_) if !named.is_some() => {
            anyhow::bail!("which one? name it by `--key NAME`, or by the `--id` that `list` shows");
        }
        EntitiesCommand::Release(args) if !named.is_some() && !args.all => {
            anyhow::bail!(
                "which ones? name one by `--key NAME` or `--id`, or take `--all` of them"
            );
        }
        _ => {}
    }
    let input = input::load(&which.file.config, None, None)?;
    output::tell(&output::problems(&input.name, &input.loaded.problems));
    let Some(config) = &input.loaded.config else {
        return Ok(Exit::Problems);
    };
    check_topic(which, config)?;
    brokers::ask(async {
        match &args.command {
            EntitiesCommand::List(args) => look(args, text::list, false, config).await,
            EntitiesCommand::Show(args) => look(args, text::show, true, config).await,
            EntitiesCommand::Release(args) => release(args, config).await,
        }
    })
}

/// There must be a flow to look at.
fn check_topic(which: &Which, config: &Config) -> anyhow::Result<()> {
    let ordered = config.flows.iter().filter(|it| it.ordering == Ordering::Key);
    let topics: Vec<_> = ordered.map(|it| &**it.flow.source()).collect();
    let known = || topics.join(", ");
    match &which.topic {
        _ if topics.is_empty() => anyhow::bail!(
            "no flow of the config has `ordering: key`, so that nothing is ever held back for the sake of order"
        ),
        Some(topic) if !topics.contains(&topic.as_str()) => anyhow::bail!(
            "no flow with `ordering: key` has the source topic `{topic}` (known: {})",
            known()
        ),
        _ => Ok(()),
    }
}

async fn look(
    args: &LookArgs,
    text: fn(&Found) -> String,
    with_records: bool,
    config: &Config,
) -> anyhow::Result<Exit> {
    let found = find(&args.which, &args.named, config).await?;
    output::print(&match args.which.format {
        Format::Text => text(&found),
        Format::Json => json::found(&found, with_records),
    })?;
    Ok(Exit::Fine)
}

async fn release(args: &ReleaseArgs, config: &Config) -> anyhow::Result<Exit> {
    let which = &args.which;
    let entities = Entities::connect(config, which.timeout).await?;
    let closed = closed(&entities, which, &args.named).await?;
    if !args.dry_run {
        entities.open(&closed).await?;
    }
    output::print(&match which.format {
        Format::Text => text::released(&closed, args.dry_run),
        Format::Json => json::released(&closed, args.dry_run),
    })?;
    // To ask for all of none is fine.
    Ok(if closed.is_empty() && !args.all { Exit::Problems } else { Exit::Fine })
}

/// The closed entities that are meant.
async fn closed(
    entities: &Entities,
    which: &Which,
    named: &Named,
) -> Result<Vec<ClosedEntity>, RunError> {
    let topics: Vec<_> = entities.topics().collect();
    let mut closed = entities.closed().await?;
    closed.retain(|it| {
        let is_topic = match &which.topic {
            Some(topic) => **topic == *it.head.topic,
            None => topics.contains(&&*it.head.topic),
        };
        is_topic && named.is_meant(&it.id)
    });
    Ok(closed)
}

async fn find(which: &Which, named: &Named, config: &Config) -> Result<Found, RunError> {
    let entities = Entities::connect(config, which.timeout).await?;
    let closed = closed(&entities, which, named).await?;
    let bar = bar("retry topics");
    let is_meant = |topic: &str| which.topic.as_deref().is_none_or(|it| it == topic);
    let mut blocked = entities.blocked(is_meant, move |read, all| advance(&bar, read, all)).await?;
    blocked.retain(|it| named.is_meant(&it.id));
    let followers = if closed.is_empty() {
        BTreeMap::new()
    } else {
        let bar = self::bar("dead letters");
        entities.followers(&closed, move |read, all| advance(&bar, read, all)).await?
    };
    Ok(Found { closed, followers, blocked })
}

/// Shows on standard error how far reading is, where that is a terminal.
fn bar(what: &'static str) -> ProgressBar {
    let bar = ProgressBar::no_length().with_message(what);
    let style = ProgressStyle::with_template("reading {msg} {wide_bar} {pos}/{len}");
    bar.set_style(style.unwrap_or_else(|_| ProgressStyle::default_bar()));
    bar
}

fn advance(bar: &ProgressBar, read: u64, all: u64) {
    bar.set_length(all);
    bar.set_position(read);
    if read >= all {
        bar.finish_and_clear();
    }
}
