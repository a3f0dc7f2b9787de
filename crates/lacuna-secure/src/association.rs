//! The keys of one queue pair: all its channels, both directions.
//!
//! A channel has a lock for each direction. Who seals or opens a burst takes it once ([`Association::sealer`],
//! [`Association::opener`]); a channel has one thread, so nobody waits.

use crate::cipher::Cipher;
use crate::epoch::{self, Epochs};
use crate::schedule::{End, PacketKey, Secret};
use crate::window::{Window, unwrap};
use crate::{HEAD_BYTES, NUMBER_BYTES, PACKET_BYTES_MIN, TAG_BYTES, TRAILER_BYTES};
use aws_lc_rs::error::Unspecified;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Mutex, MutexGuard, PoisonError};

/// Bits of the number in a packet.
const NUMBER_BITS: u32 = 32 - epoch::BITS;
const NUMBER_MASK: u64 = (1 << NUMBER_BITS) - 1;

/// How long keys are used: until one of these is reached, and the peer has come along.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Limits {
    /// Packets of one channel.
    pub packets: u64,
    /// Packets of one channel that a key seals at most, if the peer does not come along: no more than its algorithm
    /// allows.
    pub packets_max: u64,
    /// Bytes of all channels.
    pub bytes: u64,
    /// Time.
    pub ns: u64,
}

impl Default for Limits {
    /// Half of what a key may seal, 64 GiB, an hour. What an end knows of keys that it uses no more than two epochs
    /// later is nothing, so the hour bounds what who breaks in can read of what went before.
    fn default() -> Self {
        Self {
            packets: Cipher::Aes128Gcm.packets_max() / 2,
            packets_max: Cipher::Aes128Gcm.packets_max(),
            bytes: 64 << 30,
            ns: 3_600_000_000_000,
        }
    }
}

/// A packet cannot be sealed.
#[derive(Clone, Copy, PartialEq, Eq, Debug, thiserror::Error)]
pub enum SealError {
    /// The key has sealed as much as it may, and the peer was not heard to follow to a new one.
    #[error("the key has sealed {packets} packets, and the peer was not heard since it is in use")]
    Spent {
        /// Packets that it has sealed.
        packets: u64,
    },
    /// Not a packet with room for a trailer.
    #[error("a packet of {found} bytes, at least {PACKET_BYTES_MIN} are needed")]
    TooShort {
        /// Its length.
        found: usize,
    },
}

/// A packet that is not to be used.
#[derive(Clone, Copy, PartialEq, Eq, Debug, thiserror::Error)]
pub enum OpenError {
    /// Shorter than any that is sealed.
    #[error("a packet of {found} bytes, at least {PACKET_BYTES_MIN} are needed")]
    TooShort {
        /// Its length.
        found: usize,
    },
    /// It came before, or is too old for that to be known.
    #[error("packet {number} came before, or is too late")]
    Repeated {
        /// Its number.
        number: u64,
    },
    /// Of an epoch that the peer cannot be in any more, or yet.
    #[error("of an epoch that is over")]
    Epoch,
    /// The tag is wrong: damaged, made by somebody else, or for somebody else.
    #[error("not sealed by the peer")]
    Forged,
    /// So many packets were forged that the keys are given up (RFC 9001, 6.6).
    #[error("{failures} packets were forged: the keys are given up")]
    Spent {
        /// How many.
        failures: u64,
    },
}

/// See the module's text.
#[derive(Debug)]
pub struct Association {
    cipher: Cipher,
    own: End,
    limits: Limits,
    epochs: Epochs,
    chain: Mutex<Chain>,
    sealing: Box<[Mutex<Sealing>]>,
    opening: Box<[Mutex<Opening>]>,
    failures: AtomicU64,
    /// Packets that a key has sealed which seals no more; 0 as long as there is none.
    spent_packets: AtomicU64,
}

