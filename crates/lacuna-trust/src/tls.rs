//! TLS 1.3 as the control exchange uses it: both ends show a bare key, or a certificate, and prove that they have it.
//!
//! Where a one-time code decides, or somebody is asked, TLS takes any key for the time being; `proof.rs` sees to the rest.

use crate::certificates::{AsClients, Certificates, CertificatesError};
use crate::code::Code;
use crate::key::{HostKey, KEY_BYTES, PublicKey};
use crate::offer::CodeOffer;
use crate::proof::Door;
use crate::token::Token;
use lacuna_secure::Cipher;
use rustls::client::danger::{HandshakeSignatureValid, ServerCertVerified, ServerCertVerifier};
use rustls::client::{AlwaysResolvesClientRawPublicKeys, Resumption};
use rustls::crypto::aws_lc_rs::cipher_suite::{
    TLS13_AES_128_GCM_SHA256, TLS13_CHACHA20_POLY1305_SHA256,
};
use rustls::crypto::{CryptoProvider, aws_lc_rs, verify_tls13_signature_with_raw_key};
use rustls::pki_types::{
    CertificateDer, PrivatePkcs8KeyDer, ServerName, SubjectPublicKeyInfoDer, UnixTime,
};
use rustls::server::danger::{ClientCertVerified, ClientCertVerifier};
use rustls::server::{AlwaysResolvesServerRawPublicKeys, NoServerSessionStorage};
use rustls::sign::CertifiedKey;
use rustls::version::TLS13;
use rustls::{
    CertificateError, ClientConfig, DigitallySignedStruct, DistinguishedName, Error, ServerConfig,
    SignatureScheme, SupportedCipherSuite,
};
use std::collections::HashSet;
use std::fmt;
use std::sync::Arc;
use zeroize::Zeroizing;

/// Says whether a key is one to speak with.
pub(crate) type Judge = dyn Fn(&PublicKey) -> bool + Send + Sync;

/// How an end proves who it is, and whom it believes.
#[derive(Clone)]
pub struct Trust {
    /// The key that is shown; `None` with certificates.
    own: Option<PublicKey>,
    /// The faster one of this host, if that was said.
    cipher: Option<Cipher>,
    configs: Arc<[Configs; 2]>,
    pub(crate) door: Door,
    /// Of all who have the same token.
    shared: Option<Arc<Zeroizing<[u8; KEY_BYTES]>>>,
}

/// For both sides of TLS.
struct Configs {
    cipher: Cipher,
    client: Arc<ClientConfig>,
    server: Arc<ServerConfig>,
}

impl fmt::Debug for Trust {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Trust").field("own", &self.own).finish_non_exhaustive()
    }
}

impl Trust {
    /// Believes those who have one of these keys.
    #[must_use]
    pub fn of_keys(own: &HostKey, peers: impl IntoIterator<Item = PublicKey>) -> Self {
        let peers: HashSet<_> = peers.into_iter().collect();
        Self::judged(own, move |key| peers.contains(key))
    }

    /// Believes those who have the token.
    #[must_use]
    pub fn of_token(token: &Token) -> Self {
        let own = token.key();
        let shared = Some(Arc::new(token.secret()));
        Self { shared, ..Self::of_keys(&own, [own.public()]) }
    }

    /// Believes those whose key `judge` finds good. It is asked once for each handshake, before anything that the peer
    /// says is used.
    #[must_use]
    pub fn judged(
        own: &HostKey,
        judge: impl Fn(&PublicKey) -> bool + Send + Sync + 'static,
    ) -> Self {
        let judge: Arc<Judge> = Arc::new(judge);
        Self::new(own, judge.clone(), judge, Door::Judged)
    }

