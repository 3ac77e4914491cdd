//! A record's life as one trace: each run is a span.
//!
//! Nothing is written to the record for that. One that carries a `traceparent` belongs to that trace, at every stop, since foreign
//! headers arrive as they left. For others the trace is derived from what names the record through all its attempts, so that all
//! members and all hops agree on it: the first run is its root, and later ones are that run's children.

use std::sync::Arc;
use std::time::SystemTime;

use super::judge::describe;
use crate::handler::{Context, Outcome};
use crate::record::Record;

/// A run, as a span of a trace.
#[derive(Clone, Debug, PartialEq)]
pub struct RunSpan {
    /// The trace.
    pub trace: [u8; 16],
    /// This run in it.
    pub id: [u8; 8],
    /// What it belongs to: the span that produced the record, or the first run.
    pub parent: Option<[u8; 8]>,
    /// The group.
    pub group: String,
    /// The topic that the record was read from.
    pub topic: String,
    /// The partition that it was read from.
    pub partition: i32,
    /// Its offset there.
    pub offset: i64,
    /// What names the record through all its attempts.
    pub record: String,
    /// How often it was published because of failures.
    pub overall: u32,
    /// How often it was run before, within this delivery.
    pub in_place: u32,
    /// The policy that it was retried under.
    pub policy: Option<String>,
    /// When the run began.
    pub began: SystemTime,
    /// When it ended.
    pub ended: SystemTime,
    /// What went wrong, if it failed.
    pub error: Option<String>,
}

/// Whoever wants the spans. It must not wait.
pub(crate) type Tracer = Arc<dyn Fn(RunSpan) + Send + Sync>;

/// A run that is traced, from its beginning.
pub(super) struct Begun {
    tracer: Tracer,
    span: RunSpan,
}

impl Begun {
    /// A run begins. None where whoever produced the record said that its trace is not wanted.
    pub(super) fn new(tracer: &Tracer, record: &Record, context: &Context) -> Option<Box<Self>> {
        let identity = context.idempotency_key();
        let (overall, in_place) = (context.overall_attempts(), context.runs_in_place());
        let carried = record.header("traceparent").and_then(parse);
        let id = span_id(&identity, overall, in_place);
        let (trace, parent) = match carried {
            Some(Carried { is_sampled: false, .. }) => return None,
            Some(Carried { trace, parent, .. }) => (trace, Some(parent)),
            None => {
                let root = span_id(&identity, 0, 0);
                (trace_id(&identity), Some(root).filter(|it| *it != id))
            }
        };
        let now = SystemTime::now();
        let span = RunSpan {
            trace,
            id,
            parent,
            group: context.names.group.to_string(),
            topic: record.topic().to_owned(),
            partition: record.partition(),
            offset: record.offset(),
            record: identity,
            overall,
            in_place,
            policy: context.policy().map(str::to_owned),
            began: now,
            ended: now,
            error: None,
        };
        Some(Box::new(Self { tracer: Arc::clone(tracer), span }))
    }

    /// The run has ended.
    pub(super) fn ended(mut self, outcome: &Outcome) {
        self.span.ended = SystemTime::now().max(self.span.began);
        self.span.error = match outcome {
            Outcome::Done => None,
            Outcome::Failed(failure) | Outcome::Asked(failure, _) | Outcome::Held(failure, _) => {
                Some(describe(failure))
            }
        };
        (self.tracer)(self.span);
    }
}

struct Carried {
    trace: [u8; 16],
    parent: [u8; 8],
    is_sampled: bool,
}

/// A `traceparent` as W3C has it. What is wrong is not there.
fn parse(header: &[u8]) -> Option<Carried> {
    let text = std::str::from_utf8(header).ok()?;
    let mut parts = text.split('-');
    let version = hex::<1>(parts.next()?)?;
    let (trace, parent) = (hex::<16>(parts.next()?)?, hex::<8>(parts.next()?)?);
    let flags = hex::<1>(parts.next()?)?;
    let is_known = version != [0xFF] && (version != [0] || parts.next().is_none());
    let is_valid = is_known && trace != [0; 16] && parent != [0; 8];
    is_valid.then_some(Carried { trace, parent, is_sampled: flags[0] & 1 == 1 })
}

