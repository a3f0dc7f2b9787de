//! Packets with the key of a region. They belong to unbound receives: the first one that arrives chooses
//! the message's place (`region/bound.rs`), and from then on each is placed there.
//!
//! They never take the fast path of slots: an unbound receive has no bytes of its own, so to that path all
//! its packets are out of range. Their trailer is checked before a byte is written, since another writer's
//! bytes may be there already, which zeros must not replace; and their bits are set one by one.
//!
//! Invariants: a byte of a region is written under a pin of the slot and a pin of the key, both of which
//! the burst keeps; the key was checked for right, scope and range when it was pinned, and for its
//! generation after that.

use super::current::Current;
use super::{BurstPlacer, PacketId, piece_of};
use crate::discard::Discard;
use crate::geometry::Geometry;
use crate::payload::Payload;
use crate::receive::{Placed, Position};
use crate::region::{Bound, KeyError};
use lacuna_wire::DataHeader;

/// How long a packet is, and its place.
#[derive(Debug, Clone, Copy)]
struct Extent {
    /// In the key's range.
    address: u64,
    bytes: u64,
    /// Bytes of the packet after this piece.
    behind: u64,
}

impl BurstPlacer<'_> {
    /// Places a packet whose key is not the queue pair's own.
    #[inline(never)]
    pub(super) fn place_by_key(
        &mut self,
        header: &DataHeader,
        payload: impl Payload,
    ) -> Result<Placed, Discard> {
        let geometry = self.table.geometry();
        let id = self.packet_id(header);
        let PacketId { slot, packet, .. } = id;
        let is_pinned = self.is_current(id)
            && self.current.as_ref().is_some_and(|current| current.has_window(header.rkey));
        if !is_pinned {
            self.enter_window(header, id)?;
        }
        let Some(address) = header.address else { return Err(Discard::Key) };
        if geometry.channel_of(slot, packet) != self.channel {
            return Err(Discard::Channel);
        }
        let Some(current) = &mut self.current else { return Err(Discard::Late) };
        let Some(window) = current.window.as_deref() else { return Err(Discard::Key) };
        let is_parity = geometry.is_parity(packet);
        let extent =
            Extent { address, bytes: payload.len() as u64, behind: u64::from(header.behind) };
        let bound = match current.receive.bound() {
            Some(bound) => bound,
            None => {
                if is_parity {
                    return Err(Discard::Unbound);
                }
                let number = current.receive.number();
                let base = base_of(geometry, header, packet, extent, window.len());
                if base == Err(Discard::Window) {
                    self.summary.refused = Some(number);
                }
                let base = base?;
                let unbound = current.receive.as_unbound().ok_or(Discard::Key)?;
                // If another worker binds it first, the ticket goes back.
                let ticket = if header.carries_immediate { self.table.admit()? } else { None };
                let bind = || Bound::new(number, *geometry, window, base, ticket);
                unbound.bind(bind).ok_or(Discard::Unbound)?
            }
        };
        if bound.key() != header.rkey {
            return Err(Discard::Inconsistent);
        }
        if !bound.is_under(window) {
            self.summary.refused = Some(current.receive.number());
            return Err(Discard::Revoked);
        }
        let offset = address.checked_sub(bound.address()).ok_or(Discard::Inconsistent)?;
        let end = if is_parity { geometry.slot_bytes() } else { geometry.max_message_bytes() };
        if offset > end {
            return Err(Discard::Inconsistent);
        }
        let position = Position {
            packet,
            offset,
            ends_message: header.ends_message,
            carries_immediate: header.carries_immediate,
            fragment: id.fragment,
        };
        let pieces = ((bound.record().number(), packet), &mut *self.pieces);
        let message = bound.in_window(window);
        let placed = if is_parity {
            bound.record().take_parity(self.channel, position, (payload, header.behind), pieces)
        } else {
            match piece_of(position, self.mtu_bytes, payload.len(), header.behind) {
                None => message.place(position, payload),
                Some((position, piece)) => message.place_piece(position, piece, payload, pieces),
            }
        };
        if matches!(placed, Err(Discard::OutOfRange | Discard::Window)) {
            self.summary.refused = Some(current.receive.number());
        }
        let placed = placed.map_err(|reason| match reason {
            Discard::OutOfRange => Discard::Window,
            reason => reason,
        })?;
        if !matches!(placed, Placed::Duplicate { .. }) {
            current.receive.touch();
        }
        self.summary.touch(current.receive.number());
        if let Placed::Parity(outcome) = placed {
            self.repairs.on_parity(current, packet, outcome);
        } else {
            self.repairs.on_data(current, self.channel, packet);
        }
        Ok(placed)
    }

    /// Pins the slot of a packet and the key that it names.
    fn enter_window(&mut self, header: &DataHeader, id: PacketId) -> Result<(), Discard> {
        if !self.table.has_keys() || header.address.is_none() {
            return Err(Discard::Key);
        }
        // The key first: packets without one must not move the burst from its message.
        let window = match self.table.pin_key(header.rkey) {
            Ok(window) => window,
            Err(error) => return Err(self.refused(id, &error)),
        };
        if !self.is_current(id) && !self.enter(id) {
            return Err(Discard::Late);
        }
        let Some(current) = &mut self.current else { return Err(Discard::Late) };
        if !current.receive.is_unbound() {
            return Err(Discard::Key);
        }
        let parity = current.receive.record().parity();
        current.has_parity = parity.is_some_and(|parity| !parity.is_empty(self.channel));
        current.window = Some(window);
        Ok(())
    }

    /// The reason to discard a packet whose key was not pinned.
    #[cold]
    fn refused(&mut self, id: PacketId, error: &KeyError) -> Discard {
        let Some(receive) = self.table.pin(id.slot, id.generation) else {
            // Mostly of a message that was refused.
            let is_revoked = matches!(error, KeyError::Revoked { .. });
            return if is_revoked { Discard::Revoked } else { Discard::Key };
        };
        if receive.is_unbound()
            && matches!(error, KeyError::Revoked { .. } | KeyError::Right { .. })
        {
            self.summary.refused = Some(receive.number());
        }
        match error {
            _ if !receive.is_unbound() => Discard::Key,
            KeyError::Unknown { .. } => Discard::UnknownKey,
            KeyError::Revoked { .. } => Discard::Revoked,
            KeyError::Guesses { .. } => Discard::Guesses,
            KeyError::Right { .. } => Discard::Right,
            KeyError::Scope { .. } => Discard::Scope,
            KeyError::Range { .. } => Discard::Window,
        }
    }
}