/// Secrets of consecutive epochs.
#[derive(Debug)]
struct Chain {
    /// The epoch of the first one.
    first: u64,
    secrets: Vec<Secret>,
}

/// What seals the packets of a channel.
#[derive(Debug)]
struct Sealing {
    /// The next packet's number.
    number: u64,
    /// The number with which the present key began.
    since: u64,
    key: Option<(u64, PacketKey)>,
}

/// What opens the packets of a channel.
#[derive(Debug, Default)]
struct Opening {
    window: Window,
    /// Keys by epoch, at the place of the epoch's bits.
    keys: [Option<(u64, PacketKey)>; 1 << epoch::BITS],
}

impl Association {
    /// For a queue pair of `channels`, at the end `own`, with a secret that both ends have and use for nothing else.
    #[must_use]
    pub fn new(
        cipher: Cipher,
        secret: Secret,
        own: End,
        channels: u8,
        limits: Limits,
        now_ns: u64,
    ) -> Self {
        let sealing = || Mutex::new(Sealing { number: 0, since: 0, key: None });
        Self {
            cipher,
            own,
            limits,
            epochs: Epochs::new(now_ns),
            chain: Mutex::new(Chain { first: 0, secrets: vec![secret] }),
            sealing: (0..channels).map(|_| sealing()).collect(),
            opening: (0..channels).map(|_| Mutex::default()).collect(),
            failures: AtomicU64::new(0),
            spent_packets: AtomicU64::new(0),
        }
    }

    /// Its algorithm.
    #[must_use]
    pub fn cipher(&self) -> Cipher {
        self.cipher
    }

    /// How often keys were replaced.
    #[must_use]
    pub fn epoch(&self) -> u64 {
        self.epochs.current()
    }

    /// Packets that were not the peer's.
    #[must_use]
    pub fn failures(&self) -> u64 {
        self.failures.load(Ordering::Relaxed)
    }

    /// How many packets a key has sealed which had to seal another and may not ([`SealError::Spent`]), if there is one.
    /// Its queue pair cannot go on.
    #[inline]
    #[must_use]
    pub fn spent_packets(&self) -> Option<u64> {
        Some(self.spent_packets.load(Ordering::Relaxed)).filter(|packets| *packets > 0)
    }

    #[cold]
    fn on_spent(&self, packets: u64) -> SealError {
        self.spent_packets.store(packets.max(1), Ordering::Relaxed);
        SealError::Spent { packets }
    }

    /// Seals packets of a channel; `None` if there is no such channel.
    #[inline]
    #[must_use]
    pub fn sealer(&self, channel: u8, now_ns: u64) -> Option<Sealer<'_>> {
        let sealing = lock(self.sealing.get(usize::from(channel))?);
        Some(Sealer { association: self, channel, now_ns, sealing })
    }

    /// Opens packets of a channel; `None` if there is no such channel.
    #[inline]
    #[must_use]
    pub fn opener(&self, channel: u8, now_ns: u64) -> Option<Opener<'_>> {
        let opening = lock(self.opening.get(usize::from(channel))?);
        Some(Opener { association: self, channel, now_ns, opening })
    }

    /// The key of an epoch, which is the present one or beside it.
    fn key(&self, epoch: u64, from: End, channel: u8) -> Option<PacketKey> {
        let mut chain = lock(&self.chain);
        let index = usize::try_from(epoch.checked_sub(chain.first)?).ok()?;
        while chain.secrets.len() <= index {
            let next = chain.secrets.last()?.next();
            chain.secrets.push(next);
        }
        let key = chain.secrets[index].key(self.cipher, from, channel);
        // Nobody needs what is older than the epoch before the present one.
        let old = self.epochs.current().saturating_sub(1).saturating_sub(chain.first);
        let old = (old as usize).min(index);
        chain.secrets.drain(..old);
        chain.first += old as u64;
        Some(key)
    }
}

