//! A consumer: flows, their handlers, and the threads that drive them.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;
use std::time::{Duration, Instant};

use parking_lot::{Mutex, MutexGuard};
use rdkafka::error::KafkaError;
use redrive_core::lane::{LaneConfig, Order, Slots};
use tokio::sync::Notify;

use crate::config::{Config, FlowConfig, Kafka, Ordering as Ordered, Start};
use crate::embedded::{self, Broker, BrokerError};
use crate::engine::inbox::{Inbox, Letter};
use crate::engine::plan::{FlowPlan, Role as Stop};
use crate::engine::trace::{RunSpan, Tracer};
use crate::engine::{AnyHandler, Engine, FlowState, GroupLink, Partitions, Tools};
use crate::event::{Event, Events};
use crate::handler::{Context, Handler, Outcome};
use crate::kafka::client::{Properties, Told};
use crate::kafka::ends;
use crate::kafka::follow::Follower;
use crate::kafka::group::{Group, GroupPlan, Pulse, Subscribed};
use crate::kafka::publish::Publisher;
use crate::kafka::reread::Rereader;
use crate::kafka::state::StateTopic;
use crate::kafka::tails::Tails;
use crate::order;
use crate::record::Record;
use crate::report::{FlowStatus, GroupReport, Outline, Report, State};
use crate::role::{Role, group_of};
use crate::topics::{self, Admin, Counts, Facts, Job, Needed, Overflow};

/// How often it is looked at how many partitions topics have.
const COUNT_EVERY: Duration = Duration::from_secs(60);
/// How long brokers may take at the end, after what was under way has ended: to commit, and to leave the group. And how long it may take
/// in all, though little time was given to what was under way.
const LEAVE: Duration = Duration::from_secs(4);
const END: Duration = Duration::from_secs(10);
/// How long the brokers are waited for before it is asked whether there is any hope.
const ASK_AGAIN: Duration = Duration::from_millis(500);

