//! What a gateway at the sending side has granted: a strength for each pair of addresses.
//!
//! A request (see `watch`) is for all flows of one host to another. Anybody may send one. So it is granted only
//! if a flow of these hosts is known here, and up to what [`AutoConfig`] says; and it is forgotten after
//! [`GRANT_NS`] unless it is repeated, so that a gateway which has gone costs no repairs for long.
//!
//! Flows look their strength up when something has changed: the version is compared for each frame.
//!
//! Invariant: there are no more pairs than flows, and only frames from the local network add one.

use crate::flows::Flows;
use crate::frame::FlowKey;
use crate::watch::REFRESH_NS;
use lacuna_lowar::{AutoConfig, Encoder};
use lacuna_wire::rc::Strength;

/// How long a strength is in force. Three of the requests that repeat it may be lost.
const GRANT_NS: u64 = 4 * REFRESH_NS;
/// What is over is looked for after this time.
const SWEEP_NS: u64 = 1_000_000_000;

#[derive(Clone, Copy, Debug)]
struct Grant {
    strength: Option<Strength>,
    until_ns: u64,
}

/// See the module's text.
#[derive(Debug)]
pub(crate) struct Grants {
    config: AutoConfig,
    /// Of flows whose pair was granted nothing.
    strength: Option<Strength>,
    pairs: Flows<Option<Grant>>,
    version: u64,
    sweep_ns: u64,
    requests_granted: u64,
}

impl Grants {
    pub(crate) fn new(config: AutoConfig, strength: Option<Strength>, flows_max: usize) -> Self {
        Self {
            config,
            strength,
            pairs: Flows::new(flows_max),
            version: 1,
            sweep_ns: 0,
            requests_granted: 0,
        }
    }

    /// Changes with any strength that is in force.
    pub(crate) fn version(&mut self, now_ns: u64) -> u64 {
        if now_ns >= self.sweep_ns {
            self.sweep_ns = now_ns + SWEEP_NS;
            let is_over = |grant: &mut Option<Grant>| {
                grant.take_if(|grant| grant.until_ns <= now_ns).is_some()
            };
            let over = self.pairs.states_mut().filter_map(|grant| is_over(grant).then_some(()));
            self.version += u64::from(over.count() > 0);
        }
        self.version
    }

    /// How a flow to the path is protected.
    pub(crate) fn strength_of(&mut self, flow: &FlowKey) -> Option<Strength> {
        let pair = flow.addresses();
        let index = match self.pairs.find(&pair) {
            Some(index) => index,
            None => {
                let (index, gone) = self.pairs.insert(pair, None);
                self.version += u64::from(gone.flatten().is_some());
                index
            }
        };
        match self.pairs.state_mut(index) {
            Some(Some(grant)) => grant.strength,
            _ => self.strength,
        }
    }

    /// The far gateway asks for a strength; `request` has the addresses of its frame.
    pub(crate) fn on_request(&mut self, now_ns: u64, request: &FlowKey, wanted: Option<Strength>) {
        let pair = request.addresses().reversed();
        let Some(index) = self.pairs.find(&pair).filter(|_| self.is_allowed(wanted)) else {
            return;
        };
        let Some(grant) = self.pairs.state_mut(index) else { return };
        let strength = grant.map_or(self.strength, |grant| grant.strength);
        self.version += u64::from(strength != wanted);
        *grant = Some(Grant { strength: wanted, until_ns: now_ns + GRANT_NS });
        self.requests_granted += 1;
    }

    fn is_allowed(&self, wanted: Option<Strength>) -> bool {
        let AutoConfig { percent_max, repairs_max, .. } = self.config;
        wanted.is_none_or(|strength| {
            let percent_max = u32::from(percent_max) * u32::from(strength.block_packets);
            100 * u32::from(strength.repairs) <= percent_max
                && strength.repairs <= repairs_max
                && Encoder::new().set_strength(wanted).is_ok()
        })
    }

    pub(crate) fn requests_granted(&self) -> u64 {
        self.requests_granted
    }

    pub(crate) fn memory_bytes(&self) -> usize {
        self.pairs.memory_bytes()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const OUT: FlowKey = key(1, [1; 16], [2; 16]);
    const BACK: FlowKey = key(9, [2; 16], [1; 16]);

    const fn key(queue_pair: u32, source: [u8; 16], destination: [u8; 16]) -> FlowKey {
        FlowKey { queue_pair, is_answers: false, vlans: [0; 2], source, destination }
    }

    fn strength(text: &str) -> Option<Strength> {
        Some(text.parse().unwrap())
    }

    #[test]
    fn a_strength_is_granted_to_known_addresses_up_to_the_limit_and_for_a_while() {
        let mut grants = Grants::new(AutoConfig::default(), None, 4);
        grants.on_request(0, &BACK, strength("8:1"));
        assert_eq!((grants.strength_of(&OUT), grants.requests_granted()), (None, 0));
        for refused in ["3:2", "mds:255:16", "256:128"] {
            grants.on_request(0, &BACK, strength(refused));
        }
        assert_eq!((grants.version(1), grants.requests_granted()), (1, 0));
        grants.on_request(5, &BACK, strength("mds:64:8"));
        assert_eq!(grants.version(6), 2);
        assert_eq!(grants.strength_of(&OUT), strength("mds:64:8"));
        // Repeated, which is no change.
        grants.on_request(7, &BACK, strength("mds:64:8"));
        assert_eq!(grants.version(GRANT_NS + 6), 2);
        assert_eq!(grants.version(GRANT_NS + SWEEP_NS + 7), 3);
        assert_eq!((grants.strength_of(&OUT), grants.requests_granted()), (None, 2));
    }
}
