//! The guarantee suite: every scenario once. `redrive-suite run --repeat` does more of them.

use std::path::Path;

use anyhow::{Context, Result};
use redrive_suite::broker::Broker;
use redrive_suite::scenario::{self, Treatment};

/// The same for everybody, so that what fails here fails elsewhere, as far as chance goes.
const SEED: u64 = 1;

async fn keeps(name: &str) -> Result<()> {
    let mut scenarios = scenario::all().into_iter();
    let scenario = scenarios.find(|it| it.name == name).context("there is no such scenario")?;
    let program = Path::new(env!("CARGO_BIN_EXE_redrive-suite"));
    let report = scenario.run(&Broker::from_env()?, program, SEED, |_| {}).await?;
    println!("{report}");
    assert!(report.is_kept(), "{report}");
    assert!(scenario.is_once(&report), "{report}");
    // Only who is killed leaves runs behind that nobody knows of, or who was so slow that the group gave it up.
    let is_killed = matches!(scenario.treatment, Treatment::Kills(_));
    let is_slow = report.deposed > 0 || report.late.2 > 5000;
    if !is_killed && !is_slow {
        let twice = (report.run_twice, report.hop_twice, report.dead_twice);
        assert_eq!(twice, (0, 0, 0), "{report}");
    }
    Ok(())
}

macro_rules! scenarios {
    ($($test:ident: $name:literal,)*) => {
        $(
            #[tokio::test(flavor = "multi_thread")]
            async fn $test() -> Result<()> {
                keeps($name).await
            }
        )*

        #[test]
        fn every_scenario_has_its_test() {
            let tested = [$($name),*];
            let untested: Vec<_> =
                scenario::all().iter().map(|it| it.name).filter(|it| !tested.contains(it)).collect();
            assert!(untested.is_empty(), "{untested:?}");
        }
    };
}

scenarios! {
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
    exactly_once: "exactly-once",
    exactly_once_848: "exactly-once-848",
}
