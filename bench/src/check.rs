//! Whether what was measured makes sense: for the quick form, which asserts nothing about time.

use anyhow::Result;

use crate::results::Results;

/// What must never be, in any engine that is checked.
const NEVER: [&str; 4] = ["early", "lost", "out_of_order", "twice"];

/// Every turn was measured, every record ended, and none was lost, early or out of order.
pub(crate) fn check(results: &Results) -> Result<()> {
    anyhow::ensure!(!results.rows.is_empty(), "nothing was measured");
    for row in &results.rows {
        let name = format!("{}, {}, {}", row.work, row.case, row.engine.title());
        anyhow::ensure!(row.failures.is_empty(), "{name}: {}", row.failures.join("; "));
        anyhow::ensure!(!row.samples.is_empty(), "{name}: nothing was measured");
        for sample in &row.samples {
            for count in NEVER {
                let found = sample.get(count).unwrap_or(0.0);
                anyhow::ensure!(found == 0.0, "{name}: {count}: {found}");
            }
            let again = sample.get("again").unwrap_or(0.0);
            anyhow::ensure!(
                again == 0.0,
                "{name}: {again} runs after a clean restart had been before"
            );
            let is_measured = |it: &str| sample.get(it).is_some_and(|it| it > 0.0);
            anyhow::ensure!(is_measured("records") && is_measured("took"), "{name}: {sample:?}");
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::measure::Sample;
    use crate::turn::Engine;

    fn results(numbers: &[(&str, f64)]) -> Results {
        let mut results = Results::default();
        let mut sample = Sample::default();
        for (name, value) in [("records", 5.0), ("took", 1.0)].iter().chain(numbers) {
            sample.set(name, *value);
        }
        results.row_mut("killed", "x", Engine::Redrive).samples.push(sample);
        results
    }

    #[test]
    fn what_makes_no_sense_is_refused() {
        assert!(check(&results(&[])).is_ok());
        assert!(check(&results(&[("duplicated", 7.0)])).is_ok());
        for wrong in [("lost", 1.0), ("early", 1.0), ("again", 1.0), ("took", 0.0)] {
            assert!(check(&results(&[wrong])).is_err(), "{wrong:?}");
        }
        assert!(check(&Results::default()).is_err());
        let mut failed = results(&[]);
        failed.row_mut("killed", "x", Engine::Redrive).failures.push("no".to_owned());
        assert!(check(&failed).is_err());
    }
}
