//! Lacuna's datagram queue pair as a contestant: Sends, or Write-Records.
//!
//! Progress is made in the calls of the end, as with the others: it has no thread of its own. In a ping-pong a message
//! leaves by the call after it was posted. A sender of many lets the queue pair see some at a time, which it
//! bundles by itself.
//!
//! Where the others have TCP's flow control, this one has *credit*: a small Send back from the receiver after every so
//! many messages, and a sender that has at most a window of bytes on their way. So no packet finds the receiver's
//! socket full, and every byte arrives; the receiver checks that. A Write-Record's target learns of it by its completion
//! queue.

use super::bulk::IN_FLIGHT;
use super::end::{End, LONG, Role, Wait, look_until};
use super::path::Path;
use anyhow::{Context as _, Result, bail, ensure};
use lacuna::datagram::{
    Done, Operation, PeerId, QueuePair, RecvWork, SendWork, Settings, Target, Verb,
};
use lacuna::{Context, ContextConfig, Progress, Region, RegionOptions, Rights, SendBuffer, Slices};
use std::net::{IpAddr, SocketAddr};
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

/// Bytes on their way, at most; where messages are longer, some messages. It is less than a socket holds, and about
/// what a core's cache does.
const WINDOW_BYTES: usize = 512 << 10;
const WINDOW_MESSAGES_MIN: usize = 2;
/// Credits of a window.
const CREDITS: usize = 2;
/// Messages that are posted before the queue pair makes progress.
const POSTED_AHEAD: usize = 64;
/// Bytes of a credit.
const CREDIT_BYTES: usize = 8;

/// What the end's messages are.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Kind {
    Send,
    WriteRecord,
}

/// Messages on their way at most, and after how many a credit comes.
fn window(bytes: usize) -> (usize, usize) {
    let messages = (WINDOW_BYTES / bytes).max(WINDOW_MESSAGES_MIN);
    (messages, messages / CREDITS)
}

/// See the module's text.
pub(super) struct Datagram {
    queue_pair: QueuePair,
    peer: Option<PeerId>,
    kind: Kind,
    wait: Wait,
    role: Role,
    data: SendBuffer,
    credit: SendBuffer,
    /// Places of the receives, by their work requests' numbers.
    receives: Vec<Slices>,
    /// What the peer's Write-Records go to, and the peer's.
    memory: Region,
    target: Target,
    bytes: usize,
    /// Messages on their way, and those that the queue pair was not yet let see.
    in_flight: usize,
    ahead: usize,
    /// Messages taken since the last credit.
    since_credit: usize,
    _inbox: Region,
}

impl Datagram {
    /// An end with a socket at `local`, for messages of so many bytes.
    pub(super) fn new(
        local: IpAddr,
        kind: Kind,
        bytes: usize,
        packet_bytes: usize,
    ) -> Result<Self> {
        let queue_pair = queue_pair(local, packet_bytes)?;
        let context = queue_pair.context();
        let (window, every) = window(bytes);
        // Sends need a receive each; of Write-Records only the credits do.
        let (count, slot_bytes) = match kind {
            Kind::Send => (window + every, bytes.max(CREDIT_BYTES)),
            Kind::WriteRecord => (2 * CREDITS, CREDIT_BYTES),
        };
        let inbox = context.register(vec![0; count * slot_bytes], RegionOptions::default())?;
        let memory = context.register(vec![0; bytes], RegionOptions::default())?;
        let slot = |at: usize| {
            let start = (at * slot_bytes) as u64;
            inbox.slice(start..start + slot_bytes as u64)
        };
        let receives = (0..count).map(slot).collect::<Result<Vec<_>, _>>()?;
        for (id, into) in receives.iter().enumerate() {
            queue_pair.post_recv(RecvWork { id: id as u64, into: into.clone() })?;
        }
        Ok(Self {
            queue_pair,
            peer: None,
            kind,
            wait: Wait::Poll,
            role: Role::PingPong,
            data: SendBuffer::new(Arc::new(vec![0x5A; bytes])),
            credit: SendBuffer::new(Arc::new(vec![0; CREDIT_BYTES])),
            receives,
            memory,
            target: Target { key: 0, offset: 0 },
            bytes,
            in_flight: 0,
            ahead: 0,
            since_credit: 0,
            _inbox: inbox,
        })
    }

