//! What is to be seen while it runs: one state that the screen draws. It is for looking at, and proves nothing.

use std::collections::{BTreeMap, HashMap, VecDeque};
use std::sync::Arc;
use std::time::Duration;

use parking_lot::{Mutex, MutexGuard};
use redrive::{Event, Spot};

use crate::judge::{ms, percentile};
use crate::orders::{Answer, Orders};

/// How long a dot takes from one stop to the next, in ms.
const TRAVEL: i64 = 700;
/// Not more than one dot in so many ms on a way, so that they can be told apart.
const DOT_EVERY: i64 = 140;
/// Not more news than one in so many ms, but for what matters.
const NEWS_EVERY: i64 = 180;
/// How many retries lateness is told of.
const LATELY: usize = 2_000;
/// How many news are kept.
const NEWS: usize = 200;

/// What does not change.
#[derive(Clone, Debug)]
pub(crate) struct Scene {
    pub(crate) orders: Arc<Orders>,
    /// Where the broker is, in words.
    pub(crate) broker: String,
    /// The page with metrics.
    pub(crate) metrics: String,
    pub(crate) topic: String,
    /// The retry topics with their delays.
    pub(crate) tiers: Vec<(String, Duration)>,
}

/// What goes on, all in all.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Phase {
    Starting,
    Producing,
    /// All is produced.
    Finishing,
    /// Somebody has seen enough, and what is under way may end.
    Ending,
    /// All records have their end, and the topics are read.
    Proving,
}

/// A way between two stops.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Way {
    /// From the source topic to the service.
    In,
    /// From the service to success.
    Done,
    /// To a retry topic.
    Tier(usize),
    /// From a retry topic back to the service.
    Back(usize),
    DeadLetter,
    Dropped,
}

/// What sort of news it is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Tone {
    Good,
    Retry(usize),
    Bad,
    Dropped,
    Service,
}

#[derive(Clone, Debug)]
pub(crate) struct News {
    /// Since the start, in ms.
    pub(crate) at: i64,
    pub(crate) tone: Tone,
    /// Whom it is about.
    pub(crate) who: String,
    pub(crate) what: String,
}

/// A record that waits.
#[derive(Clone, Copy, Debug)]
struct Waiting {
    tier: usize,
    due: i64,
    overall: u32,
}

/// All that is to be seen. Times are Unix times in ms.
#[derive(Debug)]
pub(crate) struct Board {
    pub(crate) scene: Scene,
    pub(crate) phase: Phase,
    pub(crate) is_down: bool,
    pub(crate) produced: u32,
    pub(crate) done: u32,
    pub(crate) dropped: u32,
    /// By reason.
    pub(crate) letters: BTreeMap<&'static str, u32>,
    /// How often each retry topic was published to.
    pub(crate) retried: Vec<u32>,
    /// What came of runs, by the words for it.
    pub(crate) answers: BTreeMap<&'static str, u32>,
    pub(crate) latest: i64,
    start: i64,
    ended: Vec<bool>,
    ended_count: usize,
    waiting: HashMap<u32, Waiting>,
    spots: HashMap<Spot, u32>,
    answered: HashMap<u32, Answer>,
    late: VecDeque<i64>,
    news: VecDeque<News>,
    moves: VecDeque<(Way, i64)>,
    /// When something last happened.
    stirred: i64,
}

impl Board {
    pub(crate) fn new(scene: Scene, now: i64) -> Self {
        Self {
            phase: Phase::Starting,
            is_down: false,
            produced: 0,
            done: 0,
            dropped: 0,
            letters: BTreeMap::new(),
            retried: vec![0; scene.tiers.len()],
            answers: BTreeMap::new(),
            latest: 0,
            start: now,
            ended: vec![false; scene.orders.len()],
            ended_count: 0,
            waiting: HashMap::new(),
            spots: HashMap::new(),
            answered: HashMap::new(),
            late: VecDeque::new(),
            news: VecDeque::new(),
            moves: VecDeque::new(),
            stirred: now,
            scene,
        }
    }

    /// The clock begins to count: all is there.
    pub(crate) fn begin(&mut self, now: i64) {
        self.start = now;
        self.stirred = now;
        self.phase = Phase::Producing;
    }

    /// The broker has taken a record.
    pub(crate) fn produced(&mut self, now: i64) {
        self.produced += 1;
        self.stirred = now;
    }

