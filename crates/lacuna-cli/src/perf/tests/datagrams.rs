//! `--qp ud` and `rd`: every verb over loopback with exact counts, over paths that lose, and from many peers; and what is
//! refused.

use super::*;
use crate::perf::protocol::{Counters, Done, Opening, Terms};
use serde_json::{Value, json};
use std::net::UdpSocket;

fn ud(to: SocketAddr, options: &str) -> (Report, Value) {
    ud_over(to, options, None)
}

fn ud_over(to: SocketAddr, options: &str, wrap: Option<Wrap>) -> (Report, Value) {
    // Messages of 256 KiB, four in flight, unless they say otherwise.
    let unless = |name: &str, value: &str| match options.split(' ').any(|word| word == name) {
        true => String::new(),
        false => format!("{name} {value}"),
    };
    let (size, inflight) = (unless("-s", "256KiB"), unless("-t", "4"));
    let qp = unless("--qp", "ud");
    let line = format!("client {to} {qp} {size} {inflight} {options}");
    let args = ClientLine::try_parse_from(line.split_whitespace()).expect("a command line");
    let report = client::measure(&args.args, wrap, &|| false, OUTPUT).expect("it is served");
    let json = serde_json::to_value(&report).expect("an object");
    (report, json)
}

#[test]
fn every_verb_comes_whole_over_loopback_and_is_counted_exactly() {
    let server = Running::start("", |_| {});
    for verb in ["send", "write-record", "read"] {
        let options = format!("--verb {verb} -n 40 --warmup 4 --rate 400mbit --validate");
        // Datagrams promise nothing: on a busy machine a message may end before its packets are read.
        let is_whole = |(_, json): &(Report, Value)| json["placed_fraction"] == 1.0;
        let mut tries = (0..5).map(|_| ud(server.address, &options));
        let (report, json) = tries.find(is_whole).expect("one of five tries is undisturbed");
        assert_eq!((report.iterations, report.validated), (40, Some(true)), "{json}");
        // Those of the warm-up and in flight at the end, too.
        assert_eq!(json["messages"], 48, "{json}");
        assert_eq!(
            (&json["qp"], &json["verb"], &json["mode"]),
            (&json!("ud"), &json!(verb), &json!("raw"))
        );
        assert_eq!(json["messages_whole"], 48, "{json}");
        for none in ["messages_partial", "messages_missed", "late_packets", "messages_evicted"] {
            assert_eq!(json[none], 0, "{none}: {json}");
        }
        for none in ["duplicate_packets", "lost_bytes", "lost_packets", "no_buffer_packets"] {
            assert_eq!(json[none], 0, "{none}: {json}");
        }
        assert_eq!(json["ended"], json!({ "whole": 48 }), "{json}");
        let packets = (256u64 << 10).div_ceil(report.mtu_bytes.into()) * 48;
        assert_eq!(report.sent_packets, packets, "{json}");
        assert!(report.gbit_per_s > 0.0 && report.gbit_per_s < 0.4, "{json}");
        let text = report.lines().join("\n");
        assert!(text.contains("messages whole 48, partial 0, missed 0"), "{text}");
    }
}

#[test]
fn with_a_token_every_verb_is_sealed_and_counted_exactly_as_well() {
    let folder = tempfile::tempdir().expect("a folder");
    let file = folder.path().join("token");
    let secret = lacuna::trust::Token::generate().expect("random bytes").to_text();
    lacuna::trust::write_secret(&file, &secret).expect("a file");
    let token = format!("--token {}", file.display());
    let server = Running::start(&token, |_| {});
    for qp in ["ud", "rd"] {
        for verb in ["send", "write-record", "read"] {
            let options = format!(
                "--qp {qp} --verb {verb} -n 20 --warmup 2 --rate 400mbit --validate {token}"
            );
            let is_whole = |(_, json): &(Report, Value)| json["placed_fraction"] == 1.0;
            let mut tries = (0..5).map(|_| ud(server.address, &options));
            let (report, json) = tries.find(is_whole).expect("one of five tries is undisturbed");
            assert_eq!((report.iterations, report.validated), (20, Some(true)), "{json}");
            assert_eq!(json["wire"], "sealed", "{json}");
        }
    }
}

