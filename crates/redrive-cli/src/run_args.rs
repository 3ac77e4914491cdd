//! Which part of the work a `redrive run` does: all flows and topics, or some.

use clap::Args;
use clap::builder::{PossibleValuesParser, TypedValueParser};
use redrive::config::FlowConfig;
use redrive::{Consumer, Role};

/// Which part of the work this process does.
#[derive(Args, Clone, Debug)]
pub struct PartArgs {
    /// Which topics this process reads: source topics (main), all others (retry), those whose
    /// records are only moved when they are due (relay), or all
    ///
    /// Main and retry together are everything, and can be scaled apart. That needs retry topics
    /// with a group of their own: `retry.group`, or the `group` of a retry topic. A relay runs
    /// nothing and calls no handler.
    #[arg(long, value_name = "ROLE", default_value_t = Role::All, value_parser = roles())]
    pub role: Role,

    /// Run only the flow of this source topic; may be given several times
    #[arg(long, value_name = "TOPIC")]
    pub flow: Vec<String>,
}

fn roles() -> impl TypedValueParser<Value = Role> {
    PossibleValuesParser::new(Role::EACH.map(Role::as_str)).try_map(|it| it.parse::<Role>())
}

impl PartArgs {
    /// Has a consumer do this part, and no other.
    pub fn apply(&self, consumer: Consumer) -> Consumer {
        consumer.with_role(self.role).with_flows(self.flow.clone())
    }

    /// Whether records of this flow are run.
    pub fn needs_handler(&self, flow: &FlowConfig) -> bool {
        let topic = flow.flow.source();
        let is_chosen = self.flow.is_empty() || self.flow.iter().any(|it| **it == **topic);
        is_chosen && self.role.needs_handler(flow)
    }
}

#[cfg(test)]
mod tests {
    use clap::Parser;
    use redrive::config::Config;
    use redrive::{Flow, RunError};

    use super::*;

    #[derive(Parser)]
    struct Command {
        #[command(flatten)]
        part: PartArgs,
    }

    fn parse(arguments: &[&str]) -> Result<PartArgs, clap::Error> {
        let arguments = std::iter::once(&"run").chain(arguments);
        Command::try_parse_from(arguments).map(|it| it.part)
    }

    #[test]
    fn everything_is_done_unless_a_part_is_asked_for() {
        let part = parse(&[]).unwrap();
        assert_eq!((part.role, part.flow.len()), (Role::All, 0));
        let part = parse(&["--role", "relay", "--flow", "a", "--flow", "b"]).unwrap();
        assert_eq!((part.role, part.flow), (Role::Relay, vec!["a".to_owned(), "b".to_owned()]));
        let error = parse(&["--role", "both"]).err().unwrap().to_string();
        assert!(error.contains("all, main, retry, relay"), "{error}");
    }

    #[test]
    fn a_consumer_is_told_which_part_it_does() {
        let config = Config::new("g")
            .with_kafka("bootstrap.servers", "localhost:9")
            .with_flow(FlowConfig::new(Flow::new("orders")));
        let run = |arguments: &[&str]| {
            let consumer = parse(arguments).unwrap().apply(Consumer::new(config.clone()));
            let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build();
            runtime.unwrap().block_on(consumer.run()).unwrap_err()
        };
        assert!(matches!(run(&["--role", "relay"]), RunError::BadRole(_)));
        assert!(matches!(run(&["--flow", "refunds"]), RunError::UnknownFlow { .. }));
        assert!(matches!(run(&["--flow", "orders"]), RunError::NoHandler(_)));
    }
}
