//! The accepting end and strangers: garbage, other versions, parameters that cannot be.

use super::*;

fn not_lacuna(step: Option<AcceptStep>) -> String {
    match step {
        Some(AcceptStep::Failed(AcceptError::Message(MessageError::NotLacuna(why)))) => why,
        other => panic!("{other:?}"),
    }
}

#[test]
fn garbage_is_named() {
    let huge = [&MAGIC[..], &[0xFF; 4]].concat();
    let nested = message(&[b'['; 16_000]);
    let (bare, other) = (message(b"{}"), message(b"\x1b[2Jnot json"));
    let cases: [(&[u8], &str); 6] = [
        (b"GET / HTTP/1.1\r\n\r\n", "it began with \"GET / HT\""),
        (&[0; 64], "it began with"),
        (&huge, "a message of 4294967295 bytes"),
        (&nested, "while waiting for the hello"),
        (&bare, "missing field `version`"),
        (&other, "while waiting for the hello"),
    ];
    for (bytes, expected) in cases {
        let (asked, answer) = accept_from(bytes);
        let why = not_lacuna(asked);
        assert!(why.contains(expected) && !why.contains('\x1b'), "{why}");
        assert!(answer.is_empty(), "a stranger is told nothing");
    }
}

#[test]
fn a_message_that_ends_anywhere_is_a_broken_connection() {
    let whole = connect(0).poll_bytes().to_vec();
    for length in 0..whole.len() {
        let mut accept = Accept::new(SECOND);
        assert_eq!(accept.on_bytes(0, &whole[..length]), length);
        assert!(accept.poll().is_none() && !accept.has_read_hello());
        assert_eq!(accept.has_begun(), length > 0);
        accept.on_broken();
        let doing = "waiting for the hello";
        let broken = AcceptError::Broken { doing };
        assert!(
            matches!(accept.poll(), Some(AcceptStep::Failed(error)) if error == broken),
            "{length}"
        );
        assert_eq!((accept.wanted(), accept.poll_timeout()), (0, None));
    }
    let mut accept = Accept::new(SECOND);
    accept.on_bytes(0, &whole);
    accept.poll();
    accept.welcome(Welcoming {
        is_mtu_given: false,
        info: info(Mode::Auto, PARAMETERS.geometry(1436, 2).unwrap()),
        keeps: false,
        siblings: vec![],
    });
    let welcome = accept.poll_bytes().to_vec();
    for length in 0..welcome.len() {
        let mut connect = connect(0);
        connect.on_sent(whole.len());
        assert_eq!(connect.on_bytes(1, &welcome[..length]), length);
        assert!(connect.poll().is_none());
        connect.on_broken(1);
        let broken = ConnectError::Broken { doing: "waiting for the welcome" };
        assert!(
            matches!(connect.poll(), Some(ConnectStep::Failed(error)) if error == broken),
            "{length}"
        );
    }
}

#[test]
fn nothing_behind_the_message_is_taken() {
    let hello = message(hello().to_string().as_bytes());
    let said = [&hello[..], &goodbye::message(b"last"), &hello].concat();
    let mut first = Accept::new(SECOND);
    assert_eq!(first.on_bytes(0, &said), hello.len());
    assert_eq!((first.wanted(), first.on_bytes(0, &said)), (0, 0));
    // Who has the connection next begins with the goodbye, wherever its last user stopped in it.
    for cut in 0..=4 + 4 {
        let (rest, mut goodbye) = (&said[hello.len()..], goodbye::Goodbye::default());
        let mut taken = 0;
        while taken < cut {
            goodbye.take(&rest[taken..taken + 1]).unwrap();
            taken += 1;
        }
        let mut second = Accept::after_goodbye(goodbye, SECOND);
        assert_eq!(second.on_bytes(0, &rest[cut..]), rest.len() - cut);
        assert!(matches!(second.poll(), Some(AcceptStep::Decide(_))), "{cut}");
    }
}

#[test]
fn another_version_is_told_apart_from_nonsense() {
    // Whatever else the hello of another version holds.
    let newer = json!({ "version": 9, "something": "new" });
    let (asked, answer) = accept_from(&message(newer.to_string().as_bytes()));
    let error = AcceptError::Message(MessageError::Version { there: 9 });
    assert!(matches!(asked, Some(AcceptStep::Failed(failed)) if failed == error));
    let refusal: Value = serde_json::from_slice(&answer[12..]).unwrap();
    assert_eq!(refusal["Refused"]["version"], PROTOCOL_VERSION);
    assert_eq!(refusal["Refused"]["reason"], "this end speaks version 7");

    let refusal = json!({ "Refused": { "version": 9, "reason": "this end speaks version 9" } });
    let error = connect_to(&refusal);
    assert_eq!(error, ConnectError::Message(MessageError::Version { there: 9 }));
}

