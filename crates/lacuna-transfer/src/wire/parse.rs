//! Parsing records: every field is checked against the message's end and its own bounds.

use super::{
    ALIVE, Answer, DATA, DROP, END, EXISTS, FATAL, FINISH, FINISHED, FatalKind, HELLO, HOLE, Hash,
    Kind, MAGIC, Meta, OFFER, Outcome, PREFIXES_MAX, Prefix, REASON_BYTES_MAX, Record, SAME,
    SETTLED, START, TOTAL, Time, UNSENT, VERSION, WANT, WELCOME, WireError,
};
use crate::name::NAME_BYTES_MAX;
use std::ops::Range;

/// Latest time before or after 1970 that is accepted: every file system and the standard library
/// can represent it.
const SECONDS_MAX: u64 = 1 << 40;

/// The records of a sender's message, in order; ends after the first error.
pub(crate) fn records(message: &[u8]) -> impl Iterator<Item = Result<Record<'_>, WireError>> {
    each(message, record)
}

/// The answers of a receiver's message, in order; ends after the first error.
pub(crate) fn answers(message: &[u8]) -> impl Iterator<Item = Result<Answer<'_>, WireError>> {
    each(message, answer)
}

fn each<'a, R>(
    message: &'a [u8],
    parse: fn(&mut Reader<'a>) -> Result<R, WireError>,
) -> impl Iterator<Item = Result<R, WireError>> {
    let mut reader = Reader { bytes: message, at: 0, kind: 0 };
    std::iter::from_fn(move || {
        if reader.at == reader.bytes.len() {
            return None;
        }
        let result = parse(&mut reader);
        if result.is_err() {
            reader.at = reader.bytes.len();
        }
        Some(result)
    })
}

fn record<'a>(reader: &mut Reader<'a>) -> Result<Record<'a>, WireError> {
    reader.begin()?;
    Ok(match reader.kind {
        HELLO => {
            reader.greeting()?;
            Record::Hello { session: reader.array()?, quick: reader.flag("a flag of")? }
        }
        OFFER => {
            let kind = reader.kind_of_item()?;
            let mode = u16::from_be_bytes(reader.array()?);
            bounded("permissions", mode.into(), 0o777)?;
            let size_bytes = reader.u64()?;
            bounded("a size of", size_bytes, i64::MAX as u64)?;
            let data_bytes = reader.u64()?;
            bounded("data of", data_bytes, size_bytes)?;
            let seconds = i64::from_be_bytes(reader.array()?);
            bounded("a time of", seconds.unsigned_abs(), SECONDS_MAX)?;
            let nanos = u32::from_be_bytes(reader.array()?);
            bounded("nanoseconds", nanos.into(), 999_999_999)?;
            let modified = Time { seconds, nanos };
            let name = reader.counted("a name's length", NAME_BYTES_MAX)?;
            let meta = Meta { kind, mode, size_bytes, data_bytes, modified };
            Record::Offer { meta, name }
        }
        UNSENT => Record::Unsent {
            kind: reader.kind_of_item()?,
            is_skipped: reader.flag("a flag of")?,
            name: reader.counted("a name's length", NAME_BYTES_MAX)?,
            reason: reader.text()?,
        },
        START => Record::Start { item: reader.u64()?, from: reader.u64()? },
        DATA => {
            let len = u32::from_be_bytes(reader.array()?) as usize;
            Record::Data { range: reader.range(len)? }
        }
        HOLE => Record::Hole { len: reader.u64()? },
        END => Record::End { hash: reader.array()? },
        SAME => Record::Same { item: reader.u64()? },
        DROP => Record::Drop { item: reader.u64()?, reason: reader.text()? },
        TOTAL => Record::Total { files: reader.u64()?, bytes: reader.u64()? },
        ALIVE => Record::Alive,
        FINISH => Record::Finish,
        kind => return Err(WireError::Unknown { kind }),
    })
}

