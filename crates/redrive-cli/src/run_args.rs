//! What `redrive run` reads: all flows and topics, or some.

use clap::Args;
use redrive::{Consumer, Role};

/// Which part of the work this process does.
#[derive(Args, Clone, Debug, Default)]
pub struct PartArgs {
    /// Which topics this process reads: all, main (source topics), retry (all others), relay (those whose records are only
    /// moved when they are due)
    ///
    /// Main and retry together are everything, and can be scaled apart. That needs retry topics with a group of their own:
    /// `retry.group`, or the `group` of a retry topic. A relay runs nothing, and calls no handler.
    #[arg(long, value_name = "ROLE", default_value_t = Role::All, value_parser = clap::builder::PossibleValuesParser::new(ROLES).map(to_role))]
    pub role: Role,

    /// Run only the flow of this source topic; may be given several times
    #[arg(long, value_name = "TOPIC")]
    pub flow: Vec<String>,
}

const ROLES: [&str; 4] = ["all", "main", "retry", "relay"];

fn to_role(text: String) -> Role {
    // clap lets no other word through.
    text.parse().unwrap_or_default()
}

impl PartArgs {
    /// Has a consumer do this part, and no other.
    pub fn apply(&self, consumer: Consumer) -> Consumer {
        consumer.with_role(self.role).with_flows(self.flow.clone())
    }
}
