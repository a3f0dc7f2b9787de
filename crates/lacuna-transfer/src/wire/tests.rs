//! What is emitted parses to the same record; other bytes are an error and no panic.

use super::*;

fn meta(kind: Kind) -> Meta {
    Meta {
        kind,
        mode: 0o644,
        size_bytes: 1 << 40,
        data_bytes: 1 << 30,
        modified: Time { seconds: -1, nanos: 999_999_999 },
    }
}

const LONGEST_REASON: &str = match str::from_utf8(&[b'y'; REASON_BYTES_MAX]) {
    Ok(reason) => reason,
    Err(_) => panic!("it is text"),
};

fn all_records() -> Vec<Record<'static>> {
    vec![
        Record::Hello { session: [7; 16], quick: true },
        Record::Offer { meta: meta(Kind::File), name: b"a/b" },
        Record::Offer { meta: meta(Kind::Folder), name: &[b'x'; NAME_BYTES_MAX] },
        Record::Unsent { kind: Kind::File, is_skipped: true, name: b"a/link", reason: "a link" },
        Record::Unsent {
            kind: Kind::Folder,
            is_skipped: false,
            name: &[b'x'; NAME_BYTES_MAX],
            reason: LONGEST_REASON,
        },
        Record::Start { item: 1, from: u64::MAX },
        Record::Hole { len: u64::MAX },
        Record::End { hash: [9; 32] },
        Record::Same { item: 3 },
        Record::Drop { item: 4, reason: "it changed" },
        Record::Total { files: 5, bytes: 6 },
        Record::Alive,
        Record::Finish,
    ]
}

fn all_answers() -> Vec<Answer<'static>> {
    let prefix = |offset| Prefix { offset, hash: [1; 32] };
    let mut all = vec![
        Answer::Welcome { overwrite: false },
        Answer::Want { item: 1, prefixes: vec![] },
        Answer::Want { item: 1, prefixes: (0..PREFIXES_MAX as u64).map(prefix).collect() },
        Answer::Exists { item: 2, hash: [3; 32] },
        Answer::Fatal { kind: FatalKind::Unable, reason: "no space left" },
        Answer::Fatal { kind: FatalKind::Protocol, reason: "" },
        Answer::Alive,
        Answer::Finished,
    ];
    for outcome in [
        Outcome::Complete,
        Outcome::Identical,
        Outcome::Refused,
        Outcome::Failed,
        Outcome::WrongHash,
        Outcome::Updated,
    ] {
        all.push(Answer::Settled { item: 8, outcome, reason: "é" });
    }
    all
}

#[test]
fn records_are_read_as_written() {
    let mut message = Vec::new();
    for record in all_records() {
        let before = message.len();
        record.emit(&mut message);
        assert!(message.len() - before <= RECORD_BYTES_MAX);
    }
    let read: Result<Vec<_>, _> = records(&message).collect();
    assert_eq!(read.unwrap(), all_records());
    let mut message = Vec::new();
    for answer in all_answers() {
        let before = message.len();
        answer.emit(&mut message);
        assert!(message.len() - before <= RECORD_BYTES_MAX);
    }
    let read: Result<Vec<_>, _> = answers(&message).collect();
    assert_eq!(read.unwrap(), all_answers());
}

#[test]
fn data_is_a_range_of_the_message() {
    let mut message = Vec::new();
    Record::Alive.emit(&mut message);
    message.extend(data_header(3));
    message.extend(b"abc");
    Record::Finish.emit(&mut message);
    let read: Vec<_> = records(&message).map(Result::unwrap).collect();
    let expected = [Record::Alive, Record::Data { range: 6..9 }, Record::Finish];
    assert_eq!(read, expected);
}

#[test]
fn a_record_that_is_cut_is_an_error() {
    for record in all_records() {
        let mut message = Vec::new();
        record.emit(&mut message);
        for len in 1..message.len() {
            let read = records(&message[..len]).last();
            assert!(matches!(read, Some(Err(_))), "{record:?} cut to {len}");
        }
    }
    for answer in all_answers() {
        let mut message = Vec::new();
        answer.emit(&mut message);
        for len in 1..message.len() {
            let read = answers(&message[..len]).last();
            assert!(matches!(read, Some(Err(_))), "{answer:?} cut to {len}");
        }
    }
}

#[test]
fn values_out_of_range_are_refused() {
    let mut offer = Vec::new();
    Record::Offer { meta: meta(Kind::File), name: b"a" }.emit(&mut offer);
    let with = |at: usize, bytes: &[u8]| {
        let mut changed = offer.clone();
        changed[at..at + bytes.len()].copy_from_slice(bytes);
        let error = records(&changed).next().unwrap().unwrap_err();
        error.to_string()
    };
    assert!(with(1, &[2]).contains("a kind of 2"));
    assert!(with(2, &0o4755u16.to_be_bytes()).contains("permissions"), "no setuid bit passes");
    assert!(with(4, &u64::MAX.to_be_bytes()).contains("a size of"));
    assert!(with(12, &((1u64 << 40) + 1).to_be_bytes()).contains("data of"));
    assert!(with(20, &i64::MIN.to_be_bytes()).contains("a time of"));
    assert!(with(28, &u32::MAX.to_be_bytes()).contains("nanoseconds"));
    assert!(with(32, &u16::MAX.to_be_bytes()).contains("a name's length"));
}

#[test]
fn another_version_and_another_protocol_are_told_apart() {
    let mut hello = Vec::new();
    Record::Hello { session: [0; 16], quick: false }.emit(&mut hello);
    hello[8] = 99;
    assert_eq!(records(&hello).next(), Some(Err(WireError::Version { there: 99 })));
    hello[3] = b'?';
    assert_eq!(records(&hello).next(), Some(Err(WireError::NotFiles)));
}

#[test]
fn a_long_reason_is_cut_at_a_character() {
    let reason = "ü".repeat(REASON_BYTES_MAX);
    let mut message = Vec::new();
    Record::Drop { item: 0, reason: &reason[..] }.emit(&mut message);
    let Some(Ok(Record::Drop { reason: read, .. })) = records(&message).next() else {
        panic!("it parses")
    };
    assert!(read.len() <= REASON_BYTES_MAX && reason.starts_with(read));
}

/// Random bytes, and good messages with random bytes changed: nothing panics,
/// nothing loops, and ranges stay inside.
#[test]
fn nothing_from_the_network_panics() {
    let mut state = 0x1234_5678_9ABC_DEF1u64;
    let mut random = move || {
        state ^= state << 13;
        state ^= state >> 7;
        state ^= state << 17;
        state
    };
    let mut good = Vec::new();
    for record in all_records() {
        record.emit(&mut good);
    }
    for answer in all_answers() {
        answer.emit(&mut good);
    }
    for round in 0..20_000 {
        let mut message = if round % 2 == 0 {
            let from = random() as usize % good.len();
            good[from..(from + 300).min(good.len())].to_vec()
        } else {
            (0..random() % 200).map(|_| random() as u8).collect()
        };
        for _ in 0..random() % 4 {
            if !message.is_empty() {
                let at = random() as usize % message.len();
                message[at] = random() as u8;
            }
        }
        for record in records(&message).flatten() {
            if let Record::Data { range } = record {
                assert!(range.end <= message.len());
            }
        }
        let count = answers(&message).count();
        assert!(count <= message.len());
    }
}
