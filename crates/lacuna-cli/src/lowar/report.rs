//! What a gateway tells: a line at its start, one while it runs, and its counters at the end.

use super::interface::Interface;
use super::tunnel::Tunnel;
use super::{Remote, Service, Shim};
use crate::failure::Ending;
use crate::output::Output;
use indicatif::ProgressBar;
use lacuna_gateway::{Counters, Gateway};
use serde::Serialize;

const INTERVAL_NS: u64 = 500_000_000;

/// The line at the start.
pub(super) fn introduce(local: &str, remote: &str, shim: Shim) -> String {
    format!(
        "gateway between {local} and {remote}, repairs {shim}; frames that the card joined pass without \
         repairs: if there are any, ethtool -K {local} gro off lro off tso off gso off"
    )
}

/// The line while it runs.
pub(super) struct Progress {
    bar: ProgressBar,
    next_ns: u64,
}

impl Progress {
    pub(super) fn new(output: Output) -> Self {
        let bar = match output.shows_progress() {
            true => ProgressBar::new_spinner(),
            false => ProgressBar::hidden(),
        };
        Self { bar, next_ns: 0 }
    }

    pub(super) fn tell(&mut self, now_ns: u64, gateway: &Gateway) {
        if now_ns < self.next_ns || self.bar.is_hidden() {
            return;
        }
        self.next_ns = now_ns + INTERVAL_NS;
        self.bar.set_message(line(&gateway.counters()));
        self.bar.tick();
    }
}

fn line(counters: &Counters) -> String {
    let Counters { local_frames, remote_frames, repairs_sent, received, .. } = counters;
    format!(
        "{local_frames} frames to the path with {repairs_sent} repairs, {remote_frames} from it: \
         {} recovered, {} gaps given up",
        received.packets_recovered, received.blocks_failed
    )
}

/// The result, as JSON has it.
#[derive(Debug, Serialize)]
pub(super) struct GatewayResult {
    seconds: f64,
    local_frames: u64,
    remote_frames: u64,
    other_frames: u64,
    joined_frames: u64,
    packets_coded: u64,
    repairs_sent: u64,
    repair_bytes: u64,
    announcements_sent: u64,
    retransmissions_seen: u64,
    repairs_received: u64,
    repairs_refused: u64,
    repairs_without_flow: u64,
    packets_recovered: u64,
    packets_held: u64,
    duplicates_dropped: u64,
    gaps_given_up: u64,
    gaps_timed_out: u64,
    ring_full: u64,
    bad_icrc: u64,
    frames_too_long: u64,
    flows_to_path: u64,
    flows_from_path: u64,
    flows_evicted: u64,
    requests_sent: u64,
    requests_received: u64,
    requests_granted: u64,
    /// With `--shim auto`: strengths chosen, changes of the path that were found, strengths that the far gateway
    /// did not grant, and losses in a row that were too many for any repairs.
    strength_choices: u64,
    path_changes: u64,
    strengths_refused: u64,
    outages: u64,
    /// The strength that the far gateway was asked for last, and why; absent while nothing is known of the path.
    #[serde(skip_serializing_if = "Option::is_none")]
    strength_chosen: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    strength_reason: Option<String>,
    round_trip_ns: u64,
    memory_bytes: usize,
    /// Frames that came faster than they were taken, by interface.
    local_receive_drops: u64,
    remote_receive_drops: u64,
    /// Frames that the interface did not take.
    local_send_drops: u64,
    remote_send_drops: u64,
    /// Datagrams of the peer that were of no tunnel, or of another version.
    strange_datagrams: u64,
    /// Of a tunnel.
    #[serde(skip_serializing_if = "Option::is_none")]
    tunnel: Option<TunnelCounts>,
    #[serde(flatten)]
    ending: Ending,
}

/// What became of a tunnel's datagrams.
#[derive(Debug, Serialize)]
struct TunnelCounts {
    /// `sealed` if it is encrypted, `clear` if not.
    wire: &'static str,
    #[serde(flatten)]
    sealed: Option<SealedCounts>,
}

/// The same of an encrypted one.
#[derive(Debug, Serialize)]
struct SealedCounts {
    /// How often keys were agreed on: once, and each time that the far gateway starts again.
    sessions: u64,
    hellos_sent: u64,
    hellos_came: u64,
    /// Of somebody without the token, or damaged.
    hellos_forged: u64,
    hellos_reflected: u64,
    hellos_stale: u64,
    hellos_ignored: u64,
    frames_opened: u64,
    /// Frames for the path that were dropped because there were no keys.
    frames_without_keys: u64,
    datagrams_forged: u64,
    datagrams_repeated: u64,
    datagrams_outdated: u64,
    datagrams_of_other_sessions: u64,
    datagrams_in_clear: u64,
}

