//! Extents: which ranges of a file are data and which are holes, as the file system reports them.
//!
//! A hole reads as zeros and takes no space. Extents are queried one by one while a file is read
//! (`SEEK_DATA`, `SEEK_HOLE`), so no map of them is kept, and a file that changes meanwhile is read
//! as it is. A file system that does not track holes reports everything as data. A file that takes
//! as much space as it is long is treated as data without a query.

use std::fs::{File, Metadata};
use std::io;
use std::os::unix::fs::MetadataExt;

/// Shorter files are read whole: their holes are not worth the queries, for which some file systems
/// (ZFS) write to the disk first.
const ASKED_FROM_BYTES: u64 = 64 << 10;
/// Extents that are counted before the rest is estimated: some hundred milliseconds.
const COUNTED_MAX: usize = 1 << 16;
/// Unit of `st_blocks`, whatever the file system's blocks are.
const SECTOR_BYTES: u64 = 512;

/// The extent at an offset.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Extent {
    Data { end: u64 },
    Hole { end: u64 },
}

/// The extents of a file, in order.
pub(crate) struct Extents<'f> {
    file: &'f File,
    is_asked: bool,
    /// Everything from the last query up to here is data.
    data_end: u64,
}

impl<'f> Extents<'f> {
    pub(crate) fn of(file: &'f File) -> io::Result<Self> {
        let is_asked = may_have_holes(&file.metadata()?);
        Ok(Self { file, is_asked, data_end: 0 })
    }

    /// The extent at `at`, cut at `end`. Offsets rise from call to call. If the file has become
    /// shorter, this fails, or the read of its data does.
    pub(crate) fn at(&mut self, at: u64, end: u64) -> io::Result<Extent> {
        debug_assert!(at < end, "there is something to look at");
        if self.is_asked && at >= self.data_end {
            match seek::data(self.file, at) {
                Some(seek::Found::At(data)) if data > at => {
                    return Ok(Extent::Hole { end: data.min(end) });
                }
                Some(seek::Found::At(_)) => {
                    self.data_end = seek::hole(self.file, at).unwrap_or(end);
                }
                Some(seek::Found::None) if self.file.metadata()?.len() < end => {
                    return Err(io::ErrorKind::UnexpectedEof.into());
                }
                Some(seek::Found::None) => return Ok(Extent::Hole { end }),
                None => self.is_asked = false,
            }
        }
        // A hole that was made at `at` since the query is read as zeros.
        let is_known = self.is_asked && self.data_end > at;
        Ok(Extent::Data { end: if is_known { self.data_end.min(end) } else { end } })
    }
}

/// Whether a file takes less room than it is long: it has holes or is compressed.
pub(crate) fn may_have_holes(metadata: &Metadata) -> bool {
    metadata.len() >= ASKED_FROM_BYTES && allocated_bytes(metadata) < metadata.len()
}

/// Upper bound of a file's data, from the space it takes.
pub(crate) fn allocated_bytes(metadata: &Metadata) -> u64 {
    metadata.blocks().saturating_mul(SECTOR_BYTES).min(metadata.len())
}

/// Data bytes of a file; an estimate if it has very many extents.
pub(crate) fn data_bytes(file: &File) -> io::Result<u64> {
    let metadata = file.metadata()?;
    let size_bytes = metadata.len();
    if !may_have_holes(&metadata) {
        return Ok(size_bytes);
    }
    let mut extents = Extents::of(file)?;
    let (mut at, mut bytes) = (0, 0);
    for _ in 0..COUNTED_MAX {
        if at >= size_bytes {
            return Ok(bytes);
        }
        at = match extents.at(at, size_bytes)? {
            Extent::Hole { end } => end,
            Extent::Data { end } => {
                bytes += end - at;
                end
            }
        };
    }
    Ok(bytes.max(allocated_bytes(&metadata)))
}

/// The queries to the system.
#[cfg(any(
    target_os = "linux",
    target_os = "android",
    target_os = "freebsd",
    target_vendor = "apple"
))]
mod seek {
    use rustix::fs::SeekFrom;
    use rustix::io::Errno;
    use std::fs::File;

    pub(super) enum Found {
        At(u64),
        /// Nothing but a hole.
        None,
    }

    /// Start of the first data at or after `at`; `None` if the file system cannot tell.
    pub(super) fn data(file: &File, at: u64) -> Option<Found> {
        match rustix::fs::seek(file, SeekFrom::Data(at)) {
            Ok(found) if found >= at => Some(Found::At(found)),
            Err(Errno::NXIO) => Some(Found::None),
            Ok(_) | Err(_) => None,
        }
    }

    /// End of the data at `at`.
    pub(super) fn hole(file: &File, at: u64) -> Option<u64> {
        rustix::fs::seek(file, SeekFrom::Hole(at)).ok()
    }
}

