//! Settings by name, for contexts and connections.
//!
//! A name and a text per setting, so that a new one needs no new function and
//! breaks no program.

use super::capture::Capture;
use crate::outcome::{Failure, code};
use crate::pointer::{self, Out};
use lacuna::controller::TABLE as CONTROLLERS;
use lacuna::datapath::Process;
use lacuna::{
    Classes, ConnectionConfig, ContextConfig, ControllerKind, DatapathKind, ImmediateSplit,
    Progress,
};
use lacuna_collective::Rule;
use std::ffi::{c_char, c_int};
use std::fmt::Display;
use std::net::IpAddr;
use std::path::PathBuf;
use std::str::FromStr;
use std::sync::{Mutex, MutexGuard, PoisonError, TryLockError};
use std::time::Duration;

/// Settings for contexts, connections and groups.
pub struct lacuna_settings {
    process: Process,
    values: Mutex<Values>,
}

impl lacuna_settings {
    /// Locks the values. A forked child may use inherited settings, whose lock a thread of the
    /// parent may have held at the fork, so this gives up after a while.
    fn lock(&self) -> Result<MutexGuard<'_, Values>, Failure> {
        /// Attempts: far more than reading or changing a setting takes.
        const ATTEMPTS: u32 = 1000;
        if self.process.is_current() {
            return Ok(self.values.lock().unwrap_or_else(PoisonError::into_inner));
        }
        for _ in 0..ATTEMPTS {
            match self.values.try_lock() {
                Ok(values) => return Ok(values),
                Err(TryLockError::Poisoned(poisoned)) => return Ok(poisoned.into_inner()),
                Err(TryLockError::WouldBlock) => std::thread::yield_now(),
            }
        }
        Err(Failure::usage(
            "settings were in use by another thread when this process was forked: make new ones here",
        ))
    }
}

#[derive(Default, Clone)]
pub(super) struct Values {
    pub(super) context: ContextConfig,
    pub(super) capture: Capture,
    pub(super) connection: ConnectionConfig,
    pub(super) group: GroupValues,
}

/// What only groups have, and what they have by another default than connections.
#[derive(Clone)]
pub(super) struct GroupValues {
    pub(super) chunk_bytes: Option<u64>,
    pub(super) job: Option<String>,
    pub(super) port: u16,
    pub(super) announce: Option<IpAddr>,
    pub(super) meeting_timeout: Duration,
    pub(super) rule: Rule,
}

impl Default for GroupValues {
    fn default() -> Self {
        Self {
            chunk_bytes: None,
            job: None,
            port: 0,
            announce: None,
            meeting_timeout: Duration::from_secs(300),
            rule: Rule::default(),
        }
    }
}

/// Parses and sets one setting.
type Setter = fn(&mut Values, &str) -> Result<(), String>;

/// All settings by name.
const TABLE: &[(&str, Setter)] = &[
    ("bind", |v, t| read(t).map(|x| v.context.bind = x)),
    ("channels", |v, t| read(t).map(|x| v.context.channels = x)),
    ("datapath", |v, t| datapath(t).map(|x| v.context.datapath = x)),
    ("progress", |v, t| progress(t).map(|x| v.context.progress = x)),
    ("receive_buffer_bytes", |v, t| read(t).map(|x| v.context.receive_buffer_bytes = x)),
    ("ecn", |v, t| switch(t).map(|x| v.context.ecn = x)),
    ("path_memory", |v, t| path(t).map(|x| v.context.path_memory = x)),
    ("pcap", |v, t| path(t).map(|x| v.capture.set_path(x))),
    ("pcap_limit_bytes", |v, t| some_bytes(t).map(|x| v.capture.set_limit_bytes(x))),
    ("mode", |v, t| read(t).map(|x| v.connection.mode = x)),
    ("wire", |v, t| read(t).map(|x| v.connection.wire = x)),
    ("chunk_bytes", |v, t| {
        read(t).map(|x| {
            v.connection.chunk_bytes = x;
            v.group.chunk_bytes = Some(x);
        })
    }),
    ("mtu_bytes", |v, t| optional(t, "probe").map(|x| v.connection.mtu_bytes = x)),
    ("split", |v, t| split(t).map(|x| v.connection.split = x)),
    ("generations", |v, t| read(t).map(|x| v.connection.generations = x)),
    ("max_message_bytes", |v, t| read(t).map(|x| v.connection.max_message_bytes = x)),
    ("cc", |v, t| controller(t).map(|x| v.connection.controller = x)),
    ("rate_bits_per_s", |v, t| rate(t).map(|x| v.connection.rate_bits_per_s = x)),
    ("deadline_ms", |v, t| millis(t).map(|x| v.connection.deadline = x)),
    ("silence_ms", |v, t| some_millis(t).map(|x| v.connection.silence = x)),
    ("connect_timeout_ms", |v, t| millis(t).map(|x| v.connection.connect_timeout = x)),
    ("one_sided", |v, t| switch(t).map(|x| v.connection.one_sided = x)),
    ("classes", |v, t| classes(t).map(|x| v.connection.classes = x)),
    ("tag", |v, t| read(t).map(|x| v.connection.tag = x)),
    ("job", |v, t| {
        v.group.job = Some(t.to_owned());
        Ok(())
    }),
    ("port", |v, t| read(t).map(|x| v.group.port = x)),
    ("announce", |v, t| optional(t, "seen").map(|x| v.group.announce = x)),
    ("meeting_timeout_ms", |v, t| some_millis(t).map(|x| v.group.meeting_timeout = x)),
    ("budget_rule", |v, t| rule(t).map(|x| v.group.rule = x)),
];

