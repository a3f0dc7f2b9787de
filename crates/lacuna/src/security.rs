//! Which connections of a context are encrypted, and with whom.
//!
//! A connection is encrypted unless both ends allow that it is not, for a peer at that address. The connecting end
//! decides by the peer's address; the accepting end sees by the first byte which it is (TLS or a hello), and refuses in
//! words what it does not allow. So a peer that wants less than this end never gets it by staying silent.

use crate::error::{ContextError, SecretError};
use crate::fastest_cipher::fastest;
use lacuna_secure::{Cipher, Secret};
use lacuna_trust::{Certificates, Token, Trust};
use std::net::IpAddr;
use std::path::PathBuf;

/// Names the file with the token of [`Security::FromEnvironment`].
pub const TOKEN_FILE_VARIABLE: &str = "LACUNA_TOKEN_FILE";
/// Names the file with this end's certificate, of [`Security::FromEnvironment`]. Then `LACUNA_CERT_KEY_FILE` has its key,
/// `LACUNA_CA_FILE` the certificates of the CAs whose certificates are believed, and `LACUNA_CRL_FILE` lists of those that are
/// revoked, if there are any ([`Certificates`]).
pub const CERT_FILE_VARIABLE: &str = "LACUNA_CERT_FILE";
const CERT_KEY_FILE_VARIABLE: &str = "LACUNA_CERT_KEY_FILE";
const CA_FILE_VARIABLE: &str = "LACUNA_CA_FILE";
const CRL_FILE_VARIABLE: &str = "LACUNA_CRL_FILE";
/// With the value 1, [`Security::FromEnvironment`] is [`Security::Insecure`].
pub const INSECURE_VARIABLE: &str = "LACUNA_INSECURE";
/// Names the cipher of this end in place of the one that is measured to be the faster: `aes-128-gcm` or `chacha20-poly1305`.
/// The peer may have to agree to ChaCha20, and does; it need not agree to AES.
pub const CIPHER_VARIABLE: &str = "LACUNA_CIPHER";

/// Which connections of a context are encrypted, and with whom.
///
/// Datagrams, reliable connections, and other queue pairs whose infos the application exchanges are encrypted where all who are
/// trusted share a token ([`Trust::of_token`], or the environment's); a context that encrypts everything by keys alone refuses
/// them. Packets in the form of RDMA cannot be encrypted, and are refused, too.
#[derive(Debug, Clone, Default)]
pub enum Security {
    /// As [`Security::Keys`] with the token in the file that the environment variable `LACUNA_TOKEN_FILE` names, or with the
    /// certificate in `LACUNA_CERT_FILE`; or as [`Security::Insecure`] if `LACUNA_INSECURE` is 1. Where none is set, connections are in clear with peers on
    /// this host (loopback), and refused with all others.
    #[default]
    FromEnvironment,
    /// All connections are encrypted, with those who are trusted.
    Keys(Trust),
    /// The same, but with peers on this host (loopback) they are in clear, and any process here is believed.
    KeysOffHost(Trust),
    /// All connections are in clear, and anybody is believed who can reach this end. For networks that nobody else can
    /// read or write.
    Insecure,
}

/// What a context's [`Security`] came to.
#[derive(Debug, Clone)]
pub(crate) struct Policy {
    /// Whom to believe; `None`: nobody by keys.
    pub(crate) trust: Option<Trust>,
    clear: Clear,
}

/// With whom connections may be in clear.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Clear {
    Nobody,
    ThisHost,
    Anybody,
}

impl Security {
    /// Whether nothing is encrypted and anybody is believed, wherever that was said. A program says so at its start.
    ///
    /// # Errors
    /// If the environment makes no sense.
    pub fn is_insecure(&self) -> Result<bool, ContextError> {
        Ok(Policy::of(self)?.clear == Clear::Anybody)
    }

    /// Whether no connection at all may be in clear, wherever that was said.
    ///
    /// # Errors
    /// If the environment makes no sense.
    pub fn encrypts_all(&self) -> Result<bool, ContextError> {
        Ok(Policy::of(self)?.encrypts_all())
    }

    /// For programs with packets of their own, where there is no control connection: a secret of all who have the same
    /// token and use it for this purpose; `None` if packets to a peer at this address may be in clear.
    ///
    /// # Errors
    /// If they must be encrypted and there is no token, or the environment makes no sense.
    pub fn secret_towards(
        &self,
        peer: IpAddr,
        purpose: &[u8],
    ) -> Result<Option<Secret>, SecretError> {
        let policy = Policy::of(self)?;
        match policy.towards(peer) {
            Err(NobodyTrusted) => Err(SecretError::NobodyTrusted { peer }),
            Ok(None) => Ok(None),
            Ok(Some(trust)) => {
                let shared = trust.shared_secret().ok_or(SecretError::NoToken)?;
                Ok(Some(Secret::new(*shared).derive(b"lacuna purpose", purpose)))
            }
        }
    }
}

