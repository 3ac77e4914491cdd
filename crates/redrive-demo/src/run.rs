//! A demo from the first order to the last word.

use std::sync::Arc;
use std::time::Duration;

use rdkafka::error::KafkaError;
use redrive::config::Admin;
use redrive::embedded::BrokerError;
use redrive::{ConsumerHandle, RunError};
use serde_json::Value;
use tokio::signal::unix::{SignalKind, signal};
use tokio::sync::watch;
use tokio::task::JoinHandle;

use crate::board::{Board, Phase, Scene, SharedBoard};
use crate::clock;
use crate::flow::{self, Watched};
use crate::history::History;
use crate::judge::judge;
use crate::options::{Options, OptionsError};
use crate::orders::Orders;
use crate::plain::Plain;
use crate::produce::Producer;
use crate::read;
use crate::service::Service;
use crate::site::Site;
use crate::story::story;
use crate::summary::Summary;
use crate::terminal::{self, Screen};

/// How often it is looked at how things stand.
const LOOK: Duration = Duration::from_millis(20);
/// How long a consumer may take to join its group, and to end.
const JOIN: Duration = Duration::from_secs(40);
const END: Duration = Duration::from_secs(20);
/// How long nothing may happen, beyond the longest time that a record waits, before it is given up.
const SILENCE: Duration = Duration::from_secs(20);
/// How long it goes on after the last end, to see whether anything runs once more.
const AFTER: Duration = Duration::from_millis(500);
/// How long what nobody waits for any more may take to end with the demo.
const LEFT_OVER: Duration = Duration::from_secs(1);

