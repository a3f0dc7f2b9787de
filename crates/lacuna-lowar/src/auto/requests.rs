//! Requests to the peer: asked for until it is seen to be granted, or taken for refused.
//!
//! A strength is seen in an announcement, or in a repair. That nothing is to be protected is seen when no
//! repair comes for a while. Each request that is not answered is followed by another one after a round
//! trip and the rest of a block, then after twice, four times and at most eight times as long.
//!
//! A peer that has not answered [`REQUESTS_MAX`] of them, for as long as [`WAITS_MAX`] such times, does not
//! grant as many repairs: half as many are the most that it is asked for then, for [`REFUSED_NS`]. If another
//! strength is chosen meanwhile that has about as many repairs or more, that is the same refusal.

use crate::strength::fits;
use lacuna_wire::rc::{BlockHeader, Strength};

/// Requests without an answer that make a refusal, at least.
const REQUESTS_MAX: u32 = 4;
/// Times that an answer takes, until it is a refusal.
const WAITS_MAX: u64 = 16;
/// How long a refusal is remembered.
const REFUSED_NS: u64 = 60_000_000_000;

/// A strength that was asked for and not seen yet.
#[derive(Clone, Copy, Debug)]
struct Asked {
    strength: Option<Strength>,
    /// When it is asked for again.
    again_ns: u64,
    /// Requests so far, and since when, for this strength and others that have about as many repairs.
    count: u32,
    since_ns: u64,
    /// The fewest repairs for a hundred packets of those.
    percent: u16,
    /// Repairs that came since the last request.
    repairs: u64,
}

/// See the module's text.
#[derive(Debug, Default)]
pub(super) struct Requests {
    asked: Option<Asked>,
    /// What the peer has shown last.
    shown: Option<Strength>,
    /// The most repairs for a hundred packets that the peer grants, and until when that is believed.
    refused: Option<(u16, u64)>,
    refusals: u64,
}

/// Repairs for a hundred packets, rounded up.
fn percent_of(strength: Option<Strength>) -> u16 {
    strength.map_or(0, |Strength { block_packets, repairs, .. }| {
        (100 * u32::from(repairs)).div_ceil(u32::from(block_packets.max(1))) as u16
    })
}

impl Requests {
    /// The strength that the peer is to be asked for, if it was not seen yet, or else the one in force.
    pub(super) fn wanted(&self) -> Option<Strength> {
        self.asked.map_or(self.shown, |asked| asked.strength)
    }

    /// The most repairs for a hundred packets that the peer grants, if it has refused more.
    pub(super) fn granted_percent_max(&self, now_ns: u64) -> Option<u16> {
        let (percent, until_ns) = self.refused?;
        (now_ns < until_ns).then_some(percent)
    }

    /// Strengths that were refused.
    pub(super) fn refusals(&self) -> u64 {
        self.refusals
    }

    /// The peer protects its packets so.
    pub(super) fn on_strength(&mut self, strength: Strength) {
        self.shown = Some(strength);
        if self.asked.is_some_and(|asked| asked.strength == Some(strength)) {
            self.asked = None;
        }
    }

    /// A repair of a block came.
    pub(super) fn on_repair(&mut self, block: &BlockHeader) {
        // A short block may have fewer repairs than was asked for.
        let wanted = self.wanted();
        match wanted.filter(|wanted| fits(block.strength, *wanted, block.packets)) {
            Some(wanted) => self.on_strength(wanted),
            None if block.packets == block.strength.block_packets => {
                self.on_strength(block.strength);
            }
            None => {}
        }
        if let Some(asked) = &mut self.asked {
            asked.repairs += 1;
        }
    }

    /// Asks for another strength from now on.
    pub(super) fn ask(&mut self, now_ns: u64, strength: Option<Strength>) {
        let percent = percent_of(strength);
        let before = self.asked.filter(|asked| percent > 0 && percent >= asked.percent / 4 * 3);
        let (count, since_ns, percent) = before.map_or((0, now_ns, percent), |asked| {
            (asked.count, asked.since_ns, asked.percent.min(percent))
        });
        self.asked =
            Some(Asked { strength, again_ns: now_ns, count, since_ns, percent, repairs: 0 });
    }

