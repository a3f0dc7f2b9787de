//! SPAKE2 (Abdalla and Pointcheval 2005; the parameters of python-spake2, not those of RFC 9382), bound to a TLS session,
//! with confirmation by both ends.
//!
//! Two ends that have the same code get the same key; one that has not, or sits between them, can test one code per
//! exchange and learns nothing for another one. The identities are each end's role, its public key, and a secret of the
//! TLS session (its exporter, RFC 8446, 7.5). So nothing of an exchange is good in another TLS session, with another key
//! at either end, or for the other role.

use crate::code::Code;
use crate::key::{KEY_BYTES, KeyError, PublicKey};
use aws_lc_rs::constant_time::verify_slices_are_equal;
use aws_lc_rs::hkdf::{HKDF_SHA256, Salt};
use aws_lc_rs::rand::{SecureRandom, SystemRandom};
use rand_core::{CryptoRng, RngCore};
use spake2::{Ed25519Group, Identity, Password, Spake2};
use std::fmt;
use zeroize::Zeroizing;

/// Bytes of an end's message: its side, and a point of the curve.
pub(crate) const MESSAGE_BYTES: usize = 33;
/// Bytes of a confirmation.
pub(crate) const CONFIRMATION_BYTES: usize = 32;

/// Which of the two an end is.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Role {
    Connecting,
    Accepting,
}

/// What a proof is bound to.
#[derive(Clone)]
pub(crate) struct Binding {
    pub(crate) role: Role,
    pub(crate) own: PublicKey,
    pub(crate) peer: PublicKey,
    /// A secret of the TLS session.
    pub(crate) session: Zeroizing<[u8; 32]>,
}

/// An end that has said its message and waits for the peer's.
pub(crate) struct Pake {
    role: Role,
    state: Spake2<Ed25519Group>,
}

/// What the ends say to each other to show that they have the same key.
pub(crate) struct Confirmations {
    pub(crate) own: [u8; CONFIRMATION_BYTES],
    peer: Zeroizing<[u8; CONFIRMATION_BYTES]>,
}

impl fmt::Debug for Binding {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { role, own, peer, .. } = self;
        write!(f, "Binding({role:?}, {own}, {peer})")
    }
}

impl fmt::Debug for Pake {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Pake")
    }
}

impl fmt::Debug for Confirmations {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Confirmations")
    }
}

impl Role {
    fn name(self) -> &'static [u8] {
        match self {
            Self::Connecting => b"lacuna code connecting",
            Self::Accepting => b"lacuna code accepting",
        }
    }

    fn other(self) -> Self {
        match self {
            Self::Connecting => Self::Accepting,
            Self::Accepting => Self::Connecting,
        }
    }
}

impl Binding {
    fn identity(&self, role: Role) -> Zeroizing<Vec<u8>> {
        let key = if role == self.role { self.own } else { self.peer };
        Zeroizing::new([role.name(), &self.session[..], key.as_bytes()].concat())
    }
}

impl Pake {
    /// Begins, and returns what to say.
    pub(crate) fn begin(code: &Code, binding: &Binding) -> Result<(Self, Vec<u8>), KeyError> {
        let identities = [Role::Connecting, Role::Accepting].map(|role| binding.identity(role));
        Ok(Self::begin_with(binding.role, code.as_bytes(), &identities, Drawn::new()?))
    }

    fn begin_with(
        role: Role,
        password: &[u8],
        identities: &[Zeroizing<Vec<u8>>; 2],
        drawn: Drawn,
    ) -> (Self, Vec<u8>) {
        let password = Password::new(password);
        let [connecting, accepting] = identities.each_ref().map(|of| Identity::new(of));
        let begin = match role {
            Role::Connecting => Spake2::start_a_with_rng,
            Role::Accepting => Spake2::start_b_with_rng,
        };
        let (state, message) = begin(&password, &connecting, &accepting, drawn);
        (Self { role, state }, message)
    }

    /// Takes the peer's message. `None` if it is none.
    ///
    /// # Panics
    /// Never: the lengths are right.
    pub(crate) fn finish(self, message: &[u8]) -> Option<Confirmations> {
        let key = Zeroizing::new(self.state.finish(message).ok()?);
        // The key is a hash of all that was said, so its holder confirms all of it.
        let secret = Salt::new(HKDF_SHA256, b"lacuna code confirmation").extract(&key);
        let confirmation = |role: Role| {
            let mut bytes = [0; CONFIRMATION_BYTES];
            let info = [role.name()];
            let okm = secret.expand(&info, HKDF_SHA256).expect("one hash long");
            okm.fill(&mut bytes).expect("one hash long");
            bytes
        };
        let peer = Zeroizing::new(confirmation(self.role.other()));
        Some(Confirmations { own: confirmation(self.role), peer })
    }
}

impl Confirmations {
    /// Whether the peer said what only one with the same key can say.
    pub(crate) fn is_right(&self, said: &[u8]) -> bool {
        verify_slices_are_equal(&*self.peer, said).is_ok()
    }
}

/// Random bytes that were drawn beforehand, where the system's failure can be told: as many as a scalar is made of.
struct Drawn(Zeroizing<[u8; 64]>);

impl Drawn {
    fn new() -> Result<Self, KeyError> {
        let mut bytes = Zeroizing::new([0; 64]);
        SystemRandom::new().fill(bytes.as_mut()).map_err(|_| KeyError::Random)?;
        Ok(Self(bytes))
    }
}

impl CryptoRng for Drawn {}

impl RngCore for Drawn {
    fn next_u32(&mut self) -> u32 {
        rand_core::impls::next_u32_via_fill(self)
    }

    fn next_u64(&mut self) -> u64 {
        rand_core::impls::next_u64_via_fill(self)
    }

    /// All at once: none is given twice.
    fn fill_bytes(&mut self, bytes: &mut [u8]) {
        assert_eq!(bytes.len(), self.0.len(), "bytes of a scalar");
        bytes.copy_from_slice(&*self.0);
    }

    fn try_fill_bytes(&mut self, bytes: &mut [u8]) -> Result<(), rand_core::Error> {
        self.fill_bytes(bytes);
        Ok(())
    }
}

const _: () = assert!(KEY_BYTES == 32 && MESSAGE_BYTES == KEY_BYTES + 1);

#[cfg(test)]
mod tests;