    /// A record is run.
    pub(crate) fn started(&mut self, spot: Spot, number: u32, overall: u32, now_us: i64) {
        let now = now_us / 1000;
        self.stirred = now;
        self.spots.insert(spot, number);
        match self.waiting.get(&number).copied() {
            Some(waiting) if waiting.overall <= overall => {
                self.waiting.remove(&number);
                let late = (now_us - waiting.due * 1000).max(0);
                self.latest = self.latest.max(late);
                self.late.push_back(late);
                if self.late.len() > LATELY {
                    self.late.pop_front();
                }
                self.moves(Way::Back(waiting.tier), now);
            }
            _ => self.moves(Way::In, now),
        }
    }

    /// The service has answered.
    pub(crate) fn answered(&mut self, number: u32, answer: Answer, now: i64) {
        *self.answers.entry(words(answer)).or_default() += 1;
        self.stirred = now;
        if answer != Answer::Done {
            self.answered.insert(number, answer);
            return;
        }
        self.moves(Way::Done, now);
        if self.end(number) {
            self.done += 1;
        }
        if self.answered.remove(&number).is_some() {
            self.tell(Tone::Good, Some(number), "worked at last".to_owned(), now);
        }
    }

    /// An order has come to its end. Whether that is news.
    fn end(&mut self, number: u32) -> bool {
        let is_news =
            self.ended.get_mut(number as usize).is_some_and(|it| !std::mem::replace(it, true));
        self.ended_count += usize::from(is_news);
        is_news
    }

    /// Redrive has told something.
    pub(crate) fn told(&mut self, event: &Event, now: i64) {
        match event {
            Event::Retries { spot, error, to, overall, due, delay, .. } => {
                let Some(tier) = self.scene.tiers.iter().position(|it| it.0 == **to) else {
                    return;
                };
                self.stirred = now;
                if let Some(retried) = self.retried.get_mut(tier) {
                    *retried += 1;
                }
                let number = self.spots.remove(spot);
                let why = self.why(number, error);
                if let Some(number) = number {
                    let due = due.as_millis();
                    self.waiting.insert(number, Waiting { tier, due, overall: *overall });
                }
                self.moves(Way::Tier(tier), now);
                let what = format!("{why} → retry {}, due in {}", tier + 1, seconds(*delay));
                self.tell(Tone::Retry(tier), number, what, now);
            }
            Event::DeadLettered { spot, error, reason, overall, .. } => {
                self.stirred = now;
                *self.letters.entry(reason.as_str()).or_default() += 1;
                let number = self.spots.remove(spot);
                let why = self.why(number, error.as_deref().unwrap_or_default());
                _ = number.is_some_and(|it| self.end(it));
                self.moves(Way::DeadLetter, now);
                let times = match overall {
                    0 => String::new(),
                    times => format!(" after {times} retries"),
                };
                self.tell(Tone::Bad, number, format!("{why}{times} → dead letters"), now);
            }
            Event::Dropped { spot, .. } => {
                self.stirred = now;
                self.dropped += 1;
                let number = self.spots.remove(spot);
                _ = number.is_some_and(|it| self.end(it));
                self.moves(Way::Dropped, now);
                let what = "was cancelled, the service says → dropped".to_owned();
                self.tell(Tone::Dropped, number, what, now);
            }
            _ => {}
        }
    }

    /// What went wrong, in a few words. What the service itself knows nothing of is counted here.
    fn why(&mut self, number: Option<u32>, error: &str) -> String {
        let answer = number.and_then(|it| self.answered.get(&it).copied());
        // The failure's kind, what it is counted under, and the words.
        let unanswered = [
            ("connect", "refused", "no connection"),
            ("timeout", "no answer", "no answer in time"),
            ("network", "cut off", "the connection was cut"),
        ];
        match unanswered.iter().find(|it| error.starts_with(it.0)) {
            Some((_, counted, words)) => {
                *self.answers.entry(counted).or_default() += 1;
                (*words).to_owned()
            }
            None => answer.map_or_else(|| error.to_owned(), |it| it.to_string()),
        }
    }

    /// The service goes down, or comes back.
    pub(crate) fn outage(&mut self, is_down: bool, now: i64) {
        self.is_down = is_down;
        let what = if is_down { "goes down: connections are refused" } else { "is back" };
        self.news.push_back(News {
            at: now - self.start,
            tone: Tone::Service,
            who: "the service".to_owned(),
            what: what.to_owned(),
        });
    }

    fn moves(&mut self, way: Way, now: i64) {
        while self.moves.front().is_some_and(|it| it.1 + TRAVEL < now) {
            self.moves.pop_front();
        }
        let last = self.moves.iter().rfind(|it| it.0 == way);
        if last.is_none_or(|it| now - it.1 >= DOT_EVERY) {
            self.moves.push_back((way, now));
        }
    }

