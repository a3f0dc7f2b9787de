//! A TLS session over a stream that somebody else has: a layer between who reads and writes and the stream.
//!
//! A session serves one control connection for as long as it lives, and so all connections that use it one after the
//! other. Each gets a secret of its own ([`Session::secret`], TLS's exporter, RFC 8446, 7.5): both ends count them, so
//! both know it before a word is said about the connection.
//!
//! It begins with a word of each end about a one-time code, and with the proof of one where it is needed (`proof.rs`).

use crate::certificates::why_not;
use crate::key::PublicKey;
use crate::offer::CodeEnd;
use crate::pake::{Binding, Role};
use crate::proof::{Failure, Proof, SAID_BYTES_MAX};
use crate::tls::Trust;
use lacuna_secure::Cipher;
use rustls::pki_types::ServerName;
use rustls::{
    CertificateError, CipherSuite, ClientConnection, Connection, Error, ServerConnection,
};
use std::io::{self, BufRead, Read, Write};
use zeroize::Zeroizing;

/// The most that waits in a session to be written: several of the longest messages of a handshake.
const WAITING_BYTES_MAX: usize = 64 << 10;
const LABEL: &[u8] = b"EXPORTER-Lacuna-packets";
const LABEL_CODE: &[u8] = b"EXPORTER-Lacuna-code";

/// See the module's text.
#[derive(Debug)]
pub struct Session {
    tls: Connection,
    /// `None` with certificates.
    own: Option<PublicKey>,
    proof: Proof,
    /// Secrets that were taken.
    secrets: u64,
}

/// A session cannot go on.
#[derive(Debug, thiserror::Error)]
pub enum SessionError {
    /// The stream failed.
    #[error(transparent)]
    Stream(#[from] io::Error),
    /// The peer is not one that this end believes.
    #[error(
        "the peer's key is not trusted here: it is not one of those that were given, or follows from another token"
    )]
    Untrusted,
    /// The peer does not believe this end.
    #[error("the peer does not trust this end's key: it was not told of it, or has another token")]
    Refused,
    /// The peer's certificate is not one to believe.
    #[error("the peer's certificate is not accepted here: {}", why_not(.0))]
    Certificate(CertificateError),
    /// The peer does not believe this end's certificate.
    #[error("the peer does not accept this end's certificate: {0}")]
    OwnCertificate(&'static str),
    /// One end shows a certificate, the other one a key.
    #[error(
        "one end is known by a certificate, the other one by a key or a token: give both the same"
    )]
    Manner,
    /// The peer wants an encrypted connection, and this end trusts nobody.
    #[error("the peer wants it encrypted, and nobody is trusted by keys here")]
    NoKeys,
    /// The peer takes no encrypted connections.
    #[error("the peer has no keys and takes connections in clear alone: give it whom to trust")]
    ClearOnly,
    /// The peer is busy.
    #[error("the peer is busy; try again")]
    Busy,
    /// The ends do not have the same code, or somebody sits between them.
    #[error("the code is wrong: it is not the one that the other end has")]
    CodeWrong,
    /// The code takes nobody new. At either end.
    #[error("the code cannot be used any more: {0}")]
    CodeEnded(CodeEnd),
    /// The accepting end wants a code and the connecting one, this one, has none.
    #[error("a code is needed: the peer shows one, and none was given here")]
    CodeWanted,
    /// The same, at the accepting end.
    #[error("the peer has no code, and its key is not trusted here")]
    CodeMissing,
    /// The connecting end, this one, has a code and the accepting one offers none.
    #[error("a code was given, and the peer does not ask for one: it trusts by keys")]
    CodeNotWanted,
    /// The same, at the accepting end.
    #[error("the peer has a code, and none is offered here")]
    CodeNotOffered,
    /// The peer does not prove a code as it is proved here, or not at all.
    #[error("the peer does not keep to the exchange of the code: {0}")]
    Proof(&'static str),
    /// The peer speaks no TLS, or not as both ends here do; or somebody has meddled with it.
    #[error("no secure session: {0}")]
    Tls(Error),
}