/// Why a consumer cannot run, or ended by itself.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum RunError {
    /// The config does not say how to reach Kafka.
    #[error("the config has no `kafka`: add `kafka: {{ bootstrap.servers: HOST:PORT }}`")]
    NoKafka,
    /// The config names no group.
    #[error("the config has no `group`: add the name of the consumer group")]
    NoGroup,
    /// There is no flow.
    #[error("the config has no flow")]
    NoFlow,
    /// A flow has nothing that takes its records.
    #[error("the flow of {0} has no handler")]
    NoHandler(String),
    /// A handler for a topic that is no flow's source.
    #[error("there is a handler for {0}, but no flow of that topic")]
    NoSuchFlow(String),
    /// No flow has this source topic.
    #[error("no flow has the topic `{topic}` (known: {known})")]
    UnknownFlow {
        /// The topic.
        topic: String,
        /// Those that there are.
        known: String,
    },
    /// The flows cannot be run in this role.
    #[error("{0}")]
    BadRole(String),
    /// No broker answers.
    #[error("no broker at {bootstrap} answered within {within:?}{}", after_colon(.last))]
    NoAnswer {
        /// Where they should be.
        bootstrap: String,
        /// How long they were waited for.
        within: Duration,
        /// What the client said last.
        last: String,
    },
    /// The config asks for something that this version does not have.
    #[error("{0}")]
    Unsupported(String),
    /// Properties for Kafka's client cannot be used.
    #[error("these properties of `kafka` cannot be used: {}", .0.join("; "))]
    BadProperties(Vec<String>),
    /// Topics are not there.
    #[error(
        "these topics are missing: {}; `redrive topics apply` makes them, but for source topics, and `redrive run --create-topics` (`Consumer::with_created_topics`) does so at the start",
        .0.join(", ")
    )]
    MissingTopics(Vec<String>),
    /// A topic cannot be used as it is.
    #[error("{0}")]
    BadTopic(String),
    /// The brokers do not let us in.
    #[error("the brokers refuse the credentials: {0}")]
    Refused(String),
    /// There is no embedded broker to be had.
    #[error(transparent)]
    Embedded(#[from] BrokerError),
    /// Kafka's client cannot be made, or does not get an answer that it needs.
    #[error(transparent)]
    Kafka(#[from] KafkaError),
    /// A flow stopped, and its policy says that the process ends then.
    #[error("{0}")]
    Stopped(String),
    /// It is not safe to go on.
    #[error("{0}")]
    Fatal(String),
}

fn after_colon(text: &str) -> String {
    if text.is_empty() { String::new() } else { format!(": {text}") }
}

/// Consumes the flows of a config with the handlers that it is given.
///
/// ```no_run
/// use redrive::config::{Config, FlowConfig};
/// use redrive::{Consumer, Context, Failure, Flow, Record};
///
/// # async fn example() -> Result<(), redrive::RunError> {
/// let config = Config::new("billing")
///     .with_kafka("bootstrap.servers", "localhost:9092")
///     .with_flow(FlowConfig::new(Flow::new("orders")));
/// let consumer = Consumer::new(config).with_handler("orders", |record: Record, _: Context| async move {
///     match record.value() {
///         Some(order) => bill(order).await,
///         None => Ok(()),
///     }
/// });
/// consumer.handle().stop_on_signals();
/// consumer.run().await
/// # }
/// # async fn bill(order: &[u8]) -> Result<(), Failure> { Ok(()) }
/// ```
pub struct Consumer {
    config: Config,
    handlers: BTreeMap<String, Arc<dyn AnyHandler>>,
    events: Events,
    makes_topics: bool,
    broker: Option<Arc<Broker>>,
    role: Role,
    /// The flows that are run, by their source topics. All if there are none.
    chosen: Vec<String>,
    tracer: Option<Tracer>,
    shared: Arc<Shared>,
}

/// What a handle can do and see.
#[derive(Default)]
struct Shared {
    stop: Notify,
    is_stopping: AtomicBool,
    running: Mutex<Running>,
}

#[derive(Default)]
struct Running {
    flows: Vec<RunningFlow>,
    pulses: Vec<Arc<Pulse>>,
}

/// However a run ends, it is told by those who are asked how the consumer is.
struct Ending(Arc<Shared>);

impl Drop for Ending {
    fn drop(&mut self) {
        self.0.is_stopping.store(true, Ordering::Release);
    }
}

struct RunningFlow {
    topic: Arc<str>,
    outline: Outline,
    inbox: Arc<Inbox>,
    state: Arc<FlowState>,
}

impl Consumer {
    /// A consumer of the config's flows.
    pub fn new(config: Config) -> Self {
        Self {
            config,
            handlers: BTreeMap::new(),
            events: Events::default(),
            makes_topics: false,
            broker: None,
            role: Role::All,
            chosen: Vec::new(),
            tracer: None,
            shared: Arc::default(),
        }
    }

    /// Gives the flow of this source topic its handler.
    #[must_use]
    pub fn with_handler(mut self, topic: impl Into<String>, handler: impl Handler) -> Self {
        self.handlers.insert(topic.into(), Arc::new(handler));
        self
    }

    /// Tells everything that happens to `listener`, too. It must not wait.
    #[must_use]
    pub fn with_listener(mut self, listener: impl Fn(&Event) + Send + Sync + 'static) -> Self {
        self.events = Events::to(listener);
        self
    }

    /// Gives every run to `tracer`, as a span of its record's trace. It must not wait.
    #[must_use]
    pub fn with_tracer(mut self, tracer: impl Fn(RunSpan) + Send + Sync + 'static) -> Self {
        self.tracer = Some(Arc::new(tracer));
        self
    }

    /// Makes topics that are missing, but for the source topics.
    #[must_use]
    pub fn with_created_topics(mut self) -> Self {
        self.makes_topics = true;
        self
    }

    /// Runs on this broker within the process, whatever the config says of Kafka, and makes all topics on it that are missing:
    /// source topics, too.
    ///
    /// A config with `kafka: embedded` has a broker of its own that ends with the run.
    #[must_use]
    pub fn with_broker(mut self, broker: Arc<Broker>) -> Self {
        self.broker = Some(broker);
        self
    }

    /// Reads only the topics that belong to this role. Flows of which it runs no record need no handler.
    #[must_use]
    pub fn with_role(mut self, role: Role) -> Self {
        self.role = role;
        self
    }

    /// Runs only the flows of these source topics. None stands for all.
    #[must_use]
    pub fn with_flows(mut self, topics: impl IntoIterator<Item = impl Into<String>>) -> Self {
        self.chosen = topics.into_iter().map(Into::into).collect();
        self
    }

    /// What stops it and looks at it while it runs.
    pub fn handle(&self) -> ConsumerHandle {
        ConsumerHandle(Arc::clone(&self.shared))
    }

    /// Runs until it is told to stop. What is under way may end then, within the limit that the config has.
    ///
    /// Brokers that are away are waited for.
    ///
    /// # Errors
    ///
    /// The config cannot be run, the brokers do not let us in, topics are missing, or a flow stopped with `exit: true`.
    pub async fn run(mut self) -> Result<(), RunError> {
        let _keeping = self.events.journal().keep();
        let _ending = Ending(Arc::clone(&self.shared));
        self.start_broker()?;
        let mut properties = match &self.broker {
            Some(broker) => broker.properties(),
            None => topics::properties_of(&self.config)?,
        };
        let group: Arc<str> = self.config.group.as_deref().ok_or(RunError::NoGroup)?.into();
        let state_topic = topics::state_topic_of(&self.config, &group);
        // Of all flows, since a topic of one that runs elsewhere is not left behind.
        let named = topics::needed(&self.config, &state_topic);
        self.choose(&group)?;
        self.check(&group)?;
        let needed = topics::needed(&self.config, &state_topic);
        let told = Told::new(self.events.clone());
        let publisher = Arc::new(Publisher::new(&properties, told.clone())?);
        let Some(cluster) = self.connect(&publisher, &told).await? else {
            return Ok(());
        };
        if embedded::is_embedded(&cluster) {
            self.refuse_exactly_once()?;
            properties = properties.on_embedded();
        }
        let admin = Admin::new(&properties, told.clone())?;
        let facts = self.look_at_topics(&admin, needed.clone()).await?;
        let least = facts.values().filter_map(Facts::largest_batch).min();
        let publisher = match least.and_then(|it| properties.with_batches_of(it)) {
            Some(smaller) => {
                properties = smaller;
                // It blocks when it goes.
                tokio::task::spawn_blocking(move || drop(publisher));
                Arc::new(Publisher::new(&properties, told.clone())?)
            }
            None => publisher,
        };
        let overflow = self.broker.as_ref().map(|broker| {
            // Not before its topics are there: a client that asks for one makes it with other partitions.
            self.events.tell(&Event::Embedded { address: broker.bootstrap().into() });
            let count = |topic: &str| facts.get(topic).map_or(0, |it| it.partitions);
            Overflow::new(admin.clone(), self.events.clone(), &needed, count)
        });
        let setup = Setup {
            consumer: &self,
            properties,
            told,
            group,
            state_topic,
            cluster,
            facts,
            publisher,
            admin,
        };
        // A broker of our own has nothing from before.
        if self.broker.is_none() {
            self.tell_left_behind(&setup, named).await;
        }
        let machine = setup.start()?;
        let result = self.supervise(&machine, overflow).await;
        self.end(machine).await;
        self.events.tell(&Event::Ended);
        result
    }

    /// Lets everything end. Brokers that are away are not waited for: what they do not know of runs again.
    async fn end(&self, machine: Machine) {
        let limit = END.max(machine.limit + LEAVE);
        let inboxes = machine.inboxes.clone();
        let (tell, ended) = tokio::sync::oneshot::channel();
        // None of tokio's threads, which a process waits for at its end.
        let ending = spawn("redrive-end", move || {
            machine.stop();
            _ = tell.send(());
        });
        if ending.is_ok() && tokio::time::timeout(limit, ended).await.is_err() {
            // Nothing is started any more.
            inboxes.iter().for_each(|it| it.send(Letter::End));
            self.events.tell(&Event::Client {
                error: "the brokers do not answer".to_owned(),
                reason: format!(
                    "it ends after {limit:?} without them: what was not committed runs again"
                ),
            });
        }
    }

    /// Starts the embedded broker, where the config asks for it and nobody has given us one.
    fn start_broker(&mut self) -> Result<(), RunError> {
        let is_embedded = matches!(self.config.kafka, Some(Kafka::Embedded));
        if !is_embedded && self.broker.is_none() {
            return Ok(());
        }
        self.refuse_exactly_once()?;
        let broker = match self.broker.take() {
            Some(broker) => broker,
            None => Arc::new(Broker::start()?),
        };
        self.broker = Some(broker);
        Ok(())
    }

    /// Where there is an embedded broker.
    fn refuse_exactly_once(&self) -> Result<(), RunError> {
        if self.config.exactly_once {
            return Err(RunError::Unsupported(
                "`exactly_once: true` cannot be had on the embedded broker, whose transactions do nothing: set it to `false`, or run on Apache Kafka".to_owned(),
            ));
        }
        Ok(())
    }

    /// Tells of topics that a group has read and no flow names any more. A topic that cannot be looked at is not told of.
    async fn tell_left_behind(&self, setup: &Setup<'_>, needed: Vec<Needed>) {
        let (properties, told, groups) =
            (setup.properties.clone(), setup.told.clone(), setup.groups());
        let looked = tokio::task::spawn_blocking(move || {
            let is_named = |topic: &str| needed.iter().any(|it| *it.topic == *topic);
            topics::left_behind(&properties, &told, &groups, is_named)
        });
        for (topic, records) in looked.await.unwrap_or_default() {
            self.events.tell(&Event::LeftBehind { topic: topic.into(), records });
        }
    }

    /// Keeps the flows that this process does something for.
    fn choose(&mut self, group: &str) -> Result<(), RunError> {
        if self.config.flows.is_empty() {
            return Err(RunError::NoFlow);
        }
        let is_unknown = |topic: &&String| self.config.flow(topic).is_none();
        if let Some(topic) = self.chosen.iter().find(is_unknown) {
            let known: Vec<_> = self.config.flows.iter().map(|it| &**it.flow.source()).collect();
            return Err(RunError::UnknownFlow { topic: topic.clone(), known: known.join(", ") });
        }
        if let Some(topic) = self.handlers.keys().find(|it| self.config.flow(it).is_none()) {
            return Err(RunError::NoSuchFlow(topic.clone()));
        }
        let (chosen, role) = (&self.chosen, self.role);
        let is_chosen = |it: &FlowConfig| chosen.iter().any(|topic| **topic == **it.flow.source());
        self.config.flows.retain(|it| chosen.is_empty() || is_chosen(it));
        role.check(group, &self.config.flows)?;
        self.config.flows.retain(|it| role.reads_any(it));
        Ok(())
    }

    fn check(&self, group: &str) -> Result<(), RunError> {
        for flow in &self.config.flows {
            let topic = flow.flow.source();
            if self.role.needs_handler(flow) && !self.handlers.contains_key(&**topic) {
                return Err(RunError::NoHandler(topic.to_string()));
            }
            if let Some(problem) = order::problem(flow, group) {
                return Err(RunError::Unsupported(problem));
            }
        }
        Ok(())
    }

    /// Waits for the brokers, and asks for the cluster's id. None if it was told to stop meanwhile.
    ///
    /// The producer asks, because somebody listens to what happens to it: an admin client's errors nobody ever hears of.
    async fn connect(
        &self,
        publisher: &Arc<Publisher>,
        told: &Told,
    ) -> Result<Option<String>, RunError> {
        loop {
            if self.shared.is_stopping.load(Ordering::Acquire) {
                return Ok(None);
            }
            let asked = Arc::clone(publisher);
            let cluster = tokio::task::spawn_blocking(move || asked.cluster_id(ASK_AGAIN));
            let cluster = tokio::select! {
                cluster = cluster => cluster.ok().flatten(),
                () = self.shared.stop.notified() => return Ok(None),
            };
            if cluster.is_some() {
                return Ok(cluster);
            }
            if let Some(reason) = told.refused() {
                return Err(RunError::Refused(reason.to_owned()));
            }
        }
    }

    /// Finds out what the topics are like, makes those that are missing if it is to, and tells what is not as it should be.
    async fn look_at_topics(
        &self,
        admin: &Admin,
        needed: Vec<Needed>,
    ) -> Result<BTreeMap<Arc<str>, Facts>, RunError> {
        let prepared = match &self.broker {
            Some(broker) => topics::embedded::prepare(admin, broker, needed).await?,
            None => {
                let job = Job::new(admin.clone(), needed, topics::bootstrap(&self.config));
                job.prepare(self.makes_topics).await?
            }
        };
        for topic in &prepared.topics {
            for difference in &topic.differences {
                let (topic, difference) = (Arc::clone(&topic.name), difference.to_string());
                self.events.tell(&Event::TopicDiffers { topic, difference });
            }
        }
        if prepared.seen.auto_creates == Some(true) {
            self.events.tell(&Event::AutoCreates);
        }
        Ok(prepared.seen.topics)
    }

    /// Waits until it is told to stop, or something says that it cannot go on.
    async fn supervise(
        &self,
        machine: &Machine,
        mut overflow: Option<Overflow>,
    ) -> Result<(), RunError> {
        let mut look = tokio::time::interval(Duration::from_millis(100));
        let mut counted_at = Instant::now();
        loop {
            if counted_at.elapsed() >= COUNT_EVERY {
                counted_at = Instant::now();
                let (counts, admin) = (Arc::clone(&machine.counts), machine.admin.clone());
                tokio::spawn(async move { counts.look_again(&admin).await });
            }
            tokio::select! {
                () = self.shared.stop.notified() => return Ok(()),
                _ = look.tick() => {}
            }
            if let Some(overflow) = &mut overflow {
                overflow.look().await;
            }
            if self.shared.is_stopping.load(Ordering::Acquire) {
                return Ok(());
            }
            if let Some(reason) = machine.pulses.iter().find_map(|it| it.fatal.get()) {
                return Err(RunError::Fatal(reason.clone()));
            }
            if let Some(reason) = machine.told.fatal() {
                return Err(RunError::Fatal(reason.to_owned()));
            }
            if machine.polls.iter().chain(&machine.engines).any(thread::JoinHandle::is_finished) {
                return Err(RunError::Fatal("a thread ended by itself: see the log".to_owned()));
            }
            for state in &machine.states {
                if state.wants_exit.load(Ordering::Acquire) {
                    let stopped = state.stopped.lock();
                    return Err(RunError::Stopped(stopped.clone().unwrap_or_default()));
                }
            }
        }
    }
}

/// Everything that is known before the threads are started.
struct Setup<'a> {
    consumer: &'a Consumer,
    properties: Properties,
    told: Told,
    group: Arc<str>,
    state_topic: Arc<str>,
    cluster: String,
    facts: BTreeMap<Arc<str>, Facts>,
    publisher: Arc<Publisher>,
    admin: Admin,
}