#[test]
fn what_a_path_loses_is_missing_in_the_maps_and_nothing_else_is() {
    let server = Running::start("", |_| {});
    for verb in ["send", "write-record"] {
        let (wrap, links) = lossy(0.02);
        let options = format!("--verb {verb} -m 4096 -n 60 --warmup 0 --rate 200mbit --validate");
        let (report, json) = ud_over(server.address, &options, Some(wrap));
        assert_eq!(report.validated, Some(true), "{json}");
        let of = |field: &str| json[field].as_u64().unwrap_or_else(|| panic!("{field}: {json}"));
        assert_eq!(of("messages"), 64);
        let (whole, partial) = (of("messages_whole"), of("messages_partial"));
        let missed = of("messages_missed");
        assert_eq!(whole + partial + missed, 64, "{json}");
        // 2 % of 64 packets a message: one in four comes whole.
        assert!((1..64).contains(&whole), "{json}");
        let lost = lost(&links);
        assert!(lost > 0 && of("lost_packets") == lost, "{lost}: {json}");
        let fraction = json["placed_fraction"].as_f64().expect("a share");
        if verb == "send" {
            assert_eq!((partial, missed), (0, 64 - whole), "whole or nothing: {json}");
            assert_eq!(fraction, whole as f64 / 64.0);
        } else {
            // On a busy machine some come when their message has ended by silence.
            let missing = lost + of("late_packets");
            assert_eq!(of("lost_bytes"), missing * 4096, "to the packet: {json}");
            assert_eq!(fraction, 1.0 - missing as f64 / (64.0 * 64.0), "{json}");
        }
    }
}

#[test]
fn reads_over_a_path_that_loses_questions_end_by_their_deadline() {
    let server = Running::start("", |_| {});
    let (wrap, links) = lossy(0.2);
    // A given rate needs no questions, which would be lost as well.
    let options = "--verb read -s 20000 -n 40 --warmup 0 --deadline 50ms --rate 1gbit --validate";
    let (report, json) = ud_over(server.address, options, Some(wrap));
    assert_eq!(report.validated, Some(true), "{json}");
    let missed = json["messages_missed"].as_u64().expect("counted");
    assert_eq!(missed, lost(&links), "{json}");
    assert!(missed > 0, "{json}");
    assert_eq!(json["ended"]["deadline"], missed, "{json}");
    assert_eq!(json["lost_bytes"], missed * 20_000, "{json}");
}

#[test]
fn reliable_datagrams_come_whole_over_a_path_that_loses() {
    let server = Running::start("", |_| {});
    for verb in ["send", "write-record", "read"] {
        let (wrap, links) = lossy(0.05);
        let options = format!("--qp rd --verb {verb} -n 40 --warmup 4 --rate 400mbit --validate");
        let (report, json) = ud_over(server.address, &options, Some(wrap));
        assert_eq!((report.iterations, report.validated), (40, Some(true)), "{json}");
        assert_eq!((&json["qp"], &json["mode"]), (&json!("rd"), &json!("sr")));
        assert_eq!((&json["placed_fraction"], &json["messages_whole"]), (&json!(1.0), &json!(48)));
        assert!(lost(&links) > 0, "{json}");
    }
}

/// A broadcast address that this host hears itself at, with a free port; `None` if there is none.
fn broadcast() -> Option<String> {
    let heard = UdpSocket::bind((Ipv4Addr::UNSPECIFIED, 0)).expect("a port");
    let address = heard.local_addr().expect("it is bound");
    let to = SocketAddr::from(([127, 255, 255, 255], address.port()));
    let sender = UdpSocket::bind((Ipv4Addr::UNSPECIFIED, 0)).expect("a port");
    sender.set_broadcast(true).expect("an option");
    heard.set_read_timeout(Some(Duration::from_secs(1))).expect("an option");
    let is_heard = sender.send_to(&[1], to).is_ok() && heard.recv(&mut [0; 8]).is_ok();
    is_heard.then(|| to.to_string())
}

