//! A datagram queue pair with many peers, for what they cost and how it treats them.

use super::datagram::queue_pair;
use super::echo::Echo;
use super::end::look_until;
use anyhow::{Context as _, Result};
use lacuna::datagram::{Operation, PeerId, QueuePair, RecvWork, SendWork, Verb};
use lacuna::{Region, RegionOptions, SendBuffer, Slices};
use std::net::{Ipv4Addr, SocketAddr};
use std::sync::Arc;

/// Of the small messages.
pub(super) const BYTES: usize = 64;
/// Packets as on Ethernet: small ones of many peers are compared, not bundles of long ones.
pub(super) const PACKET_BYTES: usize = 1472;

/// See the module's text.
pub(super) struct Hub {
    pub(super) queue_pair: QueuePair,
    receives: Vec<Slices>,
    data: SendBuffer,
    _inbox: Region,
}

impl Hub {
    /// With so many receives posted.
    pub(super) fn new(receives: usize) -> Result<Self> {
        let queue_pair = queue_pair(Ipv4Addr::LOCALHOST.into(), PACKET_BYTES)?;
        let inbox =
            queue_pair.context().register(vec![0; receives * BYTES], RegionOptions::default())?;
        let slot = |at: usize| inbox.slice((at * BYTES) as u64..((at + 1) * BYTES) as u64);
        let receives = (0..receives).map(slot).collect::<Result<Vec<_>, _>>()?;
        for (id, into) in receives.iter().enumerate() {
            queue_pair.post_recv(RecvWork { id: id as u64, into: into.clone() })?;
        }
        let data = SendBuffer::new(Arc::new(vec![0x5A; BYTES]));
        Ok(Self { queue_pair, receives, data, _inbox: inbox })
    }

    pub(super) fn meet(&self, address: SocketAddr) -> Result<PeerId> {
        self.queue_pair.peer(address).context("all handles are held")
    }

    pub(super) fn meet_all(&self, echo: &Echo, count: usize) -> Result<Vec<PeerId>> {
        (0..count).map(|number| self.meet(echo.peer(number))).collect()
    }

    /// Posts a small message.
    pub(super) fn post(&self, peer: PeerId) -> Result<()> {
        let verb = Verb::Send { data: self.data.clone() };
        let work = SendWork { is_signaled: false, ..SendWork::new(0, peer, verb) };
        Ok(self.queue_pair.post_send(work)?)
    }

    /// The next message that came, if there is one: whose. What else completes is told to `other`.
    pub(super) fn poll(&self, mut other: impl FnMut(u64) -> Result<()>) -> Result<Option<PeerId>> {
        let Some(done) = self.queue_pair.poll() else { return Ok(None) };
        done.status?;
        if done.operation != Operation::Receive {
            other(done.id)?;
            return Ok(None);
        }
        let into = self.receives[done.id as usize].clone();
        self.queue_pair.post_recv(RecvWork { id: done.id, into })?;
        Ok(Some(done.peer))
    }

    /// Waits for a message.
    pub(super) fn take(&self) -> Result<PeerId> {
        look_until(|| self.poll(|_| Ok(())))
    }

    /// Lets everything that was posted leave.
    pub(super) fn flush(&self) -> Result<()> {
        look_until(|| {
            self.queue_pair.progress();
            Ok((self.queue_pair.stats().messages_waiting == 0).then_some(()))
        })
    }
}
