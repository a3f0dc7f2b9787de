//! A wrapper for tests whose `send` is a closure, so that a test can lose or refuse the packets that
//! it chooses. Everything else goes to the datapath inside.

use std::io;
use std::net::SocketAddr;

#[cfg(unix)]
use crate::EventSources;
use crate::{Burst, BurstBuffers, Capabilities, Datapath, Placer, SendError};

/// See the module's text.
pub struct Hooked<F> {
    inner: Box<dyn Datapath>,
    send: F,
    drops: u64,
}

impl<F> Hooked<F>
where
    F: FnMut(&mut dyn Datapath, u64, &Burst<'_, '_>) -> Result<usize, SendError> + Send,
{
    /// `send` is called in place of [`Datapath::send`], with the datapath inside.
    pub fn new(inner: Box<dyn Datapath>, send: F) -> Self {
        Self { inner, send, drops: 0 }
    }

    /// Adds `drops` to the packets that the receive queue reports as dropped.
    #[must_use]
    pub fn with_drops(self, drops: u64) -> Self {
        Self { drops, ..self }
    }
}

/// A datapath that loses each packet for which `passes` returns false.
pub fn judged(
    inner: Box<dyn Datapath>,
    mut passes: impl FnMut(&[u8]) -> bool + Send,
) -> impl Datapath {
    let (mut buffers, mut bytes) = (BurstBuffers::new(), Vec::new());
    Hooked::new(inner, move |inner, now_ns, burst| {
        bytes.clear();
        burst.packet(0).copy_to(&mut bytes);
        if !passes(&bytes) {
            return Ok(1);
        }
        let mut one = buffers.start(burst.destination());
        one.push(&[], &bytes, &[]);
        inner.send(now_ns, &one)
    })
}

impl<F> Datapath for Hooked<F>
where
    F: FnMut(&mut dyn Datapath, u64, &Burst<'_, '_>) -> Result<usize, SendError> + Send,
{
    fn capabilities(&self) -> Capabilities {
        self.inner.capabilities()
    }

    fn local_addr(&self) -> SocketAddr {
        self.inner.local_addr()
    }

    fn send(&mut self, now_ns: u64, burst: &Burst<'_, '_>) -> Result<usize, SendError> {
        (self.send)(&mut *self.inner, now_ns, burst)
    }

    fn receive(&mut self, now_ns: u64, placer: &mut dyn Placer) -> io::Result<usize> {
        self.inner.receive(now_ns, placer)
    }

    fn next_event_ns(&self) -> Option<u64> {
        self.inner.next_event_ns()
    }

    #[cfg(unix)]
    fn event_sources(&self) -> EventSources<'_> {
        self.inner.event_sources()
    }

    fn send_blocked(&self) -> bool {
        self.inner.send_blocked()
    }

    fn receive_drops(&self) -> u64 {
        self.inner.receive_drops() + self.drops
    }
}
