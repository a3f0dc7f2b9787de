//! The peers of a datagram queue pair: an address, the numbers of both directions, and nothing more while nothing
//! is on its way.
//!
//! Equal addresses are one peer. A peer is made when the application names it, or when a message from it is taken;
//! what is on its way has its own tables. The application may *hold* a peer (its address handle); others go when
//! there are too many, those that were not used lately first (a clock with one bit, as pages of memory go).
//! A peer that went is a new one when it comes again: its numbers begin anew.
//!
//! Invariants: a slot is [`SLOT_BYTES`] long; an id names a peer until that goes, and none after.

use crate::numbers::{Seen, Sight};
use core::net::{IpAddr, Ipv6Addr, SocketAddr, SocketAddrV6};
use std::collections::HashMap;

/// Bytes of a peer: those of an idle one, beside its entry in the index.
pub const SLOT_BYTES: usize = 64;
const _: () = assert!(size_of::<Slot>() == SLOT_BYTES);

/// A peer of one queue pair: an address handle.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct PeerId {
    pub(crate) index: u32,
    generation: u32,
}

impl PeerId {
    /// The peer of what has none, such as a receive that was taken back.
    pub const NOBODY: Self = Self { index: u32::MAX, generation: u32::MAX };

    /// A number that stands for the peer, as in the scope of a key.
    #[must_use]
    pub const fn number(self) -> u64 {
        (self.generation as u64) << 32 | self.index as u64
    }

    /// The peer that a number stands for, for who keeps numbers: any is allowed, and most are nobody's.
    #[must_use]
    pub const fn of_number(number: u64) -> Self {
        Self { index: number as u32, generation: (number >> 32) as u32 }
    }
}

/// Where a message is from: what a source sends to a group is numbered apart from what it sends to this end alone.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Origin {
    pub(crate) address: SocketAddr,
    /// The group's number; 0 if there is none.
    pub(crate) group: u32,
}

/// Messages of a source that are numbered together, as far as an idle peer remembers them.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub(crate) enum Numbered {
    Sends,
    Records,
}

#[derive(Debug, Clone, Copy)]
struct Slot {
    ip: [u8; 16],
    /// Of a link-local address.
    scope: u32,
    port: u16,
    flags: u16,
    generation: u32,
    /// The next number of what is sent to it.
    next: [u32; 2],
    seen: [Seen; 2],
    /// Its entry among those with something to send, plus 1.
    active: u32,
}

const HELD: u16 = 1;
const USED: u16 = 2;
const FREE: u16 = 4;
const KEPT: u16 = 8;
/// It is a source in a group.
const OF_GROUP: u16 = 16;
/// It is several hosts: messages to it are a group's.
const IS_GROUP: u16 = 32;
/// A READ from it waits for its answer.
const READ: u16 = 64;
/// All of them; the bits above are of the address that it has sent to.
const FLAGS: u16 = 0xff;
const LOCAL_SHIFT: u32 = 8;
/// Addresses of this host that are told apart.
const LOCALS_MAX: usize = 255;

/// See the module's text.
#[derive(Debug)]
pub(crate) struct Peers {
    slots: Vec<Slot>,
    index: HashMap<(SocketAddr, u32), u32>,
    free: Vec<u32>,
    peers_max: usize,
    /// Where the clock's hand is.
    hand: usize,
    random: u64,
    evicted: u64,
    /// Addresses of this host that peers have asked; a slot has the place of one in it, plus 1.
    locals: Vec<IpAddr>,
}

impl Peers {
    pub(crate) fn new(peers_max: usize, seed: u64) -> Self {
        Self {
            slots: Vec::new(),
            index: HashMap::new(),
            free: Vec::new(),
            peers_max: peers_max.clamp(1, u32::MAX as usize - 1),
            hand: 0,
            random: seed,
            evicted: 0,
            locals: Vec::new(),
        }
    }

    pub(crate) fn len(&self) -> usize {
        self.slots.len() - self.free.len()
    }

    pub(crate) fn evicted(&self) -> u64 {
        self.evicted
    }

    /// The peer with this address, if it is known.
    pub(crate) fn find(&mut self, address: SocketAddr) -> Option<PeerId> {
        self.find_in(Origin { address, group: 0 })
    }

    /// What is known of this origin.
    pub(crate) fn find_in(&mut self, origin: Origin) -> Option<PeerId> {
        let index = *self.index.get(&(canonical(origin.address), origin.group))?;
        let slot = &mut self.slots[index as usize];
        slot.flags |= USED;
        Some(PeerId { index, generation: slot.generation })
    }

