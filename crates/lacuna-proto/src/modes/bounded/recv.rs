//! Receiver side: whether anything more of a message can come, apart from packets that the path has
//! reordered.
//!
//! On each channel, packets are sent in the order of their messages. So a packet of a later message,
//! or the sender's word behind everything, shows that the channel has nothing more of an earlier one.
//! A message is judged when that is so on every channel it may use.

use lacuna_path::small_vec::SmallVec;
use lacuna_place::reason::Reason;

/// What was heard on one channel.
#[derive(Debug, Clone, Copy, Default)]
struct Heard {
    /// One past the highest message of which a packet arrived.
    newest_end: u64,
    /// One past the ordinal of that message's receive.
    newest_receive_end: u64,
    /// The sender said that it has sent everything of the messages before this one.
    said: u64,
}

/// What is judged: a receive and what is known of its message.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Span {
    /// The first message number of the receive.
    pub first: u64,
    /// The last message number that the message may use: that in which it ends, if that is known.
    pub last: u64,
    /// The receive's place among all receives of the queue pair.
    pub ordinal: u64,
    /// The channel of the packet that ends the message, if that has arrived.
    pub ended_on: Option<u8>,
    /// Whether packets may follow that one: parity, or fragments of the immediate.
    pub goes_on: bool,
    /// Channels that the message may use; a mask.
    pub channels: u32,
}

/// What was heard on all channels.
#[derive(Debug, Clone)]
pub struct Watch {
    window: u64,
    channels: SmallVec<Heard>,
}

impl Watch {
    /// Nothing was heard yet.
    pub fn new(window: u32, channels: u8) -> Self {
        let channels = (0..channels).map(|_| Heard::default()).collect();
        Self { window: u64::from(window.max(1)), channels }
    }

    /// A packet of message `number`, which is for the receive `ordinal`, arrived on a channel. Returns
    /// whether it is of a later message than all before.
    pub fn on_packet(&mut self, channel: u8, number: u64, ordinal: u64) -> bool {
        let Some(heard) = self.channels.get_mut(usize::from(channel)) else { return false };
        if number < heard.newest_end {
            return false;
        }
        heard.newest_end = number + 1;
        heard.newest_receive_end = heard.newest_receive_end.max(ordinal + 1);
        true
    }

    /// The sender said on a channel that it has sent everything of the messages before `before`.
    /// Returns whether it said more than before.
    pub fn on_word(&mut self, channel: u8, before: u64) -> bool {
        let Some(heard) = self.channels.get_mut(usize::from(channel)) else { return false };
        let is_more = before > heard.said;
        heard.said = heard.said.max(before);
        is_more
    }

    /// Why the receive is over once its grace has passed; `None` while more may come.
    pub fn verdict(&self, span: &Span) -> Option<Reason> {
        let used = |channel: usize| span.channels >> channel & 1 == 1;
        let heard = self.channels.iter().enumerate().filter(|(channel, _)| used(*channel));
        let (mut is_passed, mut is_said, mut is_preempted) = (true, true, true);
        for (channel, heard) in heard {
            let said = heard.said > span.first;
            let ends_here = !span.goes_on && span.ended_on == Some(channel as u8);
            is_said &= said;
            is_passed &= said || ends_here || heard.newest_end > span.last + 1;
            is_preempted &= said || heard.newest_receive_end > span.ordinal + self.window;
        }
        match () {
            () if is_passed && span.ended_on.is_some() => Some(Reason::End),
            () if is_said => Some(Reason::Accounted),
            () if is_preempted => Some(Reason::Preempted),
            () => None,
        }
    }
}