impl Policy {
    /// Reads the token's file if one is named.
    pub(crate) fn of(security: &Security) -> Result<Self, ContextError> {
        let (trust, clear) = match security {
            Security::FromEnvironment => match (trust_of_environment()?, is_insecure()?) {
                (Some(trust), false) => (Some(trust), Clear::Nobody),
                (None, false) => (None, Clear::ThisHost),
                (None, true) => (None, Clear::Anybody),
                (Some(_), true) => {
                    let why =
                        "it contradicts the token or certificate that is given: unset one of them";
                    return Err(ContextError::Insecure { why });
                }
            },
            Security::Keys(trust) => (Some(trust.clone()), Clear::Nobody),
            Security::KeysOffHost(trust) => (Some(trust.clone()), Clear::ThisHost),
            Security::Insecure => (None, Clear::Anybody),
        };
        let cipher = cipher_of_environment()?;
        let of_here = |trust: Trust| trust.or_cipher(cipher.unwrap_or_else(fastest));
        Ok(Self { trust: trust.map(of_here), clear })
    }

    /// Does ahead what the first session of a process waits for, if there will be sessions.
    pub(crate) fn prepare_sessions(&self) {
        if self.trust.is_some() {
            lacuna_trust::seed_random_numbers();
        }
    }

    /// Whether a connection with a peer at this address may be in clear.
    pub(crate) fn allows_clear(&self, peer: IpAddr) -> bool {
        match self.clear {
            Clear::Nobody => false,
            Clear::ThisHost => peer.to_canonical().is_loopback(),
            Clear::Anybody => true,
        }
    }

    /// Whether no connection at all may be in clear.
    pub(crate) fn encrypts_all(&self) -> bool {
        self.clear == Clear::Nobody
    }

    /// The secret that seals the datagrams of a socket that is bound to this address; `None` if they are in clear. An error
    /// if they may not be, and those who are trusted share no secret.
    pub(crate) fn datagram_secret(&self, bind: IpAddr) -> Result<Option<&[u8; 32]>, NoToken> {
        match &self.trust {
            Some(_) if !self.allows_clear(bind) => self.shared_secret().map(Some).ok_or(NoToken),
            // Without anybody to trust, they are as they always were.
            _ => Ok(None),
        }
    }

    /// A secret of all who have the same token; `None` if there is no token.
    pub(crate) fn shared_secret(&self) -> Option<&[u8; 32]> {
        self.trust.as_ref().and_then(Trust::shared_secret)
    }

    /// Whom to believe on a connection to a peer at this address; `None` if it is in clear. An error if it may not be.
    pub(crate) fn towards(&self, peer: IpAddr) -> Result<Option<&Trust>, NobodyTrusted> {
        match &self.trust {
            _ if self.allows_clear(peer) => Ok(None),
            Some(trust) => Ok(Some(trust)),
            None => Err(NobodyTrusted),
        }
    }
}

/// A connection must be encrypted, and nobody is trusted by keys.
#[derive(Debug, Clone, Copy)]
pub(crate) struct NobodyTrusted;

/// Datagrams must be encrypted, and those who are trusted share no secret.
#[derive(Debug, Clone, Copy)]
pub(crate) struct NoToken;

/// The file that a variable names.
fn file_of(variable: &str) -> Option<PathBuf> {
    std::env::var_os(variable).filter(|file| !file.is_empty()).map(PathBuf::from)
}

/// Whom the environment says to believe.
fn trust_of_environment() -> Result<Option<Trust>, ContextError> {
    let token = file_of(TOKEN_FILE_VARIABLE).map(|file| Token::read(&file)).transpose();
    let token = token.map_err(|source| ContextError::Token { source })?;
    let certificates = certificates_of_environment()?;
    match (token, certificates) {
        (Some(_), Some(_)) => {
            let why = "a token is given as well: unset one of them";
            Err(ContextError::CertificateFiles { why })
        }
        (Some(token), None) => Ok(Some(Trust::of_token(&token))),
        (None, Some(certificates)) => Trust::of_certificates(&certificates)
            .map(Some)
            .map_err(|source| ContextError::Certificates { source }),
        (None, None) => Ok(None),
    }
}

fn certificates_of_environment() -> Result<Option<Certificates>, ContextError> {
    let own = file_of(CERT_FILE_VARIABLE);
    let (key, ca) = (file_of(CERT_KEY_FILE_VARIABLE), file_of(CA_FILE_VARIABLE));
    match (own, key, ca) {
        (None, None, None) => Ok(None),
        (Some(own), Some(key), Some(ca)) => {
            let revoked = file_of(CRL_FILE_VARIABLE);
            let read = Certificates::read(&own, &key, &ca, revoked.as_deref());
            read.map(Some).map_err(|source| ContextError::Certificates { source })
        }
        _ => {
            let why = "LACUNA_CERT_FILE, LACUNA_CERT_KEY_FILE and LACUNA_CA_FILE go together: set all three";
            Err(ContextError::CertificateFiles { why })
        }
    }
}

