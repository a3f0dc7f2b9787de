//! Key derivation: HKDF with SHA-256 (RFC 5869) from one secret, which only the two ends have.
//!
//! ```text
//! secret of epoch 0 ─"lacuna epoch"─▶ secret of epoch 1 ─"lacuna epoch"─▶ …
//!    └─"lacuna packet", direction, channel─▶ key and nonce mask
//! ```
//!
//! Who learns a key or a later secret learns nothing of an earlier one. The nonce of a packet is its number, combined
//! with the mask by exclusive or (RFC 9001, 5.3).

use crate::cipher::Cipher;
use aws_lc_rs::aead::{Aad, LessSafeKey, NONCE_LEN, Nonce, Tag, UnboundKey};
use aws_lc_rs::error::Unspecified;
use aws_lc_rs::hkdf::{HKDF_SHA256, KeyType, Prk, Salt};
use zeroize::Zeroizing;

/// Bytes of a secret.
pub const SECRET_BYTES: usize = 32;

/// Which of the two ends seals a packet.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum End {
    /// The one that connected.
    Connecting,
    /// The one that accepted.
    Accepting,
}

impl End {
    /// The other one.
    #[must_use]
    pub const fn other(self) -> Self {
        match self {
            Self::Connecting => Self::Accepting,
            Self::Accepting => Self::Connecting,
        }
    }
}

/// A secret of both ends. Overwritten when it is dropped, and never shown.
#[derive(Clone)]
pub struct Secret(Zeroizing<[u8; SECRET_BYTES]>);

impl std::fmt::Debug for Secret {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("Secret(..)")
    }
}

/// The length of what is derived.
struct Length(usize);

impl KeyType for Length {
    fn len(&self) -> usize {
        self.0
    }
}

impl Secret {
    /// From bytes that nobody else knows, such as those of TLS's exporter (RFC 8446, 7.5).
    #[must_use]
    pub fn new(bytes: [u8; SECRET_BYTES]) -> Self {
        Self(Zeroizing::new(bytes))
    }

    /// Another secret, for a purpose of its own.
    #[must_use]
    pub fn derive(&self, label: &[u8], context: &[u8]) -> Self {
        let mut bytes = Zeroizing::new([0; SECRET_BYTES]);
        self.expand(&[label, context], bytes.as_mut());
        Self(bytes)
    }

    /// Another secret, for which one needs this one and some secret material.
    #[must_use]
    pub(crate) fn mix(&self, material: &[u8]) -> Self {
        let mixed = Salt::new(HKDF_SHA256, self.0.as_ref()).extract(material);
        let mut bytes = Zeroizing::new([0; SECRET_BYTES]);
        let okm = mixed.expand(&[b"lacuna mix"], HKDF_SHA256).expect("one hash long");
        okm.fill(bytes.as_mut()).expect("one hash long");
        Self(bytes)
    }

    /// A number that only follows from the secret, for a purpose and an index of its own.
    #[must_use]
    pub fn number(&self, label: &[u8], index: u64) -> u64 {
        let mut bytes = [0; 8];
        self.expand(&[label, &index.to_be_bytes()], &mut bytes);
        u64::from_be_bytes(bytes)
    }

    /// Bytes that only follow from the secret, for a purpose of their own.
    pub(crate) fn bytes<const N: usize>(&self, label: &[u8], context: &[u8]) -> Zeroizing<[u8; N]> {
        let mut bytes = Zeroizing::new([0; N]);
        self.expand(&[label, context], bytes.as_mut());
        bytes
    }

    /// The secret of the next epoch.
    #[must_use]
    pub(crate) fn next(&self) -> Self {
        self.derive(b"lacuna epoch", &[])
    }

    /// The key of a channel in one direction.
    pub(crate) fn key(&self, cipher: Cipher, from: End, channel: u8) -> PacketKey {
        let place = [from as u8, channel];
        let mut bytes = Zeroizing::new([0; SECRET_BYTES]);
        let bytes = &mut bytes[..cipher.algorithm().key_len()];
        self.expand(&[b"lacuna packet key", &place], bytes);
        let key =
            UnboundKey::new(cipher.algorithm(), bytes).expect("a key has its algorithm's length");
        let mut mask = Zeroizing::new([0; NONCE_LEN]);
        self.expand(&[b"lacuna packet nonce", &place], mask.as_mut());
        PacketKey { key: LessSafeKey::new(key), mask }
    }

    pub(crate) fn expand(&self, info: &[&[u8]], out: &mut [u8]) {
        let length = Length(out.len());
        let okm = Prk::new_less_safe(HKDF_SHA256, self.0.as_ref());
        let okm = okm.expand(info, length).expect("shorter than 255 hashes");
        okm.fill(out).expect("it has the length that was asked for");
    }
}

/// A key of one direction, channel and epoch.
pub(crate) struct PacketKey {
    key: LessSafeKey,
    mask: Zeroizing<[u8; NONCE_LEN]>,
}

impl std::fmt::Debug for PacketKey {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("PacketKey(..)")
    }
}

impl PacketKey {
    fn nonce(&self, number: u64) -> Nonce {
        let mut nonce = *self.mask;
        for (byte, of_number) in nonce[NONCE_LEN - 8..].iter_mut().zip(number.to_be_bytes()) {
            *byte ^= of_number;
        }
        Nonce::assume_unique_for_key(nonce)
    }

    /// Encrypts in place. The caller never uses a number twice.
    pub(crate) fn seal(
        &self,
        number: u64,
        head: &[u8],
        in_out: &mut [u8],
    ) -> Result<Tag, Unspecified> {
        self.key.seal_in_place_separate_tag(self.nonce(number), Aad::from(head), in_out)
    }

    /// Encrypts in place, and what is `behind` it into `out`, which has room for it and the tag. The caller never uses a
    /// number twice.
    pub(crate) fn seal_behind(
        &self,
        number: u64,
        head: &[u8],
        in_out: &mut [u8],
        behind: &[u8],
        out: &mut [u8],
    ) -> Result<(), Unspecified> {
        self.key.seal_in_place_scatter(self.nonce(number), Aad::from(head), in_out, behind, out)
    }

    /// Decrypts in place what has its tag behind it. What is in it after an error means nothing.
    pub(crate) fn open_in_place(
        &self,
        number: u64,
        head: &[u8],
        in_out: &mut [u8],
    ) -> Result<(), Unspecified> {
        self.key.open_in_place(self.nonce(number), Aad::from(head), in_out).map(|_| ())
    }

    /// Decrypts into `out`, which is as long as the ciphertext. What is in it after an error means nothing.
    pub(crate) fn open(
        &self,
        number: u64,
        head: &[u8],
        (ciphertext, tag): (&[u8], &[u8]),
        out: &mut [u8],
    ) -> Result<(), Unspecified> {
        self.key.open_separate_gather(self.nonce(number), Aad::from(head), ciphertext, tag, out)
    }
}
