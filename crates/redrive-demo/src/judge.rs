//! Whether the promises were kept, judged by the history alone.

use crate::history::{History, Life, Place, Request};
use crate::orders::{self, Answer};

/// What the history says.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct Findings {
    pub(crate) produced: usize,
    /// The service has said that it worked, to the very bytes that were produced.
    pub(crate) handled: usize,
    /// It stands in the dead-letter topic, byte for byte.
    pub(crate) dead_lettered: usize,
    /// The service has asked for that.
    pub(crate) dropped: usize,
    /// It has no end yet, where the run was cut short.
    pub(crate) unfinished: usize,
    pub(crate) lost: Vec<Fault>,
    pub(crate) early: Vec<Fault>,
    pub(crate) run_twice: Vec<Fault>,
    /// How late each retry came, in µs, in order.
    pub(crate) late: Vec<i64>,
}

/// A promise that was broken to a record.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Fault {
    pub(crate) place: Place,
    pub(crate) order: Option<u32>,
    pub(crate) what: String,
}

impl Findings {
    /// Whether nothing was lost and nothing ran early.
    pub(crate) fn is_kept(&self) -> bool {
        self.lost.is_empty() && self.early.is_empty()
    }

    /// The lateness that this share of the retries did not exceed, in µs.
    pub(crate) fn late(&self, share: f64) -> i64 {
        percentile(&self.late, share)
    }
}

/// The value that this share of the sorted values does not exceed; 0 if there are none.
pub(crate) fn percentile(sorted: &[i64], share: f64) -> i64 {
    #[expect(
        clippy::cast_possible_truncation,
        clippy::cast_sign_loss,
        reason = "a share of a length is none that does not fit"
    )]
    let rank = (share * sorted.len() as f64).ceil() as usize;
    sorted.get(rank.max(1) - 1).or(sorted.last()).copied().unwrap_or(0)
}

/// Judges a run. Where it was cut short, records without an end are not lost, as long as the group has not committed beyond them.
pub(crate) fn judge(history: &History, is_cut_short: bool) -> Findings {
    let mut findings = Findings::default();
    for (place, life) in history.lives() {
        let sent = history.sent.get(&place).copied();
        let order = sent
            .or_else(|| life.produced.and_then(|it| orders::number(&it.value)))
            .or_else(|| life.requests.first().and_then(|it| orders::number(&it.value)));
        let fault = |what: String| Fault { place, order, what };
        findings.early.extend(too_early(&life).map(fault));
        findings.run_twice.extend(once_too_often(&life).map(fault));
        findings.late.extend(lateness(&life));
        if sent.is_none() && life.produced.is_none() {
            findings.run_twice.push(fault("nobody has produced it".to_owned()));
            continue;
        }
        findings.produced += 1;
        match end(&life) {
            Ok(End::Handled) => findings.handled += 1,
            Ok(End::DeadLettered) => findings.dead_lettered += 1,
            Ok(End::Dropped) => findings.dropped += 1,
            Err(Missing::NoEnd) if is_cut_short && is_still_there(history, place, &life) => {
                findings.unfinished += 1;
            }
            Err(missing) => findings.lost.push(fault(why(&missing, &life))),
        }
    }
    findings.late.sort_unstable();
    findings
}

enum End {
    Handled,
    DeadLettered,
    Dropped,
}

enum Missing {
    NoEnd,
    /// What came to an end was something else.
    Changed,
    /// It was acknowledged, and is not there.
    NotInTopic,
}

fn end(life: &Life<'_>) -> Result<End, Missing> {
    let produced = life.produced.ok_or(Missing::NotInTopic)?;
    let answered =
        |wanted: Answer| life.requests.iter().filter(move |it| it.answer() == Some(wanted));
    let is_same = |it: &&&Request| it.value == produced.value;
    if answered(Answer::Done).any(|it| is_same(&it)) {
        return Ok(End::Handled);
    }
    if life.letters.iter().any(|it| it.value == produced.value && it.key == produced.key) {
        return Ok(End::DeadLettered);
    }
    if answered(Answer::Cancelled).any(|it| is_same(&it)) {
        return Ok(End::Dropped);
    }
    let ended = answered(Answer::Done).chain(answered(Answer::Cancelled)).count();
    let is_changed = ended > 0 || !life.letters.is_empty();
    Err(if is_changed { Missing::Changed } else { Missing::NoEnd })
}

/// Whether a record would be read again after a restart: by where it was last, and what the group has committed there.
fn is_still_there(history: &History, place: Place, life: &Life<'_>) -> bool {
    let (stop, last) = life.copies.last().map_or((0, place), |it| (it.topic + 1, it.place));
    let committed = history.committed.get(&(stop, last.partition));
    committed.is_none_or(|it| last.offset >= *it)
}

