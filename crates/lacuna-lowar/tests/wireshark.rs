//! The dissector for Wireshark, `wireshark/lacuna-lowar.lua`: tshark decodes LoWAR's packets by it to the
//! values that were sent, and everything else as before. Where tshark is missing this is skipped.

mod support;

use lacuna_lowar::{Encoder, Leaving, Shim, ShimConfig};
use lacuna_wire::Qpn;
use lacuna_wire::rc::{CodeKind, RcHeader, RepairHeader, Strength};
use std::path::Path;
use std::process::{self, Command};
use support::*;

const ROCE_PORT: u16 = 4791;

/// A packet with its trailer, in a datagram of IPv4.
fn datagram(packet: &[u8]) -> Vec<u8> {
    let udp_bytes = 8 + packet.len() as u16 + 4;
    let mut ip = [0x45, 0, 0, 0, 0, 0, 0x40, 0, 64, 17, 0, 0, 10, 0, 0, 1, 10, 0, 0, 2];
    ip[2..4].copy_from_slice(&(20 + udp_bytes).to_be_bytes());
    let sum: u32 = ip.chunks(2).map(|word| u32::from(u16::from_be_bytes([word[0], word[1]]))).sum();
    let sum = (sum & 0xffff) + (sum >> 16);
    ip[10..12].copy_from_slice(&(!((sum & 0xffff) + (sum >> 16)) as u16).to_be_bytes());
    let udp = [0xc000, ROCE_PORT, udp_bytes, 0].map(u16::to_be_bytes).concat();
    [&ip[..], &udp, packet, &[0xa1, 0xa2, 0xa3, 0xa4]].concat()
}

fn write_pcap(path: &Path, packets: &[Vec<u8>]) {
    const LINK_TYPE_RAW: u32 = 101;
    let mut file =
        [0xa1b2_c3d4, 4 << 16 | 2, 0, 0, 1 << 16, LINK_TYPE_RAW].map(u32::to_le_bytes).concat();
    for packet in packets.iter().map(|packet| datagram(packet)) {
        let bytes = packet.len() as u32;
        file.extend([0, 0, bytes, bytes].map(u32::to_le_bytes).concat());
        file.extend(packet);
    }
    std::fs::write(path, file).unwrap();
}

/// The lines that tshark prints about a capture with the dissector.
fn tshark(path: &Path, options: &[&str]) -> Vec<String> {
    let script = concat!(env!("CARGO_MANIFEST_DIR"), "/../../wireshark/lacuna-lowar.lua");
    let output = Command::new("tshark")
        .args(["-n", "-X", &format!("lua_script:{script}"), "-r"])
        .arg(path)
        // It guesses what is in a SEND, and the pattern is no RPC.
        .args(["--disable-protocol", "rpcordma"])
        .args(options)
        .output()
        .unwrap();
    let said = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success() && !said.contains("Lua"), "{said}");
    String::from_utf8(output.stdout).unwrap().lines().map(str::to_owned).collect()
}

/// Whether this tshark runs Lua.
fn has_lua() -> bool {
    let Ok(output) = Command::new("tshark").arg("--version").output() else { return false };
    let version = String::from_utf8_lossy(&output.stdout).into_owned();
    version.contains("with Lua")
}

/// What leaves two shims: messages of several lengths, their announcements, repairs, and requests.
fn packets() -> Vec<Vec<u8>> {
    let mut packets = Vec::new();
    for strength in [xor(8, 2), mds(16, 3)] {
        let mut shared = shared();
        let mut encoder = Encoder::new();
        encoder.set_strength(Some(strength)).unwrap();
        let mut messages = Messages::new(3);
        messages.mtu = 256;
        messages.is_responder = false;
        for count in [1, 5, 20] {
            for packet in messages.message_of(count) {
                packets.extend(encode(&mut encoder, &mut shared, &packet));
            }
        }
    }
    let mut shim = Shim::new(ShimConfig::new(Qpn::from_bits(QPN))).unwrap();
    for strength in [Some(mds(100, 32)), Some(xor(256, 256)), None] {
        packets.push(shim.request(Qpn::from_bits(0x12_3456), strength).to_vec());
    }
    let mut leaving = Vec::new();
    let mut shared = shared();
    shim.set_strength(Some(xor(1, 1))).unwrap();
    for packet in Messages::new(9).message_of(1) {
        shim.on_send(&mut shared, &packet, &mut |_: Leaving, bytes| leaving.push(bytes.to_vec()));
    }
    packets.extend(leaving);
    packets
}

