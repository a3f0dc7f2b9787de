//! Settings of a datagram queue pair.
//!
//! A struct that a function fills in, unlike the named settings of contexts and connections: programs that make one
//! queue pair of each kind change a few fields. What is added later takes of the reserved bytes, where 0 is as before.

use crate::endpoint::completion_queue::{Queue, lacuna_completion_queue};
use crate::endpoint::settings::{controller, read};
use crate::outcome::{Failure, code};
use crate::pointer::{self, Out};
use lacuna::ScopedIp;
use lacuna::controller::ControllerConfig;
use lacuna::datagram::{Multicast, OpenLimits, Reliable, Settings};
use std::ffi::{c_char, c_int};
use std::sync::Arc;
use std::time::Duration;

/// Threads of a queue pair, at most: more than processors share a socket's work with profit.
const WORKERS_MAX: u32 = 64;

/// What a datagram queue pair is made with. lacuna_datagram_settings_default() fills it
/// in; the strings and the completion queue remain the program's.
#[repr(C)]
pub struct lacuna_datagram_settings {
    /// An IP address of this host, as the setting bind; NULL, the default, is "::", all of
    /// them.
    pub bind: *const c_char,
    /// The congestion control, as the setting cc: "auto", which NULL, the default, is,
    /// "bbr", "cubic", or "fixed" at rate_bits_per_s. Of an unreliable queue pair, whose
    /// peers are asked now and then how much has come, also "none": as fast as the host
    /// can, and what peer or path cannot take is lost.
    pub cc: *const c_char,
    /// Where all completes to, of the same context; NULL, the default, is a list of its
    /// own, which lacuna_datagram_poll() polls. Each operation takes an entry from its
    /// posting on; a Write-Record that comes while none is free is dropped, of a reliable
    /// peer to come again.
    pub completions: *mut lacuna_completion_queue,
    /// Bits per second to each peer, headers included. 0, the default, leaves it to cc;
    /// with "auto", one that is given is kept to.
    pub rate_bits_per_s: u64,
    /// Of a reliable queue pair: a peer that says nothing for so many milliseconds, while
    /// something is to be acknowledged, is in error until lacuna_datagram_reset().
    pub silence_ms: u64,
    /// Bytes of the longest packet, as UDP payload: 128 to 65507. The path to every peer
    /// must pass it.
    pub packet_bytes: u32,
    /// UDP port; 0, the default, is any that is free.
    pub port: u16,
    /// Whether each message comes once, and in order of each peer. Both ends need it.
    pub is_reliable: u8,
    /// How many routers packets to groups pass at most, and one more; 1, the default,
    /// stays in the network.
    pub multicast_ttl: u8,
    /// Whether packets to groups come to queue pairs of this host, too: yes by default.
    pub multicast_loop: u8,
    /// Must be 0.
    pub reserved: [u8; 3],
    /// Number of the interface that packets to groups leave by; 0, the default, is the one
    /// of the route.
    pub multicast_interface: u32,
    /// Threads that take packets, 1 to 64, each from a socket of its own on the same port;
    /// those of a peer are all one's. With progress = manual there is none.
    pub workers: u32,
    /// Bytes of each socket's receive buffer to ask the system for.
    pub receive_buffer_bytes: u64,
    /// Peers that are known at a time; those without a handle go for others.
    pub peers_max: u64,
    /// Messages of one source that may be open at a time: that have come in part.
    pub open_of_source_max: u64,
    /// The same of all sources.
    pub open_max: u64,
    /// Must be 0.
    pub more: [u64; 4],
}

/// Fills in the defaults. May be called from any thread.
///
/// # Safety
/// settings points to its struct.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn lacuna_datagram_settings_default(
    settings: *mut lacuna_datagram_settings,
) -> c_int {
    code(|| {
        // SAFETY: the caller's promise.
        let out = unsafe { Out::new(settings, "settings") }?;
        let usual = Settings::default();
        out.set(lacuna_datagram_settings {
            bind: std::ptr::null(),
            cc: std::ptr::null(),
            completions: std::ptr::null_mut(),
            rate_bits_per_s: usual.rate_bits_per_s.unwrap_or(0),
            silence_ms: Reliable::default().silence.as_millis() as u64,
            packet_bytes: usual.packet_bytes as u32,
            port: 0,
            is_reliable: u8::from(usual.reliable.is_some()),
            multicast_ttl: usual.multicast.ttl,
            multicast_loop: u8::from(usual.multicast.loops),
            reserved: [0; 3],
            multicast_interface: usual.multicast.interface,
            workers: usual.workers as u32,
            receive_buffer_bytes: usual.receive_buffer_bytes as u64,
            peers_max: usual.peers_max as u64,
            open_of_source_max: usual.open.of_source as u64,
            open_max: usual.open.in_all as u64,
            more: [0; 4],
        });
        Ok(())
    })
}

/// A number that must not be 0.
fn some(value: u64, name: &str) -> Result<usize, Failure> {
    match usize::try_from(value) {
        Ok(value) if value > 0 => Ok(value),
        _ => Err(Failure::usage(format!("{name} is {value}: must be at least 1"))),
    }
}