#[cfg(not(any(
    target_os = "linux",
    target_os = "android",
    target_os = "freebsd",
    target_vendor = "apple"
)))]
mod seek {
    use std::fs::File;

    #[allow(dead_code, reason = "a system that tells nothing of holes finds none")]
    pub(super) enum Found {
        At(u64),
        None,
    }

    pub(super) fn data(_: &File, _: u64) -> Option<Found> {
        None
    }

    pub(super) fn hole(_: &File, _: u64) -> Option<u64> {
        None
    }
}

#[cfg(test)]
pub(crate) mod tests {
    use super::*;
    use std::os::unix::fs::FileExt;

    /// A file of `size_bytes` with data at some places only; `None` where the file system
    /// keeps no holes.
    pub(crate) fn sparse_file(size_bytes: u64, data: &[(u64, &[u8])]) -> Option<File> {
        let file = tempfile::tempfile().unwrap();
        file.set_len(size_bytes).unwrap();
        for (at, bytes) in data {
            file.write_all_at(bytes, *at).unwrap();
        }
        let has_holes = data_bytes(&file).unwrap() < size_bytes;
        if !has_holes {
            eprintln!("skipped: this file system keeps no holes");
        }
        has_holes.then_some(file)
    }

    /// All runs of a file: their ends, holes negative.
    fn runs(file: &File, size_bytes: u64) -> Vec<i64> {
        let mut extents = Extents::of(file).unwrap();
        let (mut at, mut runs) = (0, Vec::new());
        while at < size_bytes {
            let (end, sign) = match extents.at(at, size_bytes).unwrap() {
                Extent::Data { end } => (end, 1),
                Extent::Hole { end } => (end, -1),
            };
            assert!(end > at && end <= size_bytes);
            runs.push(sign * end as i64);
            at = end;
        }
        runs
    }

    const MIB: u64 = 1 << 20;

    #[test]
    fn holes_are_found_at_the_beginning_in_the_middle_and_at_the_end() {
        // No file system has blocks of a megabyte.
        let block = [7; MIB as usize];
        let cases: [(u64, &[u64], &[i64]); 6] = [
            (4, &[0, 1, 2, 3], &[4]),
            (4, &[], &[-4]),
            (4, &[0], &[1, -4]),
            (4, &[3], &[-3, 4]),
            (5, &[1, 3], &[-1, 2, -3, 4, -5]),
            (5, &[0, 2, 4], &[1, -2, 3, -4, 5]),
        ];
        for (size, places, expected) in cases {
            let data: Vec<_> = places.iter().map(|place| (place * MIB, &block[..])).collect();
            let expected: Vec<i64> = expected.iter().map(|end| end * MIB as i64).collect();
            let Some(file) = sparse_file(size * MIB, &data) else {
                assert_eq!(places.len() as u64, size, "no holes here");
                continue;
            };
            assert_eq!(runs(&file, size * MIB), expected, "{places:?}");
            assert_eq!(data_bytes(&file).unwrap(), places.len() as u64 * MIB);
            // From the middle of a run, and to the middle of one.
            let mut extents = Extents::of(&file).unwrap();
            let (at, end) = (MIB / 2, MIB / 2 + 1);
            let is_hole = !places.contains(&0);
            let run = if is_hole { Extent::Hole { end } } else { Extent::Data { end } };
            assert_eq!(extents.at(at, end).unwrap(), run);
        }
    }

    #[test]
    fn a_file_without_holes_is_one_run() {
        let file = tempfile::tempfile().unwrap();
        file.write_all_at(&[1; 300_000], 0).unwrap();
        assert_eq!(runs(&file, 300_000), [300_000]);
        assert_eq!(data_bytes(&file).unwrap(), 300_000);
        assert_eq!(data_bytes(&tempfile::tempfile().unwrap()).unwrap(), 0);
    }

    #[test]
    fn a_file_that_became_shorter_has_no_hole_where_it_ends() {
        let Some(file) = sparse_file(4 * MIB, &[(0, b"x")]) else { return };
        let mut extents = Extents::of(&file).unwrap();
        file.set_len(2 * MIB).unwrap();
        let error = extents.at(MIB, 4 * MIB).unwrap_err();
        assert_eq!(error.kind(), io::ErrorKind::UnexpectedEof);
        assert_eq!(extents.at(MIB, 2 * MIB).unwrap(), Extent::Hole { end: 2 * MIB });
    }

    #[test]
    fn data_that_is_written_into_a_hole_meanwhile_is_met() {
        let Some(file) = sparse_file(4 * MIB, &[(0, &[1; MIB as usize])]) else { return };
        let mut extents = Extents::of(&file).unwrap();
        assert_eq!(extents.at(0, 4 * MIB).unwrap(), Extent::Data { end: MIB });
        file.write_all_at(&[2; MIB as usize], MIB).unwrap();
        assert_eq!(extents.at(MIB, 4 * MIB).unwrap(), Extent::Data { end: 2 * MIB });
    }
}