impl Values {
    /// The settings of `settings`, or the defaults if that is NULL.
    ///
    /// # Safety
    /// If not NULL, `settings` was not freed.
    pub(super) unsafe fn of(settings: *const lacuna_settings) -> Result<Self, Failure> {
        if settings.is_null() {
            return Ok(Self::default());
        }
        // SAFETY: the caller's promise.
        let settings = unsafe { pointer::shared(settings, "settings") }?;
        Ok(settings.lock()?.clone())
    }

    fn set(&mut self, name: &str, value: &str) -> Result<(), Failure> {
        let known = TABLE.iter().find(|(known, _)| *known == name);
        let (_, setter) = known.ok_or_else(|| {
            let names: Vec<_> = TABLE.iter().map(|(name, _)| *name).collect();
            Failure::usage(format!("no setting \"{name}\": one of {}", names.join(", ")))
        })?;
        setter(self, value).map_err(|why| Failure::usage(format!("{name} = \"{value}\": {why}")))
    }
}

pub(super) fn read<T: FromStr<Err: Display>>(text: &str) -> Result<T, String> {
    text.trim().parse().map_err(|error: T::Err| error.to_string())
}

fn optional<T: FromStr<Err: Display>>(text: &str, none: &str) -> Result<Option<T>, String> {
    if text.trim() == none { Ok(None) } else { read(text).map(Some) }
}

fn millis(text: &str) -> Result<Duration, String> {
    read(text).map(Duration::from_millis)
}

fn some_millis(text: &str) -> Result<Duration, String> {
    match millis(text)? {
        Duration::ZERO => Err("must be more than zero".to_owned()),
        time => Ok(time),
    }
}

fn some_bytes(text: &str) -> Result<u64, String> {
    match read(text)? {
        0 => Err("must be more than zero".to_owned()),
        bytes => Ok(bytes),
    }
}

/// 0 as in `sdr.h`: none is given.
fn rate(text: &str) -> Result<Option<u64>, String> {
    Ok(optional(text, "find")?.filter(|rate| *rate > 0))
}

fn datapath(text: &str) -> Result<DatapathKind, String> {
    match text.trim() {
        "udp" => Ok(DatapathKind::Udp),
        "udp-plain" => Ok(DatapathKind::UdpPlain),
        _ => Err("must be udp or udp-plain".to_owned()),
    }
}

fn progress(text: &str) -> Result<Progress, String> {
    match text.trim() {
        "manual" => Ok(Progress::Manual),
        "threads" => Ok(Progress::default()),
        _ => Err("must be threads or manual".to_owned()),
    }
}

fn switch(text: &str) -> Result<bool, String> {
    match text.trim() {
        "on" => Ok(true),
        "off" => Ok(false),
        _ => Err("must be on or off".to_owned()),
    }
}

fn classes(text: &str) -> Result<Classes, String> {
    let mut classes = Classes::NONE;
    if text.trim() == "none" {
        return Ok(classes);
    }
    for name in text.split('+') {
        match name.trim() {
            "critical" => classes.critical = true,
            "droppable" => classes.droppable = true,
            "repaired" => classes.repaired = true,
            _ => {
                let some =
                    "must be none, or some of critical, droppable, repaired, as critical+droppable";
                return Err(some.to_owned());
            }
        }
    }
    Ok(classes)
}

/// The text as it is, since a path may contain spaces.
fn path(text: &str) -> Result<Option<PathBuf>, String> {
    Ok((!text.is_empty()).then(|| text.into()))
}

pub(super) fn controller(text: &str) -> Result<Option<ControllerKind>, String> {
    let name = text.trim();
    if name == "auto" {
        return Ok(None);
    }
    let entry = CONTROLLERS.iter().find(|entry| entry.name == name);
    entry.map(|entry| Some(entry.kind)).ok_or_else(|| {
        let names: Vec<_> = CONTROLLERS.iter().map(|entry| entry.name).collect();
        format!("must be auto, {}", names.join(", "))
    })
}

