#![allow(unsafe_code)]

use super::*;
use std::net::UdpSocket;
use std::os::fd::{AsRawFd, FromRawFd, IntoRawFd, OwnedFd};
use std::sync::Arc;
use std::sync::atomic::AtomicBool;

/// Runs `child` in a child process and returns its result.
fn forked(child: impl FnOnce() -> bool) -> bool {
    // SAFETY: the child runs code of this file that takes no lock which another test could hold, but
    // those of the memory allocator, which the C library frees in a child.
    match unsafe { libc::fork() } {
        0 => {
            let is_right = std::panic::catch_unwind(std::panic::AssertUnwindSafe(child));
            // SAFETY: ends the process.
            unsafe { libc::_exit(i32::from(!is_right.unwrap_or(false))) }
        }
        child => {
            let mut status = -1;
            // SAFETY: the status outlives the call.
            unsafe { libc::waitpid(child, &raw mut status, 0) };
            status == 0
        }
    }
}

#[test]
fn a_child_is_another_process_and_so_is_its_child() {
    let parent = Process::current();
    assert!(parent.is_current());
    assert_eq!(parent, Process::current());
    assert!(forked(|| {
        let was_noticed = !parent.is_current();
        let child = Process::current();
        let is_right = was_noticed && child != parent && child.is_current();
        is_right && forked(|| !parent.is_current() && !child.is_current())
    }));
    assert!(parent.is_current());
}

/// Forks by the system call, as `_Fork` and `clone` do: no `pthread_atfork` handler runs.
#[test]
fn a_child_made_without_the_c_library_is_noticed() {
    let parent = Process::current();
    // SAFETY: as `fork`, by its system call; the child only loads and exits.
    let child = unsafe { libc::syscall(libc::SYS_clone, libc::SIGCHLD, 0, 0, 0, 0) };
    if child == 0 {
        let is_right = !parent.is_current();
        // SAFETY: ends the process.
        unsafe { libc::_exit(i32::from(!is_right)) };
    }
    let mut status = -1;
    // SAFETY: the status outlives the call.
    unsafe { libc::waitpid(child as i32, &raw mut status, 0) };
    assert_eq!(status, 0);
}

#[test]
fn an_inherited_value_is_dropped_in_the_parent_alone() {
    struct Ends(Arc<AtomicBool>);
    impl Drop for Ends {
        fn drop(&mut self) {
            self.0.store(true, Ordering::Relaxed);
        }
    }
    let has_ended = Arc::new(AtomicBool::new(false));
    let own = Own::new(Ends(has_ended.clone()));
    assert!(!own.is_inherited());
    let mut own = Some(own);
    assert!(forked(|| {
        let inherited = own.take().expect("it was made");
        let is_noticed = inherited.is_inherited();
        drop(inherited);
        let later = Own::new(Ends(has_ended.clone()));
        let has_ended_early = has_ended.load(Ordering::Relaxed);
        drop(later);
        is_noticed && !has_ended_early && has_ended.load(Ordering::Relaxed)
    }));
    assert!(!has_ended.load(Ordering::Relaxed));
    drop(own);
    assert!(has_ended.load(Ordering::Relaxed));
}

#[test]
fn a_child_closes_what_it_has_inherited_and_nothing_else() {
    let noted = UdpSocket::bind("127.0.0.1:0").unwrap();
    descriptors::note(&noted);
    // The child reuses this number for another socket.
    let replaced = UdpSocket::bind("127.0.0.1:0").unwrap();
    descriptors::note(&replaced);
    let given_away = UdpSocket::bind("127.0.0.1:0").unwrap();
    descriptors::note(&given_away);
    descriptors::forget(&given_away);
    let foreign = UdpSocket::bind("127.0.0.1:0").unwrap();
    let is_open = |number| syscall::identity(number).is_some();
    let numbers = [&noted, &replaced, &given_away, &foreign].map(AsRawFd::as_raw_fd);
    assert!(forked(|| {
        // SAFETY: taken from the one that had it.
        let number = replaced.into_raw_fd();
        let other = UdpSocket::bind("127.0.0.1:0").unwrap();
        // SAFETY: both are open.
        unsafe { libc::dup2(other.as_raw_fd(), number) };
        let own = UdpSocket::bind("127.0.0.1:0").unwrap();
        descriptors::note(&own);
        descriptors::close_inherited();
        let are_open = numbers.map(is_open);
        // It is closed, so it must not be closed again.
        std::mem::forget(noted);
        // SAFETY: its owner has let go of it.
        drop(unsafe { OwnedFd::from_raw_fd(number) });
        are_open == [false, true, true, true] && is_open(own.as_raw_fd())
    }));
    // The closure owned the others.
    descriptors::close_inherited();
    assert!(is_open(numbers[2]) && is_open(numbers[3]));
}

#[test]
fn each_process_has_a_value_of_its_own() {
    static VALUE: PerProcess<AtomicU64> = PerProcess::new();
    let value = VALUE.get_or_make(|| AtomicU64::new(1));
    assert!(std::ptr::eq(value, VALUE.get_or_make(|| unreachable!("it is made"))));
    assert!(forked(|| {
        let own = VALUE.get_or_make(|| AtomicU64::new(2));
        let is_made = own.load(Ordering::Relaxed) == 2 && value.load(Ordering::Relaxed) == 1;
        is_made && std::ptr::eq(own, VALUE.get_or_make(|| unreachable!("it is made")))
    }));
    assert_eq!(VALUE.get_or_make(|| unreachable!("it is made")).load(Ordering::Relaxed), 1);
}