/// The running threads.
struct Machine {
    polls: Vec<thread::JoinHandle<()>>,
    engines: Vec<thread::JoinHandle<()>>,
    inboxes: Vec<Arc<Inbox>>,
    pulses: Vec<Arc<Pulse>>,
    states: Vec<Arc<FlowState>>,
    publisher: Arc<Publisher>,
    told: Told,
    counts: Arc<Counts>,
    admin: Admin,
    limit: Duration,
    /// Asks where logs end, until it is over.
    ends: Option<thread::JoinHandle<()>>,
    /// Follows the state topic, where there are ordered lanes.
    follower: Option<(Arc<Follower>, thread::JoinHandle<()>)>,
    is_over: Arc<AtomicBool>,
}

impl Setup<'_> {
    fn start(self) -> Result<Machine, RunError> {
        let config = &self.consumer.config;
        let events = &self.consumer.events;
        let publisher = Arc::clone(&self.publisher);
        let state_topic = Arc::new(StateTopic::new(
            Arc::clone(&self.state_topic),
            &self.group,
            self.properties.clone(),
            self.told.clone(),
        ));
        let (rereader, _) = Rereader::start(&self.properties, &self.group, self.told.clone())?;
        let is_ordered = config.flows.iter().any(|it| it.ordering == Ordered::Key);
        let ordered = if is_ordered { Some(self.follow_state()?) } else { None };
        let (ordered, following) = ordered.unzip();
        let plans: Vec<_> =
            config.flows.iter().map(|it| Arc::new(FlowPlan::new(it, &self.group))).collect();
        let inboxes: Vec<Arc<Inbox>> = plans.iter().map(|_| Arc::default()).collect();

        let states: Vec<Arc<FlowState>> = plans.iter().map(|_| Arc::default()).collect();
        let mut groups: Vec<(String, Vec<Subscribed>)> = Vec::new();
        let flows = config.flows.iter().zip(&plans).zip(inboxes.iter().zip(&states));
        for ((flow, plan), (inbox, state)) in flows {
            let is_read = |it: Stop| self.consumer.role.reads(&flow.flow, it);
            for (index, stop) in plan.stops.iter().enumerate().filter(|it| is_read(it.1.role)) {
                let start = flow.start.unwrap_or(config.start);
                let subscribed = Subscribed {
                    topic: Arc::clone(&stop.topic),
                    plan: Arc::clone(plan),
                    stop: index,
                    inbox: Arc::clone(inbox),
                    lanes: self.lanes(flow, stop.role, &stop.topic),
                    joined: order::joined(flow, stop.role),
                    start: if stop.role == Stop::Source { start } else { Start::Earliest },
                    events: events.of_flow(flow.flow.source(), &state.numbers),
                };
                let name = group_of(&self.group, flow, stop.role);
                match groups.iter_mut().find(|it| it.0 == name) {
                    Some(group) => group.1.push(subscribed),
                    None => groups.push((name, vec![subscribed])),
                }
            }
        }
        let mut members = Vec::new();
        for (index, (group, topics)) in groups.into_iter().enumerate() {
            let plan = GroupPlan {
                index,
                predecessor: (*group != *self.group).then(|| self.group.to_string()),
                group,
                topics,
                is_exactly_once: config.exactly_once,
                ordered: ordered.clone(),
                revoke_limit: config.drain.revoke,
                shutdown_limit: config.drain.shutdown,
            };
            let (told, events) = (self.told.clone(), events.clone());
            let state_topic = Arc::clone(&state_topic);
            members.push(Group::new(plan, &self.properties, told, events, state_topic)?);
        }
        let pulses: Vec<_> = members.iter().map(|it| Arc::clone(&it.pulse)).collect();

        let counts = self.facts.iter().map(|(topic, facts)| (Arc::clone(topic), facts.partitions));
        let counts = Arc::new(Counts::new(counts.collect()));
        let mut machine = Machine {
            polls: Vec::new(),
            engines: Vec::new(),
            inboxes: inboxes.clone(),
            pulses: pulses.clone(),
            states,
            publisher: Arc::clone(&publisher),
            told: self.told.clone(),
            counts: Arc::clone(&counts),
            admin: self.admin.clone(),
            limit: config.drain.shutdown,
            ends: None,
            follower: ordered.as_ref().map(|it| Arc::clone(&it.follower)).zip(following),
            is_over: Arc::default(),
        };
        let mut running = Vec::new();
        for (index, (flow, plan)) in config.flows.iter().zip(&plans).enumerate() {
            let (Some(inbox), Some(state)) = (inboxes.get(index), machine.states.get(index)) else {
                continue;
            };
            let handler = self.consumer.handlers.get(&**flow.flow.source());
            let handler = handler.map_or_else(no_handler, Arc::clone);
            let links = members.iter().map(|it| GroupLink {
                commits: Arc::clone(&it.commits),
                queue: it.queue().map(|it| Arc::downgrade(&it)).unwrap_or_default(),
                transactions: config.exactly_once,
            });
            let tools = Tools {
                publisher: Arc::clone(&publisher),
                state_topic: Arc::clone(&state_topic),
                tails: ordered.as_ref().map(|it| Arc::clone(&it.tails)),
                rereader: rereader.clone(),
                groups: links.collect(),
                partitions: Arc::clone(&counts) as Arc<dyn Partitions + Send + Sync>,
                events: events.of_flow(flow.flow.source(), &state.numbers),
                runtime: tokio::runtime::Handle::current(),
                handler,
                tracer: self.consumer.tracer.clone(),
                payload_budget: payload_budget(flow),
            };
            let engine = Engine::new(
                Arc::clone(plan),
                tools,
                Arc::clone(inbox),
                slots(flow),
                Arc::clone(state),
            );
            machine.engines.push(spawn("redrive-engine", move || engine.run())?);
            let roles = plan.stops.iter().map(|it| (Arc::clone(&it.topic), it.role));
            running.push(RunningFlow {
                topic: Arc::clone(flow.flow.source()),
                outline: Outline {
                    topic: Arc::clone(flow.flow.source()),
                    roles: roles.collect(),
                    concurrency: flow.concurrency,
                    has_breaker: flow.breaker.is_some(),
                },
                inbox: Arc::clone(inbox),
                state: Arc::clone(state),
            });
        }
        for member in members {
            machine.polls.push(spawn("redrive-poll", move || member.run())?);
        }
        let (states, asking) = (machine.states.clone(), pulses.clone());
        let is_over = Arc::clone(&machine.is_over);
        machine.ends = Some(spawn("redrive-ends", move || {
            ends::ask(&publisher, &asking, &states, &is_over);
        })?);
        events.tell(&Event::Started { group: Arc::clone(&self.group), flows: running.len() });
        *self.consumer.shared.running.lock() = Running { flows: running, pulses };
        Ok(machine)
    }

    /// What ordered lanes need.
    fn follow_state(&self) -> Result<(order::Needs, thread::JoinHandle<()>), RunError> {
        let (properties, group) = (&self.properties, &self.group);
        let (tails, asking) = Tails::start(properties, group, self.told.clone())?;
        let (follower, following) = Follower::start(
            Arc::clone(&self.state_topic),
            properties,
            group,
            self.told.clone(),
            self.consumer.events.clone(),
            Arc::clone(&tails),
        )?;
        asking.map_err(not_started)?;
        Ok((order::Needs { tails, follower }, following.map_err(not_started)?))
    }

    fn lanes(&self, flow: &FlowConfig, role: Stop, topic: &Arc<str>) -> LaneConfig {
        let kind = FlowPlan::lane_kind(&flow.flow, role);
        let order = match flow.ordering {
            Ordered::Partition => Order::Partition,
            Ordered::None | Ordered::Key => Order::None,
        };
        let retention = |topic: &Arc<str>| self.facts.get(topic).and_then(Facts::retention);
        let lane = LaneConfig {
            order,
            // Until the engine says which share of it is the lane's.
            byte_budget: payload_budget(flow),
            commit_every: self.consumer.config.commit_interval,
            retention: retention(topic).filter(|_| role != Stop::Source),
            ..LaneConfig::new(kind, &*self.cluster)
        };
        if flow.ordering != Ordered::Key {
            return lane;
        }
        // The source's speaks for all that belong together.
        let others = flow.stops().into_iter().filter(|it| it.role != Stop::Source);
        LaneConfig {
            retention: others.filter_map(|it| retention(&it.topic)).min(),
            // Kafka forgets what was committed outside of a subscription, after a day on older brokers.
            commit_idle_every: order::COMMIT_AGAIN,
            ..lane
        }
    }

    /// All groups that this process is a member of.
    fn groups(&self) -> BTreeSet<String> {
        let role = self.consumer.role;
        let flows = self.consumer.config.flows.iter();
        let groups = flows.flat_map(|flow| {
            let read = flow.stops().into_iter().filter(move |it| role.reads(&flow.flow, it.role));
            read.map(move |it| group_of(&self.group, flow, it.role))
        });
        groups.collect()
    }
}

