//! What a gateway at the receiving side asks the far one for: losses that it sees, the strength that pays for
//! them, and when to ask.
//!
//! **For whom.** There is one choice ([`Auto`]) for each pair of addresses. Losses belong to the path, which all
//! flows of one host to another take: what one flow has shown is true of the others, so a new or short flow is
//! protected from its first block on. One request for all of them is enough, too, and needs no queue pair of the
//! reverse direction, which packets do not show.
//!
//! **By what.** Numbers, the pace, the length of messages and the distance between losses, as a block meets them,
//! belong to a flow. So the choice follows the packets of one flow at a time. Following each would cost up to
//! 50 KiB for every number that somebody forges, and a distance that is counted over several flows is not the one
//! in a block. Each [`TURN_NS`] the flow is compared with another one of the same pair, that of the first other
//! packet that came in this time. If the other one had more than twice as many packets, it is followed from then
//! on; so a flow that is slow, or has ended, gives way to a busy one.
//!
//! **A request** is a repair header that asks for a strength ([`RepairHeader::Request`]), for queue pair
//! [`GATEWAYS`], with the headers of a frame that leaves for the same host. No connection has this queue pair, since
//! it is that of multicast: a host drops the request, and every gateway takes it. Requests of hosts' own shims have
//! the queue pair of a connection, and pass.
//!
//! The far gateway forgets a strength that is not asked for any more (see `grants`), so a strength in force is asked
//! for again every [`REFRESH_NS`]. That also tells a gateway that has begun anew.
//!
//! Invariants: at most [`PAIRS_MAX`] pairs are watched; one that packets came for in the last [`SILENT_NS`] does not
//! go for another one.

use crate::flows::Flows;
use crate::frame::FlowKey;
use lacuna_lowar::{Auto, AutoConfig, AutoCounters, Reason};
use lacuna_wire::Qpn;
use lacuna_wire::rc::{REPAIR_HEADER_BYTES, RepairHeader, Strength};

/// Queue pair of requests that are for gateways: that of multicast (InfiniBand Architecture Specification,
/// volume 1, 3.5.10), which no connection has.
pub const GATEWAYS: u32 = 0xff_ffff;
/// Pairs of addresses that are watched, at most: each may have 80 KiB.
pub(crate) const PAIRS_MAX: usize = 256;
/// A pair that no packets came for in this time may go for another one.
const SILENT_NS: u64 = 1_000_000_000;
/// The flow that is followed is compared with another one after this time: some round trips of a long path.
const TURN_NS: u64 = 200_000_000;
/// A strength in force is asked for again after this time.
pub(crate) const REFRESH_NS: u64 = 5_000_000_000;
/// How late packets may be while no round trip is known: a fifth of what a decoder waits then.
const LATE_NS_UNKNOWN: u64 = lacuna_lowar::HOLD_NS_MAX_DEFAULT / 5;

/// A pair of addresses.
#[derive(Debug)]
struct Watch {
    auto: Auto,
    /// The flow that is followed, and its packets in this turn.
    followed: (FlowKey, u64),
    /// The one that it is compared with.
    other: Option<(FlowKey, u64)>,
    turn_end_ns: u64,
    used_ns: u64,
    /// What is to be asked for with the next frame that leaves.
    due: Option<Option<Strength>>,
    /// When something was to be asked for last.
    asked_ns: u64,
}

impl Watch {
    fn new(now_ns: u64, config: AutoConfig, flow: FlowKey) -> Self {
        Self {
            auto: Auto::new(config),
            followed: (flow, 0),
            other: None,
            turn_end_ns: now_ns + TURN_NS,
            used_ns: now_ns,
            due: None,
            asked_ns: now_ns,
        }
    }

    /// A packet of a flow came; whether the flow is followed.
    fn counts(&mut self, now_ns: u64, key: &FlowKey) -> bool {
        self.used_ns = now_ns;
        if now_ns >= self.turn_end_ns {
            let busier = self.other.take().filter(|(_, packets)| *packets > 2 * self.followed.1);
            if let Some((flow, _)) = busier {
                self.followed.0 = flow;
                self.auto.on_other_flow(now_ns);
            }
            self.followed.1 = 0;
            self.turn_end_ns = now_ns + TURN_NS;
        }
        if self.followed.0 == *key {
            self.followed.1 += 1;
            return true;
        }
        let (other, packets) = self.other.get_or_insert((*key, 0));
        *packets += u64::from(other == key);
        false
    }
}

/// All pairs of addresses.
#[derive(Debug)]
pub(crate) struct Watches {
    config: AutoConfig,
    pairs_max: usize,
    pairs: Flows<Watch>,
    /// Pairs with something to ask for.
    due: usize,
    requests_sent: u64,
    /// Of pairs that are gone.
    before: AutoCounters,
}

impl Watches {
    pub(crate) fn new(config: AutoConfig, flows_max: usize) -> Self {
        let pairs_max = flows_max.clamp(1, PAIRS_MAX);
        Self {
            config,
            pairs_max,
            pairs: Flows::new(pairs_max),
            due: 0,
            requests_sent: 0,
            before: AutoCounters::default(),
        }
    }

    /// A packet of a flow came from the path that has a number of its own: where its pair is, if the flow is
    /// followed. A flow that `has_shown_itself` may be the first one of a pair.
    pub(crate) fn find(
        &mut self,
        now_ns: u64,
        key: &FlowKey,
        has_shown_itself: bool,
    ) -> Option<u32> {
        let pair = key.addresses();
        let index = match self.pairs.find(&pair) {
            Some(index) => index,
            None if has_shown_itself && self.has_room(now_ns) => self.add(now_ns, pair, *key),
            None => return None,
        };
        let watch = self.pairs.state_mut(index)?;
        watch.counts(now_ns, key).then_some(index)
    }

