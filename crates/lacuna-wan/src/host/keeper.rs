//! The keeper: a process that makes a host and cleans it up.
//!
//! A host is a network namespace with one TUN device, or a TAP device in a LAN. Only a single-threaded process may enter a user
//! namespace, and namespaces belong to a thread; so a forked child makes them and passes the descriptors
//! back over a socket. The child stays in the host and waits until the other end of the socket is
//! closed: by the host's owner, or by the kernel when that process dies. Then it kills all processes in
//! the host and ends; the kernel removes the namespaces with the last process and descriptor. The
//! namespaces have no names, so none can be left over.
//!
//! The child runs no code that allocates (see [`super::syscall`]).

use std::ffi::{CStr, CString};
use std::io::{self, IoSlice, IoSliceMut};
use std::mem::MaybeUninit;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::os::unix::net::UnixStream;

use rustix::fs::{AtFlags, CWD, Mode, OFlags, RawDir, open, openat, statat};
use rustix::io::{Errno, read, write};
use rustix::net::netdevice::name_to_index;
use rustix::net::{
    AddressFamily, RecvAncillaryBuffer, RecvAncillaryMessage, RecvFlags, SendAncillaryBuffer,
    SendAncillaryMessage, SendFlags, SocketType, recvmsg, sendmsg, socket,
};
use rustix::process::{
    Pid, PidfdFlags, Signal, WaitOptions, getpid, pidfd_open, pidfd_send_signal, setsid, waitpid,
};
use rustix::thread::{LinkNameSpaceType, UnshareFlags, move_into_link_name_space};

use super::{HostError, netlink, syscall};
use crate::bundle::ethernet::Mac;

const LOOPBACK: &str = "lo";

/// Queue of the device: longer than a program sends while the emulator sleeps, and too short to act as a
/// queue of the path (a judgement).
const DEVICE_QUEUE_FRAMES: u32 = 2048;

/// Descriptors that a keeper passes back: the device, and its namespaces.
const FDS: usize = 3;

/// The IPv4 networks whose packets a LAN takes besides its own: groups, and all hosts (RFC 1112, RFC 919).
const GROUPS: [(Ipv4Addr, u8); 2] =
    [(Ipv4Addr::new(224, 0, 0, 0), 4), (Ipv4Addr::new(255, 255, 255, 255), 32)];

/// The device that leads out of a host.
#[derive(Clone, Copy, Debug)]
pub(super) enum Device {
    /// A TUN device that leads to one other host.
    Path,
    /// A TAP device that leads to a switch.
    Lan {
        mac: Mac,
        broadcast: Ipv4Addr,
        /// Neighbour discovery and group membership of IPv6 are spoken from such an address.
        link_local: Ipv6Addr,
    },
}

impl Device {
    /// Its name in the host.
    pub(super) const fn name(&self) -> &'static str {
        match self {
            Self::Path => "wan0",
            Self::Lan { .. } => "lan0",
        }
    }
}

/// The settings of a host, prepared before the fork.
#[derive(Debug)]
pub(super) struct Plan {
    pub(super) device: Device,
    pub(super) ipv4: Ipv4Addr,
    pub(super) ipv4_prefix_bits: u8,
    pub(super) ipv6: Ipv6Addr,
    pub(super) ipv6_prefix_bits: u8,
    pub(super) mtu_bytes: u32,
    /// Whether the kernel may hand over bundles.
    pub(super) offload: bool,
    /// Files below `/proc/sys` and their values, to be written when the device exists.
    pub(super) sysctls: Vec<(CString, Vec<u8>)>,
    /// Lines for `/proc/self/uid_map` and `gid_map`: the user is root in the host.
    pub(super) uid_map: Vec<u8>,
    pub(super) gid_map: Vec<u8>,
}

/// The steps of making a host, for errors.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u8)]
pub(super) enum Step {
    Session,
    Namespace,
    UserMap,
    OpenTun,
    CreateTun,
    Offload,
    Sysctl,
    Netlink,
    Address,
    Route,
    Up,
    HandOver,
}

impl Step {
    const ALL: [Self; 12] = [
        Self::Session,
        Self::Namespace,
        Self::UserMap,
        Self::OpenTun,
        Self::CreateTun,
        Self::Offload,
        Self::Sysctl,
        Self::Netlink,
        Self::Address,
        Self::Route,
        Self::Up,
        Self::HandOver,
    ];

