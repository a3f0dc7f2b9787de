//! The oracle segments a bundle as a network card does, from scratch and one packet at a time; a
//! bundle and its parts must come to the same packets.

use super::*;
use proptest::prelude::*;

/// What a test bundle is made of.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Recipe {
    pub(crate) is_ipv6: bool,
    pub(crate) is_tcp: bool,
    pub(crate) payload_bytes: usize,
    pub(crate) segment_bytes: u16,
    pub(crate) tcp_flags: u8,
    pub(crate) ecn: u8,
}

pub(crate) const TCP: Recipe = Recipe {
    is_ipv6: false,
    is_tcp: true,
    payload_bytes: 10_000,
    segment_bytes: 1448,
    tcp_flags: 0x10 | TCP_PSH,
    ecn: 2,
};

/// The sum over the pseudo-header (RFC 793, 768, 8200), computed from the packet.
fn pseudo_sum(ip: &[u8], at: usize) -> u16 {
    let length = ((ip.len() - at) as u32).to_be_bytes();
    let mut bytes = Vec::new();
    if ip[0] >> 4 == 4 {
        bytes.extend_from_slice(&ip[12..20]);
        bytes.extend_from_slice(&[0, ip[9]]);
    } else {
        bytes.extend_from_slice(&ip[8..40]);
        bytes.extend_from_slice(&[0, ip[6]]);
    }
    bytes.extend_from_slice(&length);
    checksum::sum(&bytes)
}

/// A bundle as the kernel makes it, or a single packet if the payload is short.
pub(crate) fn frame(recipe: Recipe) -> Vec<u8> {
    let Recipe { is_ipv6, is_tcp, payload_bytes, segment_bytes, tcp_flags, ecn } = recipe;
    let mut ip = vec![];
    let at = if is_ipv6 { 40 } else { 20 };
    let transport_bytes = if is_tcp { 32 } else { 8 };
    let total = at + transport_bytes + payload_bytes;
    let protocol = if is_tcp { 6 } else { 17 };
    if is_ipv6 {
        ip.extend_from_slice(&[0x60, ecn << 4, 0, 0]);
        ip.extend_from_slice(&((total - 40) as u16).to_be_bytes());
        ip.extend_from_slice(&[protocol, 64]);
        ip.extend((1..=32).map(|i| i * 7));
    } else {
        ip.extend_from_slice(&[0x45, ecn]);
        ip.extend_from_slice(&(total as u16).to_be_bytes());
        ip.extend_from_slice(&[0xff, 0xfe, 0x40, 0, 64, protocol, 0, 0]);
        ip.extend_from_slice(&[10, 77, 0, 1, 10, 77, 0, 2]);
        let sum = !checksum::sum(&ip);
        put(&mut ip, 10, sum);
    }
    ip.extend_from_slice(&[0x12, 0x34, 0x56, 0x78]);
    if is_tcp {
        ip.extend_from_slice(&0xffff_ff00u32.to_be_bytes());
        ip.extend_from_slice(&[1, 2, 3, 4, 0x80, tcp_flags, 0x10, 0, 0, 0, 0, 0]);
        ip.extend_from_slice(&[1, 1, 8, 10, 9, 9, 9, 9, 8, 8, 8, 8]);
    } else {
        ip.extend_from_slice(&((total - at) as u16).to_be_bytes());
        ip.extend_from_slice(&[0, 0]);
    }
    ip.extend((0..payload_bytes).map(|i| (i * 31 + i / 256) as u8));
    let offset = if is_tcp { 16 } else { 6 };
    let sum = pseudo_sum(&ip, at);
    put(&mut ip, at + offset, sum);
    let is_bundle = payload_bytes > usize::from(segment_bytes);
    let ecn_bit = if is_tcp && tcp_flags & TCP_CWR != 0 { GSO_ECN } else { 0 };
    let vnet = Vnet {
        flags: vnet::NEEDS_CSUM,
        gso_type: match (is_bundle, is_tcp, is_ipv6) {
            (false, ..) => GSO_NONE,
            (true, true, false) => GSO_TCPV4 | ecn_bit,
            (true, true, true) => GSO_TCPV6 | ecn_bit,
            (true, false, _) => GSO_UDP_L4,
        },
        hdr_len: if is_bundle { (at + transport_bytes) as u16 } else { 0 },
        gso_size: if is_bundle { segment_bytes } else { 0 },
        csum_start: at as u16,
        csum_offset: offset as u16,
    };
    let mut frame = vec![0; VNET_BYTES];
    vnet.emit(frame.first_chunk_mut().unwrap());
    frame.extend(ip);
    frame
}

