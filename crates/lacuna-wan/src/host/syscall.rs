//! The Linux system calls for hosts that have no safe wrapper: `fork`, `unshare`, the `ioctl`s of TUN
//! devices, `wait4` with usage, and the hook between `fork` and `exec`.
//!
//! Code between `fork` and `exec`, or in a child that never calls `exec`, may only call functions that
//! are safe in a signal handler: other threads of the parent may have held locks, such as the heap's,
//! during the fork. So nothing called from there allocates.

#![allow(unsafe_code)]

use std::os::fd::{AsRawFd, BorrowedFd, OwnedFd, RawFd};
use std::os::unix::process::CommandExt;
use std::process::Command;
use std::time::Duration;
use std::{io, mem};

use rustix::io::Errno;
use rustix::process::Pid;
use rustix::thread::{LinkNameSpaceType, UnshareFlags, move_into_link_name_space};

/// Ends the process when dropped, so that a panic in a forked child does not run into the code of
/// its parent.
struct NeverReturn;

impl Drop for NeverReturn {
    fn drop(&mut self) {
        // SAFETY: it takes no pointer, and may be called after fork.
        unsafe { libc::_exit(70) }
    }
}

/// Forks a child that runs `child` and ends. `child` must not allocate (see the module's text).
pub(super) fn fork(child: impl FnOnce()) -> io::Result<Pid> {
    // SAFETY: the child does nothing but run `child`, whose callers keep to what may be called after
    // fork, and ends without unwinding or running destructors of the parent.
    let pid = unsafe { libc::fork() };
    match pid {
        -1 => Err(io::Error::last_os_error()),
        0 => {
            let end = NeverReturn;
            child();
            drop(end);
            unreachable!("the process has ended")
        }
        pid => Pid::from_raw(pid).ok_or_else(|| io::Error::other("fork returned no process")),
    }
}

/// Ignores the signals that a terminal or a service manager sends to all its processes, whatever
/// handlers were inherited.
pub(super) fn ignore_signals() {
    for signal in [libc::SIGINT, libc::SIGTERM, libc::SIGHUP, libc::SIGQUIT, libc::SIGPIPE] {
        // SAFETY: it installs no handler.
        unsafe { libc::signal(signal, libc::SIG_IGN) };
    }
}

/// Closes all file descriptors from this one on.
pub(super) fn close_from(first: libc::c_uint) {
    // SAFETY: called in a forked child that has no object left which believes to own one of them;
    // the call takes numbers only.
    let result = unsafe { libc::syscall(libc::SYS_close_range, first, libc::c_uint::MAX, 0) };
    if result != 0 {
        // Before Linux 5.9. 1024 is the usual limit.
        for fd in first..1024 {
            // SAFETY: as above.
            unsafe { libc::close(fd as RawFd) };
        }
    }
}

/// `dup2` onto a number that no object owns.
pub(super) fn duplicate_onto(fd: BorrowedFd<'_>, number: RawFd) -> Result<(), Errno> {
    // SAFETY: called in a forked child, where nothing uses the old descriptor of that number.
    if unsafe { libc::dup2(fd.as_raw_fd(), number) } < 0 { Err(last_errno()) } else { Ok(()) }
}

/// Puts the calling thread, the only one of its process, into new namespaces.
pub(super) fn unshare(flags: UnshareFlags) -> Result<(), Errno> {
    debug_assert!(!flags.contains(UnshareFlags::FILES), "that would need more care");
    // SAFETY: the flag that makes it unsafe, FILES, is not given.
    unsafe { rustix::thread::unshare_unsafe(flags) }
}

fn last_errno() -> Errno {
    Errno::from_raw_os_error(io::Error::last_os_error().raw_os_error().unwrap_or(libc::EIO))
}

/// Makes a TUN device of this name, or a TAP device, with the header of [`crate::bundle`] and no other.
pub(super) fn tun_create(tun: BorrowedFd<'_>, device: &str, is_tap: bool) -> Result<(), Errno> {
    // SAFETY: an ifreq is integers, arrays of them and null pointers.
    let mut request: libc::ifreq = unsafe { mem::zeroed() };
    // The last byte stays 0.
    for (place, byte) in request.ifr_name[..libc::IFNAMSIZ - 1].iter_mut().zip(device.bytes()) {
        *place = byte as libc::c_char;
    }
    let kind = if is_tap { libc::IFF_TAP } else { libc::IFF_TUN };
    request.ifr_ifru.ifru_flags = (kind | libc::IFF_NO_PI | libc::IFF_VNET_HDR) as _;
    // SAFETY: the operation reads and writes an ifreq, which outlives the call.
    let result = unsafe { libc::ioctl(tun.as_raw_fd(), libc::TUNSETIFF as _, &raw mut request) };
    if result < 0 { Err(last_errno()) } else { Ok(()) }
}

