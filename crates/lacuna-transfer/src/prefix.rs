//! Resuming: finds the longest prefix of a partial file that is also a prefix of the sender's file.
//!
//! The receiver hashes its partial file once and sends the hashes of several prefixes, the longest
//! being the whole file. The sender hashes its own file and takes the longest prefix with the same
//! hash. So the data of a source that has changed is never joined to old data; and if only the end
//! of the partial file is damaged (a power failure before it was on the disk), only the end is sent
//! again. Nothing about a partial file is stored beside it, so nothing can be out of date.

use super::digest::hash_zeros;
use super::extents::{Extent, Extents};
use super::wire::{Hash, PREFIXES_MAX, Prefix};
use blake3::Hasher;
use std::fs::File;
use std::io;
use std::os::unix::fs::FileExt;

/// Distance of the longest prefix from the next: file systems rarely lose more than this at the end
/// of a file.
const STEP_BYTES: u64 = 4 << 20;
/// Bytes read and hashed at a time; fits the second-level cache.
const READ_BYTES: usize = 1 << 20;

/// Prefix lengths to send for a partial file of `len_bytes`, ascending: all of it, and less by a
/// step that doubles.
pub(crate) fn offsets(len_bytes: u64) -> Vec<u64> {
    let mut offsets = Vec::new();
    if len_bytes > 0 {
        offsets.push(len_bytes);
        let steps = (0..PREFIXES_MAX as u32 - 1).map(|n| STEP_BYTES << n);
        offsets.extend(steps.map_while(|step| len_bytes.checked_sub(step).filter(|at| *at > 0)));
    }
    offsets.reverse();
    offsets
}

/// Reads a file once and calls `each` with the hasher at each of `offsets`, which rise, and with
/// the bytes of data (not holes) before that offset. Ends with an error of kind `Interrupted` when
/// `stop` returns true.
pub(crate) fn hash_prefixes(
    file: &File,
    offsets: impl IntoIterator<Item = u64>,
    stop: &dyn Fn() -> bool,
    mut at_offset: impl FnMut(u64, &Hasher, u64),
) -> io::Result<()> {
    let stopped = || io::Error::from(io::ErrorKind::Interrupted);
    let mut extents = Extents::of(file)?;
    let mut hasher = Hasher::new();
    let mut buffer = Vec::new();
    let (mut at, mut data_bytes) = (0, 0);
    for offset in offsets {
        while at < offset {
            if stop() {
                return Err(stopped());
            }
            let end = match extents.at(at, offset)? {
                Extent::Data { end } => end,
                Extent::Hole { end } if hash_zeros(&mut hasher, end - at, stop) => {
                    at = end;
                    continue;
                }
                Extent::Hole { .. } => return Err(stopped()),
            };
            let len = (end - at).min(READ_BYTES as u64) as usize;
            if buffer.len() < len {
                buffer.resize(len, 0);
            }
            file.read_exact_at(&mut buffer[..len], at)?;
            hasher.update(&buffer[..len]);
            at += len as u64;
            data_bytes += len as u64;
        }
        at_offset(offset, &hasher, data_bytes);
    }
    Ok(())
}

/// The hash of the first `len_bytes` of a file.
pub(crate) fn hash_of(file: &File, len_bytes: u64, stop: &dyn Fn() -> bool) -> io::Result<Hash> {
    let mut hash = Hash::default();
    hash_prefixes(file, [len_bytes], stop, |_, hasher, _| hash = hasher.finalize().into())?;
    Ok(hash)
}

/// The prefix that both ends have.
pub(crate) struct CommonPrefix {
    pub(crate) offset: u64,
    /// Bytes of it that are data.
    pub(crate) data_bytes: u64,
    /// The hasher after the prefix.
    pub(crate) hasher: Hasher,
}

/// The longest of the peer's prefixes that `file` also has; an empty one if there is none.
pub(crate) fn longest_common(
    file: &File,
    prefixes: &[Prefix],
    stop: &dyn Fn() -> bool,
) -> io::Result<CommonPrefix> {
    let mut best = CommonPrefix { offset: 0, data_bytes: 0, hasher: Hasher::new() };
    let mut index = 0;
    hash_prefixes(
        file,
        prefixes.iter().map(|prefix| prefix.offset),
        stop,
        |offset, hasher, data_bytes| {
            // Not constant-time: the hashes are no secret, both ends may know the bytes.
            if hasher.finalize() == prefixes[index].hash {
                best = CommonPrefix { offset, data_bytes, hasher: hasher.clone() };
            }
            index += 1;
        },
    )?;
    Ok(best)
}

