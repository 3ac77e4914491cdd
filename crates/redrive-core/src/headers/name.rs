//! The names of Redrive's own headers, each found at one look: a retried record has sixteen and more of them, and they are looked
//! at several times on its way.

macro_rules! names {
    ($($variant:ident = $text:literal,)*) => {
        /// One of Redrive's own headers.
        #[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
        #[repr(u8)]
        pub enum Name {
            $(#[doc = concat!("`", $text, "`")] $variant,)*
        }

        impl Name {
            /// All of them, by their numbers.
            pub const ALL: &[Name] = &[$(Name::$variant,)*];

            /// As it stands on a record.
            pub const fn as_str(self) -> &'static str {
                match self {
                    $(Name::$variant => $text,)*
                }
            }
        }
    };
}

names! {
    Version = "redrive-version",
    Group = "redrive-group",
    OriginTopic = "redrive-origin-topic",
    OriginPartition = "redrive-origin-partition",
    OriginOffset = "redrive-origin-offset",
    OriginTimestamp = "redrive-origin-timestamp",
    Due = "redrive-due",
    Overall = "redrive-overall-attempts",
    Policy = "redrive-policy",
    PolicyAttempts = "redrive-policy-attempts",
    Tier = "redrive-tier",
    TierAttempts = "redrive-tier-attempts",
    Hop = "redrive-hop",
    Epoch = "redrive-epoch",
    Redriven = "redrive-redriven",
    FirstFailedAt = "redrive-first-failed-at",
    Reason = "redrive-reason",
    Follows = "redrive-follows",
    FailedAt = "redrive-failed-at",
    Error = "redrive-error",
    ErrorMessage = "redrive-error-message",
    ErrorDetail = "redrive-error-detail",
    Status = "redrive-status",
    Response = "redrive-response",
}

/// What all of them begin with.
const PREFIX: &[u8] = b"redrive-";

/// How many places there are.
const ROOM: usize = 64;

/// The place of a name, which is longer than the prefix.
const fn place(name: &[u8]) -> usize {
    let (first, last) = (name[PREFIX.len()] as usize, name[name.len() - 2] as usize);
    (first + 14 * last + 5 * name.len()) % ROOM
}

/// At most one name in each place, which is seen to when this is compiled.
static PLACES: [Option<Name>; ROOM] = {
    let mut places = [None; ROOM];
    let mut index = 0;
    while index < Name::ALL.len() {
        let name = Name::ALL[index];
        let place = place(name.as_str().as_bytes());
        assert!(places[place].is_none(), "two names in one place");
        places[place] = Some(name);
        index += 1;
    }
    places
};

impl Name {
    /// The header of this name, if it is one of Redrive's own.
    #[inline]
    pub fn of(name: &[u8]) -> Option<Self> {
        if name.len() <= PREFIX.len() || !name.starts_with(PREFIX) {
            return None;
        }
        PLACES[place(name)].filter(|it| it.as_str().as_bytes() == name)
    }

    /// Its number, for those who keep very many of them in memory. It means nothing elsewhere.
    pub const fn number(self) -> u8 {
        self as u8
    }

    /// The one that has this number.
    #[inline]
    pub fn by_number(number: u8) -> Option<Self> {
        Self::ALL.get(usize::from(number)).copied()
    }

    /// Whether it tells of a failure, so that a hop without one leaves it as it is.
    pub(super) const fn is_of_failure(self) -> bool {
        use Name::{Error, ErrorDetail, ErrorMessage, FailedAt, Response, Status};
        matches!(self, FailedAt | Error | ErrorMessage | ErrorDetail | Status | Response)
    }
}

impl From<Name> for &'static str {
    fn from(name: Name) -> Self {
        name.as_str()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_name_is_found_by_its_letters_and_by_its_number() {
        for name in Name::ALL {
            assert_eq!(Name::of(name.as_str().as_bytes()), Some(*name));
            assert_eq!(Name::by_number(name.number()), Some(*name));
        }
        assert_eq!(Name::by_number(Name::ALL.len().try_into().unwrap()), None);
    }

    #[test]
    fn what_only_looks_like_one_is_none() {
        for name in [
            "",
            "redrive",
            "redrive-",
            "redrive-x",
            "redrive-du",
            "redrive-duE",
            "redrive-dueX",
            "xedrive-due",
        ] {
            assert_eq!(Name::of(name.as_bytes()), None, "{name}");
        }
        for name in Name::ALL {
            let mut other = name.as_str().as_bytes().to_vec();
            for index in 0..other.len() {
                other[index] ^= 0x20;
                assert_eq!(Name::of(&other), None);
                other[index] ^= 0x20;
            }
        }
    }
}