#[test]
fn what_a_server_misses_of_a_broadcast_comes_again_unless_that_is_not_wanted() {
    let Some(group) = broadcast() else {
        println!("skipped: no broadcast over loopback here");
        return;
    };
    let server = Running::start("", |_| {});
    let of = |options: &str, loss| {
        let (wrap, links) = lossy(loss);
        let options = format!(
            "-s 16KiB -m 1024 -t 8 -n 200 --warmup 0 --rate 100mbit --group {group} --validate {options}"
        );
        let (report, json) = ud_over(server.address, &options, Some(wrap));
        assert_eq!(report.validated, Some(true), "{json}");
        assert_eq!(json["group"], group, "{json}");
        assert_eq!(json["receivers"][0]["placed_fraction"], json["placed_fraction"], "{json}");
        assert_eq!((json["receivers"].as_array().map(Vec::len)), Some(1), "{json}");
        assert!(lost(&links) > 0 || loss == 0.0, "{json}");
        let text = report.lines().join("\n");
        assert!(text.contains("of them again") && text.contains("127.0.0.1"), "{text}");
        json
    };
    let json = of("", 0.0);
    // A busy host may let a message rest so long that its rest is asked for; it comes twice then.
    assert_eq!((&json["placed_fraction"], &json["group_repairs"]), (&json!(1.0), &json!(true)));
    let json = of("", 0.02);
    // Of the first message nobody knows before it comes.
    assert!(json["placed_fraction"].as_f64().expect("a share") > 0.98, "{json}");
    assert!(json["retransmitted_packets"].as_u64().expect("a count") > 0, "{json}");
    let json = of("--no-group-repair", 0.02);
    // 16 packets a message: seven of ten come whole.
    assert!(json["placed_fraction"].as_f64().expect("a share") < 0.9, "{json}");
    assert_eq!(json["retransmitted_packets"], 0, "{json}");
}

#[test]
fn a_server_that_cannot_take_the_groups_port_is_said_in_one_line() {
    let taken = UdpSocket::bind((Ipv4Addr::UNSPECIFIED, 0)).expect("a port");
    let port = taken.local_addr().expect("it is bound").port();
    let server = Running::start("", |_| {});
    let line =
        format!("client {} --qp ud --group 127.255.255.255:{port} --rate 100mbit", server.address);
    let args = ClientLine::try_parse_from(line.split_whitespace()).expect("a command line");
    match client::measure(&args.args, None, &|| false, OUTPUT) {
        Err(Failure::Network(text)) => {
            assert!(text.contains("refused") && text.lines().count() == 1, "{text}");
        }
        other => panic!("{other:?}"),
    }
}

#[test]
fn a_server_sees_every_peer_and_each_has_its_own_place() {
    let server = Running::start("", |_| {});
    for verb in ["send", "write-record", "read"] {
        let options = format!(
            "--verb {verb} -s 3000 -t 2 --peers 50 -n 1000 --warmup 0 --rate 100mbit --validate"
        );
        let (report, json) = ud(server.address, &options);
        assert_eq!((report.iterations, report.validated), (1000, Some(true)), "{json}");
        assert_eq!((&json["peers"], &json["messages_whole"]), (&json!(50), &json!(1100)), "{json}");
        assert_eq!(json["messages_missed"], 0, "{json}");
    }
}

#[test]
fn small_messages_and_odd_sizes_are_validated() {
    let server = Running::start("", |_| {});
    for verb in ["send", "write-record", "read"] {
        for size in ["8", "4097", "100003"] {
            let options = format!("--verb {verb} -s {size} -t 3 -n 200 --rate 200mbit --validate");
            let (report, json) = ud(server.address, &options);
            assert_eq!((report.iterations, report.validated), (200, Some(true)), "{json}");
            assert_eq!(json["placed_fraction"], 1.0, "{json}");
        }
    }
}

#[test]
fn options_that_datagrams_have_not_are_refused_by_name() {
    for (options, advice) in [
        ("--qp ud --verb write", "take write-record"),
        ("--qp ud --verb write-imm", "take write-record"),
        ("--qp ud --mode sr", "--mode is not for --qp ud"),
        ("--qp ud --ping-pong", "--ping-pong is not for --qp ud"),
        ("--qp ud --chunk 64KiB", "--chunk is not for --qp ud"),
        ("--qp ud --missing zero", "--missing is not for --qp ud"),
        ("--qp ud --deadline 1s", "is for --verb read"),
        ("--qp ud --shim lowar:8:1", "of --qp rc"),
        ("--qp ud --queue-pairs 2", "for --qp rc"),
        ("--qp ud --size 8GiB", "4294967295 bytes at most"),
        ("--qp ud --validate -s 7", "8 bytes or more"),
        ("--qp ud --validate -m 1004", "a multiple of 8"),
        ("--qp rd --ping-pong", "--ping-pong is not for --qp rd"),
        ("--qp ud --cc fixed", "needs a --rate"),
        ("--group 10.0.0.255 --rate 1gbit", "--group is for --qp ud"),
        ("--qp rd --group 10.0.0.255 --rate 1gbit", "--group is for --qp ud"),
        ("--qp ud --group 10.0.0.255", "--group needs --rate"),
        ("--qp ud --group 10.0.0.255 --rate 1gbit --verb read", "--group is for --verb send"),
        ("--qp ud --group 10.0.0.255 --rate 1gbit --peers 2", "leave --peers out"),
        ("--qp ud --group 10.0.0.255 --rate 1gbit --cc bbr", "leave --cc out"),
        ("--qp ud --group 10.0.0.255 --rate 1gbit --progress manual", "--progress threads"),
        ("--qp ud 127.0.0.1:2", "several servers are for --qp ud --group"),
        ("--qp sdr --verb write-record", "take --qp ud"),
        ("--qp rc --verb write-record", "take --qp ud"),
        ("--peers 2", "--peers is for --qp ud"),
        ("--qp ud --verb write-record --validate -t 1024 --peers 4096", "too many"),
    ] {
        // No server is asked.
        let line = format!("client 127.0.0.1:1 {options}");
        let args = ClientLine::try_parse_from(line.split_whitespace());
        let args = args.unwrap_or_else(|error| panic!("{line}: {error}"));
        match client::measure(&args.args, None, &|| false, OUTPUT) {
            Err(Failure::Usage(text)) => {
                assert!(text.contains(advice) && text.lines().count() == 1, "{options}: {text}");
            }
            other => panic!("{options}: {other:?}"),
        }
    }
}

