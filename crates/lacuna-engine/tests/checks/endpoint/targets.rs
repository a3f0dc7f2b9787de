//! Regions that the peer of `endpoint.rs` writes and reads by keys, some of which do not allow it, and each
//! of which may be revoked at any time.
//!
//! Asserted: a byte changes only to what a packet of the burst wrote there, under a key that lived, for
//! this peer, with the right to write and in its range (with a code, to anything in the range of such a
//! key); in an exclusive region a valid byte does not change at all; the validity map and the records of
//! messages claim nothing but what such packets wrote; and no byte leaves that no key lets the peer read.

use lacuna_engine::testing::Rng;
use lacuna_place::region::{
    Access, Bound, KeyTable, Region, RegionConfig, RegisterError, Rights, Scope,
};
use lacuna_wire::DataHeader;
use std::collections::{BTreeSet, VecDeque};
use std::ops::Range;
use std::sync::Arc;

/// The peer's number in the table of keys.
pub(super) const PEER: u64 = 1;
const REGION_BYTES: usize = 4096;
const SECRET_BYTES: usize = 2048;
/// What no key lets the peer read, and what one does.
const SECRET: u8 = 0x5E;
const PUBLIC: u8 = 0xC0;
/// Revoked keys that are still named.
const REVOKED_MAX: usize = 8;

/// What a key is for.
struct Shape {
    range: Range<u64>,
    rights: Rights,
    scope: Scope,
    /// Of the region that is written, or of the one with the secret.
    is_secret: bool,
    /// The key that it is a window of.
    parent: Option<usize>,
}

const ANY: Scope = Scope::Any;
const fn shape(range: Range<u64>, rights: Rights, scope: Scope) -> Shape {
    Shape { range, rights, scope, is_secret: false, parent: None }
}

/// All keys; ranges are of the regions.
fn shapes() -> [Shape; 6] {
    let both = Rights::REMOTE_WRITE | Rights::REMOTE_READ;
    [
        shape(256..2304, Rights::REMOTE_WRITE, ANY),
        shape(1500..4000, both, Scope::Peer(PEER)),
        shape(1600..2200, Rights::REMOTE_WRITE, ANY).window_of(1),
        shape(0..4096, both, Scope::Peer(PEER + 1)),
        shape(0..1000, Rights::REMOTE_READ, ANY).of_secret(),
        shape(0..2048, Rights::LOCAL, ANY).of_secret(),
    ]
}

impl Shape {
    fn window_of(self, parent: usize) -> Self {
        Self { parent: Some(parent), ..self }
    }

    fn of_secret(self) -> Self {
        Self { is_secret: true, ..self }
    }

    /// Whether the peer may write under such a key.
    fn is_writable(&self) -> bool {
        self.rights.contains(Rights::REMOTE_WRITE) && self.scope != Scope::Peer(PEER + 1)
    }
}

/// See the module's text.
pub(super) struct Targets {
    pub(super) keys: Arc<KeyTable>,
    region: Arc<Region>,
    secret: Arc<Region>,
    shapes: [Shape; 6],
    /// The key of each shape, if it lives.
    live: [Option<u32>; 6],
    revoked: VecDeque<u32>,
    rng: Rng,
    has_code: bool,
    /// The region's bytes at the last check, and its valid ones.
    seen: Vec<u8>,
    valid: Vec<bool>,
    /// Bytes that somebody with the right to do so has written, for all that is known.
    written: Vec<bool>,
    /// What the packets since the last check may have written.
    offered: Vec<(usize, Vec<u8>)>,
    /// Keys and addresses of all packets that could be placed.
    named: BTreeSet<(u32, u64)>,
}

impl Targets {
    pub(super) fn new(is_exclusive: bool, has_code: bool) -> Self {
        let config = RegionConfig { has_validity: true, is_exclusive };
        let mut targets = Self {
            keys: Arc::new(KeyTable::new(5)),
            region: Region::new(vec![0xA5; REGION_BYTES], config),
            secret: Region::new(vec![SECRET; SECRET_BYTES], RegionConfig::default()),
            shapes: shapes(),
            live: [None; 6],
            revoked: VecDeque::new(),
            rng: Rng::new(2),
            has_code,
            seen: vec![0xA5; REGION_BYTES],
            valid: vec![false; REGION_BYTES],
            written: vec![false; REGION_BYTES],
            offered: Vec::new(),
            named: BTreeSet::new(),
        };
        (0..targets.shapes.len()).for_each(|index| targets.register(index));
        targets
    }

    fn register(&mut self, index: usize) {
        let Self { keys, region, secret, shapes, live, rng, .. } = self;
        let Shape { range, rights, scope, is_secret, parent } = &shapes[index];
        let access = Access { rights: *rights, scope: *scope };
        let mut draw = || rng.next_u64() as u32;
        let key = match parent {
            Some(parent) => {
                let start = shapes[*parent].range.start;
                let range = range.start - start..range.end - start;
                live[*parent].map(|key| keys.window(key, range, access, draw))
            }
            None => {
                if *is_secret && rights.contains(Rights::REMOTE_READ) {
                    let public = vec![PUBLIC; (range.end - range.start) as usize];
                    secret.write(range.start, &public).unwrap();
                }
                let region = if *is_secret { secret } else { region };
                Some(keys.register(region, range.clone(), access, &mut draw))
            }
        };
        live[index] = match key {
            Some(Ok(key)) => Some(key),
            Some(Err(RegisterError::Unknown { .. })) | None => None,
            Some(Err(error)) => panic!("{error}"),
        };
    }

