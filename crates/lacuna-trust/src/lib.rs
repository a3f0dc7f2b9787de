//! Whom an end believes, and how it proves who it is.
//!
//! An end is an Ed25519 key. It shows the public half bare, without a certificate (RFC 7250), and proves in TLS 1.3's
//! handshake that it has the other half. Both ends do. What makes a key a good one is up to whoever configures it:
//!
//! - [`Trust::of_keys`]: it is one of these;
//! - [`Trust::of_token`]: it is the key that follows from a secret which both ends have;
//! - [`Trust::of_certificates`]: a CA has made a certificate for it;
//! - [`Trust::judged`], [`Trust::asking`]: a function says so, such as one that has a file of hosts that were met before
//!   ([`KnownHosts`]);
//! - [`Trust::offering`] and [`Trust::by_code`]: it is the key of the first one who has a code that is shown at one end
//!   and typed at the other, and is good once.
//!
//! Keys are agreed on by X25519 together with ML-KEM-768, so what is recorded today is not read by a later quantum
//! computer; TLS 1.2, session tickets and early data are off.
//!
//! No socket, clock or thread here: [`Session`] takes bytes from and gives bytes to whoever has the connection.

pub mod alert;
pub mod certificates;
pub mod code;
pub mod file;
pub mod key;
pub mod known;
pub mod offer;
mod pake;
mod proof;
pub mod session;
#[cfg(any(test, feature = "testing"))]
pub mod testing;
mod tls;
pub mod token;

pub use certificates::{Certificates, CertificatesError};
pub use code::{Code, CodeError};
pub use file::{FileError, read_public_keys, write_secret};
pub use key::{HostKey, KeyError, PublicKey, seed_random_numbers};
pub use known::{Known, KnownHosts};
pub use lacuna_secure::Cipher;
pub use offer::{CodeEnd, CodeOffer};
pub use session::{Session, SessionError};
pub use tls::Trust;
pub use token::{Token, TokenError};
