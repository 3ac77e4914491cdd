//! The command line, and the help that teaches it.

use std::num::NonZeroU16;
use std::path::PathBuf;
use std::time::Duration;

use clap::builder::styling::{AnsiColor, Styles};
use clap::{Args, Parser, Subcommand, ValueEnum};
use redrive::config::parse_duration;

use crate::broker::BrokerArgs;
use crate::demo::DemoArgs;
use crate::entities::EntitiesArgs;
use crate::init::InitArgs;
use crate::run_args::PartArgs;

const STYLES: Styles = Styles::styled()
    .header(AnsiColor::Green.on_default().bold())
    .usage(AnsiColor::Green.on_default().bold())
    .literal(AnsiColor::Cyan.on_default())
    .placeholder(AnsiColor::Yellow.on_default());

/// The retry engine for Apache Kafka
///
/// Consumers fail: a database is locked, an API answers 429, a payload is broken. Redrive decides
/// by the failure what happens to the record, lets it wait in a retry topic without holding back
/// the one behind it, and sends it to a dead-letter topic when nothing helps.
#[derive(Debug, Parser)]
#[command(
    name = "redrive",
    version,
    styles = STYLES,
    max_term_width = 100,
    subcommand_required = true,
    arg_required_else_help = true,
    disable_help_subcommand = true,
    after_help = "\
Examples:
  redrive demo
        See it work: no Kafka and no config needed.
  redrive init --topic orders
        Write a config to start from.
  redrive run -c orders.yaml
        Consume, and push each record to the service that the config names.
  redrive check -c orders.yaml
        Is the config right? All problems at once, each with its place and its cure.
  redrive plan -c orders.yaml --failure status=503
        What happens to a record that fails with 503 every time?
  redrive convert appsettings.json --topic orders > orders.yaml
        Take over the retry settings of another library.

Exit codes:
  0  fine (there may be warnings)
  1  the config has problems, topics are missing, or a demo broke a promise
  2  wrong use: an unreadable file, a missing or unknown topic, a bad option
  3  it could not go on: the brokers do not answer or refuse, a flow stopped with `exit: true`"
)]
pub struct Cli {
    #[command(subcommand)]
    pub command: Command,
}

#[derive(Debug, Subcommand)]
pub enum Command {
    /// See Redrive at work: no Kafka and no config needed
    #[command(after_help = DemoArgs::AFTER_HELP)]
    Demo(DemoArgs),

    /// Write a config to start from
    #[command(after_help = InitArgs::AFTER_HELP)]
    Init(InitArgs),

    /// Consume the flows of a config and push each record to its service
    #[command(after_help = "\
Each record is sent as a POST request to the flow's `handler`; docs/http.md tells all about it.
SIGTERM and SIGINT let what is under way end, within `drain.shutdown`; a second one ends the
process at once, and what was under way runs again at the next start.

Examples:
  redrive run -c orders.yaml
  redrive run -c orders.yaml --create-topics
  redrive run -c orders.yaml --embedded=9092
        On a broker within the process, which all clients on this machine can use.
  redrive run -c orders.yaml --role retry --flow orders
  RUST_LOG=redrive=debug redrive run -c orders.yaml

Exit codes: 0 told to stop, 1 the config has problems, 2 wrong use, 3 it could not go on.")]
    Run(RunArgs),

    /// Keep a broker in memory up, for trying things out on this machine
    #[command(after_help = "\
It speaks Kafka's protocol on 127.0.0.1, so that any client can produce and consume. All that is in
it ends with the process, a partition keeps 5 MiB and drops the oldest records, transactions do
nothing, and there is no admin API: docs/embedded.md tells all about it. The address is printed
alone to standard output. SIGTERM and SIGINT end it.

Examples:
  redrive broker --port 9092 --topic orders:6
  redrive broker --port 9092 --config orders.yaml
        With all topics that the config needs. What has `bootstrap.servers: 127.0.0.1:9092` in
        its `kafka` then runs on it.
  redrive run -c orders.yaml --embedded
        A broker and a run in one process.

Exit codes: 0 told to stop, 1 the config has problems, 2 wrong use, 3 it cannot be started.")]
    Broker(BrokerArgs),

