//! `redrive run`: the flows of a config, each in front of its service.

use std::sync::Arc;
use std::time::Duration;

use anyhow::{Context, anyhow, bail};
use redrive::config::{
    Config, FlowConfig, Handler, Kafka, LoadError, Log, LogFormat, Problem, Severity,
    format_duration,
};
use redrive::embedded::{Broker, BrokerError};
use redrive::{Consumer, ConsumerHandle, RunError};
use redrive_admin::otlp::Exporter;
use redrive_http::HttpHandler;

use crate::args::RunArgs;
use crate::check::needed_to_run;
use crate::input::{self, Input};
use crate::output::{self, Exit};
use crate::signals::Signals;

/// How long what nobody waits for any more may take to end with the process.
const LEFT_OVER: Duration = Duration::from_secs(1);

pub fn run(args: &RunArgs) -> anyhow::Result<Exit> {
    let Some((name, config)) = load(args)? else {
        return Ok(Exit::Problems);
    };
    let mut consumer = args.part.apply(Consumer::new(config.clone()));
    if args.create_topics {
        consumer = consumer.with_created_topics();
    }
    if let Some(Some(port)) = args.embedded {
        match Broker::start_on(port) {
            Ok(broker) => consumer = consumer.with_broker(Arc::new(broker)),
            Err(error) => {
                output::fail(&error.into());
                return Ok(Exit::Failed);
            }
        }
    }
    let mut problems = Vec::new();
    let is_run = |flow: &FlowConfig| args.part.needs_handler(flow);
    for (index, flow) in config.flows.iter().enumerate().filter(|it| is_run(it.1)) {
        match &flow.handler {
            Some(Handler::Http(service)) => match HttpHandler::new(service) {
                Ok(handler) => consumer = consumer.with_handler(&**flow.flow.source(), handler),
                Err(error) => problems.push(Problem {
                    severity: Severity::Error,
                    path: format!("flows[{index}].handler.http.{}", error.key),
                    message: error.message,
                    hint: Some(error.hint).filter(|it| !it.is_empty()),
                    position: None,
                }),
            },
            _ => bail!("the handler of {} is none that this version has", flow.flow.source()),
        }
    }
    if !problems.is_empty() {
        output::tell(&output::problems(&name, &problems));
        return Ok(Exit::Problems);
    }
    let log =
        Log { format: args.log_format.map_or(config.log.format, LogFormat::from), ..config.log };
    redrive_admin::log::init(log)?;
    let exporter = config.otlp.as_ref().map(Exporter::start).transpose();
    let exporter = exporter.context("the thread that sends traces cannot be started")?;
    if let Some(exporter) = &exporter {
        consumer = consumer.with_tracer(exporter.tracer());
    }
    // Before the brokers are there, so that somebody can ask what is waited for.
    let admin = config.admin.as_ref().map(|it| redrive_admin::serve(it, consumer.handle()));
    let _admin = match admin {
        Some(Err(error)) => {
            output::fail(&error.into());
            return Ok(Exit::Failed);
        }
        admin => admin.transpose()?,
    };
    for flow in config.flows.iter().filter(|it| is_run(it)) {
        if let Some(Handler::Http(service)) = &flow.handler {
            let (topic, url) = (flow.flow.source(), service.shown_url());
            tracing::info!("{topic} goes to {url}, up to {} records at a time", flow.concurrency);
        }
    }
    let runtime = tokio::runtime::Builder::new_multi_thread().enable_all().build();
    let runtime = runtime.context("threads cannot be started")?;
    let result = runtime.block_on(async {
        stop_on_signals(consumer.handle(), config.drain.shutdown)?;
        anyhow::Ok(consumer.run().await)
    })?;
    runtime.shutdown_timeout(LEFT_OVER);
    Ok(match result {
        Ok(()) => Exit::Fine,
        Err(error) => {
            let exit = exit_of(&error);
            output::fail(&error.into());
            exit
        }
    })
}

/// The config, if it can be run. What is wrong with it has been told otherwise.
fn load(args: &RunArgs) -> anyhow::Result<Option<(String, Config)>> {
    let loaded = input::load(&args.file.config, None, None);
    let Input { name, loaded } = match loaded {
        Err(error) if error.downcast_ref() == Some(&LoadError::TopicNeeded) => bail!(
            "{} has the settings of another library: turn it into a config by `redrive convert`, and add `kafka` and `handler`",
            args.file.config.display()
        ),
        loaded => loaded?,
    };
    output::tell(&output::problems(&name, &loaded.problems));
    let Some(mut config) = loaded.config else {
        return Ok(None);
    };
    if args.embedded.is_some() {
        config.kafka = Some(Kafka::Embedded);
    }
    let needed = needed_to_run(&config, |it| args.part.needs_handler(it));
    if !needed.is_empty() {
        output::fail(&anyhow!("{name} cannot be run: add {}", needed.join(" and ")));
        return Ok(None);
    }
    Ok(Some((name, config)))
}

/// What is wrong with the config is told by the same code as by `check`.
pub fn exit_of(error: &RunError) -> Exit {
    match error {
        RunError::NoKafka
        | RunError::NoGroup
        | RunError::NoFlow
        | RunError::NoHandler(_)
        | RunError::NoSuchFlow(_)
        | RunError::Unsupported(_)
        | RunError::BadProperties(_) => Exit::Problems,
        RunError::BadRole(_)
        | RunError::UnknownFlow { .. }
        | RunError::Embedded(
            BrokerError::BadName(_)
            | BrokerError::BadPartitions { .. }
            | BrokerError::AlreadyThere(_),
        ) => Exit::WrongUse,
        _ => Exit::Failed,
    }
}

/// Lets the consumer end at the first SIGTERM or SIGINT. At the second the process ends at once, which loses nothing: what was
/// under way runs again.
fn stop_on_signals(handle: ConsumerHandle, limit: Duration) -> anyhow::Result<()> {
    let mut signals = Signals::listen()?;
    tokio::spawn(async move {
        signals.next().await;
        let limit = format_duration(limit);
        tracing::info!(
            "stopping: what is under way may take {limit}; another signal ends it at once"
        );
        handle.stop();
        signals.next().await;
        std::process::exit(Exit::Failed as i32);
    });
    Ok(())
}