/// The packets of a frame as they are on the wire, all checksums complete.
pub(crate) fn packets_of(frame: &[u8]) -> Vec<Vec<u8>> {
    let vnet = Vnet::parse(frame.first_chunk().unwrap());
    let ip = &frame[VNET_BYTES..];
    let is_ipv6 = ip[0] >> 4 == 6;
    let at = if is_ipv6 { 40 } else { 20 };
    let is_tcp = ip[if is_ipv6 { 6 } else { 9 }] == 6;
    if vnet.flags == 0 {
        return vec![ip.to_vec()];
    }
    let sum_at = at + usize::from(vnet.csum_offset);
    assert_eq!(word(ip, sum_at), pseudo_sum(ip, at), "the field holds the pseudo-header's sum");
    let headers = at + if is_tcp { usize::from(ip[at + 12] >> 4) * 4 } else { 8 };
    let payload = &ip[headers..];
    let size = match vnet.gso_type {
        GSO_NONE => payload.len().max(1),
        _ => usize::from(vnet.gso_size),
    };
    let chunks: Vec<&[u8]> =
        if payload.is_empty() { vec![&[]] } else { payload.chunks(size).collect() };
    let last = chunks.len() - 1;
    let mut packets = vec![];
    for (index, chunk) in chunks.into_iter().enumerate() {
        let mut packet = [&ip[..headers], chunk].concat();
        let bytes = packet.len();
        if is_ipv6 {
            put(&mut packet, 4, (bytes - 40) as u16);
        } else {
            put(&mut packet, 2, bytes as u16);
            let id = word(ip, 4).wrapping_add(index as u16);
            put(&mut packet, 4, id);
            put(&mut packet, 10, 0);
            let sum = !checksum::sum(&packet[..20]);
            put(&mut packet, 10, sum);
        }
        if is_tcp {
            let number = u32::from_be_bytes(ip[at + 4..at + 8].try_into().unwrap());
            let number = number.wrapping_add((index * size) as u32);
            packet[at + 4..at + 8].copy_from_slice(&number.to_be_bytes());
            if index < last {
                packet[at + 13] &= !(TCP_FIN | TCP_PSH);
            }
            if index > 0 && vnet.gso_type & GSO_ECN != 0 {
                packet[at + 13] &= !TCP_CWR;
            }
        } else {
            put(&mut packet, at + 4, (bytes - at) as u16);
        }
        put(&mut packet, sum_at, 0);
        let total = u32::from(checksum::sum(&packet[at..])) + u32::from(pseudo_sum(&packet, at));
        put(&mut packet, sum_at, !((total & 0xffff) as u16 + (total >> 16) as u16));
        packets.push(packet);
    }
    packets
}

fn cut(frame: &[u8], packets: Range<u32>, is_marked: bool) -> Vec<u8> {
    let bundle = Bundle::parse(frame).unwrap();
    bundle.cut(frame, packets, is_marked, &mut PartHeader::default()).concat()
}

fn recipes() -> impl Strategy<Value = Recipe> {
    let flags = prop_oneof![Just(0x10), Just(0x19), Just(0x90), Just(0x99)];
    (any::<bool>(), any::<bool>(), 0..60_000usize, 500..9000u16, flags, 0..4u8).prop_map(
        |(is_ipv6, is_tcp, payload_bytes, segment_bytes, tcp_flags, ecn)| Recipe {
            is_ipv6,
            is_tcp,
            payload_bytes,
            segment_bytes,
            tcp_flags,
            ecn,
        },
    )
}

