//! Memory for messages, checked before the work begins: a lack of it is a one-line error and not an
//! abort in the middle.

use crate::failure::Failure;
use crate::units::show_bytes;

/// Part of the free memory that messages may use, in eighths; the rest is for sockets, packets in
/// flight and other programs (a judgement).
const USABLE_EIGHTHS: u64 = 7;

/// Fails if this host lacks `needed_bytes`. `what` needs them, `advice` says how to need less.
pub(crate) fn check(needed_bytes: u64, what: &str, advice: &str) -> Result<(), Failure> {
    check_against(needed_bytes, usable_bytes(), what, advice)
}

fn check_against(
    needed_bytes: u64,
    usable_bytes: Option<u64>,
    what: &str,
    advice: &str,
) -> Result<(), Failure> {
    match usable_bytes {
        Some(usable_bytes) if needed_bytes > usable_bytes => Err(Failure::Local(format!(
            "{what} would take {} of memory, and {} can be had here: {advice}",
            show_bytes(needed_bytes),
            show_bytes(usable_bytes),
        ))),
        _ => Ok(()),
    }
}

/// Memory that messages may use; `None` if the system does not report free memory.
fn usable_bytes() -> Option<u64> {
    let text = std::fs::read_to_string("/proc/meminfo").ok()?;
    Some(free_bytes(&text)? / 8 * USABLE_EIGHTHS)
}

/// The kernel's estimate of memory available without swapping (proc(5)).
fn free_bytes(meminfo: &str) -> Option<u64> {
    let line = meminfo.lines().find_map(|line| line.strip_prefix("MemAvailable:"))?;
    let kib: u64 = line.trim().strip_suffix("kB")?.trim().parse().ok()?;
    kib.checked_mul(1024)
}

/// A zeroed buffer whose pages exist already.
pub(crate) fn zeroed(len: usize) -> Result<Vec<u8>, Failure> {
    let mut buffer = reserved(len)?;
    buffer.resize(len, 0);
    Ok(buffer)
}

/// An empty buffer with capacity, whose pages exist only once it is filled.
pub(crate) fn reserved(len: usize) -> Result<Vec<u8>, Failure> {
    let mut buffer = Vec::new();
    buffer.try_reserve_exact(len).map_err(|_| {
        Failure::Local(format!("the system refused {} of memory", show_bytes(len as u64)))
    })?;
    Ok(buffer)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_free_memory_is_read_as_the_system_writes_it() {
        let text = "MemTotal:       24000000 kB\nMemAvailable:   16000000 kB\nBuffers: 1 kB\n";
        assert_eq!(free_bytes(text), Some(16_000_000 * 1024));
        assert_eq!(free_bytes("MemTotal: 1 kB\n"), None);
        assert_eq!(free_bytes("MemAvailable: many kB\n"), None);
    }

    #[test]
    fn too_much_is_refused_with_both_numbers() {
        let check = |needed, usable| check_against(needed, usable, "it", "take less");
        assert!(check(1 << 30, Some(1 << 30)).is_ok());
        assert!(check(u64::MAX, None).is_ok(), "the allocation itself decides");
        let error = check(2 << 40, Some(3 << 30)).expect_err("more than there is").to_string();
        assert_eq!(error, "it would take 2 TiB of memory, and 3 GiB can be had here: take less");
    }

    #[test]
    fn an_impossible_buffer_is_an_error() {
        assert!(zeroed(usize::MAX / 2).is_err());
        assert_eq!(zeroed(3).expect("three bytes"), [0; 3]);
    }
}
