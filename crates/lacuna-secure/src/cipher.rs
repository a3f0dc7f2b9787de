//! The algorithms, and how much one key of each may do.

use aws_lc_rs::aead::{AES_128_GCM, Algorithm, CHACHA20_POLY1305};

/// An algorithm that encrypts and authenticates.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug, Default)]
pub enum Cipher {
    /// AES-128 in Galois counter mode: the faster one on processors with instructions for it.
    #[default]
    Aes128Gcm,
    /// ChaCha20 with Poly1305 (RFC 8439): the faster one on all others.
    ChaCha20Poly1305,
}

impl Cipher {
    /// All, in the order of preference where they are equally fast.
    pub const ALL: [Self; 2] = [Self::Aes128Gcm, Self::ChaCha20Poly1305];

    /// Name: lower case, stable.
    #[must_use]
    pub const fn name(self) -> &'static str {
        match self {
            Self::Aes128Gcm => "aes-128-gcm",
            Self::ChaCha20Poly1305 => "chacha20-poly1305",
        }
    }

    /// The one with this name.
    #[must_use]
    pub fn of_name(name: &str) -> Option<Self> {
        Self::ALL.into_iter().find(|cipher| cipher.name() == name)
    }

    /// Packets that one key may seal (RFC 9001, 6.6 and B.1.1): with more, ciphertexts of AES-GCM can be told from
    /// random bytes. ChaCha20 has no such limit; the same is used.
    #[must_use]
    pub const fn packets_max(self) -> u64 {
        match self {
            Self::Aes128Gcm | Self::ChaCha20Poly1305 => 1 << 23,
        }
    }

    /// Packets that may fail to open before the keys must not be used any more (RFC 9001, 6.6 and B.1.2): each is a
    /// guess at a tag.
    #[must_use]
    pub const fn failures_max(self) -> u64 {
        match self {
            Self::Aes128Gcm => 1 << 52,
            Self::ChaCha20Poly1305 => 1 << 36,
        }
    }

    /// Whether encrypting out of place is quicker than a copy that is encrypted in place. The library's ChaCha20 does what is
    /// out of place a block of 64 bytes at a time. Measured: M-secure-1.
    pub(crate) const fn is_quick_out_of_place(self) -> bool {
        matches!(self, Self::Aes128Gcm)
    }

    pub(crate) fn algorithm(self) -> &'static Algorithm {
        match self {
            Self::Aes128Gcm => &AES_128_GCM,
            Self::ChaCha20Poly1305 => &CHACHA20_POLY1305,
        }
    }
}