fn rule(text: &str) -> Result<Rule, String> {
    let rules = [Rule::default(), Rule::OptiNic, Rule::Celeris, Rule::CelerisDeviation];
    rules.into_iter().find(|rule| rule.name() == text.trim()).ok_or_else(|| {
        let names = rules.map(Rule::name);
        format!("must be one of {}", names.join(", "))
    })
}

fn split(text: &str) -> Result<ImmediateSplit, String> {
    let bits: Vec<u8> = text.split('+').map(read).collect::<Result<_, _>>()?;
    let [message, packet, user] = bits[..] else {
        return Err("must be three widths that add up to 32, as in 10+18+4".to_owned());
    };
    ImmediateSplit::new(message, packet, user).map_err(|error| error.to_string())
}

/// Makes settings: all at their defaults.
///
/// # Safety
/// settings points to a pointer.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn lacuna_settings_new(settings: *mut *mut lacuna_settings) -> c_int {
    code(|| {
        // SAFETY: the caller's promise.
        let out = unsafe { Out::new(settings, "settings") }?;
        let values = Mutex::new(Values::default());
        out.set(Box::into_raw(Box::new(lacuna_settings { process: Process::current(), values })));
        Ok(())
    })
}

/// Changes one setting. Of a context: bind (an IP address of this host, a link-local
/// one with its interface, as in fe80::1%eth0; "::", the default, is all of them),
/// channels (1 to 16), datapath (udp, udp-plain), progress (threads, manual),
/// receive_buffer_bytes, ecn (on, off: whether packets may be marked), path_memory (a
/// file that keeps what paths are like, for the next program; nothing need be there
/// yet; "" for none), pcap (a file that every packet is captured to, replaced if it
/// exists; contexts of the same settings share it; made up in it are the headers of IP
/// and UDP, the UDP destination port 4791 and the ICRC; "" for none), pcap_limit_bytes
/// (where the capture ends; the traffic goes on). Of a connection: mode (auto, sr,
/// sr:rto, raw, ec, or with a code of one's own as in ec:mds:32:8, best-effort,
/// bounded, or with a window of messages as in bounded:4), wire (short, or rdma:
/// packets as RDMA cards take them), chunk_bytes, mtu_bytes (or "probe"), split (as in
/// 10+18+4), generations, max_message_bytes, cc (congestion control: bbr, cubic, fixed,
/// or auto, which is fixed if a rate is given, else bbr), rate_bits_per_s (what fixed
/// sends at and the others begin at; 0 or "find" finds one), deadline_ms, silence_ms
/// (at least 1), connect_timeout_ms, one_sided (on, off: whether the ends may write and
/// read each other's regions), classes (none, or some of critical, droppable, repaired,
/// as critical+droppable: what lacuna_connection_class() gives), tag (a number for the
/// accepting end). Of a group: bind, mode, chunk_bytes (64 KiB if it is not given), cc, rate_bits_per_s,
/// silence_ms and pcap as above, job (what the ranks of one run have in common; others are
/// refused), port (for the connections of this rank; 0 is any), announce (the address that
/// other ranks reach this one at; "seen", the default, is the one that rank 0 sees),
/// meeting_timeout_ms (how long ranks wait for each other), budget_rule (how adaptive
/// budgets are learned: steered, optinic, celeris, celeris-deviation). May be called from
/// any thread; objects that were made with these settings keep theirs.
///
/// # Safety
/// settings was not freed; name and value are terminated strings.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn lacuna_settings_set(
    settings: *mut lacuna_settings,
    name: *const c_char,
    value: *const c_char,
) -> c_int {
    code(|| {
        // SAFETY: the caller's promise.
        let settings = unsafe { pointer::shared(settings, "settings") }?;
        // SAFETY: the caller's promise.
        let name = unsafe { pointer::text(name, "name") }?;
        // SAFETY: the caller's promise.
        let value = unsafe { pointer::text(value, "value") }?;
        settings.lock()?.set(name, value)
    })
}