    /// Believes those to whom it connects whose key `judge` finds good. It is asked once that end has proved that it has
    /// the key and has said that it believes this one; before anything else is said. So somebody may be asked about a
    /// key that is met for the first time, and is not asked where a code would be wanted
    /// ([`SessionError::CodeWanted`](crate::SessionError::CodeWanted)). A connection takes a round trip longer. Nobody
    /// who connects to this end is believed.
    #[must_use]
    pub fn asking(
        own: &HostKey,
        judge: impl Fn(&PublicKey) -> bool + Send + Sync + 'static,
    ) -> Self {
        Self::new(own, Arc::new(|_| true), Arc::new(|_| false), Door::Late(Arc::new(judge)))
    }

    /// Believes the first who proves that it has the code, by its key from then on, and nobody else.
    ///
    /// That is at the accepting end. To whom this end connects, it believes those who proved the code before.
    #[must_use]
    pub fn offering(own: &HostKey, code: Code) -> (Self, CodeOffer) {
        Self::offering_judged(own, code, |_| false)
    }

    /// The same, and believes those whose key `judge` finds good, without a code.
    #[must_use]
    pub fn offering_judged(
        own: &HostKey,
        code: Code,
        judge: impl Fn(&PublicKey) -> bool + Send + Sync + 'static,
    ) -> (Self, CodeOffer) {
        let (offer, judge): (_, Arc<Judge>) = (CodeOffer::new(code), Arc::new(judge));
        let (known, good) = (offer.clone(), judge.clone());
        let of_servers = move |key: &PublicKey| good(key) || known.knows(key);
        let door = Door::Offering(offer.clone(), judge);
        (Self::new(own, Arc::new(of_servers), Arc::new(|_| true), door), offer)
    }

    /// Believes the first to which it connects that has the same code and offers it ([`Trust::offering`]), by its key
    /// from then on, and nobody else. The first session has to be over its handshake before others begin: a code is good
    /// for few tries.
    #[must_use]
    pub fn by_code(own: &HostKey, code: Code) -> Self {
        let offer = CodeOffer::new(code);
        let (server, client) = (offer.clone(), offer.clone());
        let of_servers = move |key: &PublicKey| server.user().is_none_or(|user| user == *key);
        let of_clients = move |key: &PublicKey| client.knows(key);
        Self::new(own, Arc::new(of_servers), Arc::new(of_clients), Door::ByCode(offer))
    }

    /// Believes those who have a certificate of a CA.
    ///
    /// # Errors
    /// If certificate and key do not go together, or a list of revoked certificates cannot be read.
    pub fn of_certificates(certificates: &Certificates) -> Result<Self, CertificatesError> {
        let of = |cipher| Configs::of_certificates(cipher, certificates);
        let [aes, chacha] = Cipher::ALL;
        let configs = Arc::new([of(aes)?, of(chacha)?]);
        Ok(Self { own: None, cipher: None, configs, door: Door::Judged, shared: None })
    }

    /// With what each end asks of the other's key during TLS.
    fn new(own: &HostKey, of_servers: Arc<Judge>, of_clients: Arc<Judge>, door: Door) -> Self {
        let configs =
            Cipher::ALL.map(|cipher| Configs::of_keys(cipher, own, &of_servers, &of_clients));
        let (own, configs) = (Some(own.public()), Arc::new(configs));
        Self { own, cipher: None, configs, door, shared: None }
    }

    /// The key that this end shows; `None` if it is a certificate.
    #[must_use]
    pub fn own(&self) -> Option<PublicKey> {
        self.own
    }

    /// A secret of all who have the token that this trusts by, for keys that are agreed on without a session; `None` if
    /// it trusts by anything else. Each use derives from it under a label of its own.
    #[must_use]
    pub fn shared_secret(&self) -> Option<&[u8; KEY_BYTES]> {
        self.shared.as_deref().map(|secret| &**secret)
    }

    /// The same trust, for a host on which this cipher is the faster one. An end for which that is ChaCha20 agrees to no
    /// other, since the slower end is the one that limits both.
    #[must_use]
    pub fn with_cipher(self, cipher: Cipher) -> Self {
        Self { cipher: Some(cipher), ..self }
    }