    pub(super) fn address(&self) -> SocketAddr {
        self.queue_pair.local_addr()
    }

    pub(super) fn key(&self) -> u32 {
        self.memory.key()
    }

    /// Tells it who its peer is, and the key of the peer's memory.
    pub(super) fn meet(&mut self, address: SocketAddr, key: u32) -> Result<()> {
        self.peer = Some(self.queue_pair.peer(address).context("all handles are held")?);
        self.target.key = key;
        Ok(())
    }

    fn post(&self, verb: Verb) -> Result<()> {
        let peer = self.peer.context("the ends have not met")?;
        let work = SendWork { is_signaled: false, ..SendWork::new(0, peer, verb) };
        Ok(self.queue_pair.post_send(work)?)
    }

    /// Lets everything that was posted leave.
    fn flush(&mut self) -> Result<()> {
        self.ahead = 0;
        look_until(|| {
            self.queue_pair.progress();
            Ok((self.queue_pair.stats().messages_waiting == 0).then_some(()))
        })
    }

    /// The next completion, of something that came.
    fn next(&mut self) -> Result<Done> {
        match self.wait {
            Wait::Poll => look_until(|| Ok(self.queue_pair.poll())),
            Wait::Block => self.queue_pair.wait(LONG).context("nothing came"),
        }
    }

    /// Waits for something that came, and posts its receive anew; how long it is.
    fn take_any(&mut self) -> Result<usize> {
        let done = self.next()?;
        done.status?;
        let arrived = done.arrived.as_deref().context("only what comes completes")?;
        let is_all = done.bytes == u64::from(arrived.length) && arrived.missed == 0;
        if !is_all {
            bail!(
                "lost: {} of {} bytes came, {} messages missed",
                done.bytes,
                arrived.length,
                arrived.missed
            );
        }
        if done.operation == Operation::Receive {
            let into = self.receives[done.id as usize].clone();
            self.queue_pair.post_recv(RecvWork { id: done.id, into })?;
        }
        Ok(done.bytes as usize)
    }

    fn await_credit(&mut self) -> Result<()> {
        let bytes = self.take_any()?;
        ensure!(bytes == CREDIT_BYTES, "{bytes} bytes are no credit");
        self.in_flight = self.in_flight.saturating_sub(window(self.bytes).1);
        Ok(())
    }

    fn give_credit(&mut self) -> Result<()> {
        self.since_credit = 0;
        self.post(Verb::Send { data: self.credit.clone() })?;
        self.flush()
    }
}

impl End for Datagram {
    fn begin(&mut self, wait: Wait, role: Role) -> Result<()> {
        (self.wait, self.role) = (wait, role);
        Ok(())
    }

    fn send(&mut self) -> Result<()> {
        let data = self.data.clone();
        let verb = match self.kind {
            Kind::Send => Verb::Send { data },
            Kind::WriteRecord => Verb::WriteRecord { data, to: self.target },
        };
        if self.role == Role::PingPong {
            self.post(verb)?;
            self.queue_pair.progress();
            return Ok(());
        }
        while self.in_flight == window(self.bytes).0 {
            self.flush()?;
            self.await_credit()?;
        }
        self.post(verb)?;
        self.in_flight += 1;
        self.ahead += 1;
        if self.ahead == POSTED_AHEAD || self.ahead * self.bytes >= WINDOW_BYTES / 4 {
            self.ahead = 0;
            self.queue_pair.progress();
        }
        Ok(())
    }

    fn take(&mut self) -> Result<()> {
        let bytes = self.take_any()?;
        ensure!(bytes == self.bytes, "{bytes} bytes came, expected {}", self.bytes);
        if self.role == Role::Receiver {
            self.since_credit += 1;
            if self.since_credit == window(self.bytes).1 {
                self.give_credit()?;
            }
        }
        Ok(())
    }

    fn await_peer(&mut self) -> Result<()> {
        self.flush()?;
        while self.in_flight > 0 {
            self.await_credit()?;
        }
        Ok(())
    }

    fn tell_peer(&mut self) -> Result<()> {
        // The last messages may be fewer than a credit is for.
        if self.since_credit > 0 { self.give_credit() } else { Ok(()) }
    }
}