    /// The step as part of a sentence, after "cannot".
    pub(super) fn what(self) -> &'static str {
        match self {
            Self::Session => "start its keeper",
            Self::Namespace => "make its namespaces",
            Self::UserMap => "map its user",
            Self::OpenTun => "open /dev/net/tun",
            Self::CreateTun => "make a TUN or TAP device",
            Self::Offload => "set the offloads of a TUN or TAP device",
            Self::Sysctl => "set a sysctl",
            Self::Netlink => "reach its devices",
            Self::Address => "set an address",
            Self::Route => "set a route",
            Self::Up => "bring a device up",
            Self::HandOver => "hand its descriptors over",
        }
    }
}

/// An error in the child.
#[derive(Clone, Copy, Debug)]
struct Failure {
    step: Step,
    errno: Errno,
    /// Index of the plan's sysctl.
    sysctl: u8,
}

impl Failure {
    fn at(step: Step) -> impl FnOnce(Errno) -> Self {
        move |errno| Self { step, errno, sysctl: 0 }
    }
}

/// The properties of a host that was made.
#[derive(Clone, Copy, Debug, Default)]
struct Made {
    has_user_namespace: bool,
    has_udp_offload: bool,
    has_ipv6: bool,
}

/// A keeper, seen from the process that started it.
#[derive(Debug)]
pub(super) struct Keeper {
    pid: Pid,
    /// Closing it ends the host.
    socket: Option<UnixStream>,
    pub(super) tun: Option<OwnedFd>,
    pub(super) net: OwnedFd,
    /// `None` if the host is in this process' own user namespace.
    pub(super) user: Option<OwnedFd>,
    pub(super) has_udp_offload: bool,
    pub(super) has_ipv6: bool,
}

impl Keeper {
    /// Makes a host, which shares the user namespace `neighbour` if there is one.
    pub(super) fn start(plan: &Plan, neighbour: Option<BorrowedFd<'_>>) -> Result<Self, HostError> {
        let (own, theirs) = UnixStream::pair().map_err(HostError::Keeper)?;
        let pid = syscall::fork(|| run_child(theirs.as_fd(), plan, neighbour))
            .map_err(HostError::Keeper)?;
        drop(theirs);
        let (answer, fds) = match receive_answer(&own) {
            Ok(answer) => answer,
            Err(error) => {
                drop(own);
                let _ = waitpid(Some(pid), WaitOptions::empty());
                return Err(HostError::Keeper(error));
            }
        };
        let ([Some(tun), Some(net), user], Answer::Made(made)) = (fds, answer) else {
            drop(own);
            let _ = waitpid(Some(pid), WaitOptions::empty());
            return Err(match answer {
                Answer::Failure(failure) => HostError::at(failure.step, failure.errno, || {
                    let sysctl = plan.sysctls.get(usize::from(failure.sysctl));
                    sysctl.map(|(path, _)| path.to_string_lossy().into_owned()).unwrap_or_default()
                }),
                // The kernel omits descriptors beyond this process' limit.
                Answer::Made(_) => HostError::Keeper(Errno::MFILE.into()),
            });
        };
        Ok(Self {
            pid,
            socket: Some(own),
            tun: Some(tun),
            net,
            user: if made.has_user_namespace { user } else { None },
            has_udp_offload: made.has_udp_offload,
            has_ipv6: made.has_ipv6,
        })
    }

    pub(super) fn pid(&self) -> Pid {
        self.pid
    }
}

impl Drop for Keeper {
    /// Returns when no process is left in the host.
    fn drop(&mut self) {
        self.socket = None;
        let _ = waitpid(Some(self.pid), WaitOptions::empty());
    }
}

/// The keeper's answer: the host was made, or why not.
#[derive(Clone, Copy, Debug)]
enum Answer {
    Made(Made),
    Failure(Failure),
}

/// Bytes of an answer: its kind, then flags or step, sysctl and error number.
const ANSWER_BYTES: usize = 8;

