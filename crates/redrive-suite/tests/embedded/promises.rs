//! The promises, on a broker that each scenario has for itself. Members are processes that connect by its address.

use redrive_suite::broker::Broker;
use redrive_suite::scenarios;

scenarios! {
    Broker::embedded(), |it| it.not_embedded().is_some(),
    mixed_delays: "mixed-delays",
    tiers: "tiers",
    rolling_restart: "rolling-restart",
    rolling_restart_848: "rolling-restart-848",
    rebalances: "rebalances",
    rebalances_848: "rebalances-848",
    kill: "kill",
    kill_848: "kill-848",
    ordered: "ordered",
    entities: "entities",
    entities_848: "entities-848",
    entities_kill: "entities-kill",
    entities_kill_848: "entities-kill-848",
    entities_asleep: "entities-asleep",
    entities_asleep_848: "entities-asleep-848",
}