/// The address of the message of a data packet, in a key's range of `range_bytes`.
fn base_of(
    geometry: &Geometry,
    header: &DataHeader,
    packet: u32,
    Extent { address, bytes, behind }: Extent,
    range_bytes: u64,
) -> Result<u64, Discard> {
    let mtu_bytes = u64::from(geometry.mtu_bytes());
    // Where the piece begins in its packet: a packet that does not end the message is full, and else
    // nothing tells a piece from the whole.
    let start = match header.ends_message {
        true if behind > 0 || bytes == 0 && packet > 0 => return Err(Discard::Unbound),
        true if bytes > mtu_bytes => return Err(Discard::Inconsistent),
        true => 0,
        false if bytes == 0 && packet > 0 => return Err(Discard::Unbound),
        false => mtu_bytes.checked_sub(bytes + behind).ok_or(Discard::Inconsistent)?,
    };
    let offset = u64::from(packet) * mtu_bytes + start;
    if offset + bytes > geometry.max_message_bytes() {
        return Err(Discard::Inconsistent);
    }
    let end = address.checked_add(bytes).ok_or(Discard::Window)?;
    if end > range_bytes {
        return Err(Discard::Window);
    }
    address.checked_sub(offset).ok_or(Discard::Window)
}

impl Current<'_> {
    /// Whether the key of the message's place is pinned.
    #[inline]
    pub(super) fn has_window(&self, key: u32) -> bool {
        self.window.as_ref().is_some_and(|window| window.key() == key)
    }
}