    /// Check a config and list all its problems
    #[command(after_help = "\
Examples:
  redrive check -c orders.yaml
  redrive check -c appsettings.json --topic orders      # another library's settings
  redrive check -c orders.yaml --format json            # for an editor or a CI job
        {\"valid\", \"problems\": [{\"severity\", \"path\", \"message\", \"hint\", \"line\", \"column\"}]}

Exit codes: 0 valid (warnings are printed), 1 problems, 2 wrong use.")]
    Check(CheckArgs),

    /// Show what happens to a record that fails every time
    #[command(after_help = "\
Examples:
  redrive plan -c orders.yaml
        A retryable failure that no policy names.
  redrive plan -c orders.yaml --failure status=429
  redrive plan -c orders.yaml --failure kind=timeout --failure status=503
        The first delivery times out, all others are answered with 503.
  redrive plan -c orders.yaml --failure status=429,retry_after=90s
        Several facts about one failure.
  redrive plan -c orders.yaml --format mermaid > plan.mmd

Exit codes: 0 planned, 1 the config has problems, 2 wrong use.")]
    Plan(PlanArgs),

    /// Look at the topics that a config needs, and make those that are missing
    #[command(
        subcommand_required = true,
        after_help = "\
Examples:
  redrive topics plan -c orders.yaml
        What is there, what is missing, what differs, and what must be allowed?
  redrive topics apply -c orders.yaml
        Make what is missing. Nothing is ever deleted or changed.

Exit codes: 0 all is there, 1 something is missing or cannot be used or made, or the config has
problems, 2 wrong use, 3 the brokers do not answer."
    )]
    Topics(TopicsArgs),

    /// Look at entities that are held back (`ordering: key`), and open those that are closed
    #[command(subcommand_required = true, after_help = EntitiesArgs::AFTER_HELP)]
    Entities(EntitiesArgs),

    /// Turn another library's settings into a Redrive config
    #[command(after_help = "\
Known are these sections of an appsettings.json:
  Kafka.RetryConfiguration   one retry topic with a time-based exponential backoff
  RetryPolicy.RetryTopics    several retry topics, each with its delay and attempts
  RetryPolicy                the older form: one delay, so many attempts

Examples:
  redrive convert appsettings.json --topic orders
  redrive convert appsettings.json --topic orders --group billing > orders.yaml

Exit codes: 0 converted, 1 the file has problems, 2 wrong use.")]
    Convert(ConvertArgs),

    /// Show how a running process is
    #[command(after_help = "\
The address is that of `admin.listen` in the config, or the one that is given.

Examples:
  redrive status -c orders.yaml
  redrive status --admin http://10.0.0.7:9464 --flow orders
  redrive status -c orders.yaml --format json

Exit codes: 0 all is well, 1 it is not ready (or the config has problems), 2 nobody answers.")]
    Status(AdminArgs),

    /// Let flows of a running process take no more records
    #[command(after_help = "\
What runs may end, and partitions are kept. `redrive resume` lets the flow go on.

Examples:
  redrive pause -c orders.yaml --flow orders
  REDRIVE_ADMIN_TOKEN=… redrive pause --admin http://10.0.0.7:9464
        All flows of that process, with the token of its `admin.token`.

Exit codes: 0 paused, 1 the config has problems, 2 nobody answers, or it is refused.")]
    Pause(AdminArgs),

    /// Let flows of a running process go on that were paused or have stopped
    #[command(after_help = "\
Examples:
  redrive resume -c orders.yaml --flow orders
  REDRIVE_ADMIN_TOKEN=… redrive resume --admin http://10.0.0.7:9464
        All flows of that process, with the token of its `admin.token`.

Exit codes: 0 resumed, 1 the config has problems, 2 nobody answers, or it is refused.")]
    Resume(AdminArgs),

    /// Print the config's JSON Schema, or its reference
    #[command(after_help = "\