impl Answer {
    fn to_bytes(self) -> [u8; ANSWER_BYTES] {
        match self {
            Self::Made(made) => {
                let flags = [made.has_user_namespace, made.has_udp_offload, made.has_ipv6];
                let [user, udp, ipv6] = flags.map(u8::from);
                [1, user, udp, ipv6, 0, 0, 0, 0]
            }
            Self::Failure(failure) => {
                let [a, b, c, d] = failure.errno.raw_os_error().to_ne_bytes();
                [0, failure.step as u8, failure.sysctl, 0, a, b, c, d]
            }
        }
    }

    fn from_bytes(bytes: [u8; ANSWER_BYTES]) -> Option<Self> {
        let [kind, x, y, z, errno @ ..] = bytes;
        if kind == 1 {
            return Some(Self::Made(Made {
                has_user_namespace: x == 1,
                has_udp_offload: y == 1,
                has_ipv6: z == 1,
            }));
        }
        let errno = Errno::from_raw_os_error(i32::from_ne_bytes(errno));
        let step = *Step::ALL.iter().find(|step| **step as u8 == x)?;
        Some(Self::Failure(Failure { step, errno, sysctl: y }))
    }
}

/// Receives a keeper's answer and the descriptors with it.
fn receive_answer(socket: &UnixStream) -> io::Result<(Answer, [Option<OwnedFd>; FDS])> {
    let mut bytes = [0; ANSWER_BYTES];
    let mut space = [MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(FDS))];
    let mut control = RecvAncillaryBuffer::new(&mut space);
    let flags = RecvFlags::CMSG_CLOEXEC | RecvFlags::WAITALL;
    let received = loop {
        match recvmsg(socket, &mut [IoSliceMut::new(&mut bytes)], &mut control, flags) {
            Err(Errno::INTR) => {}
            other => break other?.bytes,
        }
    };
    let mut fds = [const { None }; FDS];
    for message in control.drain() {
        if let RecvAncillaryMessage::ScmRights(rights) = message {
            for (place, fd) in fds.iter_mut().zip(rights) {
                *place = Some(fd);
            }
        }
    }
    if received != ANSWER_BYTES {
        return Err(io::Error::other("it ended without an answer"));
    }
    let answer = Answer::from_bytes(bytes);
    answer.map(|answer| (answer, fds)).ok_or_else(|| io::Error::other("its answer is unknown"))
}

// From here on: code of the child.

/// The main function of the child.
fn run_child(socket: BorrowedFd<'_>, plan: &Plan, neighbour: Option<BorrowedFd<'_>>) {
    syscall::ignore_signals();
    let _ = rustix::thread::set_name(c"lacuna-wan-host");
    // The socket becomes descriptor 0, and all other inherited ones are closed: the keeper must not
    // keep pipes and files of its parent open.
    if syscall::duplicate_onto(socket, 0).is_err() {
        return;
    }
    let socket = rustix::stdio::stdin();
    match enter_namespaces(neighbour, plan).and_then(|has_user| make(plan, has_user)) {
        Ok((made, tun, net, user)) => {
            let home = rustix::fs::fstat(&net).map(|stat| (stat.st_dev, stat.st_ino));
            if answer(socket, Answer::Made(made), &[tun.as_fd(), net.as_fd(), user.as_fd()])
                .is_err()
            {
                return;
            }
            drop((tun, net, user));
            wait_for_end(socket);
            if let Ok(home) = home {
                kill_all_in(home);
            }
        }
        Err(failure) => {
            let _ = answer(socket, Answer::Failure(failure), &[]);
        }
    }
}

/// Enters new namespaces; returns whether a user namespace is among them.
fn enter_namespaces(neighbour: Option<BorrowedFd<'_>>, plan: &Plan) -> Result<bool, Failure> {
    setsid().map_err(Failure::at(Step::Session))?;
    let namespace = |errno| Failure { step: Step::Namespace, errno, sysctl: 0 };
    let has_user = if let Some(neighbour) = neighbour {
        move_into_link_name_space(neighbour, Some(LinkNameSpaceType::User)).map_err(namespace)?;
        syscall::unshare(UnshareFlags::NEWNET).map_err(namespace)?;
        true
    } else if syscall::unshare(UnshareFlags::NEWNET).is_ok() {
        false
    } else {
        syscall::unshare(UnshareFlags::NEWUSER | UnshareFlags::NEWNET).map_err(namespace)?;
        // Without this a user may not map a group (user_namespaces(7)).
        write_file(c"/proc/self/setgroups", b"deny").map_err(Failure::at(Step::UserMap))?;
        write_file(c"/proc/self/uid_map", &plan.uid_map).map_err(Failure::at(Step::UserMap))?;
        write_file(c"/proc/self/gid_map", &plan.gid_map).map_err(Failure::at(Step::UserMap))?;
        true
    };
    syscall::close_from(1);
    Ok(has_user)
}