proptest! {
    #[test]
    fn parts_have_the_packets_of_the_bundle(
        recipe in recipes(),
        cuts in proptest::collection::vec(1..200u32, 0..4),
    ) {
        let frame = frame(recipe);
        let bundle = Bundle::parse(&frame).unwrap();
        let expected = packets_of(&frame);
        prop_assert_eq!(bundle.packets() as usize, expected.len());
        let sizes: Vec<u32> = (0..bundle.packets()).map(|i| bundle.packet_bytes(i)).collect();
        let expected_sizes: Vec<u32> = expected.iter().map(|packet| packet.len() as u32).collect();
        prop_assert_eq!(&sizes, &expected_sizes);
        prop_assert_eq!(bundle.wire_bytes(), sizes.iter().map(|size| u64::from(*size)).sum::<u64>());

        let mut bounds = cuts;
        bounds.extend([0, bundle.packets()]);
        bounds.retain(|bound| *bound <= bundle.packets());
        bounds.sort_unstable();
        bounds.dedup();
        let mut packets = vec![];
        for pair in bounds.windows(2) {
            packets.extend(packets_of(&cut(&frame, pair[0]..pair[1], false)));
        }
        prop_assert_eq!(packets, expected);
    }

    /// Whatever a program sends, and whatever the kernel makes of it.
    #[test]
    fn no_frame_makes_it_panic(
        recipe in recipes(),
        damage in proptest::collection::vec((0..80usize, any::<u8>()), 0..6),
        keep in 0..70_000usize,
        marked: bool,
    ) {
        let mut frame = frame(recipe);
        for (at, byte) in damage {
            if let Some(place) = frame.get_mut(at) {
                *place = byte;
            }
        }
        frame.truncate(keep);
        if let Ok(bundle) = Bundle::parse(&frame) {
            let last = bundle.packets() - 1;
            let mut header = PartHeader::default();
            for part in [0..1, last..last + 1, 0..last + 1] {
                let parts = bundle.cut(&frame, part, marked, &mut header);
                prop_assert!(parts.concat().len() <= frame.len());
            }
            let bits = bundle.packet_bytes(last) * 8;
            bundle.corrupt(&frame, last, marked, bits - 1, &mut vec![]);
            let _ = (bundle.is_ecn_capable(&frame), bundle.is_link_local_multicast(&frame));
        }
    }
}

#[test]
fn an_untouched_bundle_is_the_frame_itself() {
    let frame = frame(TCP);
    let bundle = Bundle::parse(&frame).unwrap();
    let mut header = PartHeader::default();
    let [whole, rest] = bundle.cut(&frame, 0..bundle.packets(), false, &mut header);
    assert!(std::ptr::eq(whole, &raw const frame[..]) && rest.is_empty());
}

#[test]
fn marks_are_set_in_the_ip_header_and_nowhere_else() {
    for is_ipv6 in [false, true] {
        for payload_bytes in [100, 10_000] {
            let frame = frame(Recipe { is_ipv6, payload_bytes, ..TCP });
            let bundle = Bundle::parse(&frame).unwrap();
            assert!(bundle.is_ecn_capable(&frame));
            let marked = cut(&frame, 0..bundle.packets(), true);
            assert_eq!(bundle.ecn(&marked[VNET_BYTES..]), 3);
            assert!(!bundle.is_ecn_capable(&marked));
            for (packet, expected) in packets_of(&marked).iter().zip(packets_of(&frame)) {
                let differing: Vec<usize> =
                    (0..packet.len()).filter(|i| packet[*i] != expected[*i]).collect();
                // The field, and over IPv4 the header's checksum.
                assert!(differing == [1] || (differing == [1, 11] && !is_ipv6), "{differing:?}");
                if !is_ipv6 {
                    assert_eq!(checksum::sum(&packet[..20]), 0xffff);
                }
            }
        }
    }
}