/// Whether the peer's prefixes ascend and lie within a file of `size_bytes`.
pub(crate) fn are_valid(prefixes: &[Prefix], size_bytes: u64) -> bool {
    prefixes.windows(2).all(|pair| pair[0].offset < pair[1].offset)
        && prefixes.first().is_none_or(|prefix| prefix.offset > 0)
        && prefixes.last().is_none_or(|prefix| prefix.offset <= size_bytes)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::extents::tests::sparse_file;
    use std::io::Write;

    const NEVER: &dyn Fn() -> bool = &|| false;

    fn file(bytes: &[u8]) -> File {
        let mut file = tempfile::tempfile().unwrap();
        file.write_all(bytes).unwrap();
        file
    }

    fn prefixes_of(file: &File, len_bytes: u64) -> Vec<Prefix> {
        let mut prefixes = Vec::new();
        hash_prefixes(file, offsets(len_bytes), NEVER, |offset, hasher, _| {
            prefixes.push(Prefix { offset, hash: hasher.finalize().into() });
        })
        .unwrap();
        prefixes
    }

    #[test]
    fn offsets_rise_to_the_length_and_are_bounded() {
        assert!(offsets(0).is_empty());
        assert_eq!(offsets(1), [1]);
        assert_eq!(offsets(STEP_BYTES), [STEP_BYTES]);
        assert_eq!(offsets(10 << 20), [2 << 20, 6 << 20, 10 << 20]);
        for len in [1 << 30, 1 << 50, u64::MAX] {
            let offsets = offsets(len);
            assert!(offsets.len() <= PREFIXES_MAX);
            assert!(offsets.is_sorted_by(|a, b| a < b) && offsets.last() == Some(&len));
        }
    }

    #[test]
    fn the_longest_prefix_that_agrees_is_taken() {
        let whole: Vec<u8> = (0..20u32 << 20).map(|i| (i % 251) as u8).collect();
        let source = file(&whole);
        let partial = file(&whole[..18 << 20]);
        let prefixes = prefixes_of(&partial, 18 << 20);
        assert!(are_valid(&prefixes, whole.len() as u64));
        assert_eq!(longest_common(&source, &prefixes, NEVER).unwrap().offset, 18 << 20);
        // A bad end costs the end.
        partial.write_all_at(&[0xFF], (18 << 20) - 1).unwrap();
        let prefixes = prefixes_of(&partial, 18 << 20);
        let agreed = longest_common(&source, &prefixes, NEVER).unwrap();
        assert_eq!((agreed.offset, agreed.data_bytes), (14 << 20, 14 << 20));
        assert_eq!(agreed.hasher.finalize(), blake3::hash(&whole[..14 << 20]));
        // A bad beginning costs all.
        partial.write_all_at(&[0xFF], 0).unwrap();
        let prefixes = prefixes_of(&partial, 18 << 20);
        assert_eq!(longest_common(&source, &prefixes, NEVER).unwrap().offset, 0);
    }

    #[test]
    fn a_source_that_became_shorter_is_an_error_and_no_loop() {
        let prefixes = [Prefix { offset: 100, hash: [0; 32] }];
        let failed = |stop| longest_common(&file(b"short"), &prefixes, stop).err().unwrap().kind();
        assert_eq!(failed(NEVER), io::ErrorKind::UnexpectedEof);
        assert_eq!(failed(&|| true), io::ErrorKind::Interrupted);
    }

    #[test]
    fn a_hole_and_zeros_agree_whichever_end_has_which() {
        let whole = [vec![1; 1 << 20], vec![0; 6 << 20], vec![2; 1 << 20]].concat();
        let (begin, end) = whole.split_at(7 << 20);
        let data = [(0, &begin[..1 << 20]), (7 << 20, end)];
        let Some(sparse) = sparse_file(whole.len() as u64, &data) else { return };
        let dense = file(&whole);
        assert_eq!(blake3::hash(&whole), hash_of(&sparse, 8 << 20, NEVER).unwrap());
        for (here, there, data_bytes) in [(&sparse, &dense, 2 << 20), (&dense, &sparse, 8 << 20)] {
            let agreed = longest_common(here, &prefixes_of(there, 8 << 20), NEVER).unwrap();
            assert_eq!((agreed.offset, agreed.data_bytes), (8 << 20, data_bytes));
        }
        // Prefixes that end in the hole.
        let prefixes = prefixes_of(&dense, 5 << 20);
        let agreed = longest_common(&sparse, &prefixes, NEVER).unwrap();
        assert_eq!((agreed.offset, agreed.data_bytes), (5 << 20, 1 << 20));
        let stopped = hash_of(&sparse, 8 << 20, &|| true).unwrap_err();
        assert_eq!(stopped.kind(), io::ErrorKind::Interrupted);
    }

    #[test]
    fn prefixes_that_make_no_sense_are_seen() {
        let prefix = |offset| Prefix { offset, hash: [0; 32] };
        assert!(are_valid(&[], 0));
        assert!(!are_valid(&[prefix(0)], 9));
        assert!(!are_valid(&[prefix(5), prefix(5)], 9));
        assert!(!are_valid(&[prefix(5), prefix(4)], 9));
        assert!(!are_valid(&[prefix(5), prefix(10)], 9));
    }
}
