//! Certificates of a CA, for hosts that have them anyway: whoever has a certificate that a trusted CA has made for it is believed,
//! as long as it is valid and not revoked (RFC 5280).
//!
//! Both ends show one, and each may have to accept and to connect. So names in certificates are not compared with
//! addresses: a CA whose certificates mean more than "one of us" is not the one to give here. A certificate that
//! names purposes has to name client authentication.

use crate::file::{FileError, read_secret};
use rustls::client::danger::{HandshakeSignatureValid, ServerCertVerified, ServerCertVerifier};
use rustls::crypto::CryptoProvider;
use rustls::pki_types::pem::PemObject;
use rustls::pki_types::{
    CertificateDer, CertificateRevocationListDer, PrivateKeyDer, ServerName, UnixTime,
};
use rustls::server::WebPkiClientVerifier;
use rustls::server::danger::ClientCertVerifier;
use rustls::{CertificateError, DigitallySignedStruct, Error, RootCertStore, SignatureScheme};
use std::fmt;
use std::fs::File;
use std::io::Read;
use std::path::{Path, PathBuf};
use std::sync::Arc;

/// The longest file that is read.
const FILE_BYTES_MAX: u64 = 16 << 20;

/// A certificate of this end with its key, and the CAs whose certificates are believed.
pub struct Certificates {
    pub(crate) chain: Vec<CertificateDer<'static>>,
    pub(crate) key: PrivateKeyDer<'static>,
    roots: Arc<RootCertStore>,
    revoked: Vec<CertificateRevocationListDer<'static>>,
}

/// Certificates cannot be used.
#[derive(Debug, thiserror::Error)]
pub enum CertificatesError {
    /// A file cannot be read, or is no secret.
    #[error(transparent)]
    File(#[from] FileError),
    /// A file has none of what it should have.
    #[error("{}: no {what} in it, in PEM", path.display())]
    Empty {
        /// Which file.
        path: PathBuf,
        /// What it should have.
        what: &'static str,
    },
    /// A file has something that cannot be read.
    #[error("{}: it has a {what} that cannot be read", path.display())]
    Damaged {
        /// Which file.
        path: PathBuf,
        /// What.
        what: &'static str,
    },
    /// Certificate, key, CA and list do not go together.
    #[error("the certificates cannot be used: {0}")]
    Unusable(String),
}

impl fmt::Debug for Certificates {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Certificates").finish_non_exhaustive()
    }
}

impl Certificates {
    /// Reads them from files in PEM: this end's certificate, behind it those between it and the CA; its key, in a file that only
    /// its owner can read; the CA's certificates; and lists of what they have revoked. With lists, a certificate of a CA
    /// without one is refused. A list counts also when a later one is due, and files are read once.
    ///
    /// # Errors
    /// If a file cannot be read or has something else.
    pub fn read(
        own: &Path,
        key: &Path,
        ca: &Path,
        revoked: Option<&Path>,
    ) -> Result<Self, CertificatesError> {
        let text = read_secret(key)?;
        let damaged =
            |path: &Path, what| CertificatesError::Damaged { path: path.to_owned(), what };
        let key = match PrivateKeyDer::pem_slice_iter(text.as_bytes()).next() {
            Some(Ok(key)) => key,
            Some(Err(_)) => return Err(damaged(key, "private key")),
            None => {
                return Err(CertificatesError::Empty { path: key.to_owned(), what: "private key" });
            }
        };
        let chain = objects(own, "certificate")?;
        let mut roots = RootCertStore::empty();
        for root in objects(ca, "certificate")? {
            roots.add(root).map_err(|_| damaged(ca, "certificate of a CA"))?;
        }
        let revoked = revoked.map(|path| objects(path, "list of revoked certificates"));
        let revoked = revoked.transpose()?.unwrap_or_default();
        Ok(Self { chain, key, roots: Arc::new(roots), revoked })
    }

    /// Checks what a peer shows.
    pub(crate) fn verifier(
        &self,
        provider: Arc<CryptoProvider>,
    ) -> Result<Arc<dyn ClientCertVerifier>, CertificatesError> {
        WebPkiClientVerifier::builder_with_provider(self.roots.clone(), provider)
            .with_crls(self.revoked.iter().cloned())
            .build()
            .map_err(|error| CertificatesError::Unusable(error.to_string()))
    }
}

/// What a file has of one kind, at least one.
fn objects<T: PemObject>(path: &Path, what: &'static str) -> Result<Vec<T>, CertificatesError> {
    let mut bytes = Vec::new();
    File::open(path)
        .and_then(|file| file.take(FILE_BYTES_MAX).read_to_end(&mut bytes))
        .map_err(|source| FileError::Read { path: path.to_owned(), source })?;
    let found: Result<Vec<T>, _> = T::pem_slice_iter(&bytes).collect();
    match found {
        Ok(found) if found.is_empty() => {
            Err(CertificatesError::Empty { path: path.to_owned(), what })
        }
        Ok(found) => Ok(found),
        Err(_) => Err(CertificatesError::Damaged { path: path.to_owned(), what }),
    }
}

/// What is wrong with a certificate, in words.
pub(crate) fn why_not(error: &CertificateError) -> String {
    let text = match error {
        CertificateError::Expired | CertificateError::ExpiredContext { .. } => {
            "it has expired, by this host's clock"
        }
        CertificateError::NotValidYet | CertificateError::NotValidYetContext { .. } => {
            "it is not valid yet, by this host's clock"
        }
        CertificateError::Revoked => "it was revoked",
        CertificateError::UnknownIssuer => "it is of a CA that is not known here",
        CertificateError::UnknownRevocationStatus => "no list says whether its CA has revoked it",
        CertificateError::InvalidPurpose | CertificateError::InvalidPurposeContext { .. } => {
            "it names purposes, and client authentication is none of them"
        }
        error => return error.to_string(),
    };
    text.to_owned()
}

/// Checks the accepting end's certificate as the connecting one's is checked: without a name.
#[derive(Debug)]
pub(crate) struct AsClients(pub(crate) Arc<dyn ClientCertVerifier>);

impl ServerCertVerifier for AsClients {
    fn verify_server_cert(
        &self,
        end_entity: &CertificateDer<'_>,
        intermediates: &[CertificateDer<'_>],
        _server_name: &ServerName<'_>,
        _ocsp_response: &[u8],
        now: UnixTime,
    ) -> Result<ServerCertVerified, Error> {
        let verified = self.0.verify_client_cert(end_entity, intermediates, now);
        verified.map(|_| ServerCertVerified::assertion())
    }

    fn verify_tls12_signature(
        &self,
        message: &[u8],
        cert: &CertificateDer<'_>,
        signature: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, Error> {
        self.0.verify_tls12_signature(message, cert, signature)
    }

    fn verify_tls13_signature(
        &self,
        message: &[u8],
        cert: &CertificateDer<'_>,
        signature: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, Error> {
        self.0.verify_tls13_signature(message, cert, signature)
    }

    fn supported_verify_schemes(&self) -> Vec<SignatureScheme> {
        self.0.supported_verify_schemes()
    }
}