#[test]
fn packets_without_ecn_are_not_to_be_marked() {
    let frame = frame(Recipe { ecn: 0, ..TCP });
    assert!(!Bundle::parse(&frame).unwrap().is_ecn_capable(&frame));
}

#[test]
fn a_corrupted_packet_differs_in_one_bit_and_its_checksum_tells() {
    for is_tcp in [false, true] {
        let frame = frame(Recipe { is_tcp, ..TCP });
        let bundle = Bundle::parse(&frame).unwrap();
        let good = &packets_of(&frame)[2];
        for bit in [20 * 8, 500 * 8 + 3, good.len() * 8 - 1] {
            let mut out = vec![];
            bundle.corrupt(&frame, 2, false, bit as u32, &mut out);
            let [bad] = &packets_of(&out)[..] else { panic!("one packet") };
            let flipped: Vec<usize> = (0..good.len() * 8)
                .filter(|i| (good[i / 8] ^ bad[i / 8]) >> (i % 8) & 1 == 1)
                .collect();
            assert_eq!(flipped, [bit]);
            let total = u32::from(checksum::sum(&bad[20..])) + u32::from(pseudo_sum(bad, 20));
            assert_ne!((total & 0xffff) + (total >> 16), 0xffff);
        }
    }
}

#[test]
fn packets_for_neighbours_only_are_known() {
    let mut v4 = frame(TCP);
    let bundle = Bundle::parse(&v4).unwrap();
    assert!(!bundle.is_link_local_multicast(&v4));
    v4[VNET_BYTES + 16..][..4].copy_from_slice(&[224, 0, 0, 22]);
    assert!(bundle.is_link_local_multicast(&v4));
    let mut v6 = frame(Recipe { is_ipv6: true, ..TCP });
    let bundle = Bundle::parse(&v6).unwrap();
    assert!(!bundle.is_link_local_multicast(&v6));
    v6[VNET_BYTES + 24..][..2].copy_from_slice(&[0xff, 0x02]);
    assert!(bundle.is_link_local_multicast(&v6));
}

#[test]
fn bundles_that_cannot_be_cut_are_refused() {
    let good = frame(TCP);
    let vnet = Vnet::parse(good.first_chunk().unwrap());
    for bad in [
        Vnet { gso_size: 0, ..vnet },
        Vnet { flags: 0, ..vnet },
        Vnet { gso_type: GSO_TCPV6, ..vnet },
        Vnet { gso_type: 3, ..vnet },
        Vnet { csum_start: 19, ..vnet },
        Vnet { csum_start: 60_000, ..vnet },
        Vnet { csum_offset: 6, ..vnet },
    ] {
        let mut frame = good.clone();
        bad.emit(frame.first_chunk_mut().unwrap());
        assert!(matches!(Bundle::parse(&frame), Err(Malformed::Bundle { .. })), "{bad:?}");
    }
    assert_eq!(Bundle::parse(&good[..9]), Err(Malformed::Short { frame_bytes: 9 }));
    assert_eq!(Bundle::parse(&good[..29]), Err(Malformed::Short { frame_bytes: 29 }));
    let mut other = good;
    other[VNET_BYTES] = 0x55;
    assert_eq!(Bundle::parse(&other), Err(Malformed::Version { version: 5 }));
}

const LINK: [u8; 14] = [2, 0, 10, 77, 0, 2, 2, 0, 10, 77, 0, 1, 0x08, 0x00];

/// The same frame as of a TAP device.
fn behind_ethernet(frame: &[u8]) -> Vec<u8> {
    let mut vnet = Vnet::parse(frame.first_chunk().unwrap());
    if vnet.needs_checksum() {
        vnet.csum_start += 14;
    }
    if vnet.hdr_len > 0 {
        vnet.hdr_len += 14;
    }
    let mut link = LINK;
    if frame[VNET_BYTES] >> 4 == 6 {
        link[12..].copy_from_slice(&[0x86, 0xdd]);
    }
    let mut whole = vec![0; VNET_BYTES];
    vnet.emit(whole.first_chunk_mut().unwrap());
    whole.extend_from_slice(&link);
    whole.extend_from_slice(&frame[VNET_BYTES..]);
    whole
}

