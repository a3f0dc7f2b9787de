//! A queue pair whose datagrams are sealed: what its keyring hears of, and what waits for keys.

use super::Endpoint;
use super::network::Parsed;
use crate::peers::canonical;
use crate::run::Run;
use crate::sealing::Emitter;
use crate::work::Failure;
use core::net::{IpAddr, SocketAddr};
use lacuna_secure::datagram::{Keyring, KeyringEvent, OpenError, Opener};

/// Of so many it is known which address they have asked. An answer to who asks leaves at once, or not at all.
const STRANGERS_MAX: usize = 64;

impl Endpoint {
    /// Whether datagrams are sealed.
    #[must_use]
    pub fn is_sealed(&self) -> bool {
        self.keyring.is_some()
    }

    /// What makes the packets that [`Endpoint::poll_transmit`] gave into bytes, for this address. `None` if its keys are
    /// gone: the packets are lost.
    pub fn emitter(&mut self, now_ns: u64, to: SocketAddr) -> Option<Emitter> {
        let Some(keyring) = &mut self.keyring else { return Some(Emitter::default()) };
        Some(Emitter::sealing(match self.peers.is_group_at(to) {
            true => keyring.sending_to_groups(now_ns),
            false => keyring.sending(now_ns, canonical(to))?,
        }))
    }

    /// What opens datagrams of an address; `None` if they come in clear. What is open goes to [`Parsed::opened`], and
    /// the rest to [`Endpoint::on_unopened`].
    pub fn opener(&mut self, now_ns: u64, from: SocketAddr) -> Option<Opener> {
        Some(self.keyring.as_mut()?.opener(now_ns, canonical(from)))
    }

    /// A datagram did not open. `true` if it is open now, as any other.
    pub fn on_unopened(
        &mut self,
        now_ns: u64,
        from: SocketAddr,
        datagram: &mut [u8],
        error: OpenError,
    ) -> bool {
        let Some(keyring) = self.keyring.as_mut().filter(|_| !self.is_closed) else { return false };
        let is_open = keyring.on_unopened(now_ns, canonical(from), datagram, error);
        self.after_keyring();
        is_open
    }

    /// Datagrams of the last [`Endpoint::on_unopened`]'s source that were held back, and are open now.
    pub fn take_opened(&mut self) -> Vec<Vec<u8>> {
        let opened = self.keyring.as_mut().map(Keyring::take_opened);
        opened.into_iter().flatten().map(|(_, datagram)| datagram).collect()
    }

    /// A sealed datagram came, by itself.
    pub(super) fn on_sealed(&mut self, now_ns: u64, from: SocketAddr, datagram: &[u8]) {
        let Some(opener) = self.opener(now_ns, from) else { return };
        let mut datagram = datagram.to_vec();
        let is_open = match opener.open(&mut datagram) {
            Ok(()) => true,
            Err(error) => self.on_unopened(now_ns, from, &mut datagram, error),
        };
        let held = self.take_opened();
        for datagram in held.iter().chain(is_open.then_some(&datagram)) {
            if let Some(parsed) = Parsed::opened(datagram) {
                self.on_parsed(now_ns, from, parsed);
            }
        }
    }

    /// Somebody who is no peer has asked an address of this host: for keys, probably.
    pub(super) fn note_stranger(&mut self, from: SocketAddr, local: Option<IpAddr>) {
        let from = canonical(from);
        self.strangers.retain(|(stranger, _)| *stranger != from);
        if self.strangers.len() >= STRANGERS_MAX {
            self.strangers.pop_front();
        }
        self.strangers.extend(local.map(|local| (from, local)));
    }

    pub(super) fn stranger_asked(&self, to: SocketAddr) -> Option<IpAddr> {
        let to = canonical(to);
        let found = self.strangers.iter().rev().find(|(stranger, _)| *stranger == to);
        found.map(|(_, local)| *local)
    }

    /// The keyring's own packets, which it counts itself.
    pub(super) fn poll_greeting(&mut self, runs: &mut Vec<Run>) -> Option<SocketAddr> {
        let (to, packet) = self.keyring.as_mut()?.poll_transmit()?;
        runs.push(Run::greeting(packet));
        Some(to)
    }

    /// Whether packets may leave to an address.
    pub(super) fn has_keys(&mut self, now_ns: u64, to: SocketAddr) -> bool {
        let Some(keyring) = &mut self.keyring else { return true };
        self.peers.is_group_at(to) || keyring.is_ready(now_ns, canonical(to))
    }

    /// Messages that waited for keys go on, or end.
    pub(super) fn after_keyring(&mut self) {
        while let Some(event) = self.keyring.as_mut().and_then(Keyring::poll_event) {
            let (KeyringEvent::Ready(address) | KeyringEvent::Unanswered(address)) = event;
            let Some(peer) = self.peers.find(address) else { continue };
            match (&event, &mut self.reliable) {
                (KeyringEvent::Ready(_), Some(reliable)) => reliable.on_keys(peer),
                (KeyringEvent::Ready(_), None) => self.outgoing.on_keys(&self.peers, peer),
                (KeyringEvent::Unanswered(_), Some(reliable)) => {
                    reliable.on_no_keys(peer, &mut self.left);
                    self.after_reliable();
                }
                (KeyringEvent::Unanswered(_), None) => {
                    self.outgoing.on_no_keys(&mut self.peers, peer, &mut self.left);
                    self.reads.fail(peer, Failure::Unreachable, &mut self.done);
                    self.take_left();
                }
            }
        }
    }
}