/// Makes the device and returns its descriptor and those of the namespaces.
fn make(plan: &Plan, has_user: bool) -> Result<(Made, OwnedFd, OwnedFd, OwnedFd), Failure> {
    // No automatic IPv6 addresses: their packets would be subject to loss and so change which packets
    // of the programs are lost.
    let _ = write_file(c"/proc/sys/net/ipv6/conf/default/addr_gen_mode", b"1");
    // Nor questions for routers, which a LAN does not have.
    let _ = write_file(c"/proc/sys/net/ipv6/conf/default/accept_ra", b"0");
    let flags = OFlags::RDWR | OFlags::NONBLOCK | OFlags::CLOEXEC;
    let tun = open(c"/dev/net/tun", flags, Mode::empty()).map_err(Failure::at(Step::OpenTun))?;
    let name = plan.device.name();
    let lan = match plan.device {
        Device::Path => None,
        Device::Lan { mac, broadcast, link_local } => Some((mac, broadcast, link_local)),
    };
    syscall::tun_create(tun.as_fd(), name, lan.is_some()).map_err(Failure::at(Step::CreateTun))?;
    let has_udp_offload = match plan.offload {
        true => syscall::tun_offload(tun.as_fd()).map_err(Failure::at(Step::Offload))?,
        false => false,
    };
    for (index, (path, value)) in plan.sysctls.iter().enumerate() {
        write_file(path, value).map_err(|errno| Failure {
            step: Step::Sysctl,
            errno,
            sysctl: index as u8,
        })?;
    }
    let netlink = netlink::open().map_err(Failure::at(Step::Netlink))?;
    let netlink = netlink.as_fd();
    let device = device_index(name).map_err(Failure::at(Step::Netlink))?;
    let loopback = device_index(LOOPBACK).map_err(Failure::at(Step::Netlink))?;
    netlink::bring_up(netlink, loopback, None, None).map_err(Failure::at(Step::Up))?;
    let sizes = Some((plan.mtu_bytes, DEVICE_QUEUE_FRAMES));
    netlink::bring_up(netlink, device, sizes, lan.map(|(mac, ..)| mac))
        .map_err(Failure::at(Step::Up))?;
    let (ipv4, broadcast) = (IpAddr::V4(plan.ipv4), lan.map(|(_, broadcast, _)| broadcast));
    netlink::add_address(netlink, device, ipv4, plan.ipv4_prefix_bits, broadcast)
        .map_err(Failure::at(Step::Address))?;
    // The kernel may lack IPv6, and a device with an MTU below 1280 has none.
    let mut has_ipv6 = true;
    for address in [lan.map(|(.., link_local)| link_local), Some(plan.ipv6)].into_iter().flatten() {
        let address = IpAddr::V6(address);
        has_ipv6 &=
            netlink::add_address(netlink, device, address, plan.ipv6_prefix_bits, None).is_ok();
    }
    if lan.is_some() {
        for (network, prefix_bits) in GROUPS {
            netlink::add_route(netlink, device, network, prefix_bits)
                .map_err(Failure::at(Step::Route))?;
        }
    }
    let link = |path| {
        open(path, OFlags::RDONLY | OFlags::CLOEXEC, Mode::empty())
            .map_err(Failure::at(Step::HandOver))
    };
    let (net, user) = (link(c"/proc/self/ns/net")?, link(c"/proc/self/ns/user")?);
    Ok((Made { has_user_namespace: has_user, has_udp_offload, has_ipv6 }, tun, net, user))
}

fn device_index(device: &str) -> Result<u32, Errno> {
    // The ioctl works on any socket.
    let socket = socket(AddressFamily::UNIX, SocketType::DGRAM, None)?;
    name_to_index(&socket, device)
}