    fn tell(&mut self, tone: Tone, number: Option<u32>, what: String, now: i64) {
        let at = now - self.start;
        let matters = matches!(tone, Tone::Bad | Tone::Dropped);
        if !matters && self.news.back().is_some_and(|it| at - it.at < NEWS_EVERY) {
            return;
        }
        let mut who = match number {
            Some(number) => format!("order {number} of {}", self.scene.orders.customer(number)),
            None => "an order".to_owned(),
        };
        if matches!(tone, Tone::Retry(_) | Tone::Bad) {
            who.push(':');
        }
        self.news.push_back(News { at, tone, who, what });
        if self.news.len() > NEWS {
            self.news.pop_front();
        }
    }

    /// The last news, the newest first.
    pub(crate) fn news(&self) -> impl Iterator<Item = &News> {
        self.news.iter().rev()
    }

    /// News that were not taken yet, the oldest first.
    pub(crate) fn take_news(&mut self) -> Vec<News> {
        self.news.drain(..).collect()
    }

    /// Since the start.
    pub(crate) fn elapsed(&self, now: i64) -> Duration {
        Duration::from_millis(u64::try_from(now - self.start).unwrap_or(0))
    }

    /// How long nothing has happened.
    pub(crate) fn quiet(&self, now: i64) -> Duration {
        Duration::from_millis(u64::try_from(now - self.stirred).unwrap_or(0))
    }

    /// How many records there will be.
    pub(crate) fn records(&self) -> usize {
        self.scene.orders.len()
    }

    /// How many records have come to their end.
    pub(crate) fn ended(&self) -> usize {
        self.ended_count
    }

    /// Whether every record has come to its end, and none waits to run once more.
    pub(crate) fn is_over(&self, now: i64) -> bool {
        self.ended_count >= self.records() && !self.waiting.values().any(|it| it.due > now)
    }

    /// How many records are neither at their end nor wait for their time.
    pub(crate) fn under_way(&self) -> usize {
        (self.produced as usize).saturating_sub(self.ended_count + self.waiting.len())
    }

    pub(crate) fn dead_letters(&self) -> u32 {
        self.letters.values().sum()
    }

    /// How many wait in a retry topic.
    pub(crate) fn waiting(&self, tier: usize, now: i64) -> usize {
        self.waiting.values().filter(|it| it.tier == tier && it.due > now).count()
    }

    /// How many of a retry topic are due within each of so many equal parts of this time.
    pub(crate) fn due(&self, tier: usize, parts: usize, within: Duration, now: i64) -> Vec<u32> {
        let within = i64::try_from(within.as_millis()).unwrap_or(i64::MAX).max(1);
        let mut counts = vec![0; parts];
        for waiting in self.waiting.values().filter(|it| it.tier == tier && it.due > now) {
            let part = (waiting.due - now - 1).saturating_mul(parts as i64) / within;
            let last = parts.saturating_sub(1);
            if let Some(count) = counts.get_mut(usize::try_from(part).unwrap_or(last).min(last)) {
                *count += 1;
            }
        }
        counts
    }

    /// How far dots have come on a way, from 0 to 1.
    pub(crate) fn dots(&self, way: Way, now: i64) -> impl Iterator<Item = f64> {
        let here = self.moves.iter().filter(move |it| it.0 == way);
        let travelled = here.map(move |it| (now - it.1) as f64 / TRAVEL as f64);
        travelled.filter(|it| (0.0..1.0).contains(it))
    }

    /// How late retries came lately, in words: half of them, nearly all, and the latest of all.
    pub(crate) fn lateness(&self) -> Option<[String; 3]> {
        let mut late: Vec<i64> = self.late.iter().copied().collect();
        if late.is_empty() {
            return None;
        }
        late.sort_unstable();
        Some([percentile(&late, 0.5), percentile(&late, 0.99), self.latest].map(ms))
    }
}

/// The words under which an answer is counted.
fn words(answer: Answer) -> &'static str {
    match answer {
        Answer::Done => "200",
        Answer::Broken => "500",
        Answer::Unavailable => "503",
        Answer::Busy { .. } => "429",
        Answer::Silent => "no answer",
        Answer::Poison => "422",
        Answer::Cancelled => "410",
    }
}

/// "2 s", "0.35 s".
pub(crate) fn seconds(time: Duration) -> String {
    let text = format!("{:.2}", time.as_secs_f64());
    let text = text.trim_end_matches('0').trim_end_matches('.');
    format!("{text} s")
}

/// A board that several write to.
#[derive(Clone)]
pub(crate) struct SharedBoard(Arc<Mutex<Board>>);

impl SharedBoard {
    pub(crate) fn new(board: Board) -> Self {
        Self(Arc::new(Mutex::new(board)))
    }

    pub(crate) fn lock(&self) -> MutexGuard<'_, Board> {
        self.0.lock()
    }
}