/// An end that READs its peer's memory, or answers such READs. Who reads is the sender of a turn.
pub(super) struct Reader {
    queue_pair: QueuePair,
    peer: Option<PeerId>,
    /// What is read, and where it goes.
    source: Region,
    into: Slices,
    from: Target,
    in_flight: usize,
    /// READs that have ended, of the reader and as its peer sees them.
    ended: Arc<AtomicUsize>,
    seen: usize,
    _memory: Region,
}

impl Reader {
    /// Both ends, of READs of so many bytes.
    pub(super) fn pair(path: &Path, bytes: usize) -> Result<[Self; 2]> {
        let ended = Arc::new(AtomicUsize::new(0));
        let end = |side| {
            let (local, packet_bytes) = (path.address(side), path.udp_bytes());
            path.inside(side, || Self::new(local, bytes, packet_bytes, ended.clone()))
        };
        let (mut near, far) = (end(0)?, end(1)?);
        let far_address = far.queue_pair.local_addr();
        near.peer = Some(near.queue_pair.peer(far_address).context("all handles are held")?);
        near.from.key = far.source.key();
        Ok([near, far])
    }

    fn new(
        local: IpAddr,
        bytes: usize,
        packet_bytes: usize,
        ended: Arc<AtomicUsize>,
    ) -> Result<Self> {
        let queue_pair = queue_pair(local, packet_bytes)?;
        let context = queue_pair.context();
        let rights = Rights::REMOTE_READ;
        let source = context
            .register(vec![0x5A; bytes], RegionOptions { rights, ..RegionOptions::default() })?;
        let memory = context.register(vec![0; bytes], RegionOptions::default())?;
        let into = memory.slice(0..bytes as u64)?;
        let from = Target { key: 0, offset: 0 };
        let (in_flight, seen) = (0, 0);
        let peer = None;
        Ok(Self { queue_pair, peer, source, into, from, in_flight, ended, seen, _memory: memory })
    }

    fn await_read(&mut self) -> Result<()> {
        let done = look_until(|| Ok(self.queue_pair.poll()))?;
        done.status.with_context(|| format!("after {} bytes", done.bytes))?;
        ensure!(done.bytes == self.into.len(), "{} bytes came", done.bytes);
        self.in_flight -= 1;
        self.ended.fetch_add(1, Ordering::Relaxed);
        Ok(())
    }
}

impl End for Reader {
    fn begin(&mut self, _: Wait, _: Role) -> Result<()> {
        Ok(())
    }

    /// Posts a READ.
    fn send(&mut self) -> Result<()> {
        if self.in_flight == IN_FLIGHT {
            self.await_read()?;
        }
        let peer = self.peer.context("the ends have not met")?;
        let verb = Verb::Read { into: self.into.clone(), from: self.from };
        let deadline_ns = Some(self.queue_pair.now_ns() + LONG.as_nanos() as u64);
        let work = SendWork { deadline_ns, ..SendWork::new(0, peer, verb) };
        self.queue_pair.post_send(work)?;
        self.in_flight += 1;
        self.queue_pair.progress();
        Ok(())
    }

    /// Answers until the peer's next READ has ended.
    fn take(&mut self) -> Result<()> {
        self.seen += 1;
        look_until(|| {
            self.queue_pair.progress();
            Ok((self.ended.load(Ordering::Relaxed) >= self.seen).then_some(()))
        })
    }

    fn await_peer(&mut self) -> Result<()> {
        while self.in_flight > 0 {
            self.await_read()?;
        }
        Ok(())
    }

    fn tell_peer(&mut self) -> Result<()> {
        Ok(())
    }
}

/// A queue pair with a context of its own and manual progress.
pub(super) fn queue_pair(local: IpAddr, packet_bytes: usize) -> Result<QueuePair> {
    let bind = local.into();
    let config = ContextConfig { bind, progress: Progress::Manual, ..ContextConfig::default() };
    // Echoes count datagrams, so nothing but messages may leave; TCP has no pace over loopback either.
    let settings = Settings { bind, packet_bytes, controller: None, ..Settings::default() };
    Ok(Context::new(config)?.datagram_queue_pair(&settings)?)
}