/// Seals packets of one channel.
#[derive(Debug)]
pub struct Sealer<'a> {
    association: &'a Association,
    channel: u8,
    now_ns: u64,
    sealing: MutexGuard<'a, Sealing>,
}

impl Sealer<'_> {
    /// Seals a whole packet in place: behind its headers and payload there is room for the trailer.
    ///
    /// # Errors
    /// See [`SealError`]. The packet must not be sent then.
    #[inline]
    pub fn seal(&mut self, packet: &mut [u8]) -> Result<(), SealError> {
        let end = covered_bytes(packet, 0)?;
        self.seal_as(packet, |key, number, packet| {
            let (covered, trailer) = packet.split_at_mut(end);
            let (head, text) = covered.split_at_mut(HEAD_BYTES);
            let tag = key.seal(number, head, text)?;
            trailer[NUMBER_BYTES..].copy_from_slice(tag.as_ref());
            Ok(())
        })
    }

    /// Seals a packet of which only the headers are written: its payload is read where it is, once, and encrypted on
    /// its way into the packet. What is between the headers and the trailer has the payload's length.
    ///
    /// # Errors
    /// See [`SealError`]. The packet must not be sent then.
    #[inline]
    pub fn seal_payload(&mut self, packet: &mut [u8], payload: &[u8]) -> Result<(), SealError> {
        let end = covered_bytes(packet, payload.len())?;
        if !self.association.cipher.is_quick_out_of_place() {
            packet[end - payload.len()..end].copy_from_slice(payload);
            return self.seal(packet);
        }
        self.seal_as(packet, |key, number, packet| {
            let (headers, place) = packet.split_at_mut(end - payload.len());
            let (head, text) = headers.split_at_mut(HEAD_BYTES);
            // The tag follows the payload here, and the number comes between the two.
            let sealed_bytes = payload.len() + TAG_BYTES;
            key.seal_behind(number, head, text, payload, &mut place[..sealed_bytes])?;
            place.copy_within(payload.len()..sealed_bytes, payload.len() + NUMBER_BYTES);
            Ok(())
        })
    }

    /// Lets `encrypt` do its work with the key and number of the next packet, and writes the number.
    #[inline(always)]
    fn seal_as(
        &mut self,
        packet: &mut [u8],
        encrypt: impl FnOnce(&PacketKey, u64, &mut [u8]) -> Result<(), Unspecified>,
    ) -> Result<(), SealError> {
        let association = self.association;
        let bytes = association.epochs.add_bytes(packet.len() as u64);
        // The peer may have replaced the keys since the last packet of this channel.
        let is_present = |sealing: &Sealing| {
            sealing.key.as_ref().is_some_and(|(of, _)| *of == association.epochs.current())
        };
        if !is_present(&self.sealing) {
            self.replace_key();
        }
        let used = self.sealing.number - self.sealing.since;
        let Limits { packets, packets_max, bytes: bytes_max, ns } = association.limits;
        let is_due =
            used >= packets || bytes > bytes_max || association.epochs.age_ns(self.now_ns) >= ns;
        if is_due && association.epochs.try_advance(self.now_ns) {
            self.replace_key();
        }
        let Sealing { number, since, key: Some((epoch, key)) } = &mut *self.sealing else {
            return Err(association.on_spent(used));
        };
        if *number - *since >= association.cipher.packets_max().min(packets_max) {
            return Err(association.on_spent(*number - *since));
        }
        encrypt(key, *number, packet).map_err(|_| association.on_spent(*number - *since))?;
        let word = (epoch::bits(*epoch) << NUMBER_BITS | *number & NUMBER_MASK) as u32;
        let number_at = packet.len() - TRAILER_BYTES;
        packet[number_at..][..NUMBER_BYTES].copy_from_slice(&word.to_be_bytes());
        *number += 1;
        Ok(())
    }

    #[cold]
    fn replace_key(&mut self) {
        let Association { own, .. } = *self.association;
        let epoch = self.association.epochs.current();
        let key = self.association.key(epoch, own, self.channel);
        self.sealing.key = key.map(|key| (epoch, key));
        self.sealing.since = self.sealing.number;
    }
}

