//! Verbs, deadlines and what is lost: every verb in modes that repair and in one that does not, over paths
//! that lose, and ends of an older version.

use super::*;
use crate::perf::pattern;
use crate::perf::protocol::{Counters, Done, Fill, Opening, Terms};
use serde_json::json;

/// A server whose packets are lost with this probability.
fn lossy_server(loss: f64) -> (Running, Links) {
    let (wrap, links) = lossy(loss);
    let line = "server --listen 127.0.0.1:0".split_whitespace();
    let args = ServerLine::try_parse_from(line).expect("a command line");
    let stop = Arc::new(AtomicBool::new(false));
    let stopped = stop.clone();
    let is_stopped = Box::new(move || stopped.load(Ordering::Relaxed));
    let settings = Settings::new(&args.args);
    let server = Server::open(&args.args, settings, Some(wrap), OUTPUT, is_stopped);
    let server = server.expect("a port on loopback");
    let address = server.local_addr();
    (Running { address, stop, thread: Some(thread::spawn(move || server.run())) }, links)
}

/// Operations that ended for this reason.
fn ended(report: &Report, reason: &str) -> u64 {
    let ended = report.counted.ended.as_ref().expect("counted");
    ended.get(reason).copied().unwrap_or(0)
}

/// All operations, however they ended.
fn all_ended(report: &Report) -> u64 {
    report.counted.ended.as_ref().expect("counted").values().sum()
}

#[test]
fn every_verb_is_measured_and_validated() {
    let server = Running::start("", |_| {});
    for verb in ["send", "write", "write-imm", "read", "write-imm --ping-pong"] {
        for mode in ["sr", "ec:mds:8:2", "bounded --deadline 20s"] {
            let options = format!("--verb {verb} --mode {mode} --iters 20 --validate");
            let report = measure(server.address, &options).expect("it is served");
            assert_eq!((report.iterations, report.validated), (20, Some(true)), "{options}");
            let messages = report.counted.messages.expect("counted");
            assert!(messages >= 20, "{options}");
            assert_eq!(ended(&report, "whole"), messages, "{options}: {report:?}");
            assert_eq!(report.counted.lost_bytes, Some(0), "{options}");
            let packets = (256u64 << 10).div_ceil(report.mtu_bytes.into());
            assert!(report.sent_packets >= 20 * packets, "{options}: {report:?}");
            assert!(report.gbit_per_s > 0.0 && report.mean_us > 0.0, "{options}");
            assert!(report.client_cpu_s > 0.0, "{options}");
            let told = verb.starts_with("write-imm").then_some(messages);
            assert_eq!(report.counted.told_messages, told, "{options}");
            let json = serde_json::to_value(&report).expect("an object");
            assert_eq!(json["verb"], verb.split(' ').next().expect("a name"));
            assert_eq!((&json["qp"], &json["ended"]["whole"]), (&json!("sdr"), &json!(messages)));
        }
    }
}

#[test]
fn sizes_that_are_no_whole_words_or_packets_are_validated() {
    let server = Running::start("", |_| {});
    for verb in ["write", "write-imm", "read", "write-imm --ping-pong"] {
        for size in ["8", "4097", "100003"] {
            let line =
                format!("client {} --verb {verb} -s {size} -t 3 -n 10 --validate", server.address);
            let args = ClientLine::try_parse_from(line.split_whitespace()).expect("a command line");
            let report =
                client::measure(&args.args, None, &|| false, OUTPUT).expect("it is served");
            assert_eq!((report.iterations, report.validated), (10, Some(true)), "{line}");
        }
    }
}

#[test]
fn what_a_bounded_mode_loses_is_told_to_the_packet() {
    let server = Running::start("", |_| {});
    for verb in ["send", "write", "write-imm"] {
        let (wrap, links) = lossy(0.02);
        let options =
            format!("--verb {verb} --mode bounded --mtu 4096 --iters 30 --rate 200mbit --validate");
        let report =
            measure_over(server.address, &options, Some(wrap), &|| false).expect("it ends");
        assert_eq!(report.validated, Some(true), "what arrived is right");
        let messages = report.counted.messages.expect("counted");
        let (whole, all) = (ended(&report, "whole"), all_ended(&report));
        assert_eq!(all, messages, "{verb}: {report:?}");
        // 2 % of some 3000 packets.
        assert!(whole < messages, "{verb}: {report:?}");
        assert_eq!(report.counted.incomplete_messages, Some(messages - whole), "{verb}");
        let lost_bytes = report.counted.lost_bytes.expect("counted");
        assert_eq!(lost_bytes % 4096, 0, "{verb}: {lost_bytes}");
        // On a busy machine a message may end before its packets are read; a few do, not most.
        let late_packets = 5 * 64;
        let most_bytes = (lost(&links) + late_packets) * 4096;
        assert!(lost_bytes > 0 && lost_bytes <= most_bytes, "{verb}: {lost_bytes}");
        let text = report.lines().join("\n");
        assert!(text.contains(&format!("whole {whole}")) && text.contains("; lost "), "{text}");
    }
}