/// Frees settings. NULL is allowed. Must be the last call with them.
///
/// # Safety
/// If not NULL, settings was not freed before.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn lacuna_settings_free(settings: *mut lacuna_settings) {
    let _ = code(|| {
        if !settings.is_null() {
            // SAFETY: the caller's promise.
            let made = unsafe { pointer::shared(settings, "settings") }?;
            // In a forked child: fails if a thread of the parent was changing the settings.
            drop(made.lock()?);
            // SAFETY: made by `lacuna_settings_new`, and this is the last call with it.
            drop(unsafe { Box::from_raw(settings) });
        }
        Ok(())
    });
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn settings_are_read_or_refused_with_what_they_take() {
        let mut values = Values::default();
        for (name, value) in [
            ("bind", "fe80::1%lo"),
            ("bind", "127.0.0.1"),
            ("channels", "4"),
            ("progress", "manual"),
            ("mode", "ec:xor:32:8"),
            ("wire", "rdma"),
            ("mtu_bytes", "1400"),
            ("split", "8+22+2"),
            ("rate_bits_per_s", "1000000000"),
            ("deadline_ms", "1500"),
            ("ecn", "off"),
            ("path_memory", "a folder/paths"),
            ("cc", "cubic"),
            ("one_sided", "on"),
            ("classes", "critical"),
            ("pcap", "a folder/packets.pcap"),
            ("pcap_limit_bytes", "1000000"),
            ("chunk_bytes", "8192"),
            ("job", "a run"),
            ("announce", "192.0.2.1"),
            ("meeting_timeout_ms", "1500"),
            ("budget_rule", "celeris"),
        ] {
            values.set(name, value).unwrap();
        }
        assert_eq!(values.context.channels, 4);
        assert_eq!((values.connection.chunk_bytes, values.group.chunk_bytes), (8192, Some(8192)));
        assert_eq!(values.group.job.as_deref(), Some("a run"));
        assert_eq!(values.group.meeting_timeout, Duration::from_millis(1500));
        assert_eq!(values.group.rule, Rule::Celeris);
        assert_eq!(values.context.progress, Progress::Manual);
        assert_eq!(values.connection.mtu_bytes, Some(1400));
        assert_eq!(values.connection.wire, lacuna::Wire::Rdma);
        assert_eq!(values.connection.split, ImmediateSplit::WIDE);
        assert_eq!(values.connection.deadline, Duration::from_millis(1500));
        assert!(!values.context.ecn && ContextConfig::default().ecn);
        assert_eq!(values.context.path_memory, Some("a folder/paths".into()));
        assert_eq!(values.connection.controller, Some(ControllerKind::Cubic));
        for (name, value) in [("ecn", "on"), ("path_memory", ""), ("cc", "auto")] {
            values.set(name, value).unwrap();
        }
        assert!(values.context.ecn && values.context.path_memory.is_none());
        assert_eq!(values.connection.controller, None);
        assert!(values.connection.one_sided);
        assert_eq!(values.connection.classes, Classes { critical: true, ..Classes::NONE });
        values.set("classes", "droppable + critical + repaired").unwrap();
        assert_eq!(values.connection.classes, Classes::ALL);
        values.set("classes", "none").unwrap();
        assert_eq!(values.connection.classes, Classes::NONE);
        for mode in ["bounded", "bounded:3", "best-effort"] {
            values.set("mode", mode).unwrap();
            assert!(matches!(values.connection.mode, lacuna::Mode::Bounded(_)), "{mode}");
        }
        for none in ["0", "find"] {
            values.set("rate_bits_per_s", "1000000000").unwrap();
            assert_eq!(values.connection.rate_bits_per_s, Some(1_000_000_000));
            values.set("rate_bits_per_s", none).unwrap();
            assert_eq!(values.connection.rate_bits_per_s, None);
        }
        values.set("mtu_bytes", "probe").unwrap();
        assert_eq!(values.connection.mtu_bytes, None);
        for (name, value, text) in [
            ("colour", "red", "one of bind, channels"),
            ("bind", "eth0", "no IP address"),
            ("bind", "fe80::1", "use fe80::1%INTERFACE"),
            ("channels", "many", "invalid digit"),
            ("mode", "tcp", "one of auto, raw, sr"),
            ("mode", "ec:mds:200:100", "255"),
            ("wire", "long", "must be short or rdma"),
            ("mode", "bounded:many", "bounded"),
            ("classes", "", "critical+droppable"),
            ("classes", "critical+urgent", "critical+droppable"),
            ("one_sided", "yes", "on or off"),
            ("ecn", "maybe", "on or off"),
            ("cc", "reno", "must be auto, bbr, cubic, fixed"),
            ("silence_ms", "0", "must be more than zero"),
            ("pcap_limit_bytes", "0", "must be more than zero"),
            ("split", "10+18", "as in 10+18+4"),
            ("announce", "eth0", "IP address"),
            ("meeting_timeout_ms", "0", "must be more than zero"),
            ("budget_rule", "guess", "celeris-deviation"),
            ("split", "10+18+5", "user fragment 5 bits"),
        ] {
            let error = format!("{:?}", values.set(name, value).unwrap_err());
            assert!(error.contains(text), "{error}");
        }
    }
}