fn why(missing: &Missing, life: &Life<'_>) -> String {
    match missing {
        Missing::NotInTopic => "it was acknowledged, but is not in the source topic".to_owned(),
        Missing::Changed => "what arrived is not what was produced".to_owned(),
        Missing::NoEnd => match (life.requests.last(), life.copies.last()) {
            (None, None) => "the service never saw it".to_owned(),
            (_, Some(copy)) if copy.overall > life.requests.last().map_or(0, |it| it.overall) => {
                format!("it was left in a retry topic, due at {}", copy.due)
            }
            (Some(last), _) => match last.said {
                Some((answer, _)) => format!("the service said `{answer}`, and then nothing came"),
                None => "its connection broke, and then nothing came".to_owned(),
            },
            (None, Some(_)) => "it was left in a retry topic".to_owned(),
        },
    }
}

/// The due time of the copy that a request is about. Of two such copies either may run, so the sooner one counts.
fn due(life: &Life<'_>, request: &Request) -> Option<i64> {
    life.copies.iter().filter(|it| it.overall == request.overall).map(|it| it.due).min()
}

/// Requests that came too soon, each once.
fn too_early<'a>(life: &'a Life<'_>) -> impl Iterator<Item = String> + 'a {
    let before = std::iter::once(None).chain(life.requests.iter().map(Some));
    let pairs = before.zip(&life.requests);
    pairs.filter_map(|(before, request)| {
        before_due(life, request).or_else(|| before_told(life, before?, request))
    })
}

/// By the copy in the retry topic.
fn before_due(life: &Life<'_>, request: &Request) -> Option<String> {
    let retry = request.overall;
    if retry == 0 {
        return None;
    }
    let Some(due) = due(life, request) else {
        let why = "but no copy in a retry topic says when it is due";
        return Some(format!("retry {retry} came, {why}"));
    };
    let by = due * 1000 - request.arrived;
    (by > 0).then(|| format!("retry {retry} came {} before it was due", ms(by)))
}

/// By what the service itself had said.
fn before_told(life: &Life<'_>, before: &Request, request: &Request) -> Option<String> {
    let Some((Answer::Busy { seconds }, at)) = before.said else {
        return None;
    };
    let by = at + i64::from(seconds) * 1_000_000 - request.arrived;
    let told = format!("the service had said `Retry-After: {seconds}`");
    let is_early = by > 0 && has_arrived(life, before);
    is_early.then(|| format!("{told}, and it came {} sooner", ms(by)))
}

/// Whether an answer was heard. One that comes when nobody waits for it any more is not: then the record was retried for
/// something else.
fn has_arrived(life: &Life<'_>, request: &Request) -> bool {
    let status = request.answer().and_then(Answer::status);
    let mut after = life.copies.iter().filter(|it| it.overall == request.overall + 1).peekable();
    after.peek().is_none() || after.any(|it| it.status == status)
}

/// Runs that nobody had planned: after the end, or of an attempt that had run already.
fn once_too_often(life: &Life<'_>) -> impl Iterator<Item = String> {
    let (mut is_over, mut is_heard, mut attempts) = (false, true, Vec::new());
    let mut found = Vec::new();
    for request in &life.requests {
        if is_over && !is_heard {
            found.push("it ran again: the answer that it worked came too late".to_owned());
        } else if is_over {
            found.push("it ran again after its end".to_owned());
        } else if attempts.contains(&request.overall) {
            found.push(format!("its attempt {} ran again", request.overall + 1));
        }
        attempts.push(request.overall);
        if matches!(request.answer(), Some(Answer::Done | Answer::Cancelled)) {
            is_over = true;
            is_heard = has_arrived(life, request);
        }
    }
    if is_over && !life.letters.is_empty() {
        found.push("it was dead-lettered after its end".to_owned());
    }
    found.into_iter()
}

fn lateness(life: &Life<'_>) -> impl Iterator<Item = i64> {
    life.requests.iter().filter(|it| it.overall > 0).filter_map(|it| {
        let late = it.arrived - due(life, it)? * 1000;
        (late >= 0).then_some(late)
    })
}

/// Microseconds, for people.
pub(crate) fn ms(micros: i64) -> String {
    match micros {
        ..10_000 => format!("{:.1} ms", micros as f64 / 1e3),
        10_000..10_000_000 => format!("{} ms", (micros + 500) / 1000),
        _ => format!("{:.1} s", micros as f64 / 1e6),
    }
}

#[cfg(test)]
pub(crate) mod tests;