#[test]
fn impossible_parameters_are_refused_with_the_numbers() {
    let cases = [
        ("mtu_bytes", json!(u32::MAX), "mtu of 4294967295 bytes"),
        ("mtu_bytes", json!(1), "mtu of 1 bytes"),
        ("mtu_bytes", json!(0), "mtu of 0 bytes"),
        ("chunk_bytes", json!(0), "chunk of 0 packets"),
        ("generations", json!(0), "0 generations"),
        ("generations", json!(255), "255 generations"),
        ("split", json!([10, 18, 3]), "3 bits"),
        ("split", json!([255, 255, 255]), "255"),
        ("split", json!([0, 0, 32]), "0"),
        ("mode", json!("hope"), "hope"),
        ("mode", json!("ec:mds:0:8"), "k = 0, m = 8"),
        ("mode", json!("ec:mds:200:56"), "200 + 56"),
        ("mode", json!("ec:xor:4:8"), "m = 8 is more than k = 4"),
        ("end", end(1, &[]), "0 channels"),
        ("end", end(1, &[1; 17]), "17 channels"),
        ("end", end(1, &[9, 0]), "port 0 for channel 1"),
        ("end", end(0, &[9]), "queue pair 0"),
        ("end", end(u32::MAX, &[9]), "queue pair 4294967295"),
    ];
    for (field, value, expected) in cases {
        let mut hello = hello();
        hello[field] = value;
        let (asked, answer) = accept_from(&message(hello.to_string().as_bytes()));
        let Some(AcceptStep::Failed(AcceptError::Unacceptable(reason))) = asked else {
            panic!("{field}")
        };
        assert!(reason.contains(expected), "{field}: {reason}");
        let refusal: Value = serde_json::from_slice(&answer[12..]).unwrap();
        let told = refusal["Refused"]["reason"].as_str().unwrap();
        assert!(told.contains(expected), "{field}: the peer is told {told}");
    }
}

#[test]
fn a_code_over_chunks_that_do_not_fit_the_message_is_refused_with_the_numbers() {
    for (chunk_bytes, max_message_bytes, expected) in [
        (1 << 20, 1 << 16, "must be 1 to"),
        (1 << 31, 0, "use smaller chunks"),
        (u64::MAX, 0, "use smaller chunks"),
    ] {
        let mut hello = hello();
        hello["mode"] = json!("ec");
        hello["chunk_bytes"] = json!(chunk_bytes);
        hello["max_message_bytes"] = json!(max_message_bytes);
        let (asked, _) = accept_from(&message(hello.to_string().as_bytes()));
        let Some(AcceptStep::Failed(AcceptError::Unacceptable(reason))) = asked else { panic!() };
        assert!(reason.contains(expected), "{reason}");
    }
}

#[test]
fn absurd_lengths_are_cut_and_overflow_nothing() {
    for field in ["chunk_bytes", "max_message_bytes", "tag", "packet_bytes"] {
        for value in [1, u64::from(u32::MAX), u64::from(u32::MAX) + 1, u64::MAX] {
            let mut hello = hello();
            hello[field] = json!(value);
            let (asked, _) = accept_from(&message(hello.to_string().as_bytes()));
            match asked {
                Some(AcceptStep::Decide(_)) => {}
                // It has 32 bits.
                other => assert!(field == "packet_bytes" && not_lacuna(other).contains("u32")),
            }
        }
    }
    assert!(PARAMETERS.geometry(u32::MAX, 1).is_err());
    assert!(PARAMETERS.geometry(0, 1).is_err());
}

#[test]
fn a_round_trip_over_udp_that_is_longer_than_over_tcp_is_measured_if_the_peer_answers_soon() {
    let late_ns = 30 * MS;
    let mut pair = Pair { udp_late_ns: late_ns, ..Pair::new() };
    pair.run();
    let (_, agreed) = pair.agreed();
    assert_eq!(agreed.rtt, Rtt::Measured(2 * DELAY_NS + late_ns));

    // An accepting end without threads was interrupted before its first packets left, and goes on only when
    // its application calls, which may wait here.
    let mut pair = Pair { udp_late_ns: late_ns, is_deaf: true, ..Pair::new() };
    pair.run();
    let (took_ns, agreed) = pair.agreed();
    assert_eq!(agreed.rtt, Rtt::Guessed(2 * DELAY_NS, 2 * DELAY_NS + 2 * late_ns));
    assert!(took_ns < DEADLINE_AFTER_NS / 10, "{took_ns}");
}

#[test]
fn who_says_nothing_has_its_time() {
    let mut accept = Accept::new(SECOND);
    accept.on_bytes(0, MAGIC);
    accept.on_timeout(SECOND - 1);
    assert!(accept.poll().is_none());
    assert_eq!(accept.poll_timeout(), Some(SECOND));
    accept.on_timeout(SECOND);
    let error = AcceptError::TimedOut { doing: "waiting for the hello" };
    assert!(matches!(accept.poll(), Some(AcceptStep::Failed(failed)) if failed == error));
    // What comes later changes nothing.
    accept.on_bytes(SECOND, &[1; 99]);
    accept.on_broken();
    accept.on_timeout(u64::MAX);
    assert!(accept.poll().is_none());
}