    /// What is to be asked for now, if anything; an answer takes `wait_ns`.
    pub(super) fn poll(&mut self, now_ns: u64, wait_ns: u64) -> Option<Option<Strength>> {
        let asked = self.asked.as_mut()?;
        if now_ns < asked.again_ns {
            return None;
        }
        if asked.count > 0 && asked.strength.is_none() && asked.repairs == 0 {
            (self.asked, self.shown) = (None, None);
            return None;
        }
        let waited_ns = now_ns.saturating_sub(asked.since_ns);
        if asked.count >= REQUESTS_MAX && waited_ns >= WAITS_MAX * wait_ns {
            self.refusals += 1;
            if asked.strength.is_some() {
                self.refused = Some((asked.percent / 2, now_ns + REFUSED_NS));
            }
            self.asked = None;
            return None;
        }
        asked.count += 1;
        asked.repairs = 0;
        asked.again_ns = now_ns + (wait_ns << (asked.count - 1).min(3));
        Some(asked.strength)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use lacuna_wire::rc::{CodeKind, MessageClass};

    const WAIT_NS: u64 = 50;

    fn strength(block_packets: u16, repairs: u16) -> Strength {
        Strength { block_packets, repairs, code: CodeKind::Mds }
    }

    fn block(packets: u16, strength: Strength) -> BlockHeader {
        BlockHeader {
            first_psn: 0,
            packets,
            has_first: false,
            has_last: false,
            class: MessageClass::Send,
            last_bytes: 0,
            round: 0,
            strength,
        }
    }

    /// Times at which something is asked for.
    fn run(requests: &mut Requests, times: std::ops::Range<u64>) -> Vec<u64> {
        times.filter(|now_ns| requests.poll(*now_ns, WAIT_NS).is_some()).collect()
    }

    #[test]
    fn a_strength_is_asked_for_until_it_is_seen() {
        let mut requests = Requests::default();
        requests.ask(0, Some(strength(64, 8)));
        assert_eq!(run(&mut requests, 0..300), [0, 50, 150]);
        requests.on_strength(strength(32, 8));
        assert_eq!(run(&mut requests, 300..360), [350]);
        requests.on_strength(strength(64, 8));
        assert_eq!(run(&mut requests, 360..5000), []);
        assert_eq!((requests.wanted(), requests.refusals()), (Some(strength(64, 8)), 0));
    }

    #[test]
    fn repairs_of_short_blocks_show_it_too() {
        let mut requests = Requests::default();
        requests.ask(0, Some(strength(64, 8)));
        requests.on_repair(&block(5, strength(63, 1)));
        assert_eq!(requests.shown, None, "a short block of another strength says nothing");
        requests.on_repair(&block(5, strength(64, 1)));
        assert_eq!(requests.shown, Some(strength(64, 8)));
        assert!(requests.asked.is_none());
        requests.on_repair(&block(32, strength(32, 2)));
        assert_eq!(requests.shown, Some(strength(32, 2)), "a full one does");
    }

    #[test]
    fn what_is_not_granted_is_not_asked_for_any_more() {
        let mut requests = Requests::default();
        requests.ask(0, Some(strength(50, 5)));
        let asked = run(&mut requests, 0..400);
        // Another one that has as many repairs is the same to the peer.
        requests.ask(400, Some(strength(64, 7)));
        let all = asked.len() + run(&mut requests, 400..2000).len();
        assert!((4..9).contains(&all), "{all}");
        assert_eq!(requests.refusals(), 1);
        assert_eq!(requests.granted_percent_max(2000), Some(5));
        assert_eq!(requests.granted_percent_max(REFUSED_NS + 2000), None);
        assert_eq!(requests.wanted(), None);
        // Fewer may be granted.
        requests.ask(2000, Some(strength(100, 4)));
        assert_eq!(run(&mut requests, 2000..2020), [2000]);
        assert_eq!(requests.asked.unwrap().since_ns, 2000);
    }

    #[test]
    fn no_repairs_are_granted_once_none_comes() {
        let mut requests = Requests::default();
        requests.on_strength(strength(64, 8));
        requests.ask(0, None);
        assert_eq!(run(&mut requests, 0..40), [0]);
        requests.on_repair(&block(64, strength(64, 8)));
        assert_eq!(
            run(&mut requests, 40..2000),
            [50],
            "it was asked for again, and none came then"
        );
        assert_eq!((requests.wanted(), requests.shown), (None, None));
    }
}