    /// The same, unless it was said before.
    #[must_use]
    pub fn or_cipher(self, cipher: Cipher) -> Self {
        Self { cipher: self.cipher.or(Some(cipher)), ..self }
    }

    pub(crate) fn client(&self) -> Arc<ClientConfig> {
        self.configs().client.clone()
    }

    pub(crate) fn server(&self) -> Arc<ServerConfig> {
        self.configs().server.clone()
    }

    fn configs(&self) -> &Configs {
        let cipher = self.cipher.unwrap_or_default();
        let found = self.configs.iter().find(|configs| configs.cipher == cipher);
        found.expect("there are configurations for all ciphers")
    }
}

/// What an end agrees to on whose host this cipher is the faster one. What TLS agrees on is for the packets, too.
fn suites(cipher: Cipher) -> Vec<SupportedCipherSuite> {
    match cipher {
        Cipher::Aes128Gcm => vec![TLS13_AES_128_GCM_SHA256, TLS13_CHACHA20_POLY1305_SHA256],
        Cipher::ChaCha20Poly1305 => vec![TLS13_CHACHA20_POLY1305_SHA256],
    }
}

/// What an end on such a host computes with.
fn provider(cipher: Cipher) -> Arc<CryptoProvider> {
    let cipher_suites = suites(cipher);
    Arc::new(CryptoProvider { cipher_suites, ..aws_lc_rs::default_provider() })
}

impl Configs {
    fn of_certificates(
        cipher: Cipher,
        certificates: &Certificates,
    ) -> Result<Self, CertificatesError> {
        let unusable = |error: Error| CertificatesError::Unusable(error.to_string());
        let provider = provider(cipher);
        let verifier = certificates.verifier(provider.clone())?;
        let Certificates { chain, key, .. } = certificates;
        let client = ClientConfig::builder_with_provider(provider.clone());
        let client = client.with_protocol_versions(&[&TLS13]).map_err(unusable)?;
        let client = client
            .dangerous()
            .with_custom_certificate_verifier(Arc::new(AsClients(verifier.clone())))
            .with_client_auth_cert(chain.clone(), key.clone_key())
            .map_err(unusable)?;
        let server = ServerConfig::builder_with_provider(provider);
        let server = server.with_protocol_versions(&[&TLS13]).map_err(unusable)?;
        let server = server
            .with_client_cert_verifier(verifier)
            .with_single_cert(chain.clone(), key.clone_key())
            .map_err(unusable)?;
        Ok(Self::new(cipher, client, server))
    }

    fn of_keys(
        cipher: Cipher,
        own: &HostKey,
        of_servers: &Arc<Judge>,
        of_clients: &Arc<Judge>,
    ) -> Self {
        let provider = provider(cipher);
        let der = own.to_der();
        let key = aws_lc_rs::sign::any_eddsa_type(&PrivatePkcs8KeyDer::from(der.as_slice()));
        let key = key.expect("an Ed25519 key");
        let shown = CertificateDer::from(own.public().to_der());
        let shown = Arc::new(CertifiedKey::new(vec![shown], key));
        let verifier = |judge: &Arc<Judge>| {
            Arc::new(Verifier { judge: judge.clone(), provider: provider.clone() })
        };
        let client = ClientConfig::builder_with_provider(provider.clone());
        let client = client.with_protocol_versions(&[&TLS13]).expect("TLS 1.3");
        let resolver = Arc::new(AlwaysResolvesClientRawPublicKeys::new(shown.clone()));
        let client = client
            .dangerous()
            .with_custom_certificate_verifier(verifier(of_servers))
            .with_client_cert_resolver(resolver);
        let server = ServerConfig::builder_with_provider(provider.clone());
        let server = server.with_protocol_versions(&[&TLS13]).expect("TLS 1.3");
        let resolver = Arc::new(AlwaysResolvesServerRawPublicKeys::new(shown));
        let server =
            server.with_client_cert_verifier(verifier(of_clients)).with_cert_resolver(resolver);
        Self::new(cipher, client, server)
    }

