//! Tests of captures: the file is read back by a parser that shares no code with the writer, and its
//! checksums are verified as a receiver does.

use std::io::Write;
use std::sync::{Arc, Mutex};

use super::*;
use crate::{BurstBuffers, Mem, MemNetwork};

/// A file in memory, which fails after a number of bytes.
#[derive(Clone)]
struct Memory {
    bytes: Arc<Mutex<Vec<u8>>>,
    bytes_max: usize,
}

impl Memory {
    fn new() -> Self {
        Self { bytes: Arc::default(), bytes_max: usize::MAX }
    }

    fn bytes(&self) -> Vec<u8> {
        self.bytes.lock().unwrap().clone()
    }
}

impl Write for Memory {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        let mut all = self.bytes.lock().unwrap();
        if all.len() + bytes.len() > self.bytes_max {
            return Err(io::Error::new(io::ErrorKind::StorageFull, "the disk is full"));
        }
        all.extend_from_slice(bytes);
        Ok(bytes.len())
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

struct Nobody;

impl Placer for Nobody {
    fn on_packets(&mut self, _batch: ReceivedBatch<'_>) {}
}

/// A captured frame, taken apart.
#[derive(Debug)]
struct Frame {
    time_ns: u64,
    source: SocketAddr,
    destination: SocketAddr,
    ecn: u8,
    /// IP and UDP header.
    headers: Vec<u8>,
    packet: Vec<u8>,
}

fn be16(bytes: &[u8], at: usize) -> u16 {
    u16::from_be_bytes([bytes[at], bytes[at + 1]])
}

fn le32(bytes: &[u8], at: usize) -> u32 {
    u32::from_le_bytes(bytes[at..at + 4].try_into().unwrap())
}

/// One's complement addition, a word at a time. Over something with a valid checksum it gives
/// 0xffff.
fn ones_complement(bytes: &[u8]) -> u16 {
    let mut sum: u16 = 0;
    for pair in bytes.chunks(2) {
        let word = u16::from_be_bytes([pair[0], *pair.get(1).unwrap_or(&0)]);
        let (added, carry) = sum.overflowing_add(word);
        sum = added + u16::from(carry);
    }
    sum
}

fn parse(mut file: &[u8]) -> Vec<Frame> {
    assert_eq!(file[..4], [0x4d, 0x3c, 0xb2, 0xa1], "nanoseconds, little-endian");
    assert_eq!(file[4..8], [2, 0, 4, 0], "version");
    assert_eq!(le32(file, 16), 65_535, "snapshot length");
    assert_eq!(le32(file, 20), 101, "raw IP");
    file = &file[24..];
    let mut frames = Vec::new();
    while !file.is_empty() {
        let time_ns = u64::from(le32(file, 0)) * 1_000_000_000 + u64::from(le32(file, 4));
        let bytes = le32(file, 8) as usize;
        assert_eq!(le32(file, 12) as usize, bytes, "nothing is cut off");
        frames.push(parse_frame(time_ns, &file[16..16 + bytes]));
        file = &file[16 + bytes..];
    }
    frames
}

fn parse_frame(time_ns: u64, frame: &[u8]) -> Frame {
    let is_v6 = frame[0] >> 4 == 6;
    let udp_start = if is_v6 { 40 } else { 20 };
    let udp = &frame[udp_start..];
    let (addresses, protocol, ecn);
    if is_v6 {
        assert_eq!(usize::from(be16(frame, 4)), udp.len());
        (addresses, protocol, ecn) = (&frame[8..40], frame[6], frame[1] >> 4 & 3);
    } else {
        assert_eq!(frame[0], 0x45);
        assert_eq!(usize::from(be16(frame, 2)), frame.len());
        assert_eq!(ones_complement(&frame[..20]), 0xffff, "IP checksum");
        assert_eq!(be16(frame, 6), 0x4000, "don't fragment");
        (addresses, protocol, ecn) = (&frame[12..20], frame[9], frame[1] & 3);
    }
    assert_eq!(protocol, 17);
    assert_eq!(usize::from(be16(udp, 4)), udp.len());
    assert_ne!(be16(udp, 6), 0, "there is a UDP checksum");
    let mut covered = addresses.to_vec();
    covered.extend_from_slice(&[0, 17]);
    covered.extend_from_slice(&udp[4..6]);
    covered.extend_from_slice(udp);
    assert_eq!(ones_complement(&covered), 0xffff, "UDP checksum");
    let (source, destination) = addresses.split_at(addresses.len() / 2);
    let address = |ip: &[u8], port| -> SocketAddr {
        match <[u8; 4]>::try_from(ip) {
            Ok(v4) => (v4, port).into(),
            Err(_) => (<[u8; 16]>::try_from(ip).unwrap(), port).into(),
        }
    };
    Frame {
        time_ns,
        source: address(source, be16(udp, 0)),
        destination: address(destination, be16(udp, 2)),
        ecn,
        headers: frame[..udp_start + 8].to_vec(),
        packet: udp[8..].to_vec(),
    }
}

fn pair(addresses: [&str; 2], writer: &PcapWriter) -> [Pcap<Mem>; 2] {
    let network = MemNetwork::new();
    addresses.map(|address| {
        let mem = network.bind(address.parse().unwrap(), 1 << 20).unwrap();
        Pcap::new(mem, writer.clone())
    })
}

fn send(from: &mut Pcap<Mem>, now_ns: u64, to: SocketAddr, packets: &[Vec<u8>]) {
    let mut buffers = BurstBuffers::new();
    let mut burst = buffers.start(to);
    for packet in packets {
        let (header, rest) = packet.split_at(packet.len() / 2);
        burst.push(header, rest, &[]);
    }
    assert_eq!(from.send(now_ns, &burst).unwrap(), packets.len());
}

fn packets(sizes: &[usize]) -> Vec<Vec<u8>> {
    sizes.iter().map(|size| (0..*size).map(|i| (i * 7 + size) as u8).collect()).collect()
}

#[test]
fn both_directions_are_written_with_valid_headers() {
    const EPOCH_NS: u64 = 1_700_000_000_000_000_000;
    for addresses in
        [["10.1.2.3:1111", "10.3.2.1:2222"], ["[2001:db8::1]:1111", "[2001:db8::2]:2222"]]
    {
        let memory = Memory::new();
        let options = PcapOptions { time: PcapTime::Since(EPOCH_NS), ..PcapOptions::default() };
        let writer = PcapWriter::new(Box::new(memory.clone()), options).unwrap();
        let [mut a, mut b] = pair(addresses, &writer);
        let sizes = [60, 61, 1000, 16, 15, 4, 1, 0, 65_000];
        send(&mut a, 1_000_000_001, b.local_addr(), &packets(&sizes));
        while b.receive(2_000_000_002, &mut Nobody).unwrap() > 0 {}
        let summary = writer.finish().unwrap();
        let file = memory.bytes();
        assert_eq!((summary.packets, summary.bytes), (18, file.len() as u64));
        assert_eq!((summary.sent, summary.received, summary.left_out), (9, 9, 0));
        let frames = parse(&file);
        let times = [EPOCH_NS + 1_000_000_001, EPOCH_NS + 2_000_000_002];
        for (frames, time_ns) in frames.chunks(sizes.len()).zip(times) {
            for (frame, packet) in frames.iter().zip(packets(&sizes)) {
                assert_eq!(frame.time_ns, time_ns);
                assert_eq!(frame.source, a.local_addr());
                assert_eq!(frame.destination, SocketAddr::new(b.local_addr().ip(), 4791));
                assert_eq!(frame.packet.len(), packet.len());
                assert_eq!(frame.ecn, 0);
                if packet.len() < 16 {
                    assert_eq!(frame.packet, packet, "no trailer in so short a packet");
                    continue;
                }
                let (body, trailer) = frame.packet.split_at(packet.len() - 4);
                assert_eq!(body, &packet[..packet.len() - 4]);
                let (ip, udp) = frame.headers.split_at(frame.headers.len() - 8);
                let udp = udp.try_into().unwrap();
                let icrc = match frame.source {
                    SocketAddr::V4(_) => {
                        lacuna_wire::icrc_ipv4(ip.try_into().unwrap(), udp, &[body])
                    }
                    SocketAddr::V6(_) => {
                        lacuna_wire::icrc_ipv6(ip.try_into().unwrap(), udp, &[body])
                    }
                };
                assert_eq!(trailer, icrc);
            }
        }
    }
}

#[test]
fn an_end_bound_to_any_address_is_shown_in_the_family_of_its_peer() {
    let memory = Memory::new();
    let writer = PcapWriter::new(Box::new(memory.clone()), PcapOptions::default()).unwrap();
    let [mut a, b] = pair(["[::]:1111", "10.3.2.1:2222"], &writer);
    send(&mut a, 0, b.local_addr(), &packets(&[100]));
    writer.finish().unwrap();
    let source = parse(&memory.bytes())[0].source;
    assert!(source.is_ipv4() && source.port() == 1111, "{source}");
}

#[test]
fn congestion_marks_are_shown() {
    let memory = Memory::new();
    let writer = PcapWriter::new(Box::new(memory.clone()), PcapOptions::default()).unwrap();
    for address in ["10.0.0.1:1", "[2001:db8::1]:1"] {
        Capturing {
            placer: &mut Nobody,
            now_ns: 0,
            local: &mut LocalAddress::new(address.parse().unwrap()),
            writer: &writer,
        }
        .on_packets(ReceivedBatch {
            source: address.parse().unwrap(),
            local: None,
            bytes: &mut [1; 100],
            segment_bytes: 50,
            congestion_experienced: true,
            waited_ns: 0,
        });
    }
    writer.finish().unwrap();
    let frames = parse(&memory.bytes());
    assert_eq!(frames.len(), 4);
    assert!(frames.iter().all(|frame| frame.ecn == 3));
}

#[test]
fn a_bounded_file_stops_growing_at_a_packet() {
    let memory = Memory::new();
    let options = PcapOptions { bytes_max: Some(1000), ..PcapOptions::default() };
    let writer = PcapWriter::new(Box::new(memory.clone()), options).unwrap();
    let [mut a, b] = pair(["10.0.0.1:1", "10.0.0.2:2"], &writer);
    let ends = Arc::new(Mutex::new(Vec::new()));
    let (told, asked) = (ends.clone(), writer.clone());
    writer.on_end(move |end| told.lock().unwrap().push((end.ok(), asked.summary().left_out)));
    send(&mut a, 0, b.local_addr(), &packets(&[100; 6]));
    assert!(ends.lock().unwrap().is_empty());
    // A shorter packet would fit, but a capture with a hole misleads.
    send(&mut a, 0, b.local_addr(), &packets(&[200, 20]));
    send(&mut a, 0, b.local_addr(), &packets(&[20; 12]));
    let summary = writer.finish().unwrap();
    // 24 bytes of header and 16 + 28 + 100 a packet.
    let file = PcapSummary { packets: 6, bytes: 24 + 6 * 144, is_full: true, ..summary };
    assert_eq!(summary, PcapSummary { sent: 20, received: 0, left_out: 14, ..file });
    assert_eq!(parse(&memory.bytes()).len(), 6);
    let at_end = PcapSummary { sent: 8, left_out: 2, ..summary };
    assert_eq!(*ends.lock().unwrap(), [(Some(at_end), 2)], "told once, when it was full");
}

/// Keeps the bytes of each write.
#[derive(Clone, Default)]
struct Writes(Arc<Mutex<Vec<Vec<u8>>>>);

impl Write for Writes {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        self.0.lock().unwrap().push(bytes.to_vec());
        Ok(bytes.len())
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

#[test]
fn each_burst_is_in_the_file_at_once_and_each_write_brings_whole_records() {
    let writes = Writes::default();
    let writer = PcapWriter::new(Box::new(writes.clone()), PcapOptions::default()).unwrap();
    let [mut a, mut b] = pair(["10.0.0.1:1", "10.0.0.2:2"], &writer);
    for (burst, sizes) in [&[100; 3][..], &[60_000; 2], &[40; 1]].into_iter().enumerate() {
        send(&mut a, 0, b.local_addr(), &packets(sizes));
        let all = writes.0.lock().unwrap().clone();
        assert_eq!(all.len(), 2 + burst, "the header and a write for each burst");
        let file = [&all[0][..], all.last().unwrap()].concat();
        assert_eq!(parse(&file).len(), sizes.len());
    }
    while b.receive(0, &mut Nobody).unwrap() > 0 {}
    assert_eq!(parse(&writes.0.lock().unwrap().concat()).len(), 12);
}

#[test]
fn a_closed_capture_stays_as_it_was_told() {
    let memory = Memory::new();
    let writer = PcapWriter::new(Box::new(memory.clone()), PcapOptions::default()).unwrap();
    let [mut a, b] = pair(["10.0.0.1:1", "10.0.0.2:2"], &writer);
    send(&mut a, 0, b.local_addr(), &packets(&[100]));
    let told = writer.close().unwrap();
    send(&mut a, 0, b.local_addr(), &packets(&[100]));
    assert_eq!((told.packets, parse(&memory.bytes()).len()), (1, 1));
    assert_eq!(writer.summary(), told);
}

#[test]
fn tshark_decodes_packets_and_pieces_of_packets() {
    use lacuna_wire::{DataHeader, Qpn, Seal};
    let tshark = |arguments: &[&str]| std::process::Command::new("tshark").args(arguments).output();
    if tshark(&["--version"]).is_err() {
        println!("skipped: no tshark");
        return;
    }
    // A packet of 1,000 bytes as it is, with an address, and its pieces: 400 bytes, and the rest.
    let header = DataHeader {
        dest: Qpn::from_bits(0x100),
        psn: 7,
        ends_message: false,
        carries_immediate: false,
        address: None,
        rkey: 0x1122_3344,
        length: 1000,
        behind: 0,
        immediate: 0x5566_7788,
    };
    let at =
        |address, length, behind| DataHeader { address: Some(address), length, behind, ..header };
    let all = [header, at(0, 1000, 0), at(0, 400, 600), at(400, 600, 0)];
    let sent = all.map(|header| {
        let payload = vec![7; header.length as usize];
        let mut packet = vec![0; Seal::Crc32c.packet_bytes(&header)];
        Seal::Crc32c.emit_packet(&header, &mut packet, &payload);
        packet
    });
    let path = std::env::temp_dir().join(format!("lacuna-tshark-{}.pcap", std::process::id()));
    let writer = PcapWriter::create(&path).unwrap();
    let [mut a, b] = pair(["10.0.0.1:1111", "10.0.0.2:2222"], &writer);
    send(&mut a, 0, b.local_addr(), &sent);
    let fields = ["infiniband.bth.opcode", "infiniband.reth.dmalen", "_ws.malformed"];
    let mut arguments = vec!["-r", path.to_str().unwrap(), "-T", "fields"];
    fields.iter().for_each(|field| arguments.extend(["-e", field]));
    let output = tshark(&arguments).unwrap();
    let text = String::from_utf8(output.stdout).unwrap();
    assert_eq!(text, "37\t\t\n43\t1000\t\n43\t1000\t\n43\t600\t\n", "{}", output.status);
    std::fs::remove_file(&path).unwrap();
}

#[test]
fn packets_of_other_formats_keep_their_port_and_bytes() {
    let memory = Memory::new();
    let options = PcapOptions { is_foreign: true, ..PcapOptions::default() };
    let writer = PcapWriter::new(Box::new(memory.clone()), options).unwrap();
    let [mut a, b] = pair(["10.0.0.1:1111", "10.3.2.1:2222"], &writer);
    send(&mut a, 0, b.local_addr(), &packets(&[100]));
    let frames = parse(&memory.bytes());
    assert_eq!(frames[0].destination, b.local_addr());
    assert_eq!(frames[0].packet, packets(&[100])[0]);
}

#[test]
fn one_file_has_one_capture_at_a_time() {
    let path = std::env::temp_dir().join(format!("lacuna-pcap-{}", std::process::id()));
    std::fs::write(&path, "something longer than the header of a capture").unwrap();
    let writer = PcapWriter::create(&path).unwrap();
    let refused = PcapWriter::create(&path).unwrap_err();
    assert_eq!(refused.kind(), io::ErrorKind::ResourceBusy);
    assert!(refused.to_string().contains("another capture"), "{refused}");
    assert_eq!(parse(&std::fs::read(&path).unwrap()).len(), 0, "it was emptied first");
    drop(writer);
    PcapWriter::create(&path).unwrap();
    std::fs::remove_file(&path).unwrap();
}

#[test]
fn a_capture_that_is_over_frees_its_file_though_a_child_has_the_descriptor() {
    let path = std::env::temp_dir().join(format!("lacuna-pcap-child-{}", std::process::id()));
    let file = std::fs::File::create(&path).unwrap();
    file.try_lock().unwrap();
    // A descriptor in a child is of the same open file, as this one is.
    let of_child = file.try_clone().unwrap();
    let output = Box::new(file.try_clone().unwrap());
    let writer = PcapWriter::with_file(output, Some(file), PcapOptions::default()).unwrap();
    assert!(PcapWriter::create(&path).is_err());
    drop(writer);
    PcapWriter::create(&path).unwrap();
    drop(of_child);
    std::fs::remove_file(&path).unwrap();
}

/// A file with room for `left` bytes, as on a full disk, where the last write is cut short.
struct Full {
    file: std::fs::File,
    left: usize,
}

impl Write for Full {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        if self.left == 0 {
            return Err(io::ErrorKind::StorageFull.into());
        }
        let some = self.file.write(&bytes[..bytes.len().min(self.left)])?;
        self.left -= some;
        Ok(some)
    }