Examples:
  redrive schema > redrive.schema.json
        In an editor: # yaml-language-server: $schema=redrive.schema.json
  redrive schema --format markdown")]
    Schema(SchemaArgs),

    /// Print a completion script for a shell
    #[command(after_help = "\
Examples:
  redrive completions bash > /etc/bash_completion.d/redrive
  redrive completions zsh > ~/.zfunc/_redrive
  redrive completions fish > ~/.config/fish/completions/redrive.fish")]
    Completions(CompletionsArgs),

    /// Print the manual page, or write the pages of all commands
    #[command(after_help = "\
Examples:
  redrive man | man -l -
  redrive man --dir /usr/local/share/man/man1")]
    Man(ManArgs),
}

/// Which config.
#[derive(Args, Debug)]
pub struct FileArg {
    /// The config, YAML or JSON; `-` reads it from standard input
    #[arg(
        short,
        long,
        value_name = "FILE",
        default_value = "redrive.yaml",
        env = "REDRIVE_CONFIG"
    )]
    pub config: PathBuf,
}

/// How something is printed.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub enum Format {
    /// For people
    Text,
    /// For programs
    Json,
}

/// Which config, and which of its flows.
#[derive(Args, Debug)]
pub struct ConfigArgs {
    #[command(flatten)]
    pub file: FileArg,

    /// The flow's source topic. Another library's settings name none, so there it is needed
    #[arg(long, value_name = "TOPIC")]
    pub topic: Option<String>,
}

#[derive(Args, Debug)]
pub struct RunArgs {
    #[command(flatten)]
    pub file: FileArg,

    #[command(flatten)]
    pub part: PartArgs,

    /// Make topics that are missing, but for the source topics
    #[arg(long)]
    pub create_topics: bool,

    /// Run on a broker within this process instead of the config's `kafka`: on this port of
    /// 127.0.0.1, else on a free one. All topics are made, and all of it ends with the process
    #[arg(long, value_name = "PORT", num_args = 0..=1, require_equals = true)]
    #[expect(clippy::option_option, reason = "given or not, with a port or without")]
    pub embedded: Option<Option<u16>>,

    /// How the log is written, whatever the config says
    #[arg(long, value_enum, value_name = "FORMAT")]
    pub log_format: Option<Format>,
}

impl From<Format> for redrive::config::LogFormat {
    fn from(format: Format) -> Self {
        match format {
            Format::Text => Self::Text,
            Format::Json => Self::Json,
        }
    }
}

#[derive(Args, Debug)]
pub struct CheckArgs {
    #[command(flatten)]
    pub config: ConfigArgs,

    /// How to print the result
    #[arg(long, value_enum, default_value_t = Format::Text)]
    pub format: Format,
}

#[derive(Args, Debug)]
pub struct PlanArgs {
    #[command(flatten)]
    pub config: ConfigArgs,

    /// What goes wrong: status=503, kind=timeout, error=my::Error. Several are taken in turn, one
    /// for each delivery, and the last one repeats
    ///
    /// Facts about one failure are joined by commas: status=429,retry_after=90s. Known are status,
    /// kind, error, retryable and retry_after.
    #[arg(long, value_name = "FACT=VALUE")]
    pub failure: Vec<String>,

    /// A header of the record, for policies that look at headers
    #[arg(long, value_name = "NAME=VALUE")]
    pub header: Vec<String>,

    /// How to print the plan
    #[arg(long, value_enum, default_value_t = PlanFormat::Text)]
    pub format: PlanFormat,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub enum PlanFormat {
    /// A picture for the terminal
    Text,
    /// One object with a step for each delivery
    Json,
    /// A flow chart for Markdown
    Mermaid,
}

#[derive(Args, Debug)]
pub struct TopicsArgs {
    #[command(subcommand)]
    pub command: TopicsCommand,
}

#[derive(Debug, Subcommand)]
pub enum TopicsCommand {
    /// Show what is there, what is missing, what differs, and what must be allowed
    #[command(after_help = "\
Examples:
  redrive topics plan -c orders.yaml
  redrive topics plan -c orders.yaml --strict           # in CI: differences count, too
  redrive topics plan -c orders.yaml --format json

Exit codes: 0 all is there, 1 something is missing or cannot be used, or the config has problems,
2 wrong use, 3 the brokers do not answer.")]
    Plan(TopicsPlanArgs),