/// Opens packets of one channel.
#[derive(Debug)]
pub struct Opener<'a> {
    association: &'a Association,
    channel: u8,
    now_ns: u64,
    opening: MutexGuard<'a, Opening>,
}

impl Opener<'_> {
    /// Opens a whole packet. `out` gets it as it was before it was sealed, up to the trailer, whose bytes it leaves as
    /// they are; returns that part. After an error, what `out` has means nothing.
    ///
    /// # Errors
    /// See [`OpenError`]. But for the count of failures nothing has changed then.
    ///
    /// # Panics
    /// If `out` is shorter than the packet.
    #[inline]
    pub fn open<'o>(
        &mut self,
        packet: &[u8],
        out: &'o mut [u8],
    ) -> Result<&'o mut [u8], OpenError> {
        let found = packet.len();
        let Some(end) = found.checked_sub(TRAILER_BYTES).filter(|end| *end >= HEAD_BYTES) else {
            return Err(OpenError::TooShort { found });
        };
        let (covered, trailer) = packet.split_at(end);
        let (head, text) = covered.split_at(HEAD_BYTES);
        let (word, tag) = trailer.split_at(NUMBER_BYTES);
        let word = word.iter().fold(0, |word, byte| word << 8 | u64::from(*byte));
        let number = unwrap(self.opening.window.next(), word & NUMBER_MASK, NUMBER_BITS);
        if !self.opening.window.is_new(number) {
            return Err(OpenError::Repeated { number });
        }
        let bits = word >> NUMBER_BITS;
        let epoch = self.association.epochs.of_bits(bits).ok_or(OpenError::Epoch)?;
        let failures = self.association.failures();
        if failures >= self.association.cipher.failures_max() {
            return Err(OpenError::Spent { failures });
        }
        if self.opening.keys[bits as usize].as_ref().is_none_or(|(of, _)| *of != epoch) {
            self.fetch_key(epoch)?;
        }
        let Some((_, key)) = &self.opening.keys[bits as usize] else {
            return Err(OpenError::Epoch);
        };
        let (out_head, out_text) = out[..end].split_at_mut(HEAD_BYTES);
        if key.open(number, head, (text, tag), out_text).is_err() {
            self.association.failures.fetch_add(1, Ordering::Relaxed);
            return Err(OpenError::Forged);
        }
        out_head.copy_from_slice(head);
        self.opening.window.note(number);
        self.association.epochs.on_opened(epoch, self.now_ns);
        Ok(&mut out[..end])
    }

    #[cold]
    fn fetch_key(&mut self, epoch: u64) -> Result<(), OpenError> {
        let Association { own, .. } = *self.association;
        let key = self.association.key(epoch, own.other(), self.channel).ok_or(OpenError::Epoch)?;
        // Keys that are two epochs old are dropped as well: nobody may use them.
        let current = self.association.epochs.current();
        for kept in &mut self.opening.keys {
            if kept.as_ref().is_some_and(|(of, _)| of + 1 < current) {
                *kept = None;
            }
        }
        self.opening.keys[epoch::bits(epoch) as usize] = Some((epoch, key));
        Ok(())
    }
}

/// Bytes before the trailer, among which are the headers and `payload_bytes`.
#[inline]
fn covered_bytes(packet: &[u8], payload_bytes: usize) -> Result<usize, SealError> {
    let found = packet.len();
    let headers = found.checked_sub(TRAILER_BYTES + payload_bytes);
    match headers {
        Some(headers) if headers >= HEAD_BYTES => Ok(found - TRAILER_BYTES),
        _ => Err(SealError::TooShort { found }),
    }
}

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

const _: () = assert!(TRAILER_BYTES == NUMBER_BYTES + TAG_BYTES);
