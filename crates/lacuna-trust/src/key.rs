//! Keys of hosts, and how they are written: the public half in a line, the secret half as PKCS#8 in PEM (RFC 8410), which
//! other programs read as well.

use aws_lc_rs::rand::{SecureRandom, SystemRandom};
use aws_lc_rs::signature::{Ed25519KeyPair, KeyPair};
use base64::Engine;
use base64::engine::general_purpose::{STANDARD, URL_SAFE_NO_PAD};
use std::fmt;
use std::str::FromStr;
use zeroize::Zeroizing;

/// Bytes of a public key, and of a secret one.
pub(crate) const KEY_BYTES: usize = 32;
/// What stands before a public key in a line.
const NAME: &str = "lacuna-ed25519";
/// DER around an Ed25519 key: `SubjectPublicKeyInfo` and `OneAsymmetricKey` (RFC 8410, 4 and 7).
const PUBLIC_DER: [u8; 12] = [0x30, 0x2a, 0x30, 5, 6, 3, 0x2b, 0x65, 0x70, 3, 0x21, 0];
const SECRET_DER: [u8; 16] =
    [0x30, 0x2e, 2, 1, 0, 0x30, 5, 6, 3, 0x2b, 0x65, 0x70, 4, 0x22, 4, 0x20];
const PEM_BEGIN: &str = "-----BEGIN PRIVATE KEY-----";
const PEM_END: &str = "-----END PRIVATE KEY-----";

/// The public half of a host's key: its identity.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct PublicKey([u8; KEY_BYTES]);

/// A host's key.
#[derive(Clone)]
pub struct HostKey {
    seed: Zeroizing<[u8; KEY_BYTES]>,
    public: PublicKey,
}

/// A text is no key.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum KeyError {
    /// Not a public key as it is written.
    #[error("no public key: a line is \"{NAME} \" and 43 letters, digits, - and _")]
    Public,
    /// Not a secret key in PEM.
    #[error("no secret key: a file has an Ed25519 key as PKCS#8 in PEM, as `lacuna key` makes it")]
    Secret,
    /// The system gives no random bytes.
    #[error("the system gives no random bytes")]
    Random,
}

impl PublicKey {
    /// From its bytes.
    #[must_use]
    pub const fn new(bytes: [u8; KEY_BYTES]) -> Self {
        Self(bytes)
    }

    pub(crate) const fn as_bytes(&self) -> &[u8; KEY_BYTES] {
        &self.0
    }

    /// From a `SubjectPublicKeyInfo` in DER; `None` if it is none of an Ed25519 key.
    #[must_use]
    pub fn of_der(der: &[u8]) -> Option<Self> {
        der.strip_prefix(&PUBLIC_DER).and_then(|key| key.try_into().ok()).map(Self)
    }

    /// As a `SubjectPublicKeyInfo` in DER.
    #[must_use]
    pub fn to_der(self) -> Vec<u8> {
        [&PUBLIC_DER[..], &self.0].concat()
    }
}

impl fmt::Display for PublicKey {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{NAME} {}", URL_SAFE_NO_PAD.encode(self.0))
    }
}

impl fmt::Debug for PublicKey {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Display::fmt(self, f)
    }
}

impl FromStr for PublicKey {
    type Err = KeyError;

    /// A line: the name, the key, and possibly a comment behind it.
    fn from_str(line: &str) -> Result<Self, KeyError> {
        let mut words = line.split_whitespace();
        let (name, key) = (words.next(), words.next().ok_or(KeyError::Public)?);
        let bytes = URL_SAFE_NO_PAD.decode(key).ok().and_then(|bytes| bytes.try_into().ok());
        bytes.filter(|_| name == Some(NAME)).map(Self).ok_or(KeyError::Public)
    }
}

/// Takes a random number and drops it. The cryptographic library collects the seed of its random numbers from the timing
/// of the processor, once in a process, in some 20 ms: who calls this while a connection is set up over the path does not
/// wait for it later.
pub fn seed_random_numbers() {
    // Where the system gives none, the session says so.
    let _ = SystemRandom::new().fill(&mut [0]);
}

impl fmt::Debug for HostKey {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "HostKey({})", self.public)
    }
}