    /// Every session is a new one.
    fn new(cipher: Cipher, mut client: ClientConfig, mut server: ServerConfig) -> Self {
        client.resumption = Resumption::disabled();
        // The peer is known by its key, not by a name.
        client.enable_sni = false;
        server.session_storage = Arc::new(NoServerSessionStorage {});
        server.send_tls13_tickets = 0;
        Self { cipher, client: Arc::new(client), server: Arc::new(server) }
    }
}

/// Checks that a peer has the key that it shows, and asks whether that is one to speak with.
struct Verifier {
    judge: Arc<Judge>,
    provider: Arc<CryptoProvider>,
}

impl fmt::Debug for Verifier {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Verifier")
    }
}

impl Verifier {
    fn check(&self, shown: &CertificateDer<'_>) -> Result<(), Error> {
        let key = PublicKey::of_der(shown).ok_or(CertificateError::BadEncoding)?;
        match (self.judge)(&key) {
            true => Ok(()),
            false => Err(CertificateError::ApplicationVerificationFailure.into()),
        }
    }

    fn check_signature(
        &self,
        message: &[u8],
        shown: &CertificateDer<'_>,
        signature: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, Error> {
        let key = SubjectPublicKeyInfoDer::from(shown.as_ref());
        let algorithms = &self.provider.signature_verification_algorithms;
        verify_tls13_signature_with_raw_key(message, &key, signature, algorithms)
    }
}

/// TLS 1.2 is off, so nobody asks.
fn refuse_tls12() -> Result<HandshakeSignatureValid, Error> {
    Err(Error::General("TLS 1.2 is off".to_owned()))
}

impl ServerCertVerifier for Verifier {
    fn verify_server_cert(
        &self,
        end_entity: &CertificateDer<'_>,
        _intermediates: &[CertificateDer<'_>],
        _server_name: &ServerName<'_>,
        _ocsp_response: &[u8],
        _now: UnixTime,
    ) -> Result<ServerCertVerified, Error> {
        self.check(end_entity).map(|()| ServerCertVerified::assertion())
    }

    fn verify_tls12_signature(
        &self,
        _message: &[u8],
        _cert: &CertificateDer<'_>,
        _dss: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, Error> {
        refuse_tls12()
    }

    fn verify_tls13_signature(
        &self,
        message: &[u8],
        cert: &CertificateDer<'_>,
        dss: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, Error> {
        self.check_signature(message, cert, dss)
    }

    fn supported_verify_schemes(&self) -> Vec<SignatureScheme> {
        vec![SignatureScheme::ED25519]
    }

    fn requires_raw_public_keys(&self) -> bool {
        true
    }
}

impl ClientCertVerifier for Verifier {
    fn root_hint_subjects(&self) -> &[DistinguishedName] {
        &[]
    }

    fn verify_client_cert(
        &self,
        end_entity: &CertificateDer<'_>,
        _intermediates: &[CertificateDer<'_>],
        _now: UnixTime,
    ) -> Result<ClientCertVerified, Error> {
        self.check(end_entity).map(|()| ClientCertVerified::assertion())
    }

    fn verify_tls12_signature(
        &self,
        _message: &[u8],
        _cert: &CertificateDer<'_>,
        _dss: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, Error> {
        refuse_tls12()
    }

    fn verify_tls13_signature(
        &self,
        message: &[u8],
        cert: &CertificateDer<'_>,
        dss: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, Error> {
        self.check_signature(message, cert, dss)
    }

    fn supported_verify_schemes(&self) -> Vec<SignatureScheme> {
        vec![SignatureScheme::ED25519]
    }

    fn requires_raw_public_keys(&self) -> bool {
        true
    }
}
