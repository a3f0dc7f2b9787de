//! Every input that fuzzing kept, through the same checks, in the ordinary test run.

mod checks;

use lacuna_probe::wire::{Message, Refusal, TrialPlan};
use lacuna_probe::{BINS, Counted, HostDrops};
use std::fs;
use std::path::PathBuf;

fn folder() -> PathBuf {
    PathBuf::from(env!("CARGO_MANIFEST_DIR")).join("../../fuzz/corpus/probe")
}

#[test]
fn probe_corpus() {
    let entries = fs::read_dir(folder()).expect("the corpus");
    let mut paths: Vec<PathBuf> = entries.map(|entry| entry.expect("an entry").path()).collect();
    paths.sort();
    assert!(!paths.is_empty(), "no inputs");
    for path in paths {
        // Shown only if the check fails, and then says which input it was.
        println!("{}", path.display());
        checks::probe(&fs::read(&path).expect("a file"));
    }
}

/// Writes the valid inputs that fuzzing starts from. Run it after a change of format.
#[test]
#[ignore = "writes into the source tree"]
fn write_seeds() {
    let write = |name: &str, bytes: &[u8]| {
        fs::write(folder().join(format!("seed-{name}")), bytes).expect("written");
    };
    for (name, message) in messages() {
        // Without the trailer: the check writes it.
        let packet = message.answer(0x0102_0304_0506_0708);
        write(name, &[b"P", &packet[..packet.len() - 4]].concat());
    }
    // To the end, in peace and with losses; cut short; over a small first hop.
    let second = |what: u8, how: u8, times: usize| [what, how].repeat(times);
    write("exchange", &[vec![b'X'], second(0, 250, 8)].concat());
    write("exchange-losses", &[vec![b'X'], second(1, 9, 160)].concat());
    write("exchange-stopped", &[vec![b'X'], second(0, 250, 3), vec![8, 0, 0, 250]].concat());
    let small = [vec![b'X'], second(0, 220, 1), vec![10, 150], second(0, 250, 6)];
    write("exchange-small-hop", &small.concat());
    write("exchange-silence", &[vec![b'X'], second(0, 100, 2), vec![9, 200, 0, 10]].concat());
    // A trial is begun, filled and counted by somebody who has the key.
    let said = [
        Message::Start { trial: 1, plan: plan() },
        Message::Probe { trial: 1, index: 70, sent_ns: 5, wants_echo: true, bytes: 100 },
        Message::Fetch { trial: 1, sent: 80 },
    ];
    let mut hostile = vec![b'X', 0, 250];
    said.iter().for_each(|message| hostile.extend(operation(4, message)));
    hostile.extend([0, 250, 0, 250]);
    write("exchange-taken-over", &hostile);
    // All is lost while a trial's result is asked for, and reports come that nobody counted.
    let mut forged = vec![b'X', 0, 250];
    for trial in 1..=4 {
        forged.extend([0, 150, 1, 0, 1, 0, 1, 0]);
        let number = if trial == 2 { 0 } else { u64::MAX / u64::from(trial) };
        let report = Message::Report { trial, counted: Box::new(counted(number)) };
        forged.extend(operation(6, &report));
        forged.extend([0, 100]);
    }
    write("exchange-forged-reports", &forged);
}

/// One that brings this message to the server (4, 5) or the client (6), see `checks`.
fn operation(what: u8, message: &Message) -> Vec<u8> {
    let packet = message.answer(0);
    // Kind and flags, then what follows the key.
    let body = [&packet[5..8], &packet[16..packet.len() - 4]].concat();
    let length = u8::try_from(body.len()).unwrap_or(u8::MAX);
    [&[what, length], &body[..length.into()]].concat()
}

fn plan() -> TrialPlan {
    TrialPlan { payload_bytes: 100, flows: 2, duration_ns: 1_000_000_000 }
}

fn counted(number: u64) -> Counted {
    Counted {
        received: number,
        duplicates: number,
        bursts: number,
        flow_bursts: number,
        reordered: number,
        extent_sum: number,
        extent_max: number,
        late_ns_max: number,
        jitter_ns: number,
        span_ns: number,
        bin_ns: number,
        bins: [u32::MAX; BINS],
        drops: HostDrops { socket: number, kernel: number, card: number },
    }
}

fn messages() -> Vec<(&'static str, Message)> {
    vec![
        ("hello", Message::Hello),
        ("challenge", Message::Challenge { cookie: 3 }),
        ("open", Message::Open { cookie: 3, needed_s: 60 }),
        ("accepted", Message::Accepted { token: 4 }),
        ("refused", Message::Refused(Refusal::TooLong { limit_s: 9 })),
        ("start", Message::Start { trial: 1, plan: plan() }),
        ("started", Message::Started { trial: 1 }),
        ("echo", Message::Echo { trial: 1, index: 2, sent_ns: 3, bytes: 100 }),
        ("probe", Message::Probe { trial: 1, index: 2, sent_ns: 3, wants_echo: true, bytes: 40 }),
        ("fetch", Message::Fetch { trial: 1, sent: 1000 }),
        ("report", Message::Report { trial: 1, counted: Box::new(counted(7)) }),
        ("close", Message::Close),
        ("closed", Message::Closed),
    ]
}