    /// Where the pair of a repair is, if its flow is followed.
    pub(crate) fn find_followed(&mut self, key: &FlowKey) -> Option<u32> {
        let index = self.pairs.find(&key.addresses())?;
        (self.pairs.state_mut(index)?.followed.0 == *key).then_some(index)
    }

    fn has_room(&self, now_ns: u64) -> bool {
        let is_silent = |watch: &Watch| now_ns.saturating_sub(watch.used_ns) > SILENT_NS;
        self.pairs.len() < self.pairs_max || self.pairs.oldest().is_some_and(is_silent)
    }

    fn add(&mut self, now_ns: u64, pair: FlowKey, flow: FlowKey) -> u32 {
        let (index, gone) = self.pairs.insert(pair, Watch::new(now_ns, self.config, flow));
        if let Some(gone) = gone {
            self.due -= usize::from(gone.due.is_some());
            add(&mut self.before, &gone.auto.counters());
        }
        index
    }

    /// A packet of the flow that is followed came, with a right ICRC, or a repair. `late_ns` is how late its
    /// decoder has seen packets to be.
    pub(crate) fn on_packet(
        &mut self,
        now_ns: u64,
        index: u32,
        packet: &[u8],
        round_trip_ns: Option<u64>,
        late_ns: u64,
    ) {
        let Some(watch) = self.pairs.state_mut(index) else { return };
        watch.auto.on_receive(now_ns, packet);
        let asked = match round_trip_ns {
            Some(round_trip_ns) => watch.auto.poll(now_ns, round_trip_ns, late_ns),
            None => watch.auto.poll(now_ns, 0, LATE_NS_UNKNOWN),
        };
        let is_stale = now_ns.saturating_sub(watch.asked_ns) >= REFRESH_NS;
        let in_force = watch.auto.reason().map(|reason| reason.strength);
        let again = in_force.filter(|strength| is_stale && strength.is_some());
        if let Some(strength) = asked.or(again) {
            self.due += usize::from(watch.due.is_none());
            watch.due = Some(strength);
            watch.asked_ns = now_ns;
        }
    }

    /// The request that is to leave beside a frame to the path, if one is.
    pub(crate) fn poll_request(&mut self, leaving: &FlowKey) -> Option<[u8; REPAIR_HEADER_BYTES]> {
        if self.due == 0 {
            return None;
        }
        let index = self.pairs.find(&leaving.addresses().reversed())?;
        let strength = self.pairs.state_mut(index)?.due.take()?;
        self.due -= 1;
        self.requests_sent += 1;
        let mut packet = [0; REPAIR_HEADER_BYTES];
        RepairHeader::Request { strength }.emit(Qpn::from_bits(GATEWAYS), &mut packet);
        Some(packet)
    }

    pub(crate) fn requests_sent(&self) -> u64 {
        self.requests_sent
    }

    pub(crate) fn counters(&self) -> AutoCounters {
        let mut sum = self.before;
        self.pairs.states().for_each(|watch| add(&mut sum, &watch.auto.counters()));
        sum
    }

    /// Why the strength of the pair that was used last, if something is known of it.
    pub(crate) fn reason(&self) -> Option<Reason> {
        self.pairs.newest().and_then(|watch| watch.auto.reason().copied())
    }

    pub(crate) fn memory_bytes(&self) -> usize {
        let outside = |watch: &Watch| watch.auto.memory_bytes() - size_of::<Auto>();
        self.pairs.memory_bytes() + self.pairs.states().map(outside).sum::<usize>()
    }
}

fn add(sum: &mut AutoCounters, other: &AutoCounters) {
    sum.choices += other.choices;
    sum.path_changes += other.path_changes;
    sum.refusals += other.refusals;
    sum.outages += other.outages;
}

#[cfg(test)]
mod tests {
    use super::*;

    fn key(queue_pair: u32, source: u8) -> FlowKey {
        FlowKey {
            queue_pair,
            is_answers: false,
            vlans: [0; 2],
            source: [source; 16],
            destination: [9; 16],
        }
    }

    #[test]
    fn the_busier_flow_is_followed_from_the_next_turn_on() {
        let mut watches = Watches::new(AutoConfig::default(), 4096);
        let mut followed = [0; 3];
        for at in 0..4_000u64 {
            // One packet of the first in sixteen, the others share the rest.
            let flow = if at % 16 == 0 { 0 } else { 1 + (at % 2) as usize };
            let found = watches.find(at * 100_000, &key(flow as u32, 1), true);
            followed[flow] += usize::from(found.is_some());
        }
        assert!((100..300).contains(&followed[0]), "{followed:?}");
        assert!(followed[1].max(followed[2]) > 700, "{followed:?}");
        assert!(followed[1].min(followed[2]) == 0, "it does not go to and fro: {followed:?}");
    }

    #[test]
    fn a_pair_that_is_used_does_not_go_for_another_one() {
        let mut watches = Watches::new(AutoConfig::default(), 2);
        assert!(watches.find(0, &key(1, 1), true).is_some());
        assert!(watches.find(0, &key(1, 2), false).is_none(), "it has not shown itself");
        assert!(watches.find(0, &key(1, 2), true).is_some());
        assert!(watches.find(1, &key(1, 3), true).is_none());
        assert!(watches.find(SILENT_NS, &key(1, 2), true).is_some());
        assert!(watches.find(SILENT_NS + 1, &key(1, 3), true).is_some());
        assert!(watches.find(SILENT_NS + 1, &key(1, 1), true).is_none(), "it went");
    }
}
