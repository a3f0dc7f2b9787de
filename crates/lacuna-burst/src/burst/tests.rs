//! Tests of bursts: the packets that come out equal those that went in, through every accessor.

use super::*;

fn destination() -> SocketAddr {
    SocketAddr::from(([127, 0, 0, 1], 4791))
}

fn bytes_of(burst: &Burst<'_, '_>) -> Vec<Vec<u8>> {
    burst
        .packets()
        .map(|packet| {
            let mut bytes = Vec::new();
            packet.copy_to(&mut bytes);
            assert_eq!(bytes.len(), packet.len());
            bytes
        })
        .collect()
}

fn slices_of<'s>(burst: &'s Burst<'_, '_>, range: Range<usize>) -> Vec<&'s [u8]> {
    let mut slices = Vec::new();
    burst.for_each_slice(range, |slice| slices.push(slice));
    slices
}

#[test]
fn a_gather_list_has_two_slices_per_packet() {
    let mut buffers = BurstBuffers::new();
    let mut burst = buffers.start(destination());
    burst.push(b"H0", b"payload 0", b"T0");
    burst.push_with(2, b"payload 1", 2, |header, trailer| {
        header.copy_from_slice(b"H1");
        trailer.copy_from_slice(b"T1");
    });
    burst.push(b"H2", b"payload 2", b"T2");
    let slices: [&[u8]; 7] =
        [b"H0", b"payload 0", b"T0H1", b"payload 1", b"T1H2", b"payload 2", b"T2"];
    assert_eq!(slices_of(&burst, 0..3), slices);
    let slices: [&[u8]; 3] = [b"H1", b"payload 1", b"T1"];
    assert_eq!(slices_of(&burst, 1..2), slices);
    assert!(slices_of(&burst, 1..1).is_empty());
}

#[test]
fn empty_parts_make_no_slices() {
    let mut buffers = BurstBuffers::new();
    let mut burst = buffers.start(destination());
    burst.push(b"", b"", b"");
    burst.push(b"", b"p", b"");
    burst.push(b"h", b"", b"t");
    let slices: [&[u8]; 2] = [b"p", b"ht"];
    assert_eq!(slices_of(&burst, 0..3), slices);
    assert!(burst.packet(0).is_empty());
    assert_eq!(burst.bytes(), 3);
}

#[test]
fn whole_packets_side_by_side_are_one_slice() {
    let mut buffers = BurstBuffers::new();
    let mut burst = buffers.start(destination());
    let whole = |packet: &mut [u8], byte| packet.fill(byte);
    burst.push_whole(3, |packet| whole(packet, b'a'));
    burst.push_whole(2, |packet| whole(packet, b'b'));
    burst.push(b"H", b"payload", b"T");
    burst.push_whole(1, |packet| whole(packet, b'c'));
    burst.push(b"", b"all payload", b"");
    let slices: [&[u8]; 4] = [b"aaabbH", b"payload", b"Tc", b"all payload"];
    assert_eq!(slices_of(&burst, 0..5), slices);
    assert_eq!(burst.bytes(), 3 + 2 + 9 + 1 + 11);
    let wholes = (0..5).map(|i| burst.whole_packet(i)).collect::<Vec<_>>();
    let expected: [Option<&[u8]>; 5] =
        [Some(b"aaa"), Some(b"bb"), None, Some(b"c"), Some(b"all payload")];
    assert_eq!(wholes, expected);
}

#[test]
fn an_advanced_burst_is_the_rest() {
    let mut buffers = BurstBuffers::new();
    let mut burst = buffers.start(destination());
    for i in 0..5u8 {
        burst.push(&[i], &[100, 101], &[i, i]);
    }
    burst.advance(2);
    assert_eq!(burst.len(), 3);
    assert_eq!(burst.bytes(), 15);
    assert_eq!(bytes_of(&burst)[0], [2, 100, 101, 2, 2]);
    assert_eq!(slices_of(&burst, 0..1), [&[2][..], &[100, 101], &[2, 2]]);
    burst.push(b"x", b"", b"");
    assert_eq!(bytes_of(&burst)[3], b"x");
    burst.advance(4);
    assert!(burst.is_empty());
    assert_eq!(burst.bytes(), 0);
}

#[test]
fn storage_serves_bursts_of_different_lifetimes() {
    let mut buffers = BurstBuffers::new();
    for round in 0..3u8 {
        let payload = vec![round; 10];
        let mut burst = buffers.start(destination());
        burst.push(b"h", &payload, b"t");
        assert_eq!(burst.packet(0).payload, [round; 10]);
        assert_eq!(burst.len(), 1);
    }
}

#[test]
#[should_panic(expected = "at most 256 packets")]
fn a_burst_is_bounded() {
    let mut buffers = BurstBuffers::new();
    let mut burst = buffers.start(destination());
    for _ in 0..=Burst::PACKETS_MAX {
        burst.push(b"", b"", b"");
    }
}

proptest::proptest! {
    /// The oracle is a list of the packets' bytes.
    #[test]
    fn a_burst_agrees_with_a_list_of_packets(
        packets in proptest::collection::vec((0..9usize, 0..9usize, 0..9usize), 0..40),
        advance in 0..40usize,
        more in proptest::collection::vec((0..9usize, 0..9usize, 0..9usize), 0..10),
    ) {
        let payload: Vec<u8> = (100..110).collect();
        let mut buffers = BurstBuffers::new();
        let mut burst = buffers.start(destination());
        let mut expected: Vec<Vec<u8>> = Vec::new();
        let advance_at = packets.len();
        for (number, (header, middle, trailer)) in packets.into_iter().chain(more).enumerate() {
            if number == advance_at {
                burst.advance(advance.min(advance_at));
                expected.drain(..advance.min(advance_at));
            }
            let payload = &payload[..middle];
            burst.push_with(header, payload, trailer, |header, trailer| {
                header.fill(number as u8);
                trailer.fill(50 + number as u8);
            });
            let (header, trailer) = (vec![number as u8; header], vec![50 + number as u8; trailer]);
            expected.push([&header, payload, &trailer].concat());
        }
        proptest::prop_assert_eq!(bytes_of(&burst), expected.clone());
        proptest::prop_assert_eq!(burst.bytes(), expected.concat().len());
        for start in 0..expected.len() {
            for end in start..=expected.len() {
                let slices = slices_of(&burst, start..end);
                proptest::prop_assert!(slices.len() <= 2 * (end - start) + 1);
                proptest::prop_assert_eq!(slices.concat(), expected[start..end].concat());
            }
        }
    }
}
