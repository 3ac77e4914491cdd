//! What can be asked of a demo, and what cannot.

use std::fmt;
use std::str::FromStr;
use std::time::Duration;

/// How many records the ledger is made for.
const MOST: u32 = 1_000_000;
/// How many records the embedded broker keeps, with [`PER_PARTITION`] and its 5 MiB a partition.
const MOST_EMBEDDED: u32 = 100_000;
/// How many records go to a partition. Each comes at most twice to the same retry topic, and a copy with all its headers has less
/// than 1.5 KB, so that they stay below 5 MiB.
const PER_PARTITION: u32 = 1_500;
const PARTITIONS: u32 = 3;
/// How many partitions a topic gets on somebody's own broker, at the most.
const MOST_PARTITIONS: u32 = 12;

/// The delays of the retry topics at speed 1.
const DELAYS: [Duration; 3] =
    [Duration::from_secs(1), Duration::from_secs(2), Duration::from_secs(4)];
/// How long records are produced at speed 1.
const PRODUCING: Duration = Duration::from_secs(10);
/// How many records are produced a second, at the most.
const RATE: u32 = 2_000;
const OUTAGE: Duration = Duration::from_millis(1_500);
/// How long a request may take. Not less on a busy machine, where the service needs its time, too.
const TIMEOUT: (Duration, Duration) = (Duration::from_millis(500), Duration::from_millis(800));
/// A whole demo would take an hour or more, or be over before anybody sees it.
const SPEEDS: (f64, f64) = (0.1, 20.0);

/// Where the demo shows what happens.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Life {
    /// On standard output.
    Stdout,
    /// On standard error, because something else is read from standard output.
    Stderr,
}

/// What is asked of a demo.
#[derive(Clone, Debug)]
pub struct Options {
    /// How many records are produced.
    pub records: u32,
    /// The share of them that fails at first.
    pub failure_rate: Share,
    /// What all chance is drawn from.
    pub seed: u64,
    /// How many times as fast as usual.
    pub speed: f64,
    /// Whether there are neither colours nor redraws, on a terminal, too.
    pub plain: bool,
    /// Where it shows what happens.
    pub life: Life,
    /// The broker, `HOST:PORT`. None for one within the process.
    pub kafka: Option<String>,
    /// Whether the topics stay on that broker.
    pub keep_topics: bool,
}

/// # Defaults
///
/// 500 records, of which a quarter fails, on an embedded broker.
impl Default for Options {
    fn default() -> Self {
        Self {
            records: 500,
            failure_rate: Share(0.25),
            seed: 1,
            speed: 1.0,
            plain: false,
            life: Life::Stdout,
            kafka: None,
            keep_topics: false,
        }
    }
}

/// Why a demo cannot be run like that.
#[derive(Clone, Debug, PartialEq, thiserror::Error)]
#[non_exhaustive]
pub enum OptionsError {
    /// Without records there is nothing to see.
    #[error("--records is 0: there must be at least 1")]
    NoRecords,
    /// The embedded broker would drop some.
    #[error(
        "--records is {0}, but the embedded broker keeps 5 MiB a partition, enough for {MOST_EMBEDDED} records: take fewer, or a broker of your own with --kafka HOST:PORT"
    )]
    TooManyEmbedded(u32),
    /// The ledger would get too large.
    #[error("--records is {0}, but {MOST} is the most that a demo keeps a ledger of")]
    TooMany(u32),
    /// That would be no demo.
    #[error("--speed is {0}, but goes from {least} to {most}: 1 takes about 20 seconds, 2 half of it", least = SPEEDS.0, most = SPEEDS.1)]
    BadSpeed(f64),
    /// It is no address.
    #[error("--kafka is `{0}`: write the broker's address as HOST:PORT, such as localhost:9092")]
    BadAddress(String),
    /// Only on a broker that outlives the demo.
    #[error(
        "--keep-topics needs --kafka HOST:PORT: the embedded broker ends with the demo, and its topics with it"
    )]
    NothingToKeep,
}

impl Options {
    /// Checks them.
    ///
    /// # Errors
    ///
    /// A value is out of its bounds, or is too much for the embedded broker.
    pub fn check(&self) -> Result<(), OptionsError> {
        if self.records == 0 {
            return Err(OptionsError::NoRecords);
        }
        if self.records > MOST {
            return Err(OptionsError::TooMany(self.records));
        }
        if !(SPEEDS.0..=SPEEDS.1).contains(&self.speed) {
            return Err(OptionsError::BadSpeed(self.speed));
        }
        match &self.kafka {
            None if self.records > MOST_EMBEDDED => {
                Err(OptionsError::TooManyEmbedded(self.records))
            }
            None if self.keep_topics => Err(OptionsError::NothingToKeep),
            Some(address) if !is_address(address) => Err(OptionsError::BadAddress(address.clone())),
            _ => Ok(()),
        }
    }

    pub(crate) fn partitions(&self) -> i32 {
        let wanted = self.records.div_ceil(PER_PARTITION).max(PARTITIONS);
        let wanted = if self.kafka.is_some() { wanted.min(MOST_PARTITIONS) } else { wanted };
        i32::try_from(wanted).unwrap_or(1)
    }

    /// The delays of the retry topics.
    pub(crate) fn delays(&self) -> [Duration; 3] {
        DELAYS.map(|it| self.faster(it))
    }

    /// How long records are produced.
    pub(crate) fn producing(&self) -> Duration {
        let least = Duration::from_secs_f64(f64::from(self.records) / f64::from(RATE));
        self.faster(PRODUCING).max(least)
    }