    /// Revokes the key of a shape, or registers it if it has none.
    pub(super) fn turn(&mut self, index: usize) {
        let index = index % self.shapes.len();
        let Some(key) = self.live[index].take() else { return self.register(index) };
        assert!(self.keys.revoke(key), "it was live");
        let windows: Vec<usize> = (0..self.shapes.len())
            .filter(|other| self.shapes[*other].parent == Some(index))
            .collect();
        let gone = windows.into_iter().filter_map(|other| self.live[other].take()).chain([key]);
        self.revoked.extend(gone);
        while self.revoked.len() > REVOKED_MAX {
            self.revoked.pop_front();
        }
        let shape = &self.shapes[index];
        if shape.is_secret && shape.rights.contains(Rights::REMOTE_READ) {
            self.secret.write(0, &[SECRET; SECRET_BYTES]).unwrap();
        }
    }

    /// Takes the marks of a range.
    pub(super) fn take(&mut self, range: Range<u64>) {
        if let Some(validity) = self.region.validity() {
            validity.take(range);
        }
        self.note_valid();
    }

    /// A key to name: mostly a live one, sometimes a revoked or unknown one.
    pub(super) fn key(&self, choice: u8) -> u32 {
        let near = self.live[usize::from(choice) % self.live.len()];
        match choice >> 4 {
            15 => u32::from(choice),
            14 | 13 => self.revoked.get(usize::from(choice & 7)).copied().unwrap_or(0),
            _ => near.or(self.revoked.back().copied()).unwrap_or(u32::MAX),
        }
    }

    /// Where a message of this number begins, and its key: the same for all of its packets.
    pub(super) fn place_of(&self, number: u64) -> (u32, u64) {
        // Mostly keys that the peer may write under.
        let index = [0, 1, 0, 2, 1, 3, 0, 4][(number % 8) as usize];
        let Range { start, end } = self.shapes[index].range.clone();
        let key = self.live[index].or(self.revoked.back().copied()).unwrap_or(0);
        (key, number.wrapping_mul(0x9E37_79B9) >> 7 & 0x3FF & (end - start - 1))
    }

    /// A packet is about to be placed.
    pub(super) fn offer(&mut self, header: &DataHeader, payload: &[u8]) {
        let Some(address) = header.address else { return };
        let index = self.live.iter().position(|key| *key == Some(header.rkey));
        let Some(shape) = index.map(|index| &self.shapes[index]) else { return };
        let len = shape.range.end - shape.range.start;
        let is_inside = address.checked_add(payload.len() as u64).is_some_and(|end| end <= len);
        if !shape.is_writable() || shape.is_secret || !is_inside {
            return;
        }
        let start = (shape.range.start + address) as usize;
        self.named.insert((header.rkey, address));
        self.written[start..start + payload.len()].fill(true);
        self.offered.push((start, payload.to_vec()));
    }

    /// A payload that this end sends. Its own ones have other bytes. Returns whether it is of an answer.
    pub(super) fn on_sent(&self, payload: &[u8]) -> bool {
        // Parity is any byte.
        assert!(self.has_code || !payload.contains(&SECRET), "a secret is sent");
        payload.contains(&PUBLIC)
    }

    /// No byte that is sent is the secret, so none that is received is.
    pub(super) fn without_secret(mut bytes: Vec<u8>) -> Vec<u8> {
        bytes.iter_mut().filter(|byte| **byte == SECRET).for_each(|byte| *byte ^= 1);
        bytes
    }

    fn is_writable(&self, offset: usize) -> bool {
        self.shapes.iter().zip(&self.live).any(|(shape, key)| {
            key.is_some()
                && shape.is_writable()
                && !shape.is_secret
                && shape.range.contains(&(offset as u64))
        })
    }

    fn bytes(&self) -> Vec<u8> {
        let mut bytes = vec![0; REGION_BYTES];
        self.region.read(0, &mut bytes).unwrap();
        bytes
    }

    fn note_valid(&mut self) {
        let Some(validity) = self.region.validity() else { return };
        self.valid.fill(false);
        for range in validity.copy(0..self.region.len()).ranges() {
            self.valid[range.start as usize..range.end as usize].fill(true);
        }
    }

    /// Asserts what the module's text says; called after each operation.
    pub(super) fn check(&mut self) {
        let bytes = self.bytes();
        for (offset, byte) in bytes.iter().enumerate().filter(|(at, byte)| self.seen[*at] != **byte)
        {
            let is_of = |(start, payload): &(usize, Vec<u8>)| {
                offset.checked_sub(*start).is_some_and(|at| payload.get(at) == Some(byte))
            };
            let is_repaired = self.has_code && self.is_writable(offset);
            assert!(
                is_repaired || self.offered.iter().any(is_of),
                "byte {offset} became {byte:#x}, which nobody may have written"
            );
            let is_kept = self.region.is_exclusive() && self.valid[offset];
            assert!(!is_kept, "valid byte {offset} of an exclusive region has changed");
            self.written[offset] = true;
        }
        self.seen = bytes;
        self.offered.clear();
        self.note_valid();
        if !self.has_code {
            let claimed =
                self.valid.iter().zip(&self.written).position(|(valid, is)| *valid && !is);
            assert_eq!(claimed, None, "a byte is said to be valid that nobody wrote");
        }
    }

    /// Asserts that a message's record claims only packets that could be placed.
    pub(super) fn check_record(&self, bound: &Bound, mtu_bytes: u64) {
        let record = bound.record();
        let packets = record.capacity_bytes().div_ceil(mtu_bytes) as u32;
        for packet in (0..packets).filter(|_| !self.has_code) {
            let is_here = record.packets_here(packet / 64) >> (packet % 64) & 1 == 1;
            let address = bound.address() + u64::from(packet) * mtu_bytes;
            assert!(
                !is_here || self.named.contains(&(bound.key(), address)),
                "packet {packet} is said to be here"
            );
        }
    }
}
