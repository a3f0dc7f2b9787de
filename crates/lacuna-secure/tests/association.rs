//! Both ends of an association, over whatever a path can do to packets.

use lacuna_secure::{
    Association, Cipher, End, HEAD_BYTES, Limits, OpenError, SealError, Secret, TRAILER_BYTES,
};
use proptest::prelude::*;
use std::collections::BTreeSet;

const CHANNELS: u8 = 2;

fn pair(cipher: Cipher, limits: Limits) -> [Association; 2] {
    [End::Connecting, End::Accepting]
        .map(|end| Association::new(cipher, Secret::new([7; 32]), end, CHANNELS, limits, 0))
}

/// A packet with this text, before it is sealed.
fn packet(text: &[u8]) -> Vec<u8> {
    let mut packet: Vec<u8> = (0..HEAD_BYTES as u8).collect();
    packet.extend(text);
    packet.extend([0; TRAILER_BYTES]);
    packet
}

fn sealed(by: &Association, channel: u8, text: &[u8]) -> Vec<u8> {
    let mut packet = packet(text);
    by.sealer(channel, 0).unwrap().seal(&mut packet).unwrap();
    packet
}

fn open(at: &Association, channel: u8, packet: &[u8]) -> Result<Vec<u8>, OpenError> {
    let mut out = vec![0xEE; packet.len()];
    at.opener(channel, 0).unwrap().open(packet, &mut out).map(|text| text.to_vec())
}

#[test]
fn what_one_end_seals_the_other_opens_and_nobody_can_read_it_on_the_way() {
    for cipher in Cipher::ALL {
        let [a, b] = pair(cipher, Limits::default());
        for len in [0, 1, 4, 15, 16, 17, 1400, 4096, 65_000] {
            for (from, to) in [(&a, &b), (&b, &a)] {
                let text = vec![0x5A; len];
                let on_the_way = sealed(from, 1, &text);
                assert_eq!(on_the_way.len(), HEAD_BYTES + len + TRAILER_BYTES);
                assert_eq!(
                    on_the_way[..HEAD_BYTES],
                    packet(&[])[..HEAD_BYTES],
                    "the base header is in clear"
                );
                assert!(
                    len < 16 || on_the_way[HEAD_BYTES..].windows(8).all(|bytes| bytes != [0x5A; 8])
                );
                assert_eq!(open(to, 1, &on_the_way).unwrap(), packet(&text)[..HEAD_BYTES + len]);
            }
        }
        assert_eq!((a.failures(), b.failures()), (0, 0));
    }
}

#[test]
fn a_payload_that_is_encrypted_on_its_way_makes_the_same_packet_as_one_in_place() {
    for cipher in Cipher::ALL {
        let [in_place, on_the_way] = [(); 2].map(|()| pair(cipher, Limits::default()));
        for headers in [0, 4, 20] {
            for len in [0, 1, 4, 16, 63, 1400, 4096, 65_000] {
                let payload: Vec<u8> = (0..len).map(|at| at as u8).collect();
                let text = [vec![0xA5; headers], payload.clone()].concat();
                let expected = sealed(&in_place[0], 1, &text);
                let mut packet = packet(&vec![0xA5; headers + len]);
                packet[HEAD_BYTES + headers..].fill(0xFF);
                on_the_way[0].sealer(1, 0).unwrap().seal_payload(&mut packet, &payload).unwrap();
                assert_eq!(packet, expected, "{headers} and {len} bytes");
            }
        }
        let mut short = vec![0; HEAD_BYTES + TRAILER_BYTES + 3];
        let refused = on_the_way[0].sealer(1, 0).unwrap().seal_payload(&mut short, &[0; 4]);
        assert_eq!(refused, Err(SealError::TooShort { found: short.len() }));
    }
}

#[test]
fn a_packet_of_which_any_bit_was_changed_is_refused() {
    for cipher in Cipher::ALL {
        let [a, b] = pair(cipher, Limits::default());
        let good = sealed(&a, 0, &[9; 20]);
        for bit in 0..good.len() * 8 {
            let mut bad = good.clone();
            bad[bit / 8] ^= 1 << (bit % 8);
            let refused = open(&b, 0, &bad).unwrap_err();
            let is_epoch = matches!(refused, OpenError::Epoch | OpenError::Repeated { .. });
            assert!(refused == OpenError::Forged || is_epoch, "bit {bit}: {refused}");
        }
        for len in 0..good.len() {
            assert!(open(&b, 0, &good[..len]).is_err(), "cut to {len} bytes");
        }
        assert_eq!(
            open(&b, 0, &good).unwrap(),
            packet(&[9; 20])[..HEAD_BYTES + 20],
            "and the good one is taken"
        );
    }
}

#[test]
fn a_packet_is_taken_once_and_only_by_its_channel_and_end() {
    let [a, b] = pair(Cipher::default(), Limits::default());
    let first = sealed(&a, 0, b"first");
    assert_eq!(open(&b, 1, &first), Err(OpenError::Forged), "another channel");
    assert_eq!(open(&a, 0, &first), Err(OpenError::Forged), "reflected");
    assert!(open(&b, 0, &first).is_ok());
    assert_eq!(open(&b, 0, &first), Err(OpenError::Repeated { number: 0 }));
    let other = Association::new(
        Cipher::default(),
        Secret::new([8; 32]),
        End::Accepting,
        1,
        Limits::default(),
        0,
    );
    assert_eq!(
        open(&other, 0, &sealed(&a, 0, b"second")),
        Err(OpenError::Forged),
        "another secret"
    );
    let other = Association::new(
        Cipher::ChaCha20Poly1305,
        Secret::new([7; 32]),
        End::Accepting,
        1,
        Limits::default(),
        0,
    );
    assert_eq!(
        open(&other, 0, &sealed(&a, 0, b"third")),
        Err(OpenError::Forged),
        "another algorithm"
    );
    assert!(a.sealer(CHANNELS, 0).is_none() && b.opener(CHANNELS, 0).is_none());
}