impl From<Error> for SessionError {
    fn from(error: Error) -> Self {
        use rustls::{AlertDescription as Alert, PeerIncompatible};
        match error {
            Error::InvalidCertificate(CertificateError::ApplicationVerificationFailure) => {
                Self::Untrusted
            }
            Error::InvalidCertificate(error) => Self::Certificate(error),
            Error::AlertReceived(Alert::CertificateExpired) => {
                Self::OwnCertificate("it has expired or is not valid yet, by its clock")
            }
            Error::AlertReceived(Alert::CertificateRevoked) => {
                Self::OwnCertificate("it was revoked")
            }
            Error::AlertReceived(Alert::UnknownCA) => {
                Self::OwnCertificate("it is of a CA that it does not know")
            }
            Error::PeerIncompatible(
                PeerIncompatible::IncorrectCertificateTypeExtension
                | PeerIncompatible::UnsolicitedCertificateTypeExtension,
            ) => Self::Manner,
            Error::AlertReceived(
                Alert::AccessDenied | Alert::BadCertificate | Alert::CertificateUnknown,
            ) => Self::Refused,
            Error::AlertReceived(Alert::InsufficientSecurity) => Self::ClearOnly,
            Error::AlertReceived(Alert::UserCanceled) => Self::Busy,
            error => Self::Tls(error),
        }
    }
}

impl From<Failure> for SessionError {
    fn from(failure: Failure) -> Self {
        match failure {
            Failure::Untrusted => Self::Untrusted,
            Failure::Wrong => Self::CodeWrong,
            Failure::Ended(end) => Self::CodeEnded(end),
            Failure::Wanted => Self::CodeWanted,
            Failure::Missing => Self::CodeMissing,
            Failure::NotWanted => Self::CodeNotWanted,
            Failure::NotOffered => Self::CodeNotOffered,
            Failure::Broken(how) => Self::Proof(how),
            Failure::Random => Self::Tls(Error::FailedToGetRandomBytes),
        }
    }
}

impl Session {
    /// Of the end that connects.
    ///
    /// # Errors
    /// If TLS cannot begin.
    pub fn connecting(trust: &Trust) -> Result<Self, SessionError> {
        // Not sent, and not looked at: the peer is known by its key.
        let name =
            ServerName::try_from("lacuna").map_err(|_| Error::General("no name".to_owned()))?;
        Ok(Self::new(ClientConnection::new(trust.client(), name)?.into(), trust))
    }

    /// Of the end that accepts.
    ///
    /// # Errors
    /// If TLS cannot begin.
    pub fn accepting(trust: &Trust) -> Result<Self, SessionError> {
        Ok(Self::new(ServerConnection::new(trust.server())?.into(), trust))
    }

    fn new(mut tls: Connection, trust: &Trust) -> Self {
        tls.set_buffer_limit(Some(WAITING_BYTES_MAX));
        Self { tls, own: trust.own(), proof: Proof::new(trust.door.clone()), secrets: 0 }
    }

    /// Whether this end does not know the peer yet, by its key or by a code.
    #[must_use]
    pub fn is_handshaking(&self) -> bool {
        !self.proof.is_established()
    }

    /// Whether it has bytes for the stream.
    #[must_use]
    pub fn wants_write(&self) -> bool {
        self.tls.wants_write()
    }

    /// The peer's key, once it has proved that it has it; `None` if it showed a certificate.
    #[must_use]
    pub fn peer(&self) -> Option<PublicKey> {
        if self.is_handshaking() {
            return None;
        }
        self.shown()
    }

    /// The key that the peer has shown.
    fn shown(&self) -> Option<PublicKey> {
        self.tls.peer_certificates().and_then(|shown| PublicKey::of_der(shown.first()?))
    }

    /// The cipher that the ends have agreed on, which packets are sealed with, too; `None` before the handshake has ended.
    #[must_use]
    pub fn cipher(&self) -> Option<Cipher> {
        match self.tls.negotiated_cipher_suite()?.suite() {
            CipherSuite::TLS13_CHACHA20_POLY1305_SHA256 => Some(Cipher::ChaCha20Poly1305),
            _ => Some(Cipher::Aes128Gcm),
        }
    }

    /// The secret of the next connection that uses this session.
    ///
    /// # Errors
    /// Before the handshake has ended.
    pub fn secret(&mut self) -> Result<Zeroizing<[u8; 32]>, SessionError> {
        if self.is_handshaking() {
            return Err(Error::HandshakeNotComplete.into());
        }
        let secret = Zeroizing::new([0; 32]);
        let context = self.secrets.to_be_bytes();
        let secret = self.tls.export_keying_material(*secret, LABEL, Some(&context))?;
        self.secrets += 1;
        Ok(Zeroizing::new(secret))
    }