fn answer<'a>(reader: &mut Reader<'a>) -> Result<Answer<'a>, WireError> {
    reader.begin()?;
    Ok(match reader.kind {
        WELCOME => {
            reader.greeting()?;
            Answer::Welcome { overwrite: reader.flag("a flag of")? }
        }
        WANT => {
            let item = reader.u64()?;
            let count = reader.up_to(PREFIXES_MAX as u8, "prefixes:")?;
            let mut prefixes = Vec::with_capacity(count.into());
            for _ in 0..count {
                let hash: fn(&mut Reader<'a>) -> Result<Hash, WireError> = Reader::array;
                prefixes.push(Prefix { offset: reader.u64()?, hash: hash(reader)? });
            }
            Answer::Want { item, prefixes }
        }
        EXISTS => Answer::Exists { item: reader.u64()?, hash: reader.array()? },
        SETTLED => {
            let item = reader.u64()?;
            let outcome = match reader.up_to(5, "an outcome of")? {
                0 => Outcome::Complete,
                1 => Outcome::Identical,
                2 => Outcome::Refused,
                3 => Outcome::Failed,
                4 => Outcome::WrongHash,
                _ => Outcome::Updated,
            };
            Answer::Settled { item, outcome, reason: reader.text()? }
        }
        FATAL => {
            let kind = match reader.up_to(1, "a kind of end of")? {
                0 => FatalKind::Unable,
                _ => FatalKind::Protocol,
            };
            Answer::Fatal { kind, reason: reader.text()? }
        }
        ALIVE => Answer::Alive,
        FINISHED => Answer::Finished,
        kind => return Err(WireError::Unknown { kind }),
    })
}

fn bounded(what: &'static str, value: u64, limit: u64) -> Result<(), WireError> {
    if value > limit { Err(WireError::OutOfRange { what, value, limit }) } else { Ok(()) }
}

struct Reader<'a> {
    bytes: &'a [u8],
    at: usize,
    /// Kind of the record that is being read.
    kind: u8,
}

impl<'a> Reader<'a> {
    fn begin(&mut self) -> Result<(), WireError> {
        [self.kind] = self.array()?;
        Ok(())
    }

    fn range(&mut self, len: usize) -> Result<Range<usize>, WireError> {
        if len > self.bytes.len() - self.at {
            return Err(WireError::Truncated { kind: self.kind });
        }
        let range = self.at..self.at + len;
        self.at = range.end;
        Ok(range)
    }

    fn array<const N: usize>(&mut self) -> Result<[u8; N], WireError> {
        let range = self.range(N)?;
        Ok(self.bytes[range].try_into().expect("of this length"))
    }

    fn u64(&mut self) -> Result<u64, WireError> {
        Ok(u64::from_be_bytes(self.array()?))
    }

    fn up_to(&mut self, limit: u8, what: &'static str) -> Result<u8, WireError> {
        let [value] = self.array()?;
        bounded(what, value.into(), limit.into())?;
        Ok(value)
    }

    fn kind_of_item(&mut self) -> Result<Kind, WireError> {
        Ok(match self.up_to(1, "a kind of")? {
            0 => Kind::File,
            _ => Kind::Folder,
        })
    }

    fn flag(&mut self, what: &'static str) -> Result<bool, WireError> {
        Ok(self.up_to(1, what)? == 1)
    }

    fn counted(&mut self, what: &'static str, limit: usize) -> Result<&'a [u8], WireError> {
        let len = u16::from_be_bytes(self.array()?);
        bounded(what, len.into(), limit as u64)?;
        let range = self.range(len.into())?;
        Ok(&self.bytes[range])
    }

    fn text(&mut self) -> Result<&'a str, WireError> {
        let bytes = self.counted("a reason's length", REASON_BYTES_MAX)?;
        std::str::from_utf8(bytes).map_err(|_| WireError::NoText)
    }

    /// Magic and version: the only part that is the same in all versions.
    fn greeting(&mut self) -> Result<(), WireError> {
        let magic: [u8; MAGIC.len()] = self.array()?;
        if magic != *MAGIC {
            return Err(WireError::NotFiles);
        }
        let there = u16::from_be_bytes(self.array()?);
        if there == VERSION { Ok(()) } else { Err(WireError::Version { there }) }
    }
}
