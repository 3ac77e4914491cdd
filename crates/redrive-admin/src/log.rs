//! The log: lines for people or for programs, to standard error.
//!
//! What Redrive tells is an event with facts ([`redrive::Facts`]). In text the sentence says it all; in JSON each fact is a field
//! of its own beside it.

use std::fmt;
use std::io::{self, IsTerminal};

use redrive::config::{Log, LogFormat};
use tracing::field::{Field, Visit};
use tracing_subscriber::EnvFilter;
use tracing_subscriber::field::RecordFields;
use tracing_subscriber::fmt::FormatFields;
use tracing_subscriber::fmt::format::Writer;
use tracing_subscriber::util::SubscriberInitExt;

/// Why the log cannot be set up.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum LogError {
    /// `RUST_LOG` cannot be read.
    #[error(
        "the variable RUST_LOG cannot be used: {0}; write it like `info` or `warn,redrive=debug`"
    )]
    Filter(String),
    /// Something else has set up a log.
    #[error("the log is set up already")]
    Twice,
}

/// Sets up the log of this process. The variable `RUST_LOG` goes before the level.
///
/// # Errors
///
/// `RUST_LOG` cannot be read, or there is a log already.
pub fn init(log: Log) -> Result<(), LogError> {
    let asked = std::env::var("RUST_LOG").ok();
    let filter = filter(log, asked.as_deref())?;
    subscriber(log.format, filter, io::stderr().is_terminal(), io::stderr)
        .try_init()
        .map_err(|_| LogError::Twice)
}

fn filter(log: Log, asked: Option<&str>) -> Result<EnvFilter, LogError> {
    let level = log.level.as_str();
    // Other crates tell too much below `info`.
    let own = match level {
        "debug" | "trace" => format!("info,redrive={level},librdkafka={level}"),
        level => level.to_owned(),
    };
    let filter = asked.filter(|it| !it.trim().is_empty()).unwrap_or(&own);
    EnvFilter::try_new(filter).map_err(|error| LogError::Filter(error.to_string()))
}

fn subscriber<W>(
    format: LogFormat,
    filter: EnvFilter,
    has_colours: bool,
    writer: W,
) -> Box<dyn tracing::Subscriber + Send + Sync>
where
    W: for<'w> tracing_subscriber::fmt::MakeWriter<'w> + Send + Sync + 'static,
{
    let log = tracing_subscriber::fmt().with_env_filter(filter).with_writer(writer);
    match format {
        LogFormat::Json => Box::new(log.json().flatten_event(true).finish()),
        LogFormat::Text => {
            Box::new(log.with_ansi(has_colours).with_target(false).fmt_fields(Sentences).finish())
        }
    }
}

/// Writes the sentence of an event of ours, whose facts are in it; of others the message with its fields.
struct Sentences;

impl<'writer> FormatFields<'writer> for Sentences {
    fn format_fields<R: RecordFields>(
        &self,
        mut writer: Writer<'writer>,
        fields: R,
    ) -> fmt::Result {
        let mut parts = Parts::default();
        fields.record(&mut parts);
        if let Some(flow) = parts.flow.filter(|_| parts.is_event) {
            write!(writer, "[{flow}] ")?;
        }
        writer.write_str(&parts.message)?;
        if !parts.is_event {
            writer.write_str(&parts.others)?;
        }
        Ok(())
    }
}

#[derive(Default)]
struct Parts {
    message: String,
    others: String,
    flow: Option<String>,
    is_event: bool,
}

impl Visit for Parts {
    fn record_str(&mut self, field: &Field, value: &str) {
        match field.name() {
            "flow" => self.flow = Some(value.to_owned()),
            _ => self.record_debug(field, &value),
        }
    }

    fn record_debug(&mut self, field: &Field, value: &dyn fmt::Debug) {
        use fmt::Write;
        // Writing to a text never fails.
        match field.name() {
            "message" => _ = write!(self.message, "{value:?}"),
            "event" => self.is_event = true,
            name => _ = write!(self.others, " {name}={value:?}"),
        }
    }
}

#[cfg(test)]
mod tests {
    use std::sync::{Arc, Mutex};

    use super::*;

    #[derive(Clone, Default)]
    struct Lines(Arc<Mutex<Vec<u8>>>);

    impl io::Write for Lines {
        fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
            self.0.lock().unwrap().extend_from_slice(bytes);
            Ok(bytes.len())
        }

        fn flush(&mut self) -> io::Result<()> {
            Ok(())
        }
    }

    fn written(format: LogFormat, filtered: Option<&str>, write: impl FnOnce()) -> String {
        let lines = Lines::default();
        let writer = lines.clone();
        let log = Log { format, ..Log::default() };
        let filter = filter(log, filtered).unwrap();
        let subscriber = subscriber(format, filter, false, move || writer.clone());
        tracing::subscriber::with_default(subscriber, write);
        let bytes = lines.0.lock().unwrap().clone();
        String::from_utf8(bytes).unwrap()
    }

    fn tell() {
        tracing::warn!(target: "redrive", event = "retries", flow = "orders", total = 2, "it goes on");
    }

    #[test]
    fn text_has_the_sentence_and_the_flow_and_not_the_facts_once_more() {
        let text = written(LogFormat::Text, None, tell);
        assert!(text.ends_with(" WARN [orders] it goes on\n"), "{text}");
    }

    #[test]
    fn text_of_others_has_their_fields() {
        let text = written(LogFormat::Text, None, || tracing::info!(port = 9464, "listening"));
        assert!(text.ends_with(" INFO listening port=9464\n"), "{text}");
    }

    #[test]
    fn json_has_each_fact_by_itself() {
        let text = written(LogFormat::Json, None, tell);
        let line: serde_json::Value = serde_json::from_str(&text).unwrap();
        assert_eq!(
            (&line["event"], &line["flow"], &line["total"]),
            (&"retries".into(), &"orders".into(), &2.into())
        );
        assert_eq!((&line["level"], &line["message"]), (&"WARN".into(), &"it goes on".into()));
    }

    #[test]
    fn the_variable_goes_before_the_level() {
        assert_eq!(written(LogFormat::Text, Some("error"), tell), "");
        assert_ne!(written(LogFormat::Text, Some(""), tell), "");
        let wrong = filter(Log::default(), Some("redrive=loud")).unwrap_err().to_string();
        assert!(wrong.contains("RUST_LOG"), "{wrong}");
    }
}