/// For flows whose records are only moved: nothing of them is ever run.
fn no_handler() -> Arc<dyn AnyHandler> {
    Arc::new(|_: Record, _: Context| async {
        Outcome::stop(redrive_core::Failure::of_type("NoHandler"))
    })
}

fn payload_budget(flow: &FlowConfig) -> usize {
    usize::try_from(flow.payload_budget).unwrap_or(usize::MAX)
}

fn slots(flow: &FlowConfig) -> Slots {
    let mut slots = Slots::new(usize::try_from(flow.concurrency).unwrap_or(usize::MAX));
    if let Some(rate) = flow.retry_rate {
        slots = slots.with_retry_rate(rate);
    }
    if let Some(breaker) = flow.breaker {
        slots = slots.with_breaker(breaker.into());
    }
    slots
}

fn spawn(
    name: &str,
    run: impl FnOnce() + Send + 'static,
) -> Result<thread::JoinHandle<()>, RunError> {
    thread::Builder::new().name(name.to_owned()).spawn(run).map_err(not_started)
}

pub(crate) fn not_started(error: std::io::Error) -> RunError {
    RunError::Fatal(format!("a thread could not be started: {error}"))
}

impl Machine {
    /// Lets everything end, in the order in which one needs the other.
    fn stop(self) {
        for pulse in &self.pulses {
            pulse.is_stopping.store(true, Ordering::Release);
        }
        self.is_over.store(true, Ordering::Release);
        for poll in self.polls {
            _ = poll.join();
        }
        for inbox in &self.inboxes {
            inbox.send(Letter::End);
        }
        for engine in self.engines {
            _ = engine.join();
        }
        if let Some(ends) = self.ends {
            _ = ends.join();
        }
        if let Some((follower, thread)) = self.follower {
            follower.end();
            _ = thread.join();
        }
        _ = self.publisher.flush(self.limit);
    }
}