#[test]
fn what_reads_lose_in_a_bounded_mode_is_told_by_the_end_that_reads() {
    let (server, links) = lossy_server(0.02);
    let options = "--verb read --mode bounded --mtu 4096 --iters 30 --validate";
    let report = measure(server.address, options).expect("it ends");
    assert_eq!(report.validated, Some(true), "what arrived is right");
    let messages = report.counted.messages.expect("counted");
    assert_eq!(all_ended(&report), messages, "{report:?}");
    assert!(ended(&report, "whole") < messages, "{report:?}");
    let lost_bytes = report.counted.lost_bytes.expect("counted");
    assert!(lost_bytes > 0 && lost_bytes.is_multiple_of(4096), "{lost_bytes}");
    assert!(report.counted.lost_packets > Some(0) && lost(&links) > 0, "{report:?}");
    assert_eq!(report.auto, None);
}

#[test]
fn a_mode_that_repairs_loses_nothing_with_any_verb() {
    let (server, links) = lossy_server(0.01);
    for verb in ["send", "write", "write-imm", "read", "write-imm --ping-pong"] {
        let (wrap, _) = lossy(0.01);
        let options = format!("--verb {verb} --mode sr --iters 20 --validate");
        let report =
            measure_over(server.address, &options, Some(wrap), &|| false).expect("it ends");
        assert_eq!((report.validated, report.counted.lost_bytes), (Some(true), Some(0)), "{verb}");
        assert_eq!(Some(all_ended(&report)), report.counted.messages, "{verb}");
        assert!(!report.lines().join("\n").contains("ended"), "{verb}");
    }
    assert!(lost(&links) > 0);
}

/// A path of which half a round trip is longer than the deadline.
#[test]
fn operations_that_cannot_be_in_time_end_all_the_same() {
    let server = Running::start("", |_| {});
    for verb in ["send", "write", "read", "write-imm --ping-pong"] {
        for mode in ["sr", "bounded"] {
            let (wrap, _) = lossy(0.0);
            let options = format!(
                "--verb {verb} --mode {mode} --deadline 200us --iters 10 --warmup 2 --validate"
            );
            let report =
                measure_over(server.address, &options, Some(wrap), &|| false).expect("it ends");
            assert_eq!((report.iterations, report.validated), (10, Some(true)), "{options}");
            let messages = report.counted.messages.expect("counted");
            assert_eq!(all_ended(&report), messages, "{options}: {report:?}");
            let lost_bytes = report.counted.lost_bytes.expect("counted");
            assert!(lost_bytes <= messages * (256 << 10), "{options}: {report:?}");
            let json = serde_json::to_value(&report).expect("an object");
            assert_eq!(json["deadline_us"], 200, "{options}");
        }
    }
}

#[test]
fn gaps_are_kept_or_zeroed_as_the_client_wants() {
    let server = Running::start("", |_| {});
    for missing in ["zero", "keep"] {
        let (wrap, _) = lossy(0.05);
        let options = format!("--mode bounded --missing {missing} --iters 30 --validate");
        let report =
            measure_over(server.address, &options, Some(wrap), &|| false).expect("it ends");
        assert_eq!(report.validated, Some(true), "{missing}");
        assert!(report.counted.lost_bytes > Some(0), "{missing}");
    }
}

#[test]
fn a_measurement_of_writes_that_is_stopped_reports_what_was_finished() {
    let server = Running::start("", |_| {});
    for verb in ["write", "read", "write-imm --ping-pong"] {
        let asked = AtomicU32::new(0);
        let stop = || asked.fetch_add(1, Ordering::Relaxed) > 200;
        let options = format!("--verb {verb} --iters 1000000 --warmup 1");
        let report = measure_over(server.address, &options, None, &stop).expect("a report");
        assert!(report.ending.interrupted, "{verb}");
        assert!((1..1_000_000).contains(&report.iterations), "{verb}: {report:?}");
        assert!(report.counted.messages >= Some(report.iterations), "{verb}: the server was asked");
    }
}

