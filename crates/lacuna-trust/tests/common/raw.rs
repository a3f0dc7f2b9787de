//! An end that says what it likes inside TLS: the exchange of `proof.rs` and its SPAKE2, written again from the
//! documents of this crate, so that what is on the wire is pinned as well.

use super::Stream;
use lacuna_trust::{HostKey, PublicKey};
use rand_core::{CryptoRng, RngCore};
use rustls::client::AlwaysResolvesClientRawPublicKeys;
use rustls::client::danger::{HandshakeSignatureValid, ServerCertVerified, ServerCertVerifier};
use rustls::pki_types::pem::PemObject;
use rustls::pki_types::{CertificateDer, PrivateKeyDer, ServerName, UnixTime};
use rustls::server::AlwaysResolvesServerRawPublicKeys;
use rustls::server::danger::{ClientCertVerified, ClientCertVerifier};
use rustls::sign::CertifiedKey;
use rustls::{
    ClientConfig, ClientConnection, Connection, DigitallySignedStruct, DistinguishedName, Error,
    ServerConfig, ServerConnection, SignatureScheme,
};
use spake2::{Ed25519Group, Identity, Password, Spake2};
use std::io::{Read, Write};
use std::sync::Arc;

pub(crate) const NONE: u8 = 1;
pub(crate) const CODE: u8 = 2;
pub(crate) const KNOWN: u8 = 3;
pub(crate) const PROVE: u8 = 4;
pub(crate) const CONFIRM: u8 = 5;
pub(crate) const WRONG: u8 = 8;

/// An end that takes any key.
pub(crate) struct Raw {
    tls: Connection,
    pub(crate) own: PublicKey,
    pub(crate) stream: Stream,
}

impl Raw {
    pub(crate) fn connecting() -> Self {
        let (own, key) = key();
        let config = ClientConfig::builder_with_provider(provider())
            .with_protocol_versions(&[&rustls::version::TLS13])
            .unwrap()
            .dangerous()
            .with_custom_certificate_verifier(Arc::new(Anybody))
            .with_client_cert_resolver(Arc::new(AlwaysResolvesClientRawPublicKeys::new(key)));
        let name = ServerName::try_from("lacuna").unwrap();
        let tls = ClientConnection::new(Arc::new(config), name).unwrap().into();
        Self { tls, own, stream: Stream::default() }
    }

    pub(crate) fn accepting() -> Self {
        let (own, key) = key();
        let mut config = ServerConfig::builder_with_provider(provider())
            .with_protocol_versions(&[&rustls::version::TLS13])
            .unwrap()
            .with_client_cert_verifier(Arc::new(Anybody))
            .with_cert_resolver(Arc::new(AlwaysResolvesServerRawPublicKeys::new(key)));
        config.send_tls13_tickets = 0;
        let tls = ServerConnection::new(Arc::new(config)).unwrap().into();
        Self { tls, own, stream: Stream::default() }
    }

    pub(crate) fn is_handshaking(&self) -> bool {
        self.tls.is_handshaking()
    }

    /// Takes what came and gives the stream what there is to say.
    pub(crate) fn pump(&mut self) {
        while matches!(self.tls.read_tls(&mut self.stream), Ok(1..)) {
            let _ = self.tls.process_new_packets();
        }
        while self.tls.wants_write() {
            self.tls.write_tls(&mut self.stream).unwrap();
        }
    }

    pub(crate) fn say(&mut self, bytes: &[u8]) {
        self.tls.writer().write_all(bytes).unwrap();
        self.pump();
    }

    /// All that has been said to it.
    pub(crate) fn heard(&mut self) -> Vec<u8> {
        let mut heard = Vec::new();
        let _ = self.tls.reader().read_to_end(&mut heard);
        heard
    }

    /// SPAKE2 with this end's peer, begun: what goes on with it, and what to say.
    pub(crate) fn prove(&self, code: &str) -> (Proving, Vec<u8>) {
        let shown = self.tls.peer_certificates().unwrap();
        let peer = PublicKey::of_der(&shown[0]).unwrap().to_der()[12..].to_vec();
        let own = self.own.to_der()[12..].to_vec();
        let session =
            self.tls.export_keying_material([0; 32], b"EXPORTER-Lacuna-code", None).unwrap();
        let is_connecting = matches!(self.tls, Connection::Client(_));
        let (client, server) = if is_connecting { (own, peer) } else { (peer, own) };
        let client = Identity::new(&[&b"lacuna code connecting"[..], &session, &client].concat());
        let server = Identity::new(&[&b"lacuna code accepting"[..], &session, &server].concat());
        let code = Password::new(code.replace('-', ""));
        let begin = match is_connecting {
            true => Spake2::<Ed25519Group>::start_a_with_rng,
            false => Spake2::<Ed25519Group>::start_b_with_rng,
        };
        let (state, message) = begin(&code, &client, &server, Random);
        (Proving { state, is_connecting }, message)
    }
}

