//! The arithmetic against the paper's numbers and against loops, and what is refused.

use super::*;
use proptest::prelude::*;

fn geometry(channels: u8, stripe_packets: u32, chunk_packets: u32) -> Geometry {
    coded(channels, stripe_packets, chunk_packets, None)
}

fn coded(channels: u8, stripe_packets: u32, chunk_packets: u32, code: Option<Code>) -> Geometry {
    let config = GeometryConfig::default();
    Geometry::new(GeometryConfig { channels, stripe_packets, chunk_packets, code, ..config })
        .unwrap()
}

#[test]
fn slots_are_whole_chunks() {
    let slot = |mtu_bytes, chunk_packets, max_message_bytes, code| {
        let config = GeometryConfig {
            mtu_bytes,
            chunk_packets,
            max_message_bytes,
            code,
            ..GeometryConfig::default()
        };
        let g = Geometry::new(config).unwrap();
        assert!(g.max_message_bytes().is_multiple_of(g.chunk_bytes()), "{config:?}");
        g.max_message_bytes()
    };
    assert_eq!(slot(1000, 4, 5000, None), 8000, "up");
    assert_eq!(slot(1436, 46, 0, None), ((1 << 18) - 36) * 1436, "down where numbers end");
    let code = Some(Code::mds(32, 8).unwrap());
    for chunk_packets in [1, 3, 46, 47] {
        slot(1436, chunk_packets, 0, code);
        slot(1436, chunk_packets, 1 << 20, code);
    }
    let ask = |max_message_bytes| {
        let config = GeometryConfig::default();
        Geometry::new(GeometryConfig { chunk_packets: 46, max_message_bytes, ..config })
    };
    let limit_bytes = ((1 << 18) - 36) * 4096;
    assert!(ask(limit_bytes).is_ok());
    let refused = ask(limit_bytes + 1);
    assert!(
        matches!(refused, Err(GeometryError::Message { limit_bytes: l, .. }) if l == limit_bytes)
    );
}

#[test]
fn defaults_are_the_papers() {
    let g = Geometry::new(GeometryConfig::default()).unwrap();
    assert_eq!((g.slots(), g.max_message_bytes()), (1024, 1 << 30));
    assert_eq!((g.chunk_bytes(), g.config().generations), (65536, 4));
}

#[test]
fn an_empty_message_is_one_packet_and_one_chunk() {
    let g = geometry(1, 16, 4);
    assert_eq!((g.packets(0), g.chunks(0), g.slots_for(0)), (1, 1, 1));
}

#[test]
fn generations_advance_when_the_slots_wrap() {
    let g = geometry(1, 16, 1);
    assert_eq!((g.slot_of(1023), g.generation_of(1023)), (1023, 0));
    assert_eq!((g.slot_of(1024), g.generation_of(1024)), (0, 1));
    assert_eq!((g.slot_of(4096), g.generation_of(4096)), (0, 0));
}

#[test]
fn nonsense_is_refused_with_its_numbers() {
    let config = GeometryConfig::default();
    for (bad, text) in [
        (GeometryConfig { mtu_bytes: 62, ..config }, "mtu of 62"),
        (GeometryConfig { mtu_bytes: 1401, ..config }, "mtu of 1401"),
        (GeometryConfig { channels: 17, ..config }, "17 channels"),
        (GeometryConfig { generations: 9, ..config }, "9 generations"),
        (GeometryConfig { chunk_packets: 0, ..config }, "chunk of 0"),
        (GeometryConfig { max_message_bytes: 1 << 31, ..config }, "allows 1073741824"),
    ] {
        let error = Geometry::new(bad).unwrap_err().to_string();
        assert!(error.contains(text), "{error}");
    }
}

#[test]
fn parity_shares_the_numbers_of_a_slot_with_the_data() {
    let g = coded(1, 64, 16, Some(Code::MDS_32_8));
    let layout = *g.layout().unwrap();
    let packets = (g.max_message_bytes() / 4096) as u32;
    assert!(g.max_message_bytes() > (1 << 30) / 5 * 4 - (1 << 23), "four fifths, nearly");
    assert!(u64::from(layout.base()) + layout.numbers(packets) <= 1 << 18);
    assert_eq!(g.slot_address(1), g.max_message_bytes() + layout.numbers(packets) * 4096);
    let too_long = GeometryConfig { max_message_bytes: 1 << 30, ..*g.config() };
    let error = Geometry::new(too_long).unwrap_err().to_string();
    assert!(error.contains("messages of 1073741824 bytes"), "{error}");
    let too_coarse = GeometryConfig { chunk_packets: 1 << 15, ..GeometryConfig::default() };
    let code = Some(Code::MDS_32_8);
    let error = Geometry::new(GeometryConfig { code, ..too_coarse }).unwrap_err().to_string();
    assert!(error.contains("use smaller chunks"), "{error}");
}

#[test]
fn parity_is_numbered_behind_the_packets_that_carry_an_immediate() {
    let config = GeometryConfig {
        max_message_bytes: 1,
        chunk_packets: 1,
        code: Some(Code::MDS_32_8),
        ..GeometryConfig::default()
    };
    assert_eq!(Geometry::new(config).unwrap().layout().unwrap().base(), 8);
}

proptest! {
    #[test]
    fn a_submessage_and_its_parity_share_a_channel(
        channels in 1u8..=16, stripe in 1u32..40, chunk in 1u32..8, k in 1usize..9,
        m in 1usize..9, slot in 0u32..1024, packet in 0u32..25_000,
    ) {
        let g = coded(channels, stripe, chunk, Some(Code::mds(k, m).unwrap()));
        let layout = *g.layout().unwrap();
        let packets = packet + 1;
        let submessage = layout.submessage_of(packet);
        let channel = g.channel_of(slot, packet);
        let parity = layout.parity_of(submessage, packets).flatten();
        for other in layout.data_of(submessage, packets).chain(parity) {
            prop_assert_eq!(g.channel_of(slot, other), channel);
        }
        for run in layout.parity_of(submessage, packets) {
            for other in 0..channels {
                let expected = (other == channel).then_some(run.clone());
                prop_assert_eq!(g.next_run(slot, other, run.clone()), expected);
            }
        }
    }

    #[test]
    fn runs_of_all_channels_cover_every_packet_once(
        channels in 1u8..=16, stripe in 1u32..40, chunk in 1u32..8,
        slot in 0u32..1024, start in 0u32..500, length in 0u32..500,
    ) {
        let g = geometry(channels, stripe, chunk);
        let mut seen = vec![0u8; 1000];
        for channel in 0..channels {
            let mut rest = start..start + length;
            while let Some(run) = g.next_run(slot, channel, rest.clone()) {
                for packet in run.clone() {
                    prop_assert_eq!(g.channel_of(slot, packet), channel);
                    seen[packet as usize] += 1;
                }
                rest.start = run.end;
            }
        }
        for (packet, count) in seen.iter().enumerate() {
            let inside = (start..start + length).contains(&(packet as u32));
            prop_assert_eq!(*count, u8::from(inside));
        }
    }

    #[test]
    fn packets_of_a_chunk_share_a_channel(
        channels in 1u8..=16, stripe in 1u32..40, chunk in 1u32..8,
        slot in 0u32..1024, packet in 0u32..100_000,
    ) {
        let g = geometry(channels, stripe, chunk);
        let first = packet / chunk * chunk;
        prop_assert_eq!(g.channel_of(slot, packet), g.channel_of(slot, first));
    }
}
