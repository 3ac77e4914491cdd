//! The config of the demo, as a user would write it, and the handler that runs it.

use std::sync::Arc;
use std::time::Duration;

use redrive::config::{
    Config, Handler as Service, Options as LoadOptions, Syntax, format_duration,
};
use redrive::{Context, Handler, Outcome, Record, Spot};
use redrive_http::HttpHandler;

use crate::board::SharedBoard;
use crate::clock;
use crate::options::Options;
use crate::orders;
use crate::run::DemoError;
use crate::site::Names;

/// The config's text.
fn text(options: &Options, names: &Names, url: &str) -> String {
    let duration = |it: Duration| format_duration(it);
    let [first, second, third] = options.delays().map(duration);
    let [one, two, three] = &names.tiers;
    format!(
        "\
group: {group}
commit_interval: 200ms
drain: {{ revoke: 2s, shutdown: 10s }}
flows:
  - topic: {topic}
    handler:
      http: {{ url: \"{url}\", timeout: {timeout} }}
    concurrency: {concurrency}
    retry:
      strategy: tiers
      topics:
        - {{ topic: {one}, delay: {first}, attempts: 2 }}
        - {{ topic: {two}, delay: {second} }}
        - {{ topic: {three}, delay: {third} }}
    dead_letter: {{ topic: {letters} }}
    # No runs in place: each delivery is one request, so that every one of them can be accounted for.
    default: {{ delayed: {{}} }}
",
        group = names.group,
        topic = names.source,
        letters = names.dead_letters,
        timeout = duration(options.timeout()),
        concurrency = options.concurrency(),
    )
}

/// The config, and the service that it names.
pub(crate) fn config(
    options: &Options,
    names: &Names,
    url: &str,
) -> Result<(Config, HttpHandler), DemoError> {
    let text = text(options, names, url);
    let wrong = |why: String| DemoError::Config(why);
    let nothing = LoadOptions { topic: None, group: None, env: &|_| None };
    let loaded = Config::load(&text, Syntax::Yaml, &nothing).map_err(|it| wrong(it.to_string()))?;
    let problems = || loaded.problems.iter().map(|it| it.message.clone()).collect::<Vec<_>>();
    let config = loaded.config.clone().ok_or_else(|| wrong(problems().join("; ")))?;
    let Some(Service::Http(service)) = config.flows.first().and_then(|it| it.handler.clone())
    else {
        return Err(wrong("the flow has no handler".to_owned()));
    };
    let handler = HttpHandler::new(&service).map_err(|it| wrong(it.message))?;
    Ok((config, handler))
}

/// The HTTP handler, with the board looking on.
pub(crate) struct Watched {
    pub(crate) handler: HttpHandler,
    pub(crate) board: SharedBoard,
}

impl Handler for Watched {
    async fn handle(&self, record: Record, context: Context) -> Outcome {
        if let Some(number) = record.value().and_then(orders::number) {
            let topic = Arc::from(record.topic());
            let spot = Spot { topic, partition: record.partition(), offset: record.offset() };
            let overall = context.overall_attempts();
            self.board.lock().started(spot, number, overall, clock::micros());
        }
        self.handler.handle(record, context).await
    }

    fn resumed(&self) {
        self.handler.resumed();
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_config_is_right_at_every_speed() {
        for speed in [0.1, 0.37, 1.0, 3.0, 20.0] {
            let options = Options { speed, ..Options::default() };
            let names = Names::new("redrive-demo-17.orders");
            let (config, _) = config(&options, &names, "http://127.0.0.1:1/orders").unwrap();
            let flow = &config.flows[0].flow;
            assert_eq!(**flow.source(), *names.source);
            let tiers: Vec<_> = flow.strategy().tiers().iter().map(|it| it.delay).collect();
            assert_eq!(tiers, options.delays().map(Some));
            assert_eq!(**flow.dead_letter(), *names.dead_letters);
        }
    }
}