    fn flush(&mut self) -> io::Result<()> {
        self.file.flush()
    }
}

#[test]
fn on_a_full_disk_the_file_ends_with_a_whole_record() {
    let path = std::env::temp_dir().join(format!("lacuna-pcap-full-{}", std::process::id()));
    let file = std::fs::File::create(&path).unwrap();
    let full = Full { file: file.try_clone().unwrap(), left: 24 + 3 * 144 + 10 };
    let writer = PcapWriter::with_file(Box::new(full), Some(file), PcapOptions::default()).unwrap();
    let [mut a, b] = pair(["10.0.0.1:1", "10.0.0.2:2"], &writer);
    for _ in 0..2 {
        send(&mut a, 0, b.local_addr(), &packets(&[100; 5]));
    }
    assert_eq!(writer.finish().unwrap_err().kind(), io::ErrorKind::StorageFull);
    let summary = writer.summary();
    assert_eq!((summary.packets, summary.left_out, summary.sent), (3, 7, 10));
    let bytes = std::fs::read(&path).unwrap();
    assert_eq!((parse(&bytes).len(), bytes.len() as u64), (3, summary.bytes));
    std::fs::remove_file(&path).unwrap();
}

#[test]
fn errors_of_the_file_are_remembered_and_disturb_nothing() {
    let memory = Memory { bytes_max: 3 << 20, ..Memory::new() };
    let writer = PcapWriter::new(Box::new(memory), PcapOptions::default()).unwrap();
    let [mut a, mut b] = pair(["10.0.0.1:1", "10.0.0.2:2"], &writer);
    for _ in 0..100 {
        send(&mut a, 0, b.local_addr(), &packets(&[60_000]));
        assert_eq!(b.receive(0, &mut Nobody).unwrap(), 1);
    }
    for _ in 0..2 {
        let error = writer.finish().unwrap_err();
        assert_eq!(error.kind(), io::ErrorKind::StorageFull);
        assert_eq!(error.to_string(), "the disk is full");
    }
}

#[test]
fn a_file_is_written_out_when_the_last_user_is_gone() {
    let memory = Memory::new();
    let writer = PcapWriter::new(Box::new(memory.clone()), PcapOptions::default()).unwrap();
    let [mut a, b] = pair(["10.0.0.1:1", "10.0.0.2:2"], &writer);
    drop(writer);
    send(&mut a, 0, b.local_addr(), &packets(&[100]));
    drop((a, b));
    assert_eq!(parse(&memory.bytes()).len(), 1);
}
