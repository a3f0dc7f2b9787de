//! Disk space: what the file system has free, less what is reserved for offered files.
//!
//! A file that does not fit is refused when it is offered: filling the disk with a part of it would
//! help nobody and keep smaller files out. Other programs write to the disk, too, so it may become
//! full in the middle of a file; the part received is kept then. All senders served at a time share
//! the space: each session reserves what it still needs.
//!
//! A hole needs no space, unless the file system has no holes and stores zeros.

use super::partial::Partial;
use crate::wire::Meta;
use lacuna_units::show_bytes;
use std::collections::BTreeMap;
use std::io;
use std::os::fd::AsFd;
use std::sync::{Mutex, MutexGuard, PoisonError};

/// Bytes reserved by the sessions of a receiver.
#[derive(Debug, Default)]
pub(crate) struct Promises(Mutex<Parts>);

#[derive(Debug, Default)]
struct Parts {
    /// Number of the next session.
    next: u64,
    /// By session.
    bytes: BTreeMap<u64, u64>,
}

/// One session's reservation; ends when it is dropped, or when the session is replaced.
#[derive(Debug)]
pub(crate) struct Promised<'a> {
    all: &'a Promises,
    number: u64,
}

impl Promises {
    pub(crate) fn part(&self) -> Promised<'_> {
        let mut parts = self.lock();
        let number = parts.next;
        parts.next += 1;
        parts.bytes.insert(number, 0);
        Promised { all: self, number }
    }

    /// Ends a reservation.
    pub(crate) fn end(&self, number: u64) {
        self.lock().bytes.remove(&number);
    }

    fn lock(&self) -> MutexGuard<'_, Parts> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Promised<'_> {
    /// The session's number.
    pub(crate) fn number(&self) -> u64 {
        self.number
    }

    /// Sets the bytes that the session still needs.
    pub(crate) fn set(&mut self, own_bytes: u64) {
        if let Some(part) = self.all.lock().bytes.get_mut(&self.number) {
            *part = own_bytes;
        }
    }

    /// Reserves space for a file, or says why there is none.
    pub(crate) fn add(
        &mut self,
        needed_bytes: u64,
        free_bytes: impl FnOnce() -> Option<u64>,
    ) -> Result<(), String> {
        let mut parts = self.all.lock();
        let promised_bytes =
            parts.bytes.values().fold(0, |sum: u64, part| sum.saturating_add(*part));
        // Query after adding up the reservations: bytes written in between count twice, which is
        // safe.
        if let Some(reason) = refusal(needed_bytes, promised_bytes, free_bytes()) {
            return Err(reason);
        }
        if let Some(part) = parts.bytes.get_mut(&self.number) {
            *part = part.saturating_add(needed_bytes);
        }
        Ok(())
    }
}

impl Drop for Promised<'_> {
    fn drop(&mut self) {
        self.all.end(self.number);
    }
}

/// Bytes still to be written of a file of which `here` exists.
pub(crate) fn missing_bytes(meta: Meta, here: Option<&Partial>, keeps_holes: bool) -> u64 {
    let (len_bytes, data_bytes) =
        here.map_or((0, 0), |partial| (partial.len_bytes(), partial.data_bytes()));
    let all_bytes = meta.size_bytes.saturating_sub(len_bytes);
    // With compression, the existing part may take less space than its data.
    let by_data_bytes = meta.data_bytes.saturating_sub(data_bytes);
    if keeps_holes { all_bytes.min(by_data_bytes) } else { all_bytes }
}

/// Whether the file system of `folder` stores holes; the others fill them with zeros.
pub(crate) fn keeps_holes(folder: impl AsFd) -> bool {
    #[cfg(any(target_os = "linux", target_os = "android"))]
    {
        // Magic numbers of FAT, exFAT, HFS+ and HFS (linux/magic.h and HFS's own headers).
        const WITHOUT: [u64; 4] = [0x4D44, 0x2011_BAB0, 0x482B, 0x4244];
        #[allow(clippy::unnecessary_cast, reason = "the width differs between processors")]
        let kind = rustix::fs::fstatfs(folder).map(|stat| stat.f_type as u64 & 0xFFFF_FFFF);
        kind.is_ok_and(|kind| !WITHOUT.contains(&kind))
    }
    #[cfg(not(any(target_os = "linux", target_os = "android")))]
    {
        let _ = folder;
        true
    }
}

/// Free bytes on the file system of `folder`; `None` if it does not report them.
pub(crate) fn free_bytes(folder: impl AsFd) -> Option<u64> {
    let stat = rustix::fs::fstatvfs(folder).ok()?;
    // Some network and user-space file systems report zeros.
    (stat.f_blocks > 0).then(|| stat.f_bavail.saturating_mul(stat.f_frsize))
}

/// Why a file that needs `needed_bytes` does not fit beside `promised_bytes`.
fn refusal(needed_bytes: u64, promised_bytes: u64, free_bytes: Option<u64>) -> Option<String> {
    let free_bytes = free_bytes?;
    let left_bytes = free_bytes.saturating_sub(promised_bytes);
    let missing_bytes = needed_bytes.checked_sub(left_bytes).filter(|missing| *missing > 0)?;
    let promised = match promised_bytes.min(free_bytes) {
        0 => String::new(),
        bytes => format!(", of which {} go to other files", show_bytes(bytes)),
    };
    Some(format!(
        "no space left for it: {} are missing, {} are free{promised}",
        show_bytes(missing_bytes),
        show_bytes(free_bytes),
    ))
}

/// Whether an error means that the disk or a quota is full.
pub(crate) fn is_full(error: &io::Error) -> bool {
    matches!(error.kind(), io::ErrorKind::StorageFull | io::ErrorKind::QuotaExceeded)
}