    /// Moves what can be moved now: the session's bytes to the stream, and the stream's to the session. Returns whether
    /// the peer has ended the stream.
    ///
    /// # Errors
    /// When the stream fails, other than by having nothing now; when the peer is not believed, or does not believe this
    /// end, or what comes is no TLS, or a code is not proved. Again each time, once the session cannot go on.
    pub fn pump(&mut self, stream: &mut (impl Read + Write)) -> Result<bool, SessionError> {
        self.flush(stream)?;
        if let Some(failure) = self.proof.failure() {
            return Err(failure.into());
        }
        let mut has_ended = false;
        // What was read and not fetched yet holds up what is behind it.
        while self.tls.wants_read() && !has_ended {
            match self.tls.read_tls(stream) {
                Ok(0) => has_ended = true,
                Ok(_) => {
                    let processed = self.tls.process_new_packets().map_err(SessionError::from);
                    let processed = processed.and_then(|_| self.prove());
                    // Also after an error: the peer is told why.
                    let flushed = self.flush(stream);
                    processed?;
                    flushed?;
                }
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => break,
                Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
                Err(error) => return Err(error.into()),
            }
        }
        Ok(has_ended)
    }

    /// Goes on with the exchange about a code, once TLS has ended its handshake.
    fn prove(&mut self) -> Result<(), SessionError> {
        if self.proof.is_before() && !self.tls.is_handshaking() {
            let role = match self.tls {
                Connection::Client(_) => Role::Connecting,
                Connection::Server(_) => Role::Accepting,
            };
            match (self.own, self.shown()) {
                (Some(own), Some(peer)) => {
                    let session = self.tls.export_keying_material([0; 32], LABEL_CODE, None)?;
                    let session = Zeroizing::new(session);
                    self.proof.begin(Binding { role, own, peer, session });
                }
                (Some(_), None) => return Err(Error::NoCertificatesPresented.into()),
                // TLS has checked the certificates of both, and nobody has a code.
                (None, _) => self.proof.skip(),
            }
        }
        loop {
            self.tls.writer().write_all(&self.proof.take_says())?;
            if let Some(failure) = self.proof.failure() {
                return Err(failure.into());
            }
            let mut bytes = [0; SAID_BYTES_MAX];
            let bytes = &mut bytes[..self.proof.wanted()];
            // The rest comes later, or it has ended, which whoever reads finds out.
            let Ok(count @ 1..) = self.tls.reader().read(bytes) else { return Ok(()) };
            self.proof.on_bytes(&bytes[..count]);
        }
    }

    /// Gives the stream what it takes now of the session's bytes.
    ///
    /// # Errors
    /// When the stream fails.
    pub fn flush(&mut self, stream: &mut impl Write) -> io::Result<()> {
        while self.tls.wants_write() {
            match self.tls.write_tls(stream) {
                Ok(0) => return Err(io::ErrorKind::WriteZero.into()),
                Ok(_) => {}
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => return Ok(()),
                Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
                Err(error) => return Err(error),
            }
        }
        Ok(())
    }

    /// Fetches what the peer said. `WouldBlock` if nothing is there.
    ///
    /// # Errors
    /// `UnexpectedEof` if the stream was cut without a word of the peer.
    pub fn read(&mut self, bytes: &mut [u8]) -> io::Result<usize> {
        match self.proof.is_done() {
            true => self.tls.reader().read(bytes),
            false => self.look(),
        }
    }

    /// How much of what the peer said can be fetched at once. `WouldBlock` if nothing is there, 0 if the peer has said
    /// that nothing follows.
    ///
    /// # Errors
    /// As [`Session::read`].
    pub fn look(&mut self) -> io::Result<usize> {
        let count = self.tls.reader().fill_buf().map(<[u8]>::len)?;
        match self.proof.is_done() || count == 0 {
            true => Ok(count),
            // Behind what ended the session.
            false => Err(io::ErrorKind::WouldBlock.into()),
        }
    }

    /// Has these bytes said to the peer; [`Session::flush`] sends them. Returns how many were taken, none while the ends
    /// do not know each other.
    ///
    /// # Errors
    /// Never at present.
    pub fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        match self.is_handshaking() {
            true => Err(io::ErrorKind::WouldBlock.into()),
            false => self.tls.writer().write(bytes),
        }
    }
}
