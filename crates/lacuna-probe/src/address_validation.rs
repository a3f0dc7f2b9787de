//! Address validation without state: the server checks that a client receives at its source address,
//! before it keeps state or sends anything long.
//!
//! The answer to a first packet is a cookie, a keyed hash of the address, the client's nonce and the
//! time. A client that returns it has received it (the idea of SYN cookies, and of QUIC's Retry,
//! RFC 9000, 8.1.2). A cookie is valid for its period and the next one.

use std::net::SocketAddr;

/// Length of a period: longer than a client repeats its request, and too short to guess 64 bits.
const PERIOD_NS: u64 = 10 * 1_000_000_000;

/// Makes and checks cookies; see the module's text.
#[derive(Debug)]
pub(crate) struct AddressValidator {
    key: [u8; 32],
}

impl AddressValidator {
    pub(crate) fn new(key: [u8; 32]) -> Self {
        Self { key }
    }

    /// The cookie for this client now.
    pub(crate) fn cookie(&self, now_ns: u64, from: SocketAddr, nonce: u64) -> u64 {
        self.hash(b"cookie", from, nonce, now_ns / PERIOD_NS)
    }

    /// Whether this client got this cookie in this period or the last one.
    pub(crate) fn is_valid(&self, now_ns: u64, from: SocketAddr, nonce: u64, cookie: u64) -> bool {
        let period = now_ns / PERIOD_NS;
        [Some(period), period.checked_sub(1)]
            .into_iter()
            .flatten()
            .any(|period| self.hash(b"cookie", from, nonce, period) == cookie)
    }

    /// An unguessable key for this client and nonce; always the same.
    pub(crate) fn token(&self, from: SocketAddr, nonce: u64) -> u64 {
        self.hash(b"token", from, nonce, 0)
    }

    fn hash(&self, purpose: &[u8], from: SocketAddr, nonce: u64, period: u64) -> u64 {
        let mut hasher = blake3::Hasher::new_keyed(&self.key);
        hasher.update(purpose);
        match from {
            SocketAddr::V4(v4) => hasher.update(&v4.ip().octets()),
            // A link-local address is another host on another link.
            SocketAddr::V6(v6) => {
                hasher.update(&v6.ip().octets()).update(&v6.scope_id().to_be_bytes())
            }
        };
        hasher.update(&from.port().to_be_bytes());
        hasher.update(&nonce.to_be_bytes());
        hasher.update(&period.to_be_bytes());
        let hash = hasher.finalize();
        hash.as_bytes().first_chunk().map_or(0, |bytes| u64::from_be_bytes(*bytes))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_cookie_is_good_for_its_client_and_for_a_while() {
        let validator = AddressValidator::new([7; 32]);
        let from: SocketAddr = "10.0.0.1:5".parse().unwrap();
        let other: SocketAddr = "10.0.0.2:5".parse().unwrap();
        let [linked, elsewhere] =
            ["[fe80::1%1]:5", "[fe80::1%2]:5"].map(|text| text.parse::<SocketAddr>().unwrap());
        assert!(
            !validator.is_valid(0, elsewhere, 1, validator.cookie(0, linked, 1)),
            "another link"
        );
        let cookie = validator.cookie(0, from, 1);
        assert!(validator.is_valid(0, from, 1, cookie));
        assert!(validator.is_valid(2 * PERIOD_NS - 1, from, 1, cookie));
        assert!(!validator.is_valid(2 * PERIOD_NS, from, 1, cookie));
        assert!(!validator.is_valid(0, other, 1, cookie));
        assert!(!validator.is_valid(0, from, 2, cookie));
        assert!(!AddressValidator::new([8; 32]).is_valid(0, from, 1, cookie));
        assert_ne!(validator.token(from, 1), cookie);
        assert_eq!(validator.token(from, 1), validator.token(from, 1));
    }
}
