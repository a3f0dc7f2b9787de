//! Captures for tshark, and what it prints about them. Where there is none, or none that runs Lua, tests that need it
//! say so and are skipped.

use std::path::{Path, PathBuf};
use std::process::{self, Command};

const CLIENT: [u8; 4] = [10, 0, 0, 1];
const SERVER: [u8; 4] = [10, 0, 0, 2];
const CLIENT_PORT: u16 = 0xc000;
/// No dissector has this port.
pub(crate) const SERVER_PORT: u16 = 7407;
const TCP: u8 = 6;
const UDP: u8 = 17;

/// What tshark can do here.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum Tshark {
    Missing,
    Plain,
    WithLua,
}

pub(crate) fn installed() -> Tshark {
    let Ok(output) = Command::new("tshark").arg("--version").output() else {
        return Tshark::Missing;
    };
    match String::from_utf8_lossy(&output.stdout).contains("with Lua") {
        true => Tshark::WithLua,
        false => Tshark::Plain,
    }
}

/// A capture, which is removed if it was as it should be.
pub(crate) struct Capture(PathBuf);

impl Capture {
    /// Writes packets that begin with their IP headers; of each at most so many bytes.
    pub(crate) fn write(name: &str, packets: &[Vec<u8>], bytes_max: usize) -> Self {
        const LINK_TYPE_RAW: u32 = 101;
        const RECORD_BYTES_MAX: u32 = 1 << 16;
        // Version 2.4; the time zone and its accuracy are zero.
        let header = [0xa1b2_c3d4, 4 << 16 | 2, 0, 0, RECORD_BYTES_MAX, LINK_TYPE_RAW];
        let mut file = header.map(u32::to_le_bytes).concat();
        for packet in packets {
            let kept = &packet[..packet.len().min(bytes_max)];
            let lengths = [kept.len() as u32, packet.len() as u32];
            file.extend([0, 0].into_iter().chain(lengths).flat_map(u32::to_le_bytes));
            file.extend(kept);
        }
        let file_name = format!("ddp-{name}-{}.pcap", process::id());
        let path = Path::new(env!("CARGO_TARGET_TMPDIR")).join(file_name);
        std::fs::write(&path, file).unwrap();
        Self(path)
    }

    /// The lines that tshark prints about it.
    pub(crate) fn lines(&self, options: &[&str]) -> Vec<String> {
        let output = Command::new("tshark").args(["-n", "-r"]).arg(&self.0).args(options).output();
        let output = output.unwrap();
        let said = String::from_utf8_lossy(&output.stderr);
        assert!(output.status.success() && !said.contains("Lua"), "{said}");
        String::from_utf8(output.stdout).unwrap().lines().map(str::to_owned).collect()
    }

    /// The values of these fields in each packet, the first of each.
    pub(crate) fn fields(&self, options: &[&str], fields: &[&str]) -> Vec<Vec<String>> {
        let mut all = options.to_vec();
        all.extend(["-T", "fields"]);
        fields.iter().for_each(|field| all.extend(["-e", field]));
        let columns = |line: String| line.split('\t').map(str::to_owned).collect::<Vec<_>>();
        let lines: Vec<_> = self.lines(&all).into_iter().map(columns).collect();
        assert!(lines.iter().all(|line| line.len() == fields.len()), "{lines:?}");
        lines
    }
}

impl Drop for Capture {
    fn drop(&mut self) {
        if !std::thread::panicking() {
            std::fs::remove_file(&self.0).unwrap();
        }
    }
}

/// A number as tshark prints it, in decimal or with 0x, or a flag; `None` where there is no such field.
pub(crate) fn number(text: &str) -> Option<u64> {
    let parsed = match (text, text.strip_prefix("0x")) {
        ("", _) => return None,
        ("True" | "False", _) => return Some(u64::from(text == "True")),
        (_, Some(digits)) => u64::from_str_radix(digits, 16),
        (_, None) => text.parse(),
    };
    Some(parsed.unwrap_or_else(|error| panic!("tshark prints {text}: {error}")))
}

fn ip(protocol: u8, is_of_client: bool, rest: &[u8]) -> Vec<u8> {
    let bytes = u16::try_from(20 + rest.len()).expect("a packet of IPv4");
    let mut header = [0x45, 0, 0, 0, 0, 0, 0x40, 0, 64, protocol].to_vec();
    header[2..4].copy_from_slice(&bytes.to_be_bytes());
    let (from, to) = if is_of_client { (CLIENT, SERVER) } else { (SERVER, CLIENT) };
    header.extend([&[0, 0][..], &from, &to].concat());
    let words = header.chunks(2).map(|word| u32::from(u16::from_be_bytes([word[0], word[1]])));
    let sum = words.sum::<u32>();
    let sum = (sum & 0xffff) + (sum >> 16);
    header[10..12].copy_from_slice(&(!((sum & 0xffff) + (sum >> 16)) as u16).to_be_bytes());
    [&header[..], rest].concat()
}

/// A datagram of the client's.
pub(crate) fn udp(payload: &[u8]) -> Vec<u8> {
    let bytes = u16::try_from(8 + payload.len()).expect("a datagram");
    let header = [CLIENT_PORT, SERVER_PORT, bytes, 0].map(u16::to_be_bytes).concat();
    ip(UDP, true, &[&header[..], payload].concat())
}

/// A TCP connection: each end's next sequence number, and what was sent.
pub(crate) struct Stream {
    next: [u32; 2],
    pub(crate) packets: Vec<Vec<u8>>,
}

impl Stream {
    /// With its three packets before the first bytes.
    pub(crate) fn open() -> Self {
        const SYN: u8 = 0x02;
        const ACK: u8 = 0x10;
        let mut stream = Self { next: [1000, 5000], packets: Vec::new() };
        stream.push(true, SYN, &[]);
        stream.push(false, SYN | ACK, &[]);
        stream.push(true, ACK, &[]);
        stream
    }

    pub(crate) fn send(&mut self, is_of_client: bool, payload: &[u8]) {
        const PUSH_ACK: u8 = 0x18;
        self.push(is_of_client, PUSH_ACK, payload);
    }

    fn push(&mut self, is_of_client: bool, flags: u8, payload: &[u8]) {
        let own = usize::from(!is_of_client);
        let ports = [[CLIENT_PORT, SERVER_PORT], [SERVER_PORT, CLIENT_PORT]][own];
        let acknowledged = if flags & 0x10 == 0 { 0 } else { self.next[1 - own] };
        let mut header = ports.map(u16::to_be_bytes).concat();
        header.extend([self.next[own], acknowledged].map(u32::to_be_bytes).concat());
        // Five words; the window; no checksum, which tshark does not ask for.
        header.extend([0x50, flags, 0xff, 0xff, 0, 0, 0, 0]);
        self.next[own] += payload.len() as u32 + u32::from(flags & 0x02 != 0);
        self.packets.push(ip(TCP, is_of_client, &[&header[..], payload].concat()));
    }
}