/// The columns that the dissector is to print for a packet.
fn expected(packet: &[u8]) -> Vec<String> {
    let number = |value: u32| value.to_string();
    let none = String::new();
    let strength = |Strength { block_packets, repairs, code }: Strength| {
        [
            number(block_packets.into()),
            number(repairs.into()),
            number((code == CodeKind::Mds).into()),
        ]
    };
    let (qpn, header, _) = RepairHeader::parse(packet, 0).unwrap();
    let qpn = format!("0x{:06x}", qpn.bits());
    match header {
        RepairHeader::Repair { block, index } => {
            let psn = |place: u16| (block.first_psn + u32::from(place)) & 0xff_ffff;
            let covers = match block.strength.code {
                CodeKind::Mds => format!("{} to {}", psn(0), psn(block.packets - 1)),
                CodeKind::Xor => (u16::from(index)..block.packets)
                    .step_by(block.strength.repairs.into())
                    .map(|place| number(psn(place)))
                    .collect::<Vec<_>>()
                    .join(", "),
            };
            let flag = |is_set: bool| number(is_set.into());
            let [r, c, code] = strength(block.strength);
            let rest = [
                number(block.first_psn),
                number(index.into()),
                number(block.packets.into()),
                flag(block.has_first),
                flag(block.has_last),
                number(block.class as u32),
                number(block.last_bytes.into()),
                number(block.round.into()),
                covers,
                none,
            ];
            [qpn, number(1), r, c, code].into_iter().chain(rest).collect()
        }
        RepairHeader::Announce { first_psn, class, strength: of } => {
            let [r, c, code] = strength(of);
            let mut columns = vec![qpn, number(2), r, c, code, number(first_psn)];
            columns.resize(15, none);
            columns[10] = number(class as u32);
            columns
        }
        RepairHeader::Request { strength: Some(of) } => {
            let [r, c, code] = strength(of);
            let rest = std::iter::repeat_n(none, 10);
            [qpn, number(3), r, c, code].into_iter().chain(rest).collect()
        }
        RepairHeader::Request { strength: None } => {
            let mut columns = vec![none; 15];
            (columns[0], columns[1], columns[14]) = (qpn, number(3), number(1));
            columns
        }
    }
}

/// Fields of the dissector, in the order of `expected`.
const FIELDS: [&str; 15] = [
    "qpn",
    "type",
    "r",
    "c",
    "code",
    "first_psn",
    "isn",
    "packets",
    "has_first",
    "has_last",
    "class",
    "last_bytes",
    "round",
    "covers",
    "off",
];

#[test]
fn tshark_decodes_a_capture_by_the_dissector() {
    if !has_lua() {
        println!("skipped: no tshark with Lua to decode the packets");
        return;
    }
    let name = format!("lowar-{}.pcap", process::id());
    let path = Path::new(env!("CARGO_TARGET_TMPDIR")).join(name);
    let packets = packets();
    write_pcap(&path, &packets);
    let names: Vec<String> = FIELDS.iter().map(|field| format!("lowar.{field}")).collect();
    let others = [
        "lowar.opcode",
        "lowar.icrc",
        "lowar.sum",
        "infiniband.bth.opcode",
        "_ws.malformed",
        "_ws.expert",
    ];
    let mut options = vec!["-T", "fields", "-E", "occurrence=f"];
    others
        .into_iter()
        .chain(names.iter().map(String::as_str))
        .for_each(|name| options.extend(["-e", name]));
    let lines = tshark(&path, &options);
    assert_eq!(lines.len(), packets.len());
    let (mut repairs, mut data) = (0, 0);
    for (packet, line) in packets.iter().zip(&lines) {
        let columns: Vec<&str> = line.split('\t').collect();
        let ([opcode, icrc, sum, roce, malformed, expert], columns) =
            columns.split_first_chunk().unwrap();
        assert_eq!((*malformed, *expert), ("", ""), "{line}");
        if is_data(packet) {
            let (header, _) = RcHeader::parse(packet, 0).unwrap();
            assert_eq!(*roce, (header.opcode as u8).to_string(), "{line}");
            assert_eq!((*opcode, *icrc), ("", ""), "{line}");
            data += 1;
            continue;
        }
        assert_eq!((*opcode, *icrc, *roce), ("0x1f", "0xa1a2a3a4", ""), "{line}");
        let bytes = packet[16..].iter().map(|byte| format!("{byte:02x}")).collect::<String>();
        assert_eq!(sum.replace(':', ""), bytes, "{line}");
        let columns: Vec<String> = columns
            .iter()
            .map(|column| match *column {
                "True" => "1".to_owned(),
                "False" => "0".to_owned(),
                column => column.to_owned(),
            })
            .collect();
        assert_eq!(columns, expected(packet), "{line}");
        repairs += 1;
    }
    assert!(repairs > 15 && data > 50, "{repairs} {data}");

    // What a reader sees first.
    let lines = tshark(&path, &["-Y", "lowar.type == 3"]);
    assert_eq!(lines.len(), 3, "{lines:?}");
    assert!(lines[0].contains("LoWAR Request QP=0x123456 MDS(100, 32)"), "{}", lines[0]);
    assert!(lines[2].contains("Request QP=0x123456 off"), "{}", lines[2]);
    std::fs::remove_file(&path).unwrap();
}

#[test]
fn packets_that_cannot_be_are_marked_by_the_dissector() {
    if !has_lua() {
        println!("skipped: no tshark with Lua to decode the packets");
        return;
    }
    let name = format!("lowar-malformed-{}.pcap", process::id());
    let path = Path::new(env!("CARGO_TARGET_TMPDIR")).join(name);
    let mut unknown = [0; 16];
    (unknown[0], unknown[4]) = (0x1f, 9);
    let mut beyond = [0; 16];
    // The fifth repair of a block with two.
    (beyond[0], beyond[4], beyond[5], beyond[6], beyond[11]) = (0x1f, 1, 7, 1, 4);
    let packets = [unknown.to_vec(), beyond.to_vec(), vec![0x1f; 6], vec![0x1f; 18], vec![]];
    write_pcap(&path, &packets);
    let lines = tshark(&path, &["-T", "fields", "-e", "lowar.malformed"]);
    let marked: Vec<bool> = lines.iter().map(|line| !line.is_empty()).collect();
    assert_eq!(marked, [true, true, true, true, false], "{lines:?}");
    std::fs::remove_file(&path).unwrap();
}