impl TunnelCounts {
    fn of(tunnel: &Tunnel) -> Self {
        let Some(sealed) = tunnel.sealed() else { return Self { wire: "clear", sealed: None } };
        let counters = sealed.counters();
        let sealed = SealedCounts {
            sessions: counters.sessions,
            hellos_sent: counters.hellos_sent,
            hellos_came: counters.hellos_came,
            hellos_forged: counters.hellos_forged,
            hellos_reflected: counters.hellos_reflected,
            hellos_stale: counters.hellos_stale,
            hellos_ignored: counters.hellos_ignored,
            frames_opened: counters.frames_opened,
            frames_without_keys: sealed.unsealed,
            datagrams_forged: counters.forged,
            datagrams_repeated: counters.repeated,
            datagrams_outdated: counters.outdated,
            datagrams_of_other_sessions: counters.other_session,
            datagrams_in_clear: tunnel.in_clear,
        };
        Self { wire: "sealed", sealed: Some(sealed) }
    }
}

impl SealedCounts {
    /// A line for people.
    fn text(&self) -> String {
        let refused = self.datagrams_forged
            + self.datagrams_repeated
            + self.datagrams_outdated
            + self.datagrams_of_other_sessions
            + self.hellos_forged;
        let mut text = format!(
            "encrypted: keys agreed on {} times, {} frames dropped without keys, {refused} datagrams refused",
            self.sessions, self.frames_without_keys
        );
        if self.sessions == 0 && self.hellos_forged > 0 {
            text += "; the far gateway has another token";
        }
        if self.datagrams_in_clear > 0 {
            text += &format!(", {} that were in clear", self.datagrams_in_clear);
        }
        text
    }
}

impl GatewayResult {
    pub(super) fn new(
        service: &Service,
        local: &Interface,
        remote: &Remote,
        ending: Ending,
    ) -> Self {
        let counters = service.gateway.counters();
        let received = counters.received;
        let (remote_receive_drops, remote_send_drops, strange_datagrams) = match remote {
            Remote::Interface(interface) => (interface.receive_drops, interface.send_drops, 0),
            Remote::Tunnel(tunnel) => {
                let others = tunnel.sealed().map_or(0, |sealed| sealed.counters().strange);
                (0, tunnel.send_drops, tunnel.strange + others)
            }
        };
        let tunnel = match remote {
            Remote::Interface(_) => None,
            Remote::Tunnel(tunnel) => Some(TunnelCounts::of(tunnel)),
        };
        Self {
            seconds: service.started.elapsed().as_secs_f64(),
            local_frames: counters.local_frames,
            remote_frames: counters.remote_frames,
            other_frames: counters.other_frames,
            joined_frames: service.joined_frames,
            packets_coded: counters.packets_coded,
            repairs_sent: counters.repairs_sent,
            repair_bytes: counters.repair_bytes,
            announcements_sent: counters.announcements_sent,
            retransmissions_seen: counters.restarts,
            repairs_received: received.repairs_received,
            repairs_refused: received.repairs_refused,
            repairs_without_flow: counters.repairs_without_flow,
            packets_recovered: received.packets_recovered,
            packets_held: received.packets_held,
            duplicates_dropped: received.duplicates_dropped,
            gaps_given_up: received.blocks_failed,
            gaps_timed_out: received.timeouts,
            ring_full: received.ring_full,
            bad_icrc: counters.bad_icrc,
            frames_too_long: counters.frames_too_long,
            flows_to_path: counters.flows.0,
            flows_from_path: counters.flows.1,
            flows_evicted: counters.flows_evicted,
            requests_sent: counters.requests_sent,
            requests_received: counters.requests_received,
            requests_granted: counters.requests_granted,
            strength_choices: counters.auto.choices,
            path_changes: counters.auto.path_changes,
            strengths_refused: counters.auto.refusals,
            outages: counters.auto.outages,
            strength_chosen: counters.chosen.map(|reason| {
                reason.strength.map_or("off".to_owned(), |strength| strength.to_string())
            }),
            strength_reason: counters.chosen.map(|reason| reason.to_string()),
            round_trip_ns: counters.round_trip_ns,
            memory_bytes: service.gateway.memory_bytes(),
            local_receive_drops: local.receive_drops,
            remote_receive_drops,
            local_send_drops: local.send_drops,
            remote_send_drops,
            strange_datagrams,
            tunnel,
            ending,
        }
    }

    pub(super) fn text(&self) -> String {
        let drops = self.local_receive_drops
            + self.remote_receive_drops
            + self.local_send_drops
            + self.remote_send_drops;
        let mut text = format!(
            "{:.1} s: {} frames to the path, {} coded, {} repairs\n\
             {} frames from the path, {} repairs, {} packets recovered, {} gaps given up\n\
             {} flows to the path and {} from it, round trip {:.1} ms; {drops} frames dropped here",
            self.seconds,
            self.local_frames,
            self.packets_coded,
            self.repairs_sent,
            self.remote_frames,
            self.repairs_received,
            self.packets_recovered,
            self.gaps_given_up,
            self.flows_to_path,
            self.flows_from_path,
            self.round_trip_ns as f64 / 1e6,
        );
        if self.requests_sent + self.requests_received > 0 {
            text += &format!(
                "\nthe far gateway was asked for other repairs {} times, and asked {} times, {} of them granted",
                self.requests_sent, self.requests_received, self.requests_granted
            );
        }
        if let Some(sealed) = self.tunnel.as_ref().and_then(|tunnel| tunnel.sealed.as_ref()) {
            text += &format!("\n{}", sealed.text());
        }
        if let Some(reason) = &self.strength_reason {
            text += &format!("\nchosen {reason}");
        }
        text
    }
}
