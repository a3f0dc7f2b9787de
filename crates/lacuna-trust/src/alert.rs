//! What an end that accepts says to a peer that begins a session, when there is none: an alert of TLS, which the peer's
//! session understands ([`SessionError`](crate::SessionError)). Nobody vouches for it, as for a TCP reset.

/// The first byte of every TLS session (RFC 8446, 5.1: a record of the type "handshake").
pub const TLS_FIRST_BYTE: u8 = 0x16;

/// This end takes connections in clear alone: `insufficient_security`, which TLS itself never says to a peer that has
/// all that this protocol's ends have.
pub const CLEAR_ONLY: [u8; 7] = alert(71);

/// This end is busy and may be tried again: `user_canceled`.
pub const BUSY: [u8; 7] = alert(90);

/// A fatal alert (RFC 8446, 6).
const fn alert(description: u8) -> [u8; 7] {
    const FATAL: u8 = 2;
    [0x15, 3, 3, 0, 2, FATAL, description]
}
