//! Sessions between ends that have certificates of a CA.

mod common;

use common::{Pair, texts};
use lacuna_trust::{Certificates, CertificatesError, SessionError, Token, Trust, write_secret};
use rcgen::{
    BasicConstraints, CertificateParams, CertificateRevocationListParams, DnType, IsCa, Issuer,
    KeyIdMethod, KeyPair, KeyUsagePurpose, RevokedCertParams, SerialNumber, date_time_ymd,
};
use std::path::{Path, PathBuf};
use tempfile::TempDir;

/// A CA, with files of its certificates.
struct Ca {
    folder: TempDir,
    issuer: Issuer<'static, KeyPair>,
}

impl Ca {
    fn new(name: &str) -> Self {
        let key = KeyPair::generate().unwrap();
        let mut params = CertificateParams::new([]).unwrap();
        params.distinguished_name.push(DnType::CommonName, name);
        params.is_ca = IsCa::Ca(BasicConstraints::Unconstrained);
        params.key_usages = vec![KeyUsagePurpose::KeyCertSign, KeyUsagePurpose::CrlSign];
        let folder = tempfile::tempdir().unwrap();
        let own = params.self_signed(&key).unwrap();
        std::fs::write(folder.path().join("ca.pem"), own.pem()).unwrap();
        Self { folder, issuer: Issuer::new(params, key) }
    }

    fn path(&self, name: &str) -> PathBuf {
        self.folder.path().join(name)
    }

    /// A host's certificate, with this serial number, valid in these years.
    fn host(&self, serial: u64, [from, to]: [i32; 2]) -> Certificates {
        self.write_host(serial, [from, to]);
        let name = |ending: &str| self.path(&format!("{serial}.{ending}"));
        let revoked = self.path("revoked.pem");
        let revoked = revoked.exists().then_some(&*revoked);
        Certificates::read(&name("pem"), &name("key"), &self.path("ca.pem"), revoked).unwrap()
    }

    fn write_host(&self, serial: u64, [from, to]: [i32; 2]) {
        let key = KeyPair::generate().unwrap();
        let mut params = CertificateParams::new(["host.example.org".to_owned()]).unwrap();
        params.serial_number = Some(SerialNumber::from(serial));
        params.not_before = date_time_ymd(from, 1, 1);
        params.not_after = date_time_ymd(to, 1, 1);
        let certificate = params.signed_by(&key, &self.issuer).unwrap();
        std::fs::write(self.path(&format!("{serial}.pem")), certificate.pem()).unwrap();
        write_secret(&self.path(&format!("{serial}.key")), &key.serialize_pem()).unwrap();
    }

    fn revoke(&self, serial: u64) {
        let revoked = RevokedCertParams {
            serial_number: SerialNumber::from(serial),
            revocation_time: date_time_ymd(2024, 1, 1),
            reason_code: None,
            invalidity_date: None,
        };
        let list = CertificateRevocationListParams {
            this_update: date_time_ymd(2024, 1, 1),
            next_update: date_time_ymd(4000, 1, 1),
            crl_number: SerialNumber::from(1_u64),
            issuing_distribution_point: None,
            revoked_certs: vec![revoked],
            key_identifier_method: KeyIdMethod::Sha256,
        };
        let list = list.signed_by(&self.issuer).unwrap();
        std::fs::write(self.path("revoked.pem"), list.pem().unwrap()).unwrap();
    }
}

const VALID: [i32; 2] = [2024, 4000];

fn trust(certificates: &Certificates) -> Trust {
    Trust::of_certificates(certificates).unwrap()
}

#[test]
fn who_has_a_certificate_of_the_ca_is_believed() {
    let ca = Ca::new("ours");
    let (a, b) = (trust(&ca.host(1, VALID)), trust(&ca.host(2, VALID)));
    let mut pair = Pair::new(&a, &b);
    assert_eq!(texts(&pair.run()), ["", ""]);
    let [here, there] = &mut pair.sessions;
    assert_eq!(here.secret().unwrap(), there.secret().unwrap());
    assert_eq!((a.own(), here.peer()), (None, None), "it is no bare key");
    assert_eq!(here.write(b"hello").unwrap(), 5);
    pair.run();
    let mut read = [0; 9];
    assert_eq!(pair.sessions[1].read(&mut read).unwrap(), 5);
    assert_eq!(&read[..5], b"hello");
}