    /// The peer with this address, made if it is not there; `None` if all are held or have something on its way.
    pub(crate) fn find_or_add(&mut self, address: SocketAddr) -> Option<PeerId> {
        self.find_or_add_in(Origin { address, group: 0 })
    }

    /// The same of an origin.
    pub(crate) fn find_or_add_in(&mut self, origin: Origin) -> Option<PeerId> {
        if let Some(peer) = self.find_in(origin) {
            return Some(peer);
        }
        let group = origin.group;
        let address = canonical(origin.address);
        let (ip, scope) = match address {
            SocketAddr::V4(v4) => (v4.ip().to_ipv6_mapped().octets(), 0),
            SocketAddr::V6(v6) => (v6.ip().octets(), v6.scope_id()),
        };
        let index = self.free_slot()?;
        // Nothing is sent to a source as one of a group, so the group has the place of a number.
        let next = if group == 0 { [self.draw(), self.draw()] } else { [group; 2] };
        let of_group = if group == 0 { 0 } else { OF_GROUP };
        let slot = &mut self.slots[index as usize];
        *slot = Slot {
            ip,
            scope,
            port: address.port(),
            flags: USED | of_group,
            generation: slot.generation.wrapping_add(1),
            next,
            seen: [Seen::default(); 2],
            active: 0,
        };
        let generation = slot.generation;
        self.index.insert((address, group), index);
        Some(PeerId { index, generation })
    }

    fn free_slot(&mut self) -> Option<u32> {
        if let Some(index) = self.free.pop() {
            return Some(index);
        }
        if self.slots.len() < self.peers_max {
            let blank = Slot {
                ip: [0; 16],
                scope: 0,
                port: 0,
                flags: FREE,
                generation: 0,
                next: [0; 2],
                seen: [Seen::default(); 2],
                active: 0,
            };
            self.slots.push(blank);
            return Some(self.slots.len() as u32 - 1);
        }
        // Twice around clears every bit once.
        for _ in 0..2 * self.slots.len() {
            let at = self.hand;
            self.hand = (at + 1) % self.slots.len();
            let slot = &mut self.slots[at];
            if slot.flags & (HELD | KEPT | READ) != 0 || slot.active != 0 {
                continue;
            }
            if slot.flags & USED != 0 {
                slot.flags &= !USED;
                continue;
            }
            self.evicted += 1;
            self.remove(at as u32);
            return self.free.pop();
        }
        None
    }

    fn remove(&mut self, index: u32) {
        let slot = &self.slots[index as usize];
        let group = if slot.flags & OF_GROUP == 0 { 0 } else { slot.next[0] };
        self.index.remove(&(address_of(slot), group));
        let slot = &mut self.slots[index as usize];
        slot.flags = FREE;
        slot.generation = slot.generation.wrapping_add(1);
        self.free.push(index);
    }

    /// Keeps a peer until it is let go.
    pub(crate) fn hold(&mut self, peer: PeerId, is_held: bool) {
        if let Some(slot) = self.slot_mut(peer) {
            slot.flags = if is_held { slot.flags | HELD } else { slot.flags & !HELD };
        }
    }

    /// A peer has sent to this address of the host; answers leave from it.
    pub(crate) fn set_local(&mut self, address: SocketAddr, local: Option<IpAddr>) {
        let Some(peer) = self.find(address) else { return };
        let number = match local {
            None => 0,
            Some(local) => match self.locals.iter().position(|known| *known == local) {
                Some(at) => at + 1,
                None if self.locals.len() < LOCALS_MAX => {
                    self.locals.push(local);
                    self.locals.len()
                }
                None => 0,
            },
        };
        if let Some(slot) = self.slot_mut(peer) {
            slot.flags = slot.flags & FLAGS | (number as u16) << LOCAL_SHIFT;
        }
    }

    /// The address that packets to a peer leave from, if it has sent to one.
    pub(crate) fn local(&self, address: SocketAddr) -> Option<IpAddr> {
        if self.locals.is_empty() {
            return None;
        }
        let index = *self.index.get(&(canonical(address), 0))?;
        let number = usize::from(self.slots[index as usize].flags >> LOCAL_SHIFT);
        self.locals.get(number.checked_sub(1)?).copied()
    }

    /// Messages to this peer are a group's.
    pub(crate) fn set_group(&mut self, peer: PeerId) {
        if let Some(slot) = self.slot_mut(peer) {
            slot.flags |= IS_GROUP;
        }
    }

    /// Whether messages to a peer are a group's.
    pub(crate) fn is_group(&self, peer: PeerId) -> bool {
        let Some(slot) = self.slot(peer) else { return false };
        slot.flags & IS_GROUP != 0 || is_group(address_of(slot))
    }