impl HostKey {
    /// A new one.
    ///
    /// # Errors
    /// If the system gives no random bytes.
    pub fn generate() -> Result<Self, KeyError> {
        let mut seed = Zeroizing::new([0; KEY_BYTES]);
        SystemRandom::new().fill(seed.as_mut()).map_err(|_| KeyError::Random)?;
        Ok(Self::of_seed(&seed))
    }

    /// The key that follows from these secret bytes (RFC 8032, 5.1.5).
    ///
    /// # Panics
    /// Never: every seed has a key.
    #[must_use]
    pub fn of_seed(seed: &[u8; KEY_BYTES]) -> Self {
        let pair = Ed25519KeyPair::from_seed_unchecked(seed).expect("every seed has a key");
        let public = pair.public_key().as_ref().try_into().expect("32 bytes");
        Self { seed: Zeroizing::new(*seed), public: PublicKey(public) }
    }

    /// Its public half.
    #[must_use]
    pub fn public(&self) -> PublicKey {
        self.public
    }

    /// As PKCS#8 in DER.
    pub(crate) fn to_der(&self) -> Zeroizing<Vec<u8>> {
        Zeroizing::new([&SECRET_DER[..], self.seed.as_ref()].concat())
    }

    /// As a file has it. The file must be for its owner alone.
    #[must_use]
    pub fn to_pem(&self) -> Zeroizing<String> {
        let text = Zeroizing::new(STANDARD.encode(&*self.to_der()));
        Zeroizing::new(format!("{PEM_BEGIN}\n{}\n{PEM_END}\n", *text))
    }

    /// From the text of a file.
    ///
    /// # Errors
    /// If it has no Ed25519 key.
    pub fn of_pem(text: &str) -> Result<Self, KeyError> {
        let inner = text.split_once(PEM_BEGIN).and_then(|(_, rest)| rest.split_once(PEM_END));
        let (inner, _) = inner.ok_or(KeyError::Secret)?;
        let inner: Zeroizing<String> = Zeroizing::new(inner.split_whitespace().collect());
        let der = Zeroizing::new(STANDARD.decode(inner.as_bytes()).map_err(|_| KeyError::Secret)?);
        let seed = der.strip_prefix(&SECRET_DER).and_then(|seed| seed.try_into().ok());
        seed.map(Self::of_seed).ok_or(KeyError::Secret)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// From RFC 8410, 10.1 and 10.3.
    const PEM: &str = "-----BEGIN PRIVATE KEY-----\n\
        MC4CAQAwBQYDK2VwBCIEINTuctv5E1hK1bbY8fdp+K06/nwoy/HU++CXqI9EdVhC\n\
        -----END PRIVATE KEY-----\n";
    const PUBLIC: &str = "MCowBQYDK2VwAyEAGb9ECWmEzf6FQbrBZ9w7lshQhqowtrbLDFw4rXAxZuE=";

    #[test]
    fn a_key_of_another_program_is_read_and_written_alike() {
        let key = HostKey::of_pem(PEM).unwrap();
        assert_eq!(*key.to_pem(), PEM);
        let der = STANDARD.decode(PUBLIC).unwrap();
        assert_eq!((key.public().to_der(), PublicKey::of_der(&der)), (der, Some(key.public())));
    }

    #[test]
    fn a_public_key_is_a_line_which_may_have_a_comment() {
        let public = HostKey::generate().unwrap().public();
        let line = public.to_string();
        assert_eq!(line.parse(), Ok(public));
        assert_eq!(format!("  {line} of the host in the cellar").parse(), Ok(public));
        for bad in ["", NAME, "lacuna-ed25519 abc", &line[1..], &format!("{line}A")] {
            assert_eq!(bad.parse::<PublicKey>(), Err(KeyError::Public), "{bad}");
        }
    }

    #[test]
    fn no_secret_is_in_what_is_shown() {
        let key = HostKey::of_pem(PEM).unwrap();
        assert_eq!(format!("{key:?}"), format!("HostKey({})", key.public()));
    }

    #[test]
    fn what_is_no_key_is_refused() {
        let cut = PEM.replace("dVhC", "dVh");
        for bad in
            ["", PEM_BEGIN, "-----BEGIN PRIVATE KEY-----\n!\n-----END PRIVATE KEY-----", &cut]
        {
            assert_eq!(HostKey::of_pem(bad).unwrap_err(), KeyError::Secret);
        }
    }
}