/// So many bytes in lower-case hexadecimal digits.
fn hex<const N: usize>(text: &str) -> Option<[u8; N]> {
    let is_hex =
        text.len() == 2 * N && text.bytes().all(|it| matches!(it, b'0'..=b'9' | b'a'..=b'f'));
    let mut bytes = [0; N];
    for (index, byte) in bytes.iter_mut().enumerate().filter(|_| is_hex) {
        *byte = u8::from_str_radix(text.get(2 * index..2 * index + 2)?, 16).ok()?;
    }
    is_hex.then_some(bytes)
}

fn trace_id(identity: &str) -> [u8; 16] {
    let (high, low) = (hash(identity.as_bytes(), 1), hash(identity.as_bytes(), 2));
    (u128::from(high) << 64 | u128::from(low)).max(1).to_be_bytes()
}

fn span_id(identity: &str, overall: u32, in_place: u32) -> [u8; 8] {
    let seed = u64::from(overall) << 32 | u64::from(in_place);
    hash(identity.as_bytes(), seed.wrapping_add(3)).max(1).to_be_bytes()
}

/// The same in every process and every version: FNV-1a, with its bits mixed in the end.
fn hash(bytes: &[u8], seed: u64) -> u64 {
    let start = 0xCBF2_9CE4_8422_2325 ^ seed.wrapping_mul(0x9E37_79B9_7F4A_7C15);
    let mut hash = bytes
        .iter()
        .fold(start, |hash, byte| (hash ^ u64::from(*byte)).wrapping_mul(0x0100_0000_01B3));
    hash = (hash ^ (hash >> 33)).wrapping_mul(0xFF51_AFD7_ED55_8CCD);
    hash = (hash ^ (hash >> 33)).wrapping_mul(0xC4CE_B9FE_1A85_EC53);
    hash ^ (hash >> 33)
}

#[cfg(test)]
mod tests {
    use super::*;

    const HEADER: &str = "00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-01";

    #[test]
    fn a_traceparent_is_read() {
        let carried = parse(HEADER.as_bytes()).unwrap();
        assert_eq!(carried.trace[..2], [0x4B, 0xF9]);
        assert_eq!(carried.parent, 0x00F0_67AA_0BA9_02B7_u64.to_be_bytes());
        assert!(carried.is_sampled);
        assert!(!parse(HEADER.replace("-01", "-00").as_bytes()).unwrap().is_sampled);
        // Later versions may have more.
        assert!(parse(HEADER.replacen("00-", "01-", 1).as_bytes()).is_some());
        assert!(parse(format!("{}-more", HEADER.replacen("00-", "01-", 1)).as_bytes()).is_some());
    }

    #[test]
    fn a_wrong_traceparent_is_none() {
        let zeros = "00-00000000000000000000000000000000-00f067aa0ba902b7-01";
        let no_parent = "00-4bf92f3577b34da6a3ce929d0e0e4736-0000000000000000-01";
        let (loud, newer) = (HEADER.to_uppercase(), HEADER.replacen("00-", "ff-", 1));
        let longer = format!("{HEADER}-x");
        for wrong in
            ["", "00", zeros, no_parent, &loud, &newer, &longer, &HEADER[..54], "00-é-é-01"]
        {
            assert!(parse(wrong.as_bytes()).is_none(), "{wrong}");
        }
        assert!(parse(&[0xFF, 0xFE]).is_none());
    }

    #[test]
    fn a_derived_trace_is_the_same_everywhere_and_differs_between_records() {
        // Pinned: members of different versions must agree.
        assert_eq!(
            u128::from_be_bytes(trace_id("billing/orders/0/7/0")),
            0x3ba8_c182_cc21_32fc_2888_d1ae_861b_f037
        );
        let ids: std::collections::BTreeSet<_> =
            (0..10_000).map(|it| trace_id(&format!("billing/orders/0/{it}/0"))).collect();
        assert_eq!(ids.len(), 10_000);
        let runs: std::collections::BTreeSet<_> = (0..100)
            .flat_map(|overall| {
                (0..100).map(move |run| span_id("billing/orders/0/7/0", overall, run))
            })
            .collect();
        assert_eq!(runs.len(), 10_000);
    }
}