#[test]
fn keys_are_replaced_by_packets_by_bytes_and_by_time() {
    let cases = [
        (Limits { packets: 10, ..Limits::default() }, 0),
        (Limits { bytes: 1000, ..Limits::default() }, 0),
        (Limits { ns: 30, ..Limits::default() }, 1),
    ];
    for (limits, step_ns) in cases {
        let [a, b] = pair(Cipher::default(), limits);
        for round in 0..100 {
            for (from, to) in [(&a, &b), (&b, &a)] {
                let mut bytes = packet(&[1; 40]);
                let now_ns = round * step_ns;
                from.sealer(0, now_ns).unwrap().seal(&mut bytes).unwrap();
                let mut out = vec![0; bytes.len()];
                to.opener(0, now_ns).unwrap().open(&bytes, &mut out).unwrap();
            }
        }
        assert!((3..=10).contains(&a.epoch()), "{limits:?}: {}", a.epoch());
        assert!(a.epoch().abs_diff(b.epoch()) <= 1);
    }
}

#[test]
fn who_hears_nothing_uses_a_key_up_and_then_sends_no_more() {
    let [a, b] = pair(Cipher::default(), Limits { packets: 10, ..Limits::default() });
    let mut sealer = a.sealer(0, 0).unwrap();
    let mut sealed = 0;
    let refused = loop {
        match sealer.seal(&mut packet(&[])) {
            Ok(()) => sealed += 1,
            Err(refused) => break refused,
        }
    };
    let packets = Cipher::default().packets_max();
    assert_eq!((sealed, refused), (packets, SealError::Spent { packets }));
    drop(sealer);
    assert_eq!((a.spent_packets(), b.spent_packets()), (Some(packets), None));
    // A word of the peer suffices.
    let word = self::sealed(&b, 0, b"still here");
    open(&a, 0, &word).unwrap();
    assert!(a.sealer(0, 0).unwrap().seal(&mut packet(&[])).is_ok());
    assert_eq!(a.epoch(), 1);
}

#[test]
fn a_key_seals_no_more_than_it_was_told_to() {
    let limits = Limits { packets: 10, packets_max: 30, ..Limits::default() };
    let [a, _] = pair(Cipher::default(), limits);
    let mut sealer = a.sealer(0, 0).unwrap();
    let sealed = (0..100).filter(|_| sealer.seal(&mut packet(&[])).is_ok()).count();
    assert_eq!(sealed, 30);
    drop(sealer);
    assert_eq!(a.spent_packets(), Some(30));
}

/// What a path does with a packet.
#[derive(Debug, Clone, Copy)]
enum Fate {
    Comes,
    ComesTwice,
    IsLost,
    /// So many packets later.
    IsLate(usize),
}

fn fates() -> impl Strategy<Value = Vec<(bool, u8, Fate)>> {
    let fate = prop_oneof![
        6 => Just(Fate::Comes),
        1 => Just(Fate::ComesTwice),
        3 => Just(Fate::IsLost),
        2 => (1usize..30).prop_map(Fate::IsLate),
    ];
    prop::collection::vec((any::<bool>(), 0..CHANNELS, fate), 1..600)
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(64))]

    /// Keys are replaced every few packets while a fifth of them is lost, some come twice and some late.
    #[test]
    fn what_comes_in_time_is_opened_once_whatever_happens_to_other_packets(fates in fates()) {
        let ends = pair(Cipher::default(), Limits { packets: 7, ..Limits::default() });
        let (mut late, mut nonces) = (Vec::new(), BTreeSet::new());
        for (at, (from_b, channel, fate)) in fates.into_iter().enumerate() {
            let (from, to) = if from_b { (1, 0) } else { (0, 1) };
            let text = at.to_be_bytes();
            let bytes = sealed(&ends[from], channel, &text);
            let epoch = ends[from].epoch();
            // The word in the packet is unique as long as the number has not come round.
            let word: [u8; 4] = bytes[HEAD_BYTES + text.len()..][..4].try_into().unwrap();
            prop_assert!(nonces.insert((from, channel, u32::from_be_bytes(word) & 0x3FFF_FFFF)));
            let times = match fate {
                Fate::Comes => 1,
                Fate::ComesTwice => 2,
                Fate::IsLost => 0,
                Fate::IsLate(packets) => {
                    late.push((at + packets, to, channel, epoch, bytes.clone(), text));
                    0
                }
            };
            for time in 0..times {
                let opened = open(&ends[to], channel, &bytes);
                match time {
                    0 => prop_assert_eq!(&opened.unwrap()[HEAD_BYTES..], &text[..]),
                    _ => {
                        let is_repeated = matches!(opened, Err(OpenError::Repeated { .. }));
                        prop_assert!(is_repeated);
                    }
                }
            }
            late.retain(|(due, to, channel, epoch, bytes, text)| {
                if *due > at {
                    return true;
                }
                match open(&ends[*to], *channel, bytes) {
                    Ok(opened) => assert_eq!(&opened[HEAD_BYTES..], &text[..]),
                    // Its keys are gone.
                    Err(error) => {
                        assert!(*epoch + 1 < ends[*to].epoch(), "{error}");
                        assert!(matches!(error, OpenError::Epoch | OpenError::Forged), "{error}");
                    }
                }
                false
            });
            prop_assert!(ends[0].epoch().abs_diff(ends[1].epoch()) <= 1);
        }
    }
}