/// The cipher that the environment names.
fn cipher_of_environment() -> Result<Option<Cipher>, ContextError> {
    let Some(name) = std::env::var_os(CIPHER_VARIABLE).filter(|name| !name.is_empty()) else {
        return Ok(None);
    };
    let found = name.to_string_lossy().into_owned();
    Cipher::of_name(&found).map(Some).ok_or(ContextError::Cipher { found })
}

/// Whether the environment allows connections in clear with anybody.
fn is_insecure() -> Result<bool, ContextError> {
    match std::env::var_os(INSECURE_VARIABLE) {
        Some(value) if value == "1" => Ok(true),
        Some(value) if !value.is_empty() && value != "0" => {
            Err(ContextError::Insecure { why: "it is 1 or 0" })
        }
        _ => Ok(false),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn datagrams_are_sealed_by_a_token_and_refused_with_keys_alone() {
        let key = lacuna_trust::HostKey::generate().unwrap();
        let by_keys = || Trust::of_keys(&key, [key.public()]);
        let by_token = || Trust::of_token(&Token::generate().unwrap());
        let kinds = |security: Security| {
            let policy = Policy::of(&security).unwrap();
            ["127.0.0.1", "::", "10.0.0.7"].map(|bind| {
                match policy.datagram_secret(bind.parse().unwrap()) {
                    Err(NoToken) => "refused",
                    Ok(Some(_)) => "sealed",
                    Ok(None) => "clear",
                }
            })
        };
        assert_eq!(kinds(Security::Keys(by_token())), ["sealed"; 3]);
        assert_eq!(kinds(Security::Keys(by_keys())), ["refused"; 3]);
        assert_eq!(kinds(Security::KeysOffHost(by_token())), ["clear", "sealed", "sealed"]);
        assert_eq!(kinds(Security::KeysOffHost(by_keys())), ["clear", "refused", "refused"]);
        assert_eq!(kinds(Security::Insecure), ["clear"; 3]);
    }

    #[test]
    fn a_secret_is_of_the_token_and_the_purpose() {
        let [one, other] = [(); 2].map(|()| Token::generate().unwrap());
        let of = |token: &Token, purpose: &[u8]| {
            let security = Security::Keys(Trust::of_token(token));
            let secret = security.secret_towards([10, 0, 0, 7].into(), purpose).unwrap();
            secret.expect("encrypted").number(b"test", 0)
        };
        assert_eq!(of(&one, b"this"), of(&one, b"this"));
        assert_ne!(of(&one, b"this"), of(&one, b"that"));
        assert_ne!(of(&one, b"this"), of(&other, b"this"));
        let (near, far) = ([127, 0, 0, 1].into(), [10, 0, 0, 7].into());
        let off_host = Security::KeysOffHost(Trust::of_token(&one));
        assert!(off_host.secret_towards(near, b"").unwrap().is_none());
        assert!(Security::Insecure.secret_towards(far, b"").unwrap().is_none());
        let key = lacuna_trust::HostKey::generate().unwrap();
        let by_keys = Security::Keys(Trust::of_keys(&key, [key.public()]));
        let refused = by_keys.secret_towards(near, b"").unwrap_err();
        assert!(matches!(refused, SecretError::NoToken), "{refused}");
    }

    #[test]
    fn who_is_not_on_this_host_is_spoken_to_encrypted_or_not_at_all() {
        let trust = || Trust::of_token(&Token::generate().unwrap());
        let nobody = Policy { trust: None, clear: Clear::ThisHost };
        let [all, off_host] = [Security::Keys(trust()), Security::KeysOffHost(trust())];
        let [all, off_host, insecure] =
            [all, off_host, Security::Insecure].map(|security| Policy::of(&security).unwrap());
        let kinds = |peer: &str| {
            let peer: IpAddr = peer.parse().unwrap();
            [&nobody, &all, &off_host, &insecure].map(|policy| match policy.towards(peer) {
                Err(NobodyTrusted) => "refused",
                Ok(Some(_)) => "encrypted",
                Ok(None) => "clear",
            })
        };
        for near in ["127.0.0.1", "127.8.8.8", "::1", "::ffff:127.0.0.1"] {
            assert_eq!(kinds(near), ["clear", "encrypted", "clear", "clear"], "{near}");
        }
        for far in ["10.0.0.7", "128.0.0.1", "fe80::1", "::ffff:10.0.0.7", "0.0.0.0"] {
            assert_eq!(kinds(far), ["refused", "encrypted", "encrypted", "clear"], "{far}");
        }
    }
}
