//! How a server knows that whoever writes to it receives at the address written from, before it
//! keeps or sends anything for it.
//!
//! The answer to a first packet is a cookie, a keyed hash of the address, the client's nonce and the
//! time; who returns it has received it (the idea of SYN cookies, and of QUIC's Retry, RFC 9000,
//! 8.1.2). Nothing is remembered. A cookie is good for its period and the next one.

use std::net::SocketAddr;

/// How long a period is: longer than a client asks again, short against guessing 64 bits.
const PERIOD_NS: u64 = 10 * 1_000_000_000;

/// See the module's text.
#[derive(Debug)]
pub(crate) struct Proof {
    key: [u8; 32],
}

impl Proof {
    pub(crate) fn new(key: [u8; 32]) -> Self {
        Self { key }
    }

    /// The cookie for this client now.
    pub(crate) fn cookie(&self, now_ns: u64, from: SocketAddr, nonce: u64) -> u64 {
        self.hash(b"cookie", from, nonce, now_ns / PERIOD_NS)
    }

    /// Whether this client was given this cookie lately.
    pub(crate) fn is_valid(&self, now_ns: u64, from: SocketAddr, nonce: u64, cookie: u64) -> bool {
        let period = now_ns / PERIOD_NS;
        [Some(period), period.checked_sub(1)]
            .into_iter()
            .flatten()
            .any(|period| self.hash(b"cookie", from, nonce, period) == cookie)
    }

    /// A key that nobody can guess, the same whenever this client opens with this nonce.
    pub(crate) fn token(&self, from: SocketAddr, nonce: u64) -> u64 {
        self.hash(b"token", from, nonce, 0)
    }

    fn hash(&self, purpose: &[u8], from: SocketAddr, nonce: u64, period: u64) -> u64 {
        let mut hasher = blake3::Hasher::new_keyed(&self.key);
        hasher.update(purpose);
        match from {
            SocketAddr::V4(v4) => hasher.update(&v4.ip().octets()),
            // On another link the same link-local address is another host.
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
        let proof = Proof::new([7; 32]);
        let from: SocketAddr = "10.0.0.1:5".parse().unwrap();
        let other: SocketAddr = "10.0.0.2:5".parse().unwrap();
        let [linked, elsewhere] =
            ["[fe80::1%1]:5", "[fe80::1%2]:5"].map(|text| text.parse::<SocketAddr>().unwrap());
        assert!(!proof.is_valid(0, elsewhere, 1, proof.cookie(0, linked, 1)), "another link");
        let cookie = proof.cookie(0, from, 1);
        assert!(proof.is_valid(0, from, 1, cookie));
        assert!(proof.is_valid(2 * PERIOD_NS - 1, from, 1, cookie));
        assert!(!proof.is_valid(2 * PERIOD_NS, from, 1, cookie));
        assert!(!proof.is_valid(0, other, 1, cookie));
        assert!(!proof.is_valid(0, from, 2, cookie));
        assert!(!Proof::new([8; 32]).is_valid(0, from, 1, cookie));
        assert_ne!(proof.token(from, 1), cookie);
        assert_eq!(proof.token(from, 1), proof.token(from, 1));
    }
}