#[test]
fn a_client_that_writes_nothing_loses_its_seat() {
    let settings = |settings: &mut Settings| settings.idle = Duration::from_millis(100);
    let server = Running::start("--clients 1", settings);
    for verb in ["write", "read", "write-imm"] {
        let run = random() as u32;
        let session = connect(server.address, Purpose::Session.tag(run)).expect("a seat");
        let answer = Awaited::<Answer>::post(&session).expect("a free slot");
        let request = Request { size_bytes: 65_536, inflight: 2, validate: false };
        let terms = Terms { verb: verb.to_owned(), ..Terms::default() };
        send(&session, &Opening { request, terms: Some(terms) }).expect("the server takes it");
        let answer = answer.wait(LONG, &|| false).expect("it answers");
        assert!(matches!(answer, Answer::Agreed { key: Some(_), .. }), "{answer:?}");
        let tag = Purpose::Measured.tag(run);
        let config = ConnectionConfig { tag, one_sided: true, ..ConnectionConfig::default() };
        let context = Context::new(lacuna::ContextConfig::default()).expect("sockets");
        let measured = Connection::connect(&context, server.address, config).expect("its half");
        wait_closed(&session);
        wait_closed(&measured);
    }
    // The seat is free.
    server.session();
}

/// A client that writes something else than it says.
#[test]
fn a_write_of_wrong_bytes_is_counted_and_said() {
    let server = Running::start("", |_| {});
    for verb in ["write", "write-imm"] {
        let run = random() as u32;
        let session = connect(server.address, Purpose::Session.tag(run)).expect("a seat");
        let answer = Awaited::<Answer>::post(&session).expect("a free slot");
        let request = Request { size_bytes: 4096, inflight: 2, validate: true };
        let terms = Terms { verb: verb.to_owned(), ..Terms::default() };
        send(&session, &Opening { request, terms: Some(terms) }).expect("the server takes it");
        let answer = answer.wait(LONG, &|| false).expect("it answers");
        let Answer::Agreed { key: Some(key), .. } = answer else { panic!("{answer:?}") };
        let tag = Purpose::Measured.tag(run);
        let config = ConnectionConfig { tag, one_sided: true, ..ConnectionConfig::default() };
        let context = Context::new(lacuna::ContextConfig::default()).expect("sockets");
        let measured = Connection::connect(&context, server.address, config).expect("its half");
        let mut bytes = vec![0; 4096];
        // Its neighbour's.
        pattern::fill(&mut bytes, 0, 1);
        let to = lacuna::Target { key, address: request.place(0) };
        match verb {
            "write" => measured.write_to(to, &bytes, LONG).expect("it arrives"),
            _ => measured.write_to_with_immediate(to, &bytes, 0, LONG).expect("it arrives"),
        }
        let counters = Awaited::<Counters>::post(&session).expect("a free slot");
        send(&session, &Done { messages: 1, ..Done::default() }).expect("the server takes it");
        let counters = counters.wait(LONG, &|| false).expect("it counts");
        assert!(counters.wrong > 0, "{verb}: {counters:?}");
        let first = counters.first_wrong.expect("the first");
        assert!(first.starts_with("message 0 at byte "), "{first}");
    }
}

#[test]
fn a_connection_without_one_sided_operations_is_not_waited_for() {
    let server = Running::start("", |_| {});
    let run = random() as u32;
    let session = connect(server.address, Purpose::Session.tag(run)).expect("a seat");
    let answer = Awaited::<Answer>::post(&session).expect("a free slot");
    let request = Request { size_bytes: 4096, inflight: 2, validate: false };
    let terms = Terms { verb: "write-imm".to_owned(), ..Terms::default() };
    send(&session, &Opening { request, terms: Some(terms) }).expect("the server takes it");
    answer.wait(LONG, &|| false).expect("it answers");
    let _measured = connect(server.address, Purpose::Measured.tag(run)).expect("its other half");
    wait_closed(&session);
}

#[test]
fn a_verb_that_the_server_does_not_know_is_refused_with_those_that_it_does() {
    let server = Running::start("", |_| {});
    let session = server.session();
    let answer = Awaited::<Answer>::post(&session).expect("a free slot");
    let request = Request { size_bytes: 65_536, inflight: 2, validate: false };
    let terms = Terms { verb: "atomic".to_owned(), missing: Some(Fill::Zero), ..Terms::default() };
    send(&session, &Opening { request, terms: Some(terms) }).expect("the server takes it");
    match answer.wait(LONG, &|| false).expect("it answers") {
        Answer::Refused { reason } => assert!(reason.contains("not atomic"), "{reason}"),
        other => panic!("{other:?}"),
    }
}

/// What a server of an older version makes of a request: it knows no terms, and is ready.
#[test]
fn a_server_for_plain_sends_alone_is_not_measured_as_if_it_knew_more() {
    for (options, left_out) in
        [("--verb write", "--verb"), ("--deadline 20ms --missing zero", "--deadline, --missing")]
    {
        let (address, serving) = other(|connection| {
            let mut request = [0; 1000];
            let received = connection.recv(&mut request).expect("a request");
            let request: serde_json::Value =
                serde_json::from_slice(&request[..received.len]).expect("JSON");
            assert_eq!(request["inflight"], 4, "as ever: {request}");
            connection.send(b"\"Ready\"").expect("the client takes it");
        });
        let text = network(measure(address, options));
        let advice = format!("update it, or leave out {left_out}");
        assert!(text.contains("of an older version") && text.ends_with(&advice), "{text}");
        serving.join().expect("no panic");
    }
}