/// Why a demo could not be shown.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum DemoError {
    /// It cannot be run like that.
    #[error(transparent)]
    Options(#[from] OptionsError),
    /// The demo's own config is not right.
    #[error("the demo's config cannot be used: {0}")]
    Config(String),
    /// A socket, a thread or the terminal is not to be had.
    #[error("{what}: {error}")]
    System {
        /// What was wanted.
        what: &'static str,
        /// What the system said.
        error: std::io::Error,
    },
    /// Redrive could not run.
    #[error(transparent)]
    Run(#[from] RunError),
    /// The broker did not do what was asked of it.
    #[error("the broker does not answer as it should: {0}")]
    Kafka(#[from] KafkaError),
    /// There is no embedded broker to be had.
    #[error(transparent)]
    Broker(#[from] BrokerError),
    /// A topic could not be made.
    #[error("the topic {topic} could not be made: {why}")]
    Topic {
        /// The topic.
        topic: String,
        /// What the broker said.
        why: String,
    },
    /// The metrics page is not there.
    #[error(transparent)]
    Metrics(#[from] redrive_admin::ServeError),
    /// The broker did not take an order.
    #[error("the broker did not take {0}")]
    Refused(String),
    /// The consumer did not get its partitions.
    #[error("the consumer got no partitions within {JOIN:?}")]
    NotJoined,
    /// The broker has dropped records before they were read.
    #[error(
        "{topic} has dropped its first {records} records, so that nothing can be proven: take fewer --records"
    )]
    Dropped {
        /// The topic and the partition.
        topic: String,
        /// How many.
        records: i64,
    },
    /// A topic could not be read to its end.
    #[error("could not be read to the end, so that nothing can be proven: {0}")]
    Unread(String),
}

/// How a demo went.
#[derive(Clone, Debug)]
pub struct Outcome {
    /// The summary for people.
    pub text: String,
    /// The summary for programs.
    pub json: Value,
    /// Whether nothing was lost and nothing ran early.
    pub is_kept: bool,
}

fn system(what: &'static str) -> impl Fn(std::io::Error) -> DemoError {
    move |error| DemoError::System { what, error }
}

/// Shows a demo, and gives the summary. Ctrl-C and SIGTERM end it early; at the second one the process ends at once.
///
/// # Errors
///
/// The options are out of their bounds, there is no broker, or something that is needed is not to be had.
pub fn run(options: &Options) -> Result<Outcome, DemoError> {
    options.check()?;
    let runtime = tokio::runtime::Builder::new_multi_thread().enable_all().build();
    let runtime = runtime.map_err(system("threads cannot be started"))?;
    let result = runtime.block_on(show(options));
    runtime.shutdown_timeout(LEFT_OVER);
    result.map(|mut outcome| {
        if options.plain {
            outcome.text = anstream::adapter::strip_str(&outcome.text).to_string();
        }
        outcome
    })
}

async fn show(options: &Options) -> Result<Outcome, DemoError> {
    let cut = watch::Sender::new(false);
    listen_to_signals(cut.clone()).map_err(system("signals cannot be listened to"))?;
    let site = blocking(|| Site::open(options))?;
    let orders = Arc::new(Orders::new(options.records, options.failure_rate.0, options.seed));
    let tiers = site.names.tiers.iter().cloned().zip(options.delays()).collect();
    let scene = Scene {
        orders: Arc::clone(&orders),
        broker: site.shown(),
        metrics: String::new(),
        topic: site.names.source.clone(),
        tiers,
    };
    let board = SharedBoard::new(Board::new(scene, clock::millis()));
    let service = Service::start(Arc::clone(&orders), board.clone());
    let service = service.map_err(system("the service cannot listen"))?;
    let (config, handler) = flow::config(options, &site.names, &service.url())?;
    let watched = Watched { handler, board: board.clone() };
    let listener = board.clone();
    let consumer = site.consumer(config, options.partitions()).await?;
    let consumer = consumer
        .with_handler(site.names.source.as_str(), watched)
        .with_listener(move |event| listener.lock().told(event, clock::millis()));
    let handle = consumer.handle();
    let any_port = Admin { listen: ([127, 0, 0, 1], 0).into(), token: None };
    let admin = redrive_admin::serve(&any_port, handle.clone())?;
    board.lock().scene.metrics = format!("http://{}/metrics", admin.address());

    let view = View::open(options, &board, &cut)?;
    let consumer = tokio::spawn(consumer.run());
    let stage = Stage { options, site: &site, orders: &orders, board: &board, handle, consumer };
    let played = stage.play(&service, cut.subscribe()).await;
    board.lock().phase = Phase::Proving;
    let judged = played.and_then(|(mut history, is_cut_short)| {
        history.requests = service.ledger();
        let (bootstrap, names) = (site.bootstrap(), &site.names);
        blocking(|| read::read(bootstrap, names, &mut history))?;
        if is_cut_short {
            let partitions = options.partitions();
            blocking(|| read::committed(bootstrap, names, partitions, &mut history))?;
        }
        Ok((history, is_cut_short))
    });
    view.close();
    let left = site.leave(options.keep_topics).await;
    let (history, is_cut_short) = judged?;
    let findings = judge(&history, is_cut_short);
    let story = story(&history, &orders, &site.names);
    let (history, findings) = (&history, &findings);
    let summary = Summary { options, history, findings, is_cut_short, story, left };
    let (text, json, is_kept) = (summary.text(), summary.json(), findings.is_kept());
    blocking(|| drop(site));
    Ok(Outcome { text, json, is_kept })
}

/// Lets clients of Kafka wait without holding up the handlers.
fn blocking<T>(wait: impl FnOnce() -> T) -> T {
    tokio::task::block_in_place(wait)
}

/// Hears SIGINT and SIGTERM. At the second one the process ends at once.
fn listen_to_signals(cut: watch::Sender<bool>) -> std::io::Result<()> {
    let mut interrupt = signal(SignalKind::interrupt())?;
    let mut terminate = signal(SignalKind::terminate())?;
    tokio::spawn(async move {
        loop {
            tokio::select! {
                _ = interrupt.recv() => {}
                _ = terminate.recv() => {}
            }
            if cut.send_replace(true) {
                terminal::end_at_once();
            }
        }
    });
    Ok(())
}

/// What is to be seen: a screen, or lines.
enum View {
    Screen(Screen),
    Plain(JoinHandle<()>),
}

impl View {
    fn open(
        options: &Options,
        board: &SharedBoard,
        cut: &watch::Sender<bool>,
    ) -> Result<Self, DemoError> {
        if !options.plain && terminal::is_there(options.life) {
            let screen = Screen::start(options.life, board.clone(), cut.clone());
            return Ok(Self::Screen(screen.map_err(system("the terminal cannot be drawn on"))?));
        }
        let (board, mut plain) = (board.clone(), Plain::new(options.life));
        {
            let board = board.lock();
            let scene = &board.scene;
            plain.line(&format!(
                "redrive demo: {} orders go from {} to a service that is flaky on purpose",
                options.records, scene.topic
            ));
            plain.line(&format!("  on {}", scene.broker));
            plain.line(&format!("  metrics at {}", scene.metrics));
        }
        Ok(Self::Plain(tokio::spawn(async move {
            loop {
                plain.show(&mut board.lock(), clock::millis());
                tokio::time::sleep(LOOK).await;
            }
        })))
    }

    fn close(self) {
        match self {
            Self::Screen(screen) => blocking(|| drop(screen)),
            Self::Plain(task) => task.abort(),
        }
    }
}

/// Everything that plays a part.
struct Stage<'a> {
    options: &'a Options,
    site: &'a Site,
    orders: &'a Arc<Orders>,
    board: &'a SharedBoard,
    handle: ConsumerHandle,
    consumer: JoinHandle<Result<(), RunError>>,
}

impl Stage<'_> {
    /// Plays until every record has its end, or somebody has seen enough. Gives what the producer knows, and whether it was cut
    /// short.
    async fn play(
        mut self,
        service: &Service,
        cut: watch::Receiver<bool>,
    ) -> Result<(History, bool), DemoError> {
        let producer = blocking(|| Producer::new(self.site.bootstrap(), self.board.clone()))?;
        let watched = self.watch(&producer, service, cut).await;
        self.board.lock().phase = Phase::Ending;
        self.handle.stop();
        if !self.consumer.is_finished() {
            // A consumer that does not end is no reason to say nothing.
            if let Ok(Ok(ended)) = tokio::time::timeout(END, &mut self.consumer).await {
                ended?;
            }
        }
        let is_cut_short = watched?;
        let sent = blocking(|| {
            let sent = producer.sent();
            drop(producer);
            sent
        });
        Ok((History { sent, ..History::default() }, is_cut_short))
    }

    async fn watch(
        &mut self,
        producer: &Producer,
        service: &Service,
        mut cut: watch::Receiver<bool>,
    ) -> Result<bool, DemoError> {
        tokio::select! {
            joined = self.joined() => joined?,
            _ = cut.wait_for(|it| *it) => return Ok(true),
        }
        self.board.lock().begin(clock::millis());
        let outage =
            tokio::spawn(outage(self.options.outage(), service.clone(), self.board.clone()));
        let source = self.site.names.source.as_str();
        let (partitions, within) = (self.options.partitions(), self.options.producing());
        let result = tokio::select! {
            ended = async {
                producer.produce(self.orders, source, partitions, within).await?;
                self.board.lock().phase = Phase::Finishing;
                self.ended(producer).await
            } => ended.map(|()| false),
            _ = cut.wait_for(|it| *it) => Ok(true),
        };
        outage.abort();
        result
    }

    /// Waits until the consumer has its partitions.
    async fn joined(&mut self) -> Result<(), DemoError> {
        let until = tokio::time::Instant::now() + JOIN;
        while !self.handle.state().is_joined {
            self.still_runs().await?;
            if tokio::time::Instant::now() > until {
                return Err(DemoError::NotJoined);
            }
            tokio::time::sleep(LOOK).await;
        }
        Ok(())
    }

    /// Waits until every record has its end, or nothing happens any more, which the ledger will show.
    async fn ended(&mut self, producer: &Producer) -> Result<(), DemoError> {
        let longest = self.options.delays().into_iter().max().unwrap_or_default();
        loop {
            self.still_runs().await?;
            if let Some(refused) = producer.refused() {
                return Err(DemoError::Refused(refused.to_owned()));
            }
            {
                let (board, now) = (self.board.lock(), clock::millis());
                if board.quiet(now) > longest + SILENCE {
                    return Ok(());
                }
                if board.is_over(now) {
                    break;
                }
            }
            tokio::time::sleep(LOOK).await;
        }
        tokio::time::sleep(AFTER).await;
        Ok(())
    }

    /// A consumer that has ended by itself says why.
    async fn still_runs(&mut self) -> Result<(), DemoError> {
        if self.consumer.is_finished() {
            return match (&mut self.consumer).await {
                Ok(Err(error)) => Err(error.into()),
                _ => Err(DemoError::Config("the consumer has ended by itself".to_owned())),
            };
        }
        Ok(())
    }
}

/// Lets the service go down for a while.
async fn outage(times: Option<(Duration, Duration)>, service: Service, board: SharedBoard) {
    if let Some((begin, length)) = times {
        tokio::time::sleep(begin).await;
        board.lock().outage(true, clock::millis());
        service.outage(length).await;
        board.lock().outage(false, clock::millis());
    }
}
