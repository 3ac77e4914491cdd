//! Headers one behind the other, in one piece of memory.

use redrive_core::headers::Name;

use crate::kafka::message::RawHeader;

/// Headers in their order. There are a dozen and more of them on a retried record, and memory for each name and each value
/// would cost more than all else that is done with it. Redrive's own names are but a number.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct Pack {
    bytes: Vec<u8>,
}

/// A retried record has as many headers of Redrive's own, and some of its own.
pub(crate) const USUAL_HEADERS: usize = 24;

/// In front of a name that is spelt out. Others have a number.
const SPELT: u8 = u8::MAX;
/// Instead of a length: it comes behind, in four bytes.
const LONG: u8 = u8::MAX;
/// Instead of a length: there is no value.
const NULL: u8 = u8::MAX - 1;
/// Kafka has nothing as long.
const LONGEST: u32 = u32::MAX;

impl Pack {
    /// With room for so many headers of usual size.
    pub(crate) fn with_room_for(headers: usize) -> Self {
        Self { bytes: Vec::with_capacity(headers * 16) }
    }

    pub(crate) fn push(&mut self, header: RawHeader<'_>) {
        push(&mut self.bytes, header);
    }

    /// How many bytes it has.
    pub(crate) fn size(&self) -> usize {
        self.bytes.len()
    }

    pub(crate) fn iter(&self) -> impl Iterator<Item = RawHeader<'_>> {
        unpack(&self.bytes)
    }
}

impl<'a> FromIterator<RawHeader<'a>> for Pack {
    fn from_iter<I: IntoIterator<Item = RawHeader<'a>>>(headers: I) -> Self {
        let mut pack = Self::default();
        headers.into_iter().for_each(|it| pack.push(it));
        pack
    }
}

/// Headers one behind the other.
pub(crate) fn packed<'a>(headers: impl Iterator<Item = RawHeader<'a>>) -> Vec<u8> {
    let mut bytes = Vec::with_capacity(USUAL_HEADERS * 16);
    headers.for_each(|it| push(&mut bytes, it));
    bytes
}

/// Adds a header to the others.
fn push(bytes: &mut Vec<u8>, (name, value): RawHeader<'_>) {
    match Name::of(name) {
        Some(name) => bytes.push(name.number()),
        None => {
            bytes.push(SPELT);
            push_part(bytes, name);
        }
    }
    match value {
        Some(value) => push_part(bytes, value),
        None => bytes.push(NULL),
    }
}

fn push_part(bytes: &mut Vec<u8>, part: &[u8]) {
    match u8::try_from(part.len()) {
        Ok(length) if length < NULL => bytes.push(length),
        _ => {
            bytes.push(LONG);
            let length = u32::try_from(part.len()).unwrap_or(LONGEST);
            bytes.extend_from_slice(&length.to_le_bytes());
        }
    }
    bytes.extend_from_slice(part);
}

/// The headers again.
pub(crate) fn unpack(mut bytes: &[u8]) -> impl Iterator<Item = RawHeader<'_>> {
    std::iter::from_fn(move || {
        let name = match take(&mut bytes, 1)? {
            [SPELT] => take_part(&mut bytes)??,
            [number] => Name::by_number(*number)?.as_str().as_bytes(),
            _ => return None,
        };
        Some((name, take_part(&mut bytes)?))
    })
}

/// A part, unless it is null.
fn take_part<'a>(bytes: &mut &'a [u8]) -> Option<Option<&'a [u8]>> {
    let length = match take(bytes, 1)? {
        [NULL] => return Some(None),
        [LONG] => usize::try_from(u32::from_le_bytes(take(bytes, 4)?.try_into().ok()?)).ok()?,
        [length] => (*length).into(),
        _ => return None,
    };
    take(bytes, length).map(Some)
}

fn take<'a>(bytes: &mut &'a [u8], length: usize) -> Option<&'a [u8]> {
    let (part, rest) = bytes.split_at_checked(length)?;
    *bytes = rest;
    Some(part)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn headers_come_out_as_they_went_in() {
        let values = [0, 1, 253, 254, 255, 256, 70_000].map(|it| vec![7; it]);
        let names = [
            &b"a"[..],
            b"",
            b"\xff\xfe",
            b"redrive-",
            b"redrive-due-",
            b"REDRIVE-DUE",
            &[b'n'; 300],
        ];
        let own = Name::ALL.iter().map(|it| it.as_str().as_bytes());
        let names: Vec<_> = names.into_iter().chain(own).collect();
        assert!(names.contains(&&b"redrive-due"[..]) && names.len() > 25);
        let values = values.iter().map(|it| Some(&it[..])).chain([None]);
        let headers: Vec<RawHeader<'_>> =
            values.flat_map(|value| names.iter().map(move |name| (*name, value))).collect();
        let pack: Pack = headers.iter().copied().collect();
        assert!(pack.iter().eq(headers.iter().copied()));
        assert_eq!(pack.bytes, packed(headers.into_iter()));
        assert_eq!(Pack::default().iter().count(), 0);
    }

    #[test]
    fn what_is_cut_off_is_not_read() {
        for name in ["name", "redrive-due"] {
            let pack: Pack = [(name.as_bytes(), Some(&[1; 300][..]))].into_iter().collect();
            for length in 0..pack.bytes.len() {
                assert_eq!(unpack(&pack.bytes[..length]).count(), 0, "{name} {length}");
            }
        }
        assert_eq!(unpack(&[200, 0]).count(), 0, "there are not so many names");
    }
}