/// What a client of an older version sends and takes.
#[test]
fn a_plain_request_and_its_answer_are_as_ever() {
    let request = Request { size_bytes: 5, inflight: 2, validate: true };
    let plain = json!({ "size_bytes": 5, "inflight": 2, "validate": true });
    let opening = Opening { request, terms: None };
    assert_eq!(serde_json::to_value(&opening).expect("an object"), plain);
    assert_eq!(serde_json::to_value(Answer::Ready).expect("a name"), "Ready");
}

#[test]
fn options_that_do_not_go_together_are_refused_with_what_to_do() {
    for (options, advice) in [
        ("--ping-pong", "--ping-pong needs --verb write-imm, not send"),
        ("--ping-pong --verb write-imm --mode bounded", "needs --deadline"),
        ("--verb read --missing zero", "has none: leave it out"),
        ("--verb read --rate 1gbit", "the server sends: leave them out"),
        ("--verb write --validate --size 7", "8 bytes or more"),
        ("--validate --deadline 1s --size 7", "8 bytes or more"),
        ("--verb read --size 1GiB --inflight 17", "choose --inflight 16 or less"),
    ] {
        // No server is asked.
        let line = format!("client 127.0.0.1:1 {options}");
        let args = ClientLine::try_parse_from(line.split_whitespace()).expect("a command line");
        match client::measure(&args.args, None, &|| false, OUTPUT) {
            Err(Failure::Usage(text)) => {
                assert!(text.contains(advice) && text.lines().count() == 1, "{text}");
            }
            other => panic!("{options}: {other:?}"),
        }
    }
}

#[test]
fn a_reliable_connection_measures_every_verb_and_every_byte_is_right() {
    let server = Running::start("", |_| {});
    for verb in ["send", "write", "write-imm", "read"] {
        let options = format!("--qp rc --verb {verb} -n 50 --validate");
        let report = measure(server.address, &options).expect("it runs");
        let lines = report.lines().join("\n");
        assert_eq!((report.iterations, report.validated), (50, Some(true)), "{verb}: {lines}");
        assert_eq!((report.mode.as_str(), report.qp.as_str()), ("gbn", "rc"));
        assert!(report.rc.is_some() && lines.contains("timeouts"), "{lines}");
    }
}

#[test]
fn several_reliable_connections_with_repairs_are_right_over_a_path_that_loses() {
    // Reads lose what the server sends, the others what the client does.
    let (server, _) = lossy_server(0.01);
    for (verb, how) in [
        ("send", "--shim lowar:8:1 --queue-pairs 3"),
        ("write", "--shim lowar:mds:16:3 --queue-pairs 2"),
        ("write-imm", "--repair sr --queue-pairs 4"),
        ("read", "--shim lowar:8:1 --queue-pairs 2"),
        ("write", "--shim lowar:auto"),
    ] {
        let options =
            format!("--qp rc --verb {verb} {how} -n 60 --rate 200mbit --cc fixed --validate");
        let options =
            if verb == "read" { options.replace("--rate 200mbit --cc fixed", "") } else { options };
        let (wrap, _) = lossy(0.01);
        let report =
            measure_over(server.address, &options, Some(wrap), &|| false).expect("it runs");
        let json = serde_json::to_value(&report).expect("an object");
        assert_eq!((report.iterations, report.validated), (60, Some(true)), "{options}: {json}");
        if how.contains(":8:1") {
            let of = |key: &str| json[key].as_u64().unwrap_or_else(|| panic!("{key}: {json}"));
            assert!(of("repairs_sent") > 60 && of("packets_recovered") > 0, "{options}: {json}");
        }
        assert_eq!(json["mode"], if how.contains("sr") { "sr" } else { "gbn" });
    }
}

#[test]
fn options_that_a_reliable_connection_has_not_are_refused_by_name() {
    let server = Running::start("", |_| {});
    for (options, named) in [
        ("--mode sr", "--mode"),
        ("--deadline 1s", "--deadline"),
        ("--chunk 64KiB", "--chunk"),
        ("--missing zero", "--missing"),
    ] {
        let error = measure(server.address, &format!("--qp rc {options}")).expect_err("refused");
        assert!(error.to_string().contains(named), "{error}");
    }
    for options in ["--shim lowar:32:1", "--repair sr", "--queue-pairs 2"] {
        let error = measure(server.address, options).expect_err("refused");
        assert!(error.to_string().contains("--qp rc"), "{error}");
    }
}