    /// When the service goes down, from the first record on, and for how long. Never where nothing is to fail.
    pub(crate) fn outage(&self) -> Option<(Duration, Duration)> {
        let begin = self.producing().mul_f64(0.4);
        (self.failure_rate.0 > 0.0).then(|| (begin, self.faster(OUTAGE)))
    }

    /// How long a request may take.
    pub(crate) fn timeout(&self) -> Duration {
        self.faster(TIMEOUT.1).max(TIMEOUT.0)
    }

    /// How many records run at the same time: enough that those which hang hold up nobody.
    pub(crate) fn concurrency(&self) -> u32 {
        let a_second = f64::from(self.records) / self.producing().as_secs_f64();
        let hanging = a_second * self.failure_rate.0 * self.timeout().as_secs_f64();
        #[expect(
            clippy::cast_possible_truncation,
            clippy::cast_sign_loss,
            reason = "some thousand records a second at most, for less than a few seconds"
        )]
        let hanging = hanging as u32;
        64 + hanging.min(2_000)
    }

    fn faster(&self, time: Duration) -> Duration {
        let millis = (time.as_secs_f64() * 1000.0 / self.speed).round().max(1.0);
        // Whole milliseconds, as configs have them.
        #[expect(
            clippy::cast_possible_truncation,
            clippy::cast_sign_loss,
            reason = "a few seconds, at a speed within its bounds"
        )]
        let millis = millis as u64;
        Duration::from_millis(millis)
    }
}

/// Whether it could be HOST:PORT, or several of them.
fn is_address(text: &str) -> bool {
    let is_one = |it: &str| {
        it.trim().rsplit_once(':').is_some_and(|(host, port)| {
            let is_plain = !host.chars().any(|it| it.is_whitespace() || it == '/');
            !host.is_empty() && is_plain && port.parse::<u16>().is_ok_and(|it| it > 0)
        })
    };
    text.split(',').all(is_one)
}

/// A share, from 0 to 1.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Share(pub(crate) f64);

impl FromStr for Share {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let (number, by) = match text.strip_suffix('%') {
            Some(percent) => (percent.trim(), 100.0),
            None => (text, 1.0),
        };
        match number.parse::<f64>() {
            Ok(number) if (0.0..=by).contains(&number) => Ok(Self(number / by)),
            _ => Err("write a share from 0 to 1, such as 0.25 or 25%".to_owned()),
        }
    }
}

impl fmt::Display for Share {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}%", self.0 * 100.0)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn shares_are_numbers_or_percents_and_nothing_else() {
        for (text, share) in [("0", 0.0), ("1", 1.0), ("0.25", 0.25), ("25%", 0.25), ("100 %", 1.0)]
        {
            assert_eq!(text.parse(), Ok(Share(share)), "{text}");
        }
        for text in ["", "%", "-0.1", "1.1", "101%", "half", "NaN", "inf", "0,5"] {
            let error = text.parse::<Share>().unwrap_err();
            assert!(error.contains("from 0 to 1"), "{text}: {error}");
        }
    }

    #[test]
    fn what_would_be_too_much_is_refused_with_the_limit_and_the_cure() {
        let options = |change: fn(&mut Options)| {
            let mut options = Options::default();
            change(&mut options);
            options.check().map_err(|it| it.to_string())
        };
        assert_eq!(options(|_| {}), Ok(()));
        assert_eq!(options(|it| it.records = 100_000), Ok(()));
        let told = options(|it| it.records = 100_001).unwrap_err();
        assert!(told.contains("enough for 100000 records") && told.contains("--kafka"), "{told}");
        let own = |it: &mut Options| it.kafka = Some("b:1".to_owned());
        let mut many = Options { records: 1_000_000, ..Options::default() };
        own(&mut many);
        assert_eq!(many.check(), Ok(()));
        many.records += 1;
        assert_eq!(many.check(), Err(OptionsError::TooMany(1_000_001)));
        assert!(options(|it| it.records = 0).is_err());
        assert!(options(|it| it.keep_topics = true).is_err());
        for speed in [0.0, -1.0, 0.09, 21.0, f64::NAN, f64::INFINITY] {
            let told = Options { speed, ..Options::default() }.check().unwrap_err().to_string();
            assert!(told.contains("from 0.1 to 20"), "{told}");
        }
        for address in
            ["", "localhost", "localhost:", ":9092", "a b:1", "http://b:1", "b:70000", "a:1,b"]
        {
            let kafka = Some(address.to_owned());
            let told = Options { kafka, ..Options::default() }.check().unwrap_err().to_string();
            assert!(told.contains("HOST:PORT"), "{told}");
        }
        let kafka = Some("a:1,b:2,[::1]:9092".to_owned());
        assert_eq!(Options { kafka, ..Options::default() }.check(), Ok(()));
    }

    #[test]
    fn all_that_the_embedded_broker_gets_stays_below_what_it_keeps() {
        for records in [1, 3_000, 9_001, 100_000] {
            let options = Options { records, ..Options::default() };
            let partitions = u32::try_from(options.partitions()).unwrap();
            let per_partition = u64::from(records.div_ceil(partitions));
            assert!(per_partition * 2 * 1_500 < 5 << 20, "{records}");
        }
    }

    #[test]
    fn speed_makes_everything_shorter_but_not_the_timeout_too_short() {
        let options = Options { speed: 4.0, ..Options::default() };
        assert_eq!(options.delays().map(|it| it.as_millis()), [250, 500, 1000]);
        assert_eq!(options.producing(), Duration::from_millis(2_500));
        assert_eq!(options.timeout(), Duration::from_millis(500));
        let calm = Options { failure_rate: Share(0.0), ..options };
        assert_eq!(calm.outage(), None);
    }
}