proptest! {
    /// Behind an Ethernet header everything is as it is without.
    #[test]
    fn an_ethernet_header_changes_nothing_but_offsets(
        recipe in recipes(),
        start in 0..100u32,
        count in 1..100u32,
        is_marked: bool,
    ) {
        let plain = frame(recipe);
        let frame = behind_ethernet(&plain);
        let (bundle, other) = (Bundle::parse_ethernet(&frame).unwrap(), Bundle::parse(&plain).unwrap());
        prop_assert_eq!(bundle.packets(), other.packets());
        prop_assert_eq!(bundle.wire_bytes(), other.wire_bytes());
        prop_assert_eq!(bundle.is_ecn_capable(&frame), other.is_ecn_capable(&plain));
        let start = start.min(bundle.packets() - 1);
        let part = start..(start + count).min(bundle.packets());
        let [mut header, mut other_header] = [PartHeader::default(), PartHeader::default()];
        let cut = bundle.cut(&frame, part.clone(), is_marked, &mut header).concat();
        let plain_cut = other.cut(&plain, part, is_marked, &mut other_header).concat();
        prop_assert_eq!(cut, behind_ethernet(&plain_cut));
        let bit = bundle.packet_bytes(start) * 8 - 1;
        let [mut bad, mut plain_bad] = [vec![], vec![]];
        bundle.corrupt(&frame, start, is_marked, bit, &mut bad);
        other.corrupt(&plain, start, is_marked, bit, &mut plain_bad);
        prop_assert_eq!(bad, behind_ethernet(&plain_bad));
    }

    #[test]
    fn no_frame_of_a_tap_device_makes_it_panic(
        recipe in recipes(),
        damage in proptest::collection::vec((0..100usize, any::<u8>()), 0..6),
        keep in 0..70_000usize,
        marked: bool,
    ) {
        let mut frame = behind_ethernet(&frame(recipe));
        for (at, byte) in damage {
            if let Some(place) = frame.get_mut(at) {
                *place = byte;
            }
        }
        frame.truncate(keep);
        if let Ok(bundle) = Bundle::parse_ethernet(&frame) {
            let last = bundle.packets() - 1;
            let mut header = PartHeader::default();
            for part in [0..1, last..last + 1, 0..last + 1] {
                let parts = bundle.cut(&frame, part, marked, &mut header);
                prop_assert!(parts.concat().len() <= frame.len());
            }
            if let Some(bit) = (bundle.packet_bytes(last) * 8).checked_sub(1) {
                bundle.corrupt(&frame, last, marked, bit, &mut vec![]);
            }
            let _ = bundle.is_ecn_capable(&frame);
        }
    }
}

#[test]
fn what_is_no_ip_packet_is_a_single_one() {
    let mut arp = vec![0; VNET_BYTES];
    arp.extend_from_slice(&LINK);
    arp[VNET_BYTES + 12..].copy_from_slice(&[0x08, 0x06]);
    arp.extend_from_slice(&[7; 28]);
    let bundle = Bundle::parse_ethernet(&arp).unwrap();
    assert_eq!((bundle.packets(), bundle.wire_bytes()), (1, 28));
    assert!(!bundle.is_ecn_capable(&arp));
    let whole = bundle.cut(&arp, 0..1, false, &mut PartHeader::default()).concat();
    assert_eq!(whole, arp);
    arp[1] = GSO_UDP_L4;
    assert!(matches!(Bundle::parse_ethernet(&arp), Err(Malformed::Bundle { .. })));
    assert!(Bundle::parse_ethernet(&arp[..VNET_BYTES + 13]).is_err());
}