pub(crate) struct Proving {
    state: Spake2<Ed25519Group>,
    is_connecting: bool,
}

impl Proving {
    /// What it says to confirm, and what the peer does.
    pub(crate) fn confirmations(self, message: &[u8]) -> [[u8; 32]; 2] {
        use aws_lc_rs::hkdf::{HKDF_SHA256, Salt};
        let key = self.state.finish(message).unwrap();
        let secret = Salt::new(HKDF_SHA256, b"lacuna code confirmation").extract(&key);
        let mut confirmations =
            [&b"lacuna code connecting"[..], b"lacuna code accepting"].map(|role| {
                let mut bytes = [0; 32];
                secret.expand(&[role], HKDF_SHA256).unwrap().fill(&mut bytes).unwrap();
                bytes
            });
        if !self.is_connecting {
            confirmations.reverse();
        }
        confirmations
    }
}

/// The system's random bytes.
struct Random;

impl CryptoRng for Random {}

impl RngCore for Random {
    fn next_u32(&mut self) -> u32 {
        rand_core::impls::next_u32_via_fill(self)
    }

    fn next_u64(&mut self) -> u64 {
        rand_core::impls::next_u64_via_fill(self)
    }

    fn fill_bytes(&mut self, bytes: &mut [u8]) {
        aws_lc_rs::rand::fill(bytes).unwrap();
    }

    fn try_fill_bytes(&mut self, bytes: &mut [u8]) -> Result<(), rand_core::Error> {
        self.fill_bytes(bytes);
        Ok(())
    }
}

fn provider() -> Arc<rustls::crypto::CryptoProvider> {
    Arc::new(rustls::crypto::aws_lc_rs::default_provider())
}

fn key() -> (PublicKey, Arc<CertifiedKey>) {
    let key = HostKey::generate().unwrap();
    let secret = PrivateKeyDer::from_pem_slice(key.to_pem().as_bytes()).unwrap();
    let signs = rustls::crypto::aws_lc_rs::sign::any_supported_type(&secret).unwrap();
    let shown = vec![CertificateDer::from(key.public().to_der())];
    (key.public(), Arc::new(CertifiedKey::new(shown, signs)))
}

/// Looks at nothing.
#[derive(Debug)]
struct Anybody;

impl ServerCertVerifier for Anybody {
    fn verify_server_cert(
        &self,
        _end_entity: &CertificateDer<'_>,
        _intermediates: &[CertificateDer<'_>],
        _server_name: &ServerName<'_>,
        _ocsp_response: &[u8],
        _now: UnixTime,
    ) -> Result<ServerCertVerified, Error> {
        Ok(ServerCertVerified::assertion())
    }

    fn verify_tls12_signature(
        &self,
        _message: &[u8],
        _cert: &CertificateDer<'_>,
        _dss: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, Error> {
        Ok(HandshakeSignatureValid::assertion())
    }

    fn verify_tls13_signature(
        &self,
        _message: &[u8],
        _cert: &CertificateDer<'_>,
        _dss: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, Error> {
        Ok(HandshakeSignatureValid::assertion())
    }

    fn supported_verify_schemes(&self) -> Vec<SignatureScheme> {
        vec![SignatureScheme::ED25519]
    }

    fn requires_raw_public_keys(&self) -> bool {
        true
    }
}

impl ClientCertVerifier for Anybody {
    fn root_hint_subjects(&self) -> &[DistinguishedName] {
        &[]
    }

    fn verify_client_cert(
        &self,
        _end_entity: &CertificateDer<'_>,
        _intermediates: &[CertificateDer<'_>],
        _now: UnixTime,
    ) -> Result<ClientCertVerified, Error> {
        Ok(ClientCertVerified::assertion())
    }

    fn verify_tls12_signature(
        &self,
        _message: &[u8],
        _cert: &CertificateDer<'_>,
        _dss: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, Error> {
        Ok(HandshakeSignatureValid::assertion())
    }

    fn verify_tls13_signature(
        &self,
        _message: &[u8],
        _cert: &CertificateDer<'_>,
        _dss: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, Error> {
        Ok(HandshakeSignatureValid::assertion())
    }

    fn supported_verify_schemes(&self) -> Vec<SignatureScheme> {
        vec![SignatureScheme::ED25519]
    }

    fn requires_raw_public_keys(&self) -> bool {
        true
    }
}
