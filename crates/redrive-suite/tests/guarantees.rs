//! The guarantee suite: every scenario once. `redrive-suite run --repeat` does more of them.

use redrive_suite::broker::Broker;
use redrive_suite::scenarios;

scenarios! {
    Broker::from_env(), |_| false,
    mixed_delays: "mixed-delays",
    tiers: "tiers",
    rolling_restart: "rolling-restart",
    rolling_restart_eager: "rolling-restart-eager",
    rolling_restart_848: "rolling-restart-848",
    rebalances: "rebalances",
    rebalances_848: "rebalances-848",
    kill: "kill",
    kill_848: "kill-848",
    ordered: "ordered",
    entities: "entities",
    entities_eager: "entities-eager",
    entities_848: "entities-848",
    entities_kill: "entities-kill",
    entities_kill_848: "entities-kill-848",
    entities_once: "entities-once",
    entities_once_848: "entities-once-848",
    entities_asleep: "entities-asleep",
    entities_asleep_848: "entities-asleep-848",
    exactly_once: "exactly-once",
    exactly_once_848: "exactly-once-848",
}
