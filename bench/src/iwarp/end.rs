//! What every contestant can do: an end that sends messages of one length to its peer, and takes the peer's.

use anyhow::{Context as _, Result, bail};
use serde::Serialize;
use std::time::{Duration, Instant};

/// Ends what hangs.
pub(super) const LONG: Duration = Duration::from_secs(3);
/// Looks between two glances at the clock.
const LOOKS: u32 = 1 << 12;

/// How an end waits.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
#[serde(rename_all = "lowercase")]
pub(super) enum Wait {
    /// It looks again and again: busy polling.
    Poll,
    /// It sleeps in the system until something comes.
    Block,
}

impl Wait {
    pub(super) fn name(self) -> &'static str {
        match self {
            Self::Poll => "polling",
            Self::Block => "blocking",
        }
    }
}

/// What an end is to do in a turn.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Role {
    /// A message there, a message back.
    PingPong,
    /// Many messages, one after the other, without waiting for the peer more than its flow control asks for.
    Sender,
    /// Takes those.
    Receiver,
}

/// See the module's text.
pub(super) trait End: Send {
    /// Before a turn.
    fn begin(&mut self, wait: Wait, role: Role) -> Result<()>;

    /// Sends a message. A sender may keep it back for others to go along, if it is one that coalesces.
    fn send(&mut self) -> Result<()>;

    /// Waits for the next message of the peer, and takes it.
    fn take(&mut self) -> Result<()>;

    /// A sender's end of a turn: waits until the peer has taken everything.
    fn await_peer(&mut self) -> Result<()>;

    /// A receiver's end of a turn: tells the sender so.
    fn tell_peer(&mut self) -> Result<()>;
}

/// Turns of a contestant that may end with a loss, one after the other. A host that is busy otherwise may stop an end for
/// longer than the other one takes for silence.
const LOST_TURNS_MAX: u32 = 5;

/// Both ends of a contestant.
pub(super) type Ends = [Box<dyn End>; 2];

/// A contestant, whose ends live through all rounds. They are made anew if something was lost.
pub(super) struct Contestant<'m> {
    pub(super) name: &'static str,
    make: Box<dyn Fn() -> Result<Ends> + 'm>,
    ends: Option<Ends>,
    /// Turns that ended with a loss, and were taken again.
    pub(super) lost_turns: u32,
}

impl<'m> Contestant<'m> {
    pub(super) fn new(name: &'static str, make: impl Fn() -> Result<Ends> + 'm) -> Self {
        Self { name, make: Box::new(make), ends: None, lost_turns: 0 }
    }

    /// Takes a turn.
    pub(super) fn take(&mut self, turn: impl Fn(&mut Ends) -> Result<f64>) -> Result<f64> {
        let mut lost = 0;
        loop {
            let mut ends = match self.ends.take() {
                Some(ends) => ends,
                None => (self.make)().context(self.name)?,
            };
            match turn(&mut ends) {
                Ok(value) => {
                    self.ends = Some(ends);
                    return Ok(value);
                }
                Err(error) if lost == LOST_TURNS_MAX => return Err(error.context(self.name)),
                Err(_) => (lost, self.lost_turns) = (lost + 1, self.lost_turns + 1),
            }
        }
    }
}

/// Looks until there is something.
pub(super) fn look_until<T>(mut look: impl FnMut() -> Result<Option<T>>) -> Result<T> {
    let mut begun = None;
    loop {
        for _ in 0..LOOKS {
            if let Some(found) = look()? {
                return Ok(found);
            }
        }
        if begun.get_or_insert_with(Instant::now).elapsed() > LONG {
            bail!("nothing came for {} s", LONG.as_secs());
        }
        // Where both ends share a core, the other one has to run.
        std::thread::yield_now();
    }
}