    /// Make what is missing; nothing is ever deleted or changed
    #[command(after_help = "\
Examples:
  redrive topics apply -c orders.yaml --dry-run         # would the brokers make them?
  redrive topics apply -c orders.yaml
  redrive topics apply -c orders.yaml --create-sources 6

What was made stays if something else fails, and a second run makes the rest.

Exit codes: 0 all is there, 1 something could not be made or used, or the config has problems,
2 wrong use, 3 the brokers do not answer.")]
    Apply(TopicsApplyArgs),
}

/// Whose topics, and where.
#[derive(Args, Debug)]
pub struct WhereArgs {
    #[command(flatten)]
    pub file: FileArg,

    /// How to print the result
    #[arg(long, value_enum, default_value_t = Format::Text)]
    pub format: Format,

    /// How long brokers may take to answer
    #[arg(long, value_name = "DURATION", default_value = "30s", value_parser = duration)]
    pub timeout: Duration,

    /// Make source topics that are missing, too, with so many partitions
    #[arg(long, value_name = "PARTITIONS")]
    pub create_sources: Option<NonZeroU16>,
}

pub fn duration(text: &str) -> Result<Duration, String> {
    parse_duration(text).map_err(|_| "write it like `30s` or `2m`".to_owned())
}

#[derive(Args, Debug)]
pub struct TopicsPlanArgs {
    #[command(flatten)]
    pub place: WhereArgs,

    /// Exit with 1 where something differs, too
    #[arg(long)]
    pub strict: bool,

    /// A plan changes nothing, with this or without
    #[arg(long, hide = true)]
    pub dry_run: bool,
}

#[derive(Args, Debug)]
pub struct TopicsApplyArgs {
    #[command(flatten)]
    pub place: WhereArgs,

    /// Only ask the brokers whether they would
    #[arg(long)]
    pub dry_run: bool,
}

#[derive(Args, Debug)]
pub struct ConvertArgs {
    /// The file with the settings; `-` reads it from standard input
    #[arg(value_name = "FILE")]
    pub file: PathBuf,

    /// The source topic, which such files do not name
    #[arg(long, value_name = "TOPIC")]
    pub topic: Option<String>,

    /// The consumer group [default: the topic's name]
    #[arg(long, value_name = "GROUP")]
    pub group: Option<String>,
}

/// Which process, and which of its flows.
#[derive(Args, Debug)]
pub struct AdminArgs {
    #[command(flatten)]
    pub file: FileArg,

    /// Where the process listens, instead of what a config says
    #[arg(long, value_name = "URL")]
    pub admin: Option<String>,

    /// The flow's source topic [default: all flows]
    #[arg(long, value_name = "TOPIC")]
    pub flow: Option<String>,

    /// How to print the answer
    #[arg(long, value_enum, default_value_t = Format::Text)]
    pub format: Format,
}

#[derive(Args, Debug)]
pub struct SchemaArgs {
    /// What to print
    #[arg(long, value_enum, default_value_t = SchemaFormat::Json)]
    pub format: SchemaFormat,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub enum SchemaFormat {
    /// JSON Schema
    Json,
    /// The reference
    Markdown,
}

#[derive(Args, Debug)]
pub struct CompletionsArgs {
    /// The shell
    #[arg(value_enum)]
    pub shell: clap_complete::Shell,
}

#[derive(Args, Debug)]
pub struct ManArgs {
    /// Write one page for each command into this directory
    #[arg(long, value_name = "DIR")]
    pub dir: Option<PathBuf>,
}