fn write_file(path: &CStr, content: &[u8]) -> Result<(), Errno> {
    let file = open(path, OFlags::WRONLY | OFlags::CLOEXEC, Mode::empty())?;
    write(&file, content).map(drop)
}

fn answer(socket: BorrowedFd<'_>, answer: Answer, fds: &[BorrowedFd<'_>]) -> Result<(), Errno> {
    let bytes = answer.to_bytes();
    let mut space = [MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(FDS))];
    let mut control = SendAncillaryBuffer::new(&mut space);
    if !fds.is_empty() {
        control.push(SendAncillaryMessage::ScmRights(fds));
    }
    sendmsg(socket, &[IoSlice::new(&bytes)], &mut control, SendFlags::NOSIGNAL).map(drop)
}

/// Returns when the other end of the socket is closed.
fn wait_for_end(socket: BorrowedFd<'_>) {
    let mut byte = [0];
    // The other end never sends a byte.
    while matches!(read(socket, &mut byte), Ok(1..) | Err(Errno::INTR)) {}
}

/// Most scans for processes in a host: processes that fork while they are killed need more than one (a
/// judgement).
const ROUNDS_MAX: usize = 1000;

/// Kills all processes in the network namespace except the caller.
fn kill_all_in(home: (u64, u64)) {
    for _ in 0..ROUNDS_MAX {
        if matches!(kill_round(home), Ok(0) | Err(_)) {
            return;
        }
    }
}

/// Scans all processes once; returns how many were killed.
fn kill_round(home: (u64, u64)) -> Result<usize, Errno> {
    let flags = OFlags::RDONLY | OFlags::DIRECTORY | OFlags::CLOEXEC;
    let processes = openat(CWD, c"/proc", flags, Mode::empty())?;
    let mut buffer = [MaybeUninit::uninit(); 8192];
    let mut entries = RawDir::new(&processes, &mut buffer);
    let mut killed = 0;
    while let Some(entry) = entries.next() {
        let name = entry?;
        let name = name.file_name().to_bytes();
        let Some(pid) = process_number(name) else { continue };
        if pid == getpid() {
            continue;
        }
        // The pidfd first: if the number is reused before the namespace is checked, the signal goes to
        // no process.
        let Ok(process) = pidfd_open(pid, PidfdFlags::empty()) else { continue };
        let mut path = [0; 32];
        let parts: [&[u8]; 3] = [b"/proc/", name, b"/ns/net"];
        let mut length = 0;
        for part in parts {
            let Some(place) = path.get_mut(length..length + part.len()) else { break };
            place.copy_from_slice(part);
            length += part.len();
        }
        let Ok(path) = CStr::from_bytes_until_nul(&path) else { continue };
        let Ok(stat) = statat(CWD, path, AtFlags::empty()) else { continue };
        if (stat.st_dev, stat.st_ino) == home && pidfd_send_signal(&process, Signal::KILL).is_ok() {
            killed += 1;
        }
    }
    Ok(killed)
}

/// The process ID of an entry of `/proc`; `None` for other entries.
fn process_number(name: &[u8]) -> Option<Pid> {
    let number = std::str::from_utf8(name).ok()?.parse().ok()?;
    Pid::from_raw(number)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn answers_survive_the_socket() {
        let made = Made { has_user_namespace: true, has_udp_offload: false, has_ipv6: true };
        let Some(Answer::Made(again)) = Answer::from_bytes(Answer::Made(made).to_bytes()) else {
            panic!("made")
        };
        assert!(again.has_user_namespace && !again.has_udp_offload && again.has_ipv6);
        for step in Step::ALL {
            let failure = Failure { step, errno: Errno::PERM, sysctl: 3 };
            let Some(Answer::Failure(again)) =
                Answer::from_bytes(Answer::Failure(failure).to_bytes())
            else {
                panic!("failure")
            };
            assert_eq!((again.step, again.errno, again.sysctl), (step, Errno::PERM, 3));
        }
        assert!(Answer::from_bytes([0, 200, 0, 0, 1, 0, 0, 0]).is_none());
    }

    #[test]
    fn processes_are_the_numbers_of_proc() {
        assert_eq!(process_number(b"17"), Pid::from_raw(17));
        for other in [&b"self"[..], b"17a", b"", b"0", b"99999999999", b"\xff"] {
            assert_eq!(process_number(other), None);
        }
    }
}