/// Allows the kernel to pass bundles and incomplete checksums to the TUN or TAP device; `Ok(false)` if it
/// cannot pass UDP bundles (Linux 6.2).
pub(super) fn tun_offload(tun: BorrowedFd<'_>) -> Result<bool, Errno> {
    let tcp = libc::TUN_F_CSUM | libc::TUN_F_TSO4 | libc::TUN_F_TSO6 | libc::TUN_F_TSO_ECN;
    for (flags, has_udp) in [(tcp | libc::TUN_F_USO4 | libc::TUN_F_USO6, true), (tcp, false)] {
        // SAFETY: the operation takes the flags as its argument, no pointer.
        let result = unsafe {
            libc::ioctl(tun.as_raw_fd(), libc::TUNSETOFFLOAD as _, libc::c_ulong::from(flags))
        };
        if result == 0 {
            return Ok(has_udp);
        }
    }
    Err(last_errno())
}

/// The namespaces of a host, as descriptors.
#[derive(Debug)]
pub(super) struct Namespaces {
    /// `None` if the host is in this process' own user namespace.
    pub(super) user: Option<OwnedFd>,
    pub(super) net: OwnedFd,
}

impl Namespaces {
    fn enter(&self) -> Result<(), Errno> {
        use std::os::fd::AsFd;
        if let Some(user) = &self.user {
            move_into_link_name_space(user.as_fd(), Some(LinkNameSpaceType::User))?;
        }
        move_into_link_name_space(self.net.as_fd(), Some(LinkNameSpaceType::Network))?;
        // `/sys` shows the devices of the network namespace that it was mounted in, so it is mounted
        // anew. Where that is not allowed, programs see the outer devices, as with other tools.
        if unshare(UnshareFlags::NEWNS).is_ok() {
            use rustix::mount::{MountFlags, MountPropagationFlags, mount, mount_change};
            let private = MountPropagationFlags::DOWNSTREAM | MountPropagationFlags::REC;
            let _ = mount_change(c"/", private).and_then(|()| {
                let flags = MountFlags::NOSUID | MountFlags::NODEV | MountFlags::NOEXEC;
                mount(c"sysfs", c"/sys", c"sysfs", flags, None)
            });
        }
        Ok(())
    }
}

/// Makes a program start in these namespaces.
pub(super) fn start_in(command: &mut Command, namespaces: Namespaces) {
    let enter = move || Ok(namespaces.enter()?);
    // SAFETY: entering is system calls with numbers and static strings, without allocation.
    unsafe { command.pre_exec(enter) };
}

/// Exit status and resource usage of a child.
#[derive(Clone, Copy, Debug)]
pub(super) struct Ended {
    /// The status as `waitpid` has it.
    pub(super) status: i32,
    pub(super) user: Duration,
    pub(super) system: Duration,
    pub(super) memory_kib_max: u64,
}

/// Takes the status of a child; `None` when it still runs.
pub(super) fn take_status(child: Pid) -> io::Result<Option<Ended>> {
    let mut status = 0;
    // SAFETY: a rusage is integers.
    let mut usage: libc::rusage = unsafe { mem::zeroed() };
    let pid = child.as_raw_nonzero().get();
    // SAFETY: both pointers are to locals that outlive the call.
    let result = unsafe { libc::wait4(pid, &raw mut status, libc::WNOHANG, &raw mut usage) };
    let time = |time: libc::timeval| {
        Duration::from_secs(time.tv_sec.max(0) as u64) + Duration::from_micros(time.tv_usec as u64)
    };
    match result {
        0 => Ok(None),
        -1 => Err(io::Error::last_os_error()),
        _ => Ok(Some(Ended {
            status,
            user: time(usage.ru_utime),
            system: time(usage.ru_stime),
            memory_kib_max: usage.ru_maxrss.max(0) as u64,
        })),
    }
}