#[test]
fn who_has_one_that_is_no_good_is_refused_with_the_reason_at_both_ends() {
    let (ca, other) = (Ca::new("ours"), Ca::new("another"));
    ca.revoke(7);
    let good = trust(&ca.host(1, VALID));
    let bad = [
        (trust(&ca.host(3, [2020, 2021])), "it has expired", "it has expired or is not valid yet"),
        (trust(&ca.host(4, [3000, 4000])), "not valid yet", "it has expired or is not valid yet"),
        (trust(&ca.host(7, VALID)), "it was revoked", "it was revoked"),
        (
            trust(&other.host(5, VALID)),
            "it is of a CA that is not known here",
            "it is of a CA that it does not know",
        ),
    ];
    for (bad, here, there) in bad {
        for (pair, [of_good, of_bad]) in [((&good, &bad), [0, 1]), ((&bad, &good), [1, 0])] {
            let mut pair = Pair::new(pair.0, pair.1);
            let found = texts(&pair.run());
            assert!(pair.sessions[of_good].secret().is_err(), "{found:?}");
            // Ends of two CAs do not know each other's, and whoever sees it first says so.
            let is_mutual = found[of_bad].contains(here) && found[of_good].contains(there);
            let is_refused = found[of_good].contains(here) && found[of_bad].contains(there);
            assert!(is_refused || is_mutual, "{here}: {found:?}");
        }
    }
}

#[test]
fn a_certificate_and_a_token_do_not_go_together_and_it_is_said() {
    let ca = Ca::new("ours");
    let certificate = trust(&ca.host(1, VALID));
    let token = Trust::of_token(&Token::generate().unwrap());
    for (a, b) in [(&certificate, &token), (&token, &certificate)] {
        let mut pair = Pair::new(a, b);
        let found = pair.run();
        assert!(pair.sessions.iter_mut().all(|session| session.secret().is_err()));
        let is_said = found.iter().flatten().any(|error| matches!(error, SessionError::Manner));
        assert!(is_said, "{found:?}");
    }
}

#[test]
fn files_that_do_not_serve_are_named() {
    let ca = Ca::new("ours");
    for serial in [1, 2] {
        ca.write_host(serial, VALID);
    }
    let [one, key, other_key, authority] =
        ["1.pem", "1.key", "2.key", "ca.pem"].map(|name| ca.path(name));
    let read =
        |own: &Path, key: &Path, authority: &Path| Certificates::read(own, key, authority, None);
    let good = read(&one, &key, &authority).unwrap();
    assert!(Trust::of_certificates(&good).is_ok());
    // The key of another certificate.
    let mixed = read(&one, &other_key, &authority).unwrap();
    assert!(matches!(Trust::of_certificates(&mixed), Err(CertificatesError::Unusable(_))));
    let error = read(&one, &key, &key).unwrap_err().to_string();
    assert!(error.contains("1.key: no certificate in it"), "{error}");
    let exposed = ca.path("exposed.key");
    std::fs::copy(&key, &exposed).unwrap();
    #[cfg(unix)]
    {
        use std::os::unix::fs::PermissionsExt;
        std::fs::set_permissions(&exposed, std::fs::Permissions::from_mode(0o644)).unwrap();
        let error = read(&one, &exposed, &authority).unwrap_err().to_string();
        assert!(error.contains("can be read by others"), "{error}");
    }
    let error = read(&ca.path("none.pem"), &key, &authority).unwrap_err().to_string();
    assert!(error.contains("none.pem"), "{error}");
    std::fs::write(
        ca.path("torn.pem"),
        "-----BEGIN CERTIFICATE-----\n!!\n-----END CERTIFICATE-----\n",
    )
    .unwrap();
    let error = read(&ca.path("torn.pem"), &key, &authority).unwrap_err().to_string();
    assert!(error.contains("a certificate that cannot be read"), "{error}");
}
