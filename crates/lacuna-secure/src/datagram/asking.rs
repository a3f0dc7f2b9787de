//! Hellos that wait for their answers.
//!
//! An address that something is to be sent to is asked again and again for a while. One that only sent what does not
//! open is a *stranger*: it may be anybody's whose address was forged. It is asked once for each packet or two that
//! came from it, so that it gets at most three times the bytes that came; few are asked at a time and in a second;
//! and none is asked again by a timer.
//!
//! Invariants: `times` has each hello once, at its `due_ns`; strangers and held bytes are bounded.

use super::Nonce;
use super::hello::BYTES;
use core::net::SocketAddr;
use std::collections::{BTreeSet, HashMap};

/// From one hello to the next, at first; each wait is twice the last one.
const AGAIN_NS: u64 = 100_000_000;
/// Hellos to an address that something is for: the last one waits 3.2 s, and 6.3 s have passed then.
const TRIES_MAX: u32 = 6;
/// Strangers that are asked at a time, and hellos to them in a second.
const STRANGERS_MAX: usize = 1024;
const STRANGERS_PER_S: u32 = 1000;
/// A stranger that does not answer is forgotten after this.
const STRANGER_NS: u64 = 1_000_000_000;
/// Bytes to an address for each that came from there, at most.
const AMPLIFICATION_MAX: usize = 3;
/// Packets of a stranger that are held back, and bytes of all of them.
const HELD_MAX: usize = 64;
const HELD_BYTES_MAX: usize = 1 << 20;
const SECOND_NS: u64 = 1_000_000_000;

/// What is known of an address from which came what does not open.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Standing {
    /// Nothing.
    Stranger,
    /// It has an association, and may be asked.
    Proved,
    /// It has one, and was asked lately.
    Asked,
}

#[derive(Debug)]
struct Ask {
    nonce: Nonce,
    /// See [`Asked::forgotten`].
    forgotten: u64,
    due_ns: u64,
    tries: u32,
    /// Something is to be sent there.
    is_wanted: bool,
    is_for_group: bool,
    /// Bytes that came from a stranger, and that it was sent; and when it was asked last.
    heard_bytes: usize,
    sent_bytes: usize,
    sent_ns: u64,
    held: Vec<Vec<u8>>,
}

impl Ask {
    /// Asked now for the first time, for nothing yet.
    fn new(now_ns: u64, nonce: Nonce, forgotten: u64, wait_ns: u64) -> Self {
        Self {
            nonce,
            forgotten,
            due_ns: now_ns + wait_ns,
            tries: 1,
            is_wanted: false,
            is_for_group: false,
            heard_bytes: 0,
            sent_bytes: BYTES,
            sent_ns: now_ns,
            held: Vec::new(),
        }
    }
}

/// One that was answered.
#[derive(Debug)]
pub(super) struct Asked {
    /// How many senders had been forgotten when it was asked first.
    pub(super) forgotten: u64,
    pub(super) is_wanted: bool,
    pub(super) is_for_group: bool,
    /// Group packets of who answered.
    pub(super) held: Vec<Vec<u8>>,
}

/// What is to be done as time has passed.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum Due {
    /// It is asked again.
    Again(SocketAddr, Nonce),
    /// Nobody answers where something is to be sent.
    Unanswered(SocketAddr),
    /// A stranger is forgotten.
    Over,
}

/// See the module's text.
#[derive(Debug, Default)]
pub(super) struct Asking {
    asks: HashMap<SocketAddr, Ask>,
    times: BTreeSet<(u64, SocketAddr)>,
    strangers: usize,
    held_bytes: usize,
    /// When this second began, and hellos to strangers in it.
    second_ns: u64,
    in_second: u32,
}

impl Asking {
    /// Something is to be sent to an address. The nonce to ask it with now, if it is not asked already;
    /// `draw` gives a new one, and what [`Asked::forgotten`] will be.
    pub(super) fn want(
        &mut self,
        now_ns: u64,
        to: SocketAddr,
        draw: impl FnOnce() -> (Nonce, u64),
    ) -> Option<Nonce> {
        if let Some(ask) = self.asks.get_mut(&to) {
            if !ask.is_wanted {
                (ask.is_wanted, ask.tries) = (true, 1);
                self.strangers -= 1;
                self.set_due(to, now_ns + AGAIN_NS);
            }
            return None;
        }
        let (nonce, forgotten) = draw();
        let ask = Ask { is_wanted: true, ..Ask::new(now_ns, nonce, forgotten, AGAIN_NS) };
        Some(self.begin(to, ask))
    }

    /// Waits for the answer of an address. The nonce to ask it with.
    fn begin(&mut self, address: SocketAddr, ask: Ask) -> Nonce {
        let nonce = ask.nonce;
        self.times.insert((ask.due_ns, address));
        self.asks.insert(address, ask);
        nonce
    }