/// The report on a file of whose `data_bytes` only `kept_bytes` could be written.
pub(crate) fn full(
    error: &io::Error,
    data_bytes: u64,
    kept_bytes: u64,
    free_bytes: Option<u64>,
) -> String {
    // A quota does not show in the free space.
    let free_bytes = match error.kind() {
        io::ErrorKind::QuotaExceeded => 0,
        _ => free_bytes.unwrap_or(0),
    };
    let missing_bytes = data_bytes.saturating_sub(kept_bytes).saturating_sub(free_bytes);
    let kept = match kept_bytes {
        0 => String::new(),
        bytes => format!(", {} are kept and the same command resumes", show_bytes(bytes)),
    };
    format!("cannot write: {error}; {} are missing{kept}", show_bytes(missing_bytes))
}

#[cfg(test)]
mod tests {
    use super::super::tree::Tree;
    use super::*;
    use crate::name::Name;
    use crate::wire::{Kind, Time};

    #[test]
    fn a_file_is_refused_only_if_it_cannot_fit() {
        const MIB: u64 = 1 << 20;
        assert_eq!(refusal(5 * MIB, 0, Some(5 * MIB)), None);
        assert_eq!(refusal(0, 9 * MIB, Some(0)), None, "an empty file needs no room");
        assert_eq!(refusal(u64::MAX, u64::MAX, None), None, "nothing is known");
        assert_eq!(
            refusal(5 * MIB, 0, Some(3 * MIB)).unwrap(),
            "no space left for it: 2 MiB are missing, 3 MiB are free"
        );
        assert_eq!(
            refusal(3 * MIB, 4 * MIB, Some(6 * MIB)).unwrap(),
            "no space left for it: 1 MiB are missing, 6 MiB are free, of which 4 MiB go to other \
             files"
        );
        assert!(refusal(1, 9 * MIB, Some(MIB)).unwrap().contains("1 B are missing"));
    }

    #[test]
    fn sessions_share_the_room_until_they_have_brought_their_files_or_end() {
        let promises = Promises::default();
        let (mut one, mut other) = (promises.part(), promises.part());
        assert_eq!(one.add(8, || Some(10)), Ok(()));
        assert!(other.add(3, || Some(10)).unwrap_err().contains("8 B go to other files"));
        assert_eq!(other.add(2, || Some(10)), Ok(()));
        // Five are written.
        one.set(3);
        assert!(other.add(1, || Some(5)).is_err());
        drop(one);
        assert_eq!(other.add(3, || Some(5)), Ok(()));
    }

    #[test]
    fn a_session_that_was_replaced_holds_no_room_while_it_ends() {
        let promises = Promises::default();
        let mut old = promises.part();
        assert_eq!(old.add(8, || Some(10)), Ok(()));
        promises.end(old.number());
        let mut new = promises.part();
        assert_eq!(new.add(8, || Some(10)), Ok(()));
        // Its last words are of no weight.
        old.set(5);
        let _ = old.add(1, || Some(10));
        assert_eq!(new.add(2, || Some(10)), Ok(()));
        drop(old);
        assert!(new.add(1, || Some(10)).is_err());
    }

    #[test]
    fn a_full_disk_is_told_with_what_is_missing_and_kept() {
        let full_disk = io::Error::from(io::ErrorKind::StorageFull);
        let text = full(&full_disk, 10 << 20, 4 << 20, Some(1 << 20));
        assert!(text.contains("5 MiB are missing, 4 MiB are kept"), "{text}");
        let text = full(&full_disk, 10 << 20, 0, Some(0));
        assert!(text.ends_with("10 MiB are missing"), "{text}");
        let quota = io::Error::from(io::ErrorKind::QuotaExceeded);
        let text = full(&quota, 10 << 20, 4 << 20, Some(1 << 40));
        assert!(text.contains("6 MiB are missing, 4 MiB are kept"), "{text}");
        assert!(is_full(&quota) && is_full(&full_disk));
        assert!(!is_full(&io::ErrorKind::PermissionDenied.into()));
    }

    #[test]
    fn a_file_system_tells_what_is_free() {
        let dir = tempfile::tempdir().unwrap();
        assert!(free_bytes(std::fs::File::open(dir.path()).unwrap()).is_some());
    }

    #[test]
    fn a_hole_needs_room_only_where_it_is_filled() {
        const MIB: u64 = 1 << 20;
        let modified = Time { seconds: 0, nanos: 0 };
        let (kind, mode) = (Kind::File, 0o644);
        let meta = Meta { kind, mode, size_bytes: 100 * MIB, data_bytes: 3 * MIB, modified };
        assert_eq!(missing_bytes(meta, None, true), 3 * MIB);
        assert_eq!(missing_bytes(meta, None, false), 100 * MIB);
        let dir = tempfile::tempdir().unwrap();
        let folder = Tree::open(dir.path()).unwrap();
        assert!(keeps_holes(&*folder), "tests run where holes are kept");
        let name = Name::parse(b"f").unwrap();
        let mut partial = Partial::make(&folder, &name, &|| false).unwrap();
        partial.skip(50 * MIB);
        assert_eq!(missing_bytes(meta, Some(&partial), true), 3 * MIB);
        partial.write(&[1; MIB as usize]).unwrap();
        assert_eq!(missing_bytes(meta, Some(&partial), true), 2 * MIB);
        assert_eq!(missing_bytes(meta, Some(&partial), false), 49 * MIB);
        // The rest is a hole, though more data was said to come.
        partial.skip(48 * MIB + MIB / 2);
        assert_eq!(missing_bytes(meta, Some(&partial), true), MIB / 2);
    }
}
