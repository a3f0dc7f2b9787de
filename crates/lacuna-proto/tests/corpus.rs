//! Replays all fuzzing inputs of the handshake through the same checks in the ordinary test run.

mod checks;

use lacuna_proto::handshake::{Accept, AcceptStep, Connect, HostLimits, Welcoming, info_of};
use lacuna_proto::modes::auto;
use lacuna_proto::qp::QpConfig;
use std::fs;
use std::net::SocketAddr;
use std::path::PathBuf;

fn folder() -> PathBuf {
    PathBuf::from(env!("CARGO_MANIFEST_DIR")).join("../../fuzz/corpus/handshake")
}

#[test]
fn handshake_corpus() {
    let entries = fs::read_dir(folder()).expect("the corpus");
    let mut paths: Vec<PathBuf> = entries.map(|entry| entry.expect("an entry").path()).collect();
    paths.sort();
    assert!(!paths.is_empty(), "no inputs");
    for path in paths {
        // Shown only if the check fails, and then says which input it was.
        println!("{}", path.display());
        checks::handshake(&fs::read(&path).expect("a file"));
    }
}

/// Writes the valid inputs that fuzzing starts from. Run it after a change of format.
#[test]
#[ignore = "writes into the source tree"]
fn write_seeds() {
    let connect = Connect::new(0, checks::offer(), u64::MAX, None);
    let hello = connect.poll_bytes();
    let mut accept = Accept::new(u64::MAX);
    accept.on_bytes(0, hello);
    let Some(AcceptStep::Decide(asked)) = accept.poll() else { panic!("no hello") };
    let host =
        HostLimits { mtu_bytes: None, packet_bytes: Some(1500), header_bytes: 28, channels: 2 };
    let (parameters, geometry) = asked.negotiate(&host).expect("a geometry");
    let config = QpConfig {
        geometry,
        mode: parameters.mode,
        policy: auto::plan,
        controller: Default::default(),
        rto: Default::default(),
        queue_pair: 2,
        rkey: 60,
        qkey: 70,
        first_psn: 80,
        credit_bytes: 1 << 21,
        silence_max_ns: 1_000_000_000,
    };
    let channels = (1..=2).map(|port| SocketAddr::from(([127, 0, 0, 1], port))).collect();
    let info = info_of(&config, channels).emit();
    accept.welcome(Welcoming { is_mtu_given: false, info, keeps: true, siblings: vec![] });
    let welcome = accept.poll_bytes();
    let goodbye = [0; 4];
    fs::create_dir_all(folder()).expect("a folder");
    for (name, how, said) in [
        ("hello", 0, [hello].concat()),
        ("hello-in-parts", 0x76, [hello].concat()),
        ("hello-reused", 1, [&goodbye, hello].concat()),
        ("welcome", 0, [welcome].concat()),
        ("welcome-in-parts", 0x32, [welcome].concat()),
        ("welcome-reused", 9, [&goodbye, welcome].concat()),
    ] {
        fs::write(folder().join(format!("seed-{name}")), [&[how][..], &said].concat())
            .expect("written");
    }
}