/// A string that may not be there.
///
/// # Safety
/// If not NULL, `text` is terminated.
unsafe fn optional<'a>(text: *const c_char, name: &str) -> Result<Option<&'a str>, Failure> {
    if text.is_null() {
        return Ok(None);
    }
    // SAFETY: the caller's promise.
    unsafe { pointer::text(text, name) }.map(Some)
}

/// The settings that a program gives, and the completion queue; NULL is the defaults.
///
/// # Safety
/// If not NULL, `settings` points to its struct, and the strings and the queue in that are there.
pub(super) unsafe fn given(
    settings: *const lacuna_datagram_settings,
) -> Result<(Settings, Option<Arc<Queue>>), Failure> {
    if settings.is_null() {
        return Ok((Settings::default(), None));
    }
    // SAFETY: the caller's promise.
    let given = unsafe { pointer::shared(settings, "settings") }?;
    if given.reserved != [0; 3] || given.more != [0; 4] {
        return Err(Failure::usage(
            "settings has reserved bytes that are not 0: call lacuna_datagram_settings_default() first",
        ));
    }
    // SAFETY: the caller's promise.
    let bind = match unsafe { optional(given.bind, "bind") }? {
        Some(text) => read::<ScopedIp>(text)
            .map_err(|why| Failure::usage(format!("bind = \"{text}\": {why}")))?,
        None => ScopedIp::ANY,
    };
    // SAFETY: the caller's promise.
    let cc = unsafe { optional(given.cc, "cc") }?.unwrap_or("auto");
    let queue = if given.completions.is_null() {
        None
    } else {
        // SAFETY: the caller's promise.
        let queue = unsafe { pointer::object(given.completions, "completions") }?;
        Some(queue.queue().clone())
    };
    if !(1..=WORKERS_MAX).contains(&given.workers) {
        let workers = given.workers;
        return Err(Failure::usage(format!("{workers} workers: must be 1 to {WORKERS_MAX}")));
    }
    let rate_bits_per_s = Some(given.rate_bits_per_s).filter(|rate| *rate > 0);
    let found = match (cc, given.is_reliable) {
        ("none", 0) => None,
        _ => Some(
            controller(cc)
                .and_then(|kind| {
                    ControllerConfig::of(kind, rate_bits_per_s).map_err(|error| error.to_string())
                })
                .map_err(|why| Failure::usage(format!("cc = \"{cc}\": {why}")))?,
        ),
    };
    // A rate that is only begun at is the controller's.
    let rate_bits_per_s = rate_bits_per_s
        .filter(|_| found.is_none_or(|found| matches!(found, ControllerConfig::Fixed { .. })));
    let reliable = match given.is_reliable {
        0 => None,
        _ => Some(Reliable {
            controller: found.unwrap_or_default(),
            silence: Duration::from_millis(some(given.silence_ms, "silence_ms")? as u64),
        }),
    };
    let settings = Settings {
        bind,
        port: Some(given.port).filter(|port| *port > 0),
        packet_bytes: given.packet_bytes as usize,
        rate_bits_per_s,
        controller: found,
        peers_max: some(given.peers_max, "peers_max")?,
        open: OpenLimits {
            of_source: some(given.open_of_source_max, "open_of_source_max")?,
            in_all: some(given.open_max, "open_max")?,
        },
        reliable,
        completions: queue.as_ref().map(|queue| queue.transport.clone()),
        workers: given.workers as usize,
        multicast: Multicast {
            ttl: given.multicast_ttl,
            loops: given.multicast_loop != 0,
            interface: given.multicast_interface,
            ..Multicast::default()
        },
        receive_buffer_bytes: some(given.receive_buffer_bytes, "receive_buffer_bytes")?,
    };
    Ok((settings, queue))
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::mem::MaybeUninit;

    #[test]
    fn the_defaults_are_those_of_the_library() {
        let mut filled = MaybeUninit::uninit();
        // SAFETY: a local variable, which the call fills in.
        let (settings, queue) = unsafe {
            assert_eq!(lacuna_datagram_settings_default(filled.as_mut_ptr()), 0);
            given(filled.as_ptr()).unwrap()
        };
        assert_eq!(format!("{settings:?}"), format!("{:?}", Settings::default()));
        assert!(queue.is_none());
        // SAFETY: filled in above.
        let mut reliable = unsafe { filled.assume_init() };
        reliable.is_reliable = 1;
        // SAFETY: a local variable.
        let (settings, _) = unsafe { given(&raw const reliable) }.unwrap();
        assert_eq!(settings.reliable, Some(Reliable::default()));
        reliable.rate_bits_per_s = 5_000_000;
        // SAFETY: a local variable.
        let (settings, _) = unsafe { given(&raw const reliable) }.unwrap();
        let controller = settings.reliable.unwrap().controller;
        assert_eq!(controller, ControllerConfig::Fixed { rate_bits_per_s: 5_000_000 });
    }
}