    /// A packet came whose keys are not known. The nonce to ask its address with now, if that may be.
    pub(super) fn on_unknown(
        &mut self,
        now_ns: u64,
        from: SocketAddr,
        (bytes, is_for_group): (usize, bool),
        standing: Standing,
        draw: impl FnOnce() -> (Nonce, u64),
    ) -> Option<Nonce> {
        if now_ns.saturating_sub(self.second_ns) >= SECOND_NS {
            (self.second_ns, self.in_second) = (now_ns, 0);
        }
        let is_free = self.in_second < STRANGERS_PER_S;
        if let Some(ask) = self.asks.get_mut(&from) {
            ask.is_for_group |= is_for_group;
            ask.heard_bytes += bytes;
            let is_paid = ask.sent_bytes + BYTES <= AMPLIFICATION_MAX * ask.heard_bytes;
            let is_late = now_ns >= ask.sent_ns + AGAIN_NS;
            if ask.is_wanted || !is_late || !is_paid || !is_free {
                return None;
            }
            ask.sent_bytes += BYTES;
            ask.sent_ns = now_ns;
            self.in_second += 1;
            return Some(ask.nonce);
        }
        let may_ask = match standing {
            Standing::Stranger => {
                let is_paid = BYTES <= AMPLIFICATION_MAX * bytes;
                is_paid && is_free && self.strangers < STRANGERS_MAX
            }
            Standing::Proved => true,
            Standing::Asked => false,
        };
        if !may_ask {
            return None;
        }
        self.in_second += u32::from(standing == Standing::Stranger);
        self.strangers += 1;
        let (nonce, forgotten) = draw();
        let ask = Ask {
            is_for_group,
            heard_bytes: bytes,
            ..Ask::new(now_ns, nonce, forgotten, STRANGER_NS)
        };
        Some(self.begin(from, ask))
    }

    /// Keeps a group packet of who is asked; `false` if there is no room.
    pub(super) fn hold(&mut self, from: SocketAddr, packet: &[u8]) -> bool {
        let Some(ask) = self.asks.get_mut(&from) else { return false };
        if ask.held.len() >= HELD_MAX || self.held_bytes + packet.len() > HELD_BYTES_MAX {
            return false;
        }
        self.held_bytes += packet.len();
        ask.held.push(packet.to_vec());
        true
    }

    /// An answer came; `None` if it is to nothing that was asked.
    pub(super) fn take(&mut self, from: SocketAddr, nonce: &Nonce) -> Option<Asked> {
        self.asks.get(&from).filter(|ask| ask.nonce == *nonce)?;
        self.remove(from)
    }

    /// An address has keys, as it has asked itself; whether something is to be sent there. Only for its group packets an
    /// answer is still awaited.
    pub(super) fn on_associated(&mut self, now_ns: u64, at: SocketAddr) -> bool {
        let Some(ask) = self.asks.get_mut(&at) else { return false };
        let is_wanted = ask.is_wanted;
        if !ask.is_for_group {
            self.remove(at);
        } else if is_wanted {
            ask.is_wanted = false;
            self.strangers += 1;
            self.set_due(at, now_ns + STRANGER_NS);
        }
        is_wanted
    }

    pub(super) fn poll_timeout(&self) -> Option<u64> {
        self.times.first().map(|(ns, _)| *ns)
    }

    /// The next that is due.
    pub(super) fn pop_due(&mut self, now_ns: u64) -> Option<Due> {
        let (_, to) = self.times.first().copied().filter(|(ns, _)| *ns <= now_ns)?;
        let ask = self.asks.get_mut(&to)?;
        if ask.is_wanted && ask.tries < TRIES_MAX {
            ask.sent_ns = now_ns;
            ask.tries += 1;
            let (nonce, due_ns) = (ask.nonce, now_ns + (AGAIN_NS << (ask.tries - 1)));
            self.set_due(to, due_ns);
            return Some(Due::Again(to, nonce));
        }
        let is_wanted = self.remove(to).is_some_and(|ask| ask.is_wanted);
        Some(if is_wanted { Due::Unanswered(to) } else { Due::Over })
    }

    /// How many wait.
    pub(super) fn len(&self) -> usize {
        self.asks.len()
    }

    fn set_due(&mut self, of: SocketAddr, due_ns: u64) {
        if let Some(ask) = self.asks.get_mut(&of) {
            self.times.remove(&(ask.due_ns, of));
            ask.due_ns = due_ns;
            self.times.insert((due_ns, of));
        }
    }

    fn remove(&mut self, of: SocketAddr) -> Option<Asked> {
        let Ask { forgotten, due_ns, is_wanted, is_for_group, held, .. } = self.asks.remove(&of)?;
        self.times.remove(&(due_ns, of));
        self.strangers -= usize::from(!is_wanted);
        self.held_bytes -= held.iter().map(Vec::len).sum::<usize>();
        Some(Asked { forgotten, is_wanted, is_for_group, held })
    }
}