    /// The same by its address.
    pub(crate) fn is_group_at(&self, address: SocketAddr) -> bool {
        let known = self.index.get(&(canonical(address), 0));
        is_group(address)
            || known.is_some_and(|index| self.slots[*index as usize].flags & IS_GROUP != 0)
    }

    /// The group that a peer is; 0 if it is one host.
    pub(crate) fn group(&self, peer: PeerId) -> u32 {
        match self.slot(peer).filter(|slot| slot.flags & IS_GROUP != 0).map(address_of) {
            Some(address) => lacuna_wire::ddp::group_number(address.ip(), address.port()),
            None => 0,
        }
    }

    /// How much higher a number is than any that came of a peer.
    pub(crate) fn ahead(&self, peer: PeerId, of: Numbered, number: u32) -> u32 {
        self.slot(peer).map_or(0, |slot| slot.seen[of as usize].ahead(number))
    }

    /// No message of a peer up to this number comes any more; how many are missed.
    pub(crate) fn settle(&mut self, peer: PeerId, of: Numbered, number: u32) -> u32 {
        self.slot_mut(peer).map_or(0, |slot| slot.seen[of as usize].settle(number))
    }

    /// The number of the last message to a peer, if there was one.
    pub(crate) fn last_number(&self, peer: PeerId, of: Numbered) -> Option<u32> {
        Some(self.slot(peer)?.next[of as usize].wrapping_sub(1))
    }

    /// Keeps a peer as long as it has a stream.
    pub(crate) fn keep(&mut self, peer: PeerId, is_kept: bool) {
        if let Some(slot) = self.slot_mut(peer) {
            slot.flags = if is_kept { slot.flags | KEPT } else { slot.flags & !KEPT };
        }
    }

    /// Keeps a peer as long as a READ waits for its answer.
    pub(crate) fn keep_for_reads(&mut self, peer: PeerId, is_kept: bool) {
        if let Some(slot) = self.slot_mut(peer) {
            slot.flags = if is_kept { slot.flags | READ } else { slot.flags & !READ };
        }
    }

    pub(crate) fn address(&self, peer: PeerId) -> Option<SocketAddr> {
        self.slot(peer).map(address_of)
    }

    /// The id of a slot that is in use.
    #[cfg(test)]
    pub(crate) fn id_of(&self, index: u32) -> Option<PeerId> {
        let slot = self.slots.get(index as usize).filter(|slot| slot.flags & FREE == 0)?;
        Some(PeerId { index, generation: slot.generation })
    }

    /// The number of the next message to a peer.
    pub(crate) fn next_number(&mut self, peer: PeerId, of: Numbered) -> Option<u32> {
        let next = &mut self.slot_mut(peer)?.next[of as usize];
        let number = *next;
        *next = number.wrapping_add(1);
        Some(number)
    }

    /// Takes in the number of a message from a peer.
    pub(crate) fn take_number(&mut self, peer: PeerId, of: Numbered, number: u32) -> Sight {
        match self.slot_mut(peer) {
            Some(slot) => slot.seen[of as usize].take(number),
            None => Sight::Old,
        }
    }

    /// Whether a message from a peer was taken in lately.
    pub(crate) fn knows_number(&self, peer: PeerId, of: Numbered, number: u32) -> bool {
        self.slot(peer).is_some_and(|slot| slot.seen[of as usize].knows(number))
    }

    /// The entry of a peer that has something to send.
    pub(crate) fn active(&self, peer: PeerId) -> Option<u32> {
        self.slot(peer)?.active.checked_sub(1)
    }

    pub(crate) fn set_active(&mut self, peer: PeerId, entry: Option<u32>) {
        if let Some(slot) = self.slot_mut(peer) {
            slot.active = entry.map_or(0, |entry| entry + 1);
        }
    }

    pub(crate) fn memory_bytes(&self) -> usize {
        // The index has a byte beside each entry, and is at most 7/8 full.
        self.slots.capacity() * size_of::<Slot>()
            + self.index.capacity() * (size_of::<((SocketAddr, u32), u32)>() + 1) * 8 / 7
            + self.free.capacity() * size_of::<u32>()
    }

    fn slot(&self, peer: PeerId) -> Option<&Slot> {
        self.slots.get(peer.index as usize).filter(|slot| is_of(slot, peer))
    }

    fn slot_mut(&mut self, peer: PeerId) -> Option<&mut Slot> {
        self.slots.get_mut(peer.index as usize).filter(|slot| is_of(slot, peer))
    }

