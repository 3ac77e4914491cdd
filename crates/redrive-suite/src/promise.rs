//! The scenarios as tests, wherever they are tried.

use std::path::Path;

use anyhow::{Context, Result, ensure};

use crate::broker::Broker;
use crate::scenario::{self, Treatment};

/// The same for everybody, so that what fails here fails elsewhere, as far as chance goes.
const SEED: u64 = 1;

/// Tries the scenario of this name, with members that are this program.
///
/// # Errors
///
/// A promise was broken, or it could not be tried.
pub async fn keeps(name: &str, broker: &Broker, program: &str) -> Result<()> {
    let mut scenarios = scenario::all().into_iter();
    let scenario = scenarios.find(|it| it.name == name).context("there is no such scenario")?;
    let report = scenario.run(broker, Path::new(program), SEED, |_| {}).await?;
    println!("{report}");
    ensure!(report.is_kept() && scenario.is_once(&report), "{report}");
    // Only who is killed leaves runs behind that nobody knows of, or who was so slow that the group gave it up.
    let is_killed = matches!(scenario.treatment, Treatment::Kills(_) | Treatment::Zombies { .. });
    let is_slow = report.deposed > 0 || report.late.2 > 5000;
    if !is_killed && !is_slow && scenario.commits_while_it_changes(broker) {
        let twice = (report.run_twice, report.hop_twice, report.dead_twice);
        ensure!(twice == (0, 0, 0), "{report}");
    }
    Ok(())
}

/// A test for each scenario on a broker, and one that none is left out but for those that `$left_out` names.
#[macro_export]
macro_rules! scenarios {
    ($broker:expr, $left_out:expr, $($test:ident: $name:literal,)*) => {
        $(
            #[tokio::test(flavor = "multi_thread")]
            async fn $test() -> anyhow::Result<()> {
                let program = env!("CARGO_BIN_EXE_redrive-suite");
                $crate::promise::keeps($name, &$broker?, program).await
            }
        )*

        #[test]
        fn every_scenario_has_its_test() {
            let is_left_out: fn(&$crate::scenario::Scenario) -> bool = $left_out;
            let all = $crate::scenario::all();
            let tried = all.iter().filter(|it| !is_left_out(it)).map(|it| it.name);
            let mut tried: Vec<_> = tried.collect();
            let mut tested = vec![$($name),*];
            tried.sort_unstable();
            tested.sort_unstable();
            assert_eq!(tested, tried);
        }
    };
}