/// A server asked by hand for what its clients refuse by themselves.
#[test]
fn a_server_refuses_verbs_that_datagrams_have_not() {
    let server = Running::start("", |_| {});
    let asked = |reliable| json!({ "peers": 1, "packet_bytes": 1400, "rate_bits_per_s": null, "reliable": reliable });
    for (verb, datagram, part) in [
        ("write", Some(asked(true)), "take write-record"),
        ("write", Some(asked(false)), "take write-record"),
        ("write-record", None, "take --qp ud"),
    ] {
        let session = server.session();
        let answer = Awaited::<Answer>::post(&session).expect("a free slot");
        let request = Request { size_bytes: 4096, inflight: 2, validate: false };
        let datagram = datagram.map(|asked| serde_json::from_value(asked).expect("as it is sent"));
        let terms = Terms { verb: verb.to_owned(), datagram, ..Terms::default() };
        send(&session, &Opening { request, terms: Some(terms) }).expect("the server takes it");
        match answer.wait(LONG, &|| false).expect("it answers") {
            Answer::Refused { reason } => assert!(reason.contains(part), "{reason}"),
            other => panic!("{other:?}"),
        }
    }
}

/// Bytes that are not what the client said that it would send.
#[test]
fn wrong_bytes_of_a_write_record_and_of_a_send_are_counted_and_said() {
    use lacuna::datagram::{SendWork, Settings, Target, Verb};
    let server = Running::start("", |_| {});
    for verb in ["send", "write-record"] {
        let session = server.session();
        let answer = Awaited::<Answer>::post(&session).expect("a free slot");
        let request = Request { size_bytes: 4096, inflight: 2, validate: true };
        let asked = json!({ "peers": 1, "packet_bytes": 1400, "rate_bits_per_s": null });
        let datagram = Some(serde_json::from_value(asked).expect("as it is sent"));
        let terms = Terms { verb: verb.to_owned(), datagram, ..Terms::default() };
        send(&session, &Opening { request, terms: Some(terms) }).expect("the server takes it");
        let answer = answer.wait(LONG, &|| false).expect("it answers");
        let answer = serde_json::to_value(&answer).expect("an object");
        let offered = &answer["Agreed"]["datagram"];
        let port = offered["port"].as_u64().expect("a port") as u16;
        let key = offered["keys"][0].as_u64().expect("a key") as u32;
        let context = Context::new(lacuna::ContextConfig::default()).expect("sockets");
        let qp = context.datagram_queue_pair(&Settings::default()).expect("a socket");
        let peer = qp.peer(SocketAddr::new(server.address.ip(), port)).expect("a place");
        let data = vec![0x5a; 4096].into();
        let work = match verb {
            "send" => Verb::Send { data },
            _ => Verb::WriteRecord { data, to: Target { key, offset: 0 } },
        };
        qp.post_send(SendWork::new(0, peer, work)).expect("posted");
        qp.wait(LONG).expect("it was handed out");
        let counters = Awaited::<Counters>::post(&session).expect("a free slot");
        send(&session, &Done { messages: 1, ..Done::default() }).expect("the server takes it");
        let counters = counters.wait(LONG, &|| false).expect("it counts");
        assert_eq!(counters.wrong, 1, "{verb}: {counters:?}");
        let first = counters.first_wrong.expect("the first");
        assert!(first.ends_with("at byte 0"), "{first}");
    }
}
