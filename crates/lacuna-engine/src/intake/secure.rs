//! Packets of queue pairs whose packets are encrypted. Each is opened into memory of the engine, and only if it is the
//! peer's it goes the way of all others: so what is not changes no memory, no bit, no window and no timer.

use super::Intake;
use crate::time::Time;
use lacuna_burst::ReceivedBatch;
use lacuna_secure::OpenError;
use lacuna_wire::rc::{is_rc, rc_destination};
use lacuna_wire::{ControlHeader, Packet, PacketError, Qpn, Seal};
use std::iter::Peekable;

/// The longest packet.
const PACKET_BYTES_MAX: usize = 1 << 16;

/// What ends a row of data packets: a packet of another kind, in the engine's memory.
enum Other {
    /// The headers and the length of the body, which begins at this offset.
    Control(ControlHeader, std::ops::Range<usize>),
    /// Of a reliable connection.
    Rc,
}

impl<T: Time> Intake<'_, T> {
    /// Opens a packet of queue pair `number` and those after it for the same one, and takes them.
    #[inline(never)]
    pub(super) fn take_secure<'p>(
        &mut self,
        number: u32,
        first: &'p [u8],
        batch: &ReceivedBatch<'_>,
        packets: &mut Peekable<impl Iterator<Item = &'p [u8]>>,
    ) {
        let Some(local) = self.locals.get_mut(number) else { return };
        let books = local.books.clone();
        let (association, counters) = (books.association(), self.counters);
        let Some(mut opener) = association.and_then(|keys| keys.opener(self.channel, self.now_ns))
        else {
            // Before both ends have keys nobody sends anything.
            return counters.unknown();
        };
        let stray = self.begin_stray(number, batch.source);
        let mut opened = std::mem::take(self.opened);
        opened.resize(PACKET_BYTES_MAX, 0);
        let mut next = Some(first);
        let is_next = |next: &&[u8]| rc_destination(next).map(Qpn::queue_pair) == Some(number);
        while let Some(mut packet) = next {
            // As long as they are data, with one placer.
            let mut placer = self.placer(number);
            let other = loop {
                let other = match opener.open(packet, &mut opened) {
                    Ok(_) => match Seal::Aead.parse(&opened[..packet.len()]) {
                        Ok(Packet::Data(mut header, payload)) => {
                            match &mut placer {
                                Some(placer) => {
                                    if header.address.is_none() {
                                        header.rkey = placer.rkey();
                                    }
                                    placer.place(&header, payload, batch.congestion_experienced);
                                }
                                None => counters.unknown(),
                            }
                            None
                        }
                        Ok(Packet::Control(header, body)) => {
                            let start = body.as_ptr().addr() - opened.as_ptr().addr();
                            Some(Other::Control(header, start..start + body.len()))
                        }
                        Err(_) if is_rc(packet) => Some(Other::Rc),
                        Err(error) => {
                            counters.reject(&error);
                            None
                        }
                    },
                    Err(error) => {
                        counters.reject(&refusal(error));
                        None
                    }
                };
                if other.is_some() {
                    break other;
                }
                match packets.next_if(is_next) {
                    Some(next) => packet = next,
                    None => break None,
                }
            };
            drop(placer);
            match other {
                None => break,
                Some(Other::Control(header, body)) => {
                    let body = &opened[body];
                    self.on_control(number, header.qkey, body, packet.len(), batch.source);
                }
                Some(Other::Rc) => {
                    self.take_rc(
                        &opened[..packet.len()],
                        batch,
                        &mut std::iter::empty().peekable(),
                    );
                }
            }
            next = packets.next_if(is_next);
        }
        drop(opener);
        *self.opened = opened;
        if let Some(stray) = stray {
            self.end_stray(stray);
        }
    }
}

/// What it is counted as.
#[cold]
fn refusal(error: OpenError) -> PacketError {
    match error {
        OpenError::TooShort { found } => {
            PacketError::TooShort { needed: lacuna_secure::PACKET_BYTES_MIN, found }
        }
        OpenError::Repeated { number } => PacketError::Repeated { number },
        OpenError::Epoch => PacketError::Epoch,
        OpenError::Forged | OpenError::Spent { .. } => PacketError::Forged,
    }
}
