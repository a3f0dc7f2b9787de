//! Keys of queue pairs whose infos the application exchanges.
//!
//! There is no control connection that could agree on keys. But where both contexts have the same token, their infos
//! carry nonces, from which the keys follow together with the token ([`lacuna_secure::exchange`]). So the infos may go
//! any way: who reads them learns nothing, and who changes them only has packets that do not open.

use crate::context::Context;
use crate::error::QueuePairError;
use lacuna_secure::exchange::{Description, agree};
use lacuna_secure::{Association, Cipher, Limits, Secret};
use lacuna_wire::NONCE_BYTES;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr, UdpSocket};

/// The nonce of a queue pair; `None` if its packets are in clear.
pub(crate) type Nonce = Option<[u8; NONCE_BYTES]>;

impl Context {
    /// The nonce of a new queue pair, if its packets are to be encrypted.
    pub(crate) fn new_nonce(&self) -> Result<Nonce, QueuePairError> {
        let policy = self.policy();
        if policy.shared_secret().is_none() {
            return match policy.encrypts_all() {
                true => Err(QueuePairError::NoToken),
                false => Ok(None),
            };
        }
        let mut nonce = [0; NONCE_BYTES];
        getrandom::fill(&mut nonce).map_err(|error| QueuePairError::System {
            what: "random numbers",
            source: std::io::Error::other(error),
        })?;
        Ok(Some(nonce))
    }

    /// The keys of a queue pair that is connected to a peer at these addresses; `None` if both ends are in clear, and may
    /// be. Of each end: its nonce, and what else both must know alike.
    pub(crate) fn agree(
        &self,
        kind: &str,
        (own, own_agreed): (Nonce, &[u8]),
        (peer, peer_agreed): (Nonce, &[u8]),
        addresses: &[SocketAddr],
    ) -> Result<Option<Association>, QueuePairError> {
        let (own, peer) = match (own, peer) {
            (Some(own), Some(peer)) => (own, peer),
            (Some(_), None) => return Err(QueuePairError::PeerInClear),
            (None, Some(_)) => return Err(QueuePairError::PeerEncrypts),
            (None, None) => {
                let is_allowed =
                    |to: &&SocketAddr| self.policy().allows_clear(to.ip()) || is_this_host(**to);
                return match addresses.iter().find(|to| !is_allowed(to)) {
                    Some(peer) => Err(QueuePairError::NobodyTrusted { peer: peer.ip() }),
                    None => Ok(None),
                };
            }
        };
        let shared = self.policy().shared_secret().ok_or(QueuePairError::NoToken)?;
        let own = Description { nonce: own, agreed: own_agreed };
        let peer = Description { nonce: peer, agreed: peer_agreed };
        let (secret, end) =
            agree(&Secret::new(*shared), kind, own, peer).map_err(|_| QueuePairError::OwnInfo)?;
        let (channels, now_ns) = (self.config().channels, self.clock().now_ns());
        let limits = Limits::default();
        Ok(Some(Association::new(Cipher::default(), secret, end, channels, limits, now_ns)))
    }
}

/// Whether an address is one of this host's own, which infos have instead of loopback's if contexts are bound to all: the
/// system sends from it to itself.
fn is_this_host(to: SocketAddr) -> bool {
    let any: IpAddr = match to {
        SocketAddr::V4(_) => Ipv4Addr::UNSPECIFIED.into(),
        SocketAddr::V6(_) => Ipv6Addr::UNSPECIFIED.into(),
    };
    // Nothing is sent.
    let from = UdpSocket::bind((any, 0)).and_then(|socket| {
        socket.connect(to)?;
        socket.local_addr()
    });
    from.is_ok_and(|from| from.ip() == to.ip())
}

const _: () = assert!(NONCE_BYTES == lacuna_secure::exchange::NONCE_BYTES);

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn this_hosts_addresses_are_told_from_others() {
        let read = |text: &str| text.parse::<SocketAddr>().unwrap();
        assert!(is_this_host(read("127.0.0.1:9")));
        assert!(!is_this_host(read("203.0.113.7:9")), "for documentation (RFC 5737)");
        assert!(!is_this_host(read("[2001:db8::7]:9")));
    }
}