/// Stops a consumer, lets it pause, and looks at it.
#[derive(Clone)]
pub struct ConsumerHandle(Arc<Shared>);

impl ConsumerHandle {
    /// Lets the consumer end.
    pub fn stop(&self) {
        self.0.is_stopping.store(true, Ordering::Release);
        self.0.stop.notify_one();
    }

    /// Stops the consumer when the process is told to end, by SIGTERM or SIGINT.
    ///
    /// # Panics
    ///
    /// Outside of a tokio runtime.
    pub fn stop_on_signals(&self) {
        let handle = self.clone();
        tokio::spawn(async move {
            use tokio::signal::unix::{SignalKind, signal};
            let (Ok(mut terminate), Ok(mut interrupt)) =
                (signal(SignalKind::terminate()), signal(SignalKind::interrupt()))
            else {
                return;
            };
            tokio::select! {
                _ = terminate.recv() => {}
                _ = interrupt.recv() => {}
            }
            handle.stop();
        });
    }

    fn running(&self) -> MutexGuard<'_, Running> {
        self.0.running.lock()
    }

    fn send(&self, topic: &str, letter: Letter) -> bool {
        let running = self.running();
        match running.flows.iter().find(|it| *it.topic == *topic) {
            Some(flow) => {
                flow.inbox.send(letter);
                true
            }
            None => false,
        }
    }

    /// Lets the flow of this source topic take no more records. False if there is none.
    pub fn pause(&self, topic: &str) -> bool {
        self.send(topic, Letter::Pause(true))
    }

    /// Lets a flow go on that was paused or has stopped. False if there is none.
    pub fn resume(&self, topic: &str) -> bool {
        self.send(topic, Letter::Pause(false)) && self.send(topic, Letter::Resume)
    }

    /// How the consumer is.
    pub fn state(&self) -> State {
        self.state_of(&self.running())
    }

    fn state_of(&self, running: &Running) -> State {
        let pulses = || running.pulses.iter();
        State {
            is_joined: !running.pulses.is_empty()
                && pulses().all(|it| it.is_joined.load(Ordering::Acquire)),
            is_ending: self.0.is_stopping.load(Ordering::Acquire),
            partitions: pulses().map(|it| it.partitions.load(Ordering::Relaxed)).sum(),
            unread: pulses().map(|it| it.unread.load(Ordering::Relaxed)).sum(),
            flows: running.flows.iter().map(|it| FlowStatus::of(&it.topic, &it.state)).collect(),
        }
    }

    /// Everything that is counted.
    pub fn report(&self) -> Report {
        let running = self.running();
        let flows = running.flows.iter().map(|it| it.outline.report(&it.state, &running.pulses));
        Report {
            state: self.state_of(&running),
            groups: running.pulses.iter().map(|it| GroupReport::from(&**it)).collect(),
            flows: flows.collect(),
        }
    }

    /// The groups whose thread that polls stands still, for longer than anything that it does may take.
    pub fn standing_still(&self) -> Vec<String> {
        let running = self.running();
        let still = running.pulses.iter().filter(|it| it.stands_still());
        still.map(|it| it.group.clone()).collect()
    }
}
