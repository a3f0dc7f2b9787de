//! The peers of a keyring: how they come, go for others, and rest.
//!
//! All of them are in a ring. When there are too many, a hand goes around that ring and takes the first one which was not
//! used since it came by last (a clock with one bit, as pages of memory go). In small steps another one goes around it,
//! while anything is active, for ciphers and windows that were not used for a while.
//!
//! Invariant: `ring[peer.at]` is the address of each peer.

use super::{
    Association, Identity, Keyring, KeyringConfig, KeyringEvent, Peer, Receiving, Source, TO_GROUP,
    group_id, group_secret,
};
use core::net::SocketAddr;
use std::sync::Arc;

/// Peers' ciphers go when they were not used for this long, or a little longer.
const REST_NS: u64 = 10_000_000_000;
/// So many steps go once through all peers in that time: of a million, each looks at 20,000.
const REST_STEPS: u64 = 50;

impl Keyring {
    pub(super) fn install(&mut self, now_ns: u64, at: SocketAddr, association: Association) {
        self.stats.associated += 1;
        match self.peers.get_mut(&at) {
            Some(peer) => {
                peer.previous = Some(std::mem::replace(&mut peer.current, association));
            }
            None => {
                while self.ring.len() >= self.config.peers_max {
                    self.evict(now_ns);
                }
                let peer = Peer {
                    current: association,
                    previous: None,
                    source: None,
                    asked_ns: None,
                    is_used: true,
                    at: self.ring.len(),
                };
                self.ring.push(at);
                self.peers.insert(at, peer);
            }
        }
        self.stir(now_ns);
        if self.asking.on_associated(now_ns, at) {
            self.events.push_back(KeyringEvent::Ready(at));
        }
    }

    /// The sender to groups at an address is this one.
    pub(super) fn set_source(
        &mut self,
        now_ns: u64,
        at: SocketAddr,
        identity: Identity,
        floor: u64,
    ) {
        let Some(peer) = self.peers.get_mut(&at) else { return };
        let before = peer.source.replace(identity);
        if before == Some(identity) {
            return;
        }
        let KeyringConfig { cipher, limits, .. } = self.config;
        let secret = &self.secret;
        let source = self.sources.entry(identity).or_insert_with(|| {
            let secret = group_secret(secret, &identity);
            let receive =
                Receiving::new(TO_GROUP, group_id(&identity), cipher, limits, secret, floor);
            Source { receive: Arc::new(receive), users: 0 }
        });
        source.users += 1;
        if let Some(before) = before {
            self.drop_source(now_ns, before);
        }
    }

    fn drop_source(&mut self, now_ns: u64, identity: Identity) {
        let Some(source) = self.sources.get_mut(&identity) else { return };
        source.users -= 1;
        if source.users == 0 {
            self.sources.remove(&identity);
            self.fresh_since_ns = now_ns;
            self.forgotten += 1;
        }
    }

    /// A peer goes that was not used lately.
    fn evict(&mut self, now_ns: u64) {
        for _ in 0..=self.ring.len() {
            self.evict_at = if self.evict_at < self.ring.len() { self.evict_at } else { 0 };
            let Some(&address) = self.ring.get(self.evict_at) else { return };
            let is_used =
                self.peers.get_mut(&address).is_some_and(|peer| std::mem::take(&mut peer.is_used));
            if !is_used {
                self.stats.evicted += 1;
                return self.forget(now_ns, address);
            }
            self.evict_at += 1;
        }
        // All were used, and not any more now.
        if let Some(&address) = self.ring.first() {
            self.stats.evicted += 1;
            self.forget(now_ns, address);
        }
    }

    /// Drops what is known of a peer. Another association follows if there is more to be sent.
    pub fn forget(&mut self, now_ns: u64, address: SocketAddr) {
        let Some(peer) = self.peers.remove(&address) else { return };
        self.ring.swap_remove(peer.at);
        if let Some(moved) = self.ring.get(peer.at).and_then(|moved| self.peers.get_mut(moved)) {
            moved.at = peer.at;
        }
        if let Some(source) = peer.source {
            self.drop_source(now_ns, source);
        }
    }

    /// Something is active: the hand has to go around.
    pub(super) fn stir(&mut self, now_ns: u64) {
        self.is_any_active = true;
        self.rest_ns.get_or_insert(now_ns + REST_NS / REST_STEPS);
    }

    /// Looks at a part of the peers: what was not used since the last time rests.
    pub(super) fn rest(&mut self, now_ns: u64) {
        let until = |step: u64| (self.ring.len() as u64 * step / REST_STEPS) as usize;
        for address in &self.ring[until(self.rest_step)..until(self.rest_step + 1)] {
            let Some(peer) = self.peers.get_mut(address) else { continue };
            let current = &peer.current;
            let mut is_active = current.send.rest() | current.receive.rest();
            if let Some(previous) = &peer.previous {
                // It stays: where both ends asked at once, each may go on with the other's.
                is_active |= previous.send.rest() | previous.receive.rest();
            }
            if let Some(source) = peer.source.and_then(|source| self.sources.get(&source)) {
                is_active |= source.receive.rest();
            }
            self.is_any_active |= is_active;
        }
        self.rest_step = (self.rest_step + 1) % REST_STEPS;
        let goes_on = self.rest_step > 0 || std::mem::take(&mut self.is_any_active);
        self.rest_ns = goes_on.then_some(now_ns + REST_NS / REST_STEPS);
    }
}
