//! What was measured, as a file: all that the report is made from.

use std::path::Path;

use anyhow::{Context, Result};
use clap::ValueEnum;
use serde_json::{Value, json};

use crate::measure::Sample;
use crate::stats;
use crate::turn::Engine;

/// What one engine did in one form of one work, round by round.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct Row {
    pub(crate) work: String,
    pub(crate) case: String,
    pub(crate) engine: Engine,
    /// On which day: work may be measured one by one.
    pub(crate) date: String,
    pub(crate) samples: Vec<Sample>,
    /// Why a turn has no sample.
    pub(crate) failures: Vec<String>,
}

impl Row {
    /// A number of each round.
    pub(crate) fn values(&self, name: &str) -> Vec<f64> {
        self.by_round(name).into_iter().map(|it| it.1).collect()
    }

    /// The same, with the number of the round: a turn that failed has none.
    pub(crate) fn by_round(&self, name: &str) -> Vec<(usize, f64)> {
        let rounds = self.samples.iter().enumerate();
        #[expect(clippy::cast_possible_truncation, clippy::cast_sign_loss, reason = "a count")]
        let round = |(index, it): (usize, &Sample)| {
            Some((it.get("round").map_or(index + 1, |it| it as usize), it.get(name)?))
        };
        rounds.filter_map(round).collect()
    }

    pub(crate) fn median(&self, name: &str) -> Option<f64> {
        stats::median(&self.values(name))
    }

    pub(crate) fn most(&self, name: &str) -> Option<f64> {
        stats::bounds(&self.values(name)).map(|it| it.1)
    }

    pub(crate) fn least(&self, name: &str) -> Option<f64> {
        stats::bounds(&self.values(name)).map(|it| it.0)
    }
}

/// Everything.
#[derive(Clone, Debug, Default, PartialEq)]
pub(crate) struct Results {
    /// Where and when, for those who read it.
    pub(crate) about: Vec<(String, String)>,
    pub(crate) rows: Vec<Row>,
}

impl Results {
    pub(crate) fn about(&self, key: &str) -> Option<&str> {
        self.about.iter().find(|it| it.0 == key).map(|it| it.1.as_str())
    }

    pub(crate) fn row(&self, work: &str, case: &str, engine: Engine) -> Option<&Row> {
        self.rows.iter().find(|it| it.work == work && it.case == case && it.engine == engine)
    }

    /// The same, to be added to.
    pub(crate) fn row_mut(&mut self, work: &str, case: &str, engine: Engine) -> &mut Row {
        let is_it = |it: &Row| it.work == work && it.case == case && it.engine == engine;
        let index = self.rows.iter().position(is_it).unwrap_or_else(|| {
            let (work, case) = (work.to_owned(), case.to_owned());
            let date = self.about("date").unwrap_or_default().to_owned();
            let (samples, failures) = (Vec::new(), Vec::new());
            self.rows.push(Row { work, case, engine, date, samples, failures });
            self.rows.len() - 1
        });
        &mut self.rows[index]
    }

    /// Puts rows in an order, whenever each was measured first.
    pub(crate) fn sort_by(&mut self, place: impl Fn(&Row) -> Option<usize>) {
        self.rows.sort_by_key(place);
    }

    /// Puts another run's rows in the place of those of the same work.
    pub(crate) fn replace(&mut self, other: Results) {
        self.rows.retain(|mine| !other.rows.iter().any(|it| it.work == mine.work));
        self.rows.extend(other.rows);
        self.about = other.about;
    }

    pub(crate) fn to_json(&self) -> Value {
        let rows: Vec<_> = self
            .rows
            .iter()
            .map(|row| {
                json!({
                    "work": row.work,
                    "case": row.case,
                    "engine": row.engine.name(),
                    "date": row.date,
                    "samples": row.samples.iter().map(Sample::to_json).collect::<Vec<_>>(),
                    "failures": row.failures,
                })
            })
            .collect();
        let about: Value = self
            .about
            .iter()
            .map(|(key, value)| (key.clone(), Value::from(value.clone())))
            .collect();
        json!({ "about": about, "rows": rows })
    }

    pub(crate) fn from_json(value: &Value) -> Result<Self> {
        let about = value["about"].as_object().context("`about` is missing")?;
        let rows = value["rows"].as_array().context("`rows` is missing")?;
        let text = |it: &Value| it.as_str().map(str::to_owned).context("a text is expected");
        let row = |it: &Value| {
            let engine = text(&it["engine"])?;
            let samples = it["samples"].as_array().context("`samples` is missing")?;
            let failures = it["failures"].as_array().context("`failures` is missing")?;
            anyhow::Ok(Row {
                work: text(&it["work"])?,
                case: text(&it["case"])?,
                engine: Engine::from_str(&engine, false).map_err(anyhow::Error::msg)?,
                date: text(&it["date"])?,
                samples: samples.iter().map(Sample::from_json).collect::<Result<_>>()?,
                failures: failures.iter().map(text).collect::<Result<_>>()?,
            })
        };
        let about = about.iter().map(|(key, it)| Ok((key.clone(), text(it)?)));
        Ok(Self {
            about: about.collect::<Result<_>>()?,
            rows: rows.iter().map(row).collect::<Result<_>>()?,
        })
    }

    pub(crate) fn read(path: &Path) -> Result<Self> {
        let text = std::fs::read_to_string(path)
            .with_context(|| format!("{} cannot be read", path.display()))?;
        Self::from_json(&serde_json::from_str(&text)?)
    }

    pub(crate) fn write(&self, path: &Path) -> Result<()> {
        let text = serde_json::to_string_pretty(&self.to_json())?;
        std::fs::write(path, text + "\n")
            .with_context(|| format!("{} cannot be written", path.display()))
    }
}