    /// A number that others do not know beforehand, but that is the same for the same seed.
    fn draw(&mut self) -> u32 {
        self.random =
            self.random.wrapping_mul(0x5851_f42d_4c95_7f2d).wrapping_add(0x1405_7b7e_f767_814f);
        (self.random >> 32) as u32
    }
}

fn is_of(slot: &Slot, peer: PeerId) -> bool {
    slot.flags & FREE == 0 && slot.generation == peer.generation
}

fn address_of(slot: &Slot) -> SocketAddr {
    let ip = Ipv6Addr::from(slot.ip);
    match ip.to_ipv4_mapped() {
        Some(v4) => SocketAddr::new(IpAddr::V4(v4), slot.port),
        None => SocketAddrV6::new(ip, slot.port, 0, slot.scope).into(),
    }
}

/// Whether an address is of more than one host.
pub(crate) fn is_group(address: SocketAddr) -> bool {
    match address.ip() {
        IpAddr::V4(ip) => ip.is_multicast() || ip.is_broadcast(),
        IpAddr::V6(ip) => ip.is_multicast(),
    }
}

/// One form for each address: mapped ones are IPv4, and the flow label says nothing about the peer.
pub(crate) fn canonical(address: SocketAddr) -> SocketAddr {
    match address {
        SocketAddr::V4(_) => address,
        SocketAddr::V6(v6) => match v6.ip().to_ipv4_mapped() {
            Some(v4) => SocketAddr::new(IpAddr::V4(v4), v6.port()),
            None => SocketAddrV6::new(*v6.ip(), v6.port(), 0, v6.scope_id()).into(),
        },
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn address(host: u16) -> SocketAddr {
        let [high, low] = host.to_be_bytes();
        SocketAddr::from(([127, 1, high, low], 7407))
    }

    #[test]
    fn equal_addresses_are_one_peer_and_come_back_as_they_were() {
        let mut peers = Peers::new(10, 1);
        let addresses: [SocketAddr; 4] = [
            "10.0.0.1:7".parse().unwrap(),
            "[::ffff:10.0.0.1]:7".parse().unwrap(),
            "[fe80::1%3]:9".parse().unwrap(),
            "[2001:db8::1]:9".parse().unwrap(),
        ];
        let ids = addresses.map(|address| peers.find_or_add(address).unwrap());
        assert_eq!((ids[0], peers.len()), (ids[1], 3));
        for at in [0, 2, 3] {
            assert_eq!(peers.address(ids[at]), Some(addresses[at]));
            assert_eq!(peers.find(addresses[at]), Some(ids[at]));
        }
    }

    #[test]
    fn a_peer_is_found_by_its_number_and_any_other_is_nobodys() {
        let mut peers = Peers::new(10, 1);
        let peer = peers.find_or_add(address(1)).unwrap();
        assert_eq!(PeerId::of_number(peer.number()), peer);
        assert_eq!(PeerId::of_number(u64::MAX), PeerId::NOBODY);
        for other in [0, 1, peer.number() + 1, peer.number() ^ 1 << 63, u64::MAX] {
            let other = PeerId::of_number(other);
            peers.hold(other, true);
            peers.set_group(other);
            assert_eq!((peers.address(other), peers.group(other)), (None, 0), "{other:?}");
        }
    }

    #[test]
    fn peers_that_are_used_or_held_stay_and_ids_of_those_that_went_name_nobody() {
        let mut peers = Peers::new(4, 1);
        let ids: Vec<_> = (0..4).map(|host| peers.find_or_add(address(host)).unwrap()).collect();
        peers.hold(ids[0], true);
        peers.set_active(ids[1], Some(0));
        for host in 4..100 {
            peers.find(address(3));
            assert!(peers.find_or_add(address(host)).is_some());
            assert_eq!(peers.len(), 4);
        }
        assert!(peers.address(ids[0]).is_some() && peers.address(ids[1]).is_some());
        assert_eq!(peers.address(ids[2]), None);
        assert_eq!(peers.evicted(), 96);
        for host in [0, 1] {
            peers.hold(peers.id_of(host).unwrap(), true);
        }
        (0..4).for_each(|index| peers.hold(peers.id_of(index).unwrap(), true));
        assert_eq!(peers.find_or_add(address(1000)), None, "all are held");
    }

    #[test]
    fn ten_thousand_idle_peers_take_less_than_two_megabytes() {
        let mut peers = Peers::new(1 << 20, 1);
        (0..10_000).for_each(|host| assert!(peers.find_or_add(address(host)).is_some()));
        assert!(peers.memory_bytes() < 2_000_000, "{}", peers.memory_bytes());
    }
}
