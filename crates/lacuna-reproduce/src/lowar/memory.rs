//! Table I: what the shim takes of memory, by the paper's rows, for one queue pair and for many.
//!
//! The paper's prototype has 1,024 coding units for encoders, as many for decoders, a ring of 2,048 packets,
//! and state for 512 queue pairs, all of it reserved in the card. The same sizes are used here, which are the
//! defaults of [`SharedConfig`]. Memory of the pools is allocated on first use, so there are two numbers: what
//! was allocated in the run, and the most that can be.
//!
//! The run: each queue pair sends one message of a block to itself, LoWAR(32,1), and one packet of it is lost,
//! so that others wait in the ring until the repair comes. As many queue pairs as there are units are in the
//! middle of their block at a time.

use super::{NAME, title};
use crate::cells::{Lab, Stopped};
use crate::outcome::{Csv, Item, Outcome, Rows, Statement, Verdict};
use lacuna_lowar::{
    How, Leaving, Memory, RING_PACKETS_DEFAULT, Shared, SharedConfig, Shim, ShimConfig,
    UNITS_DEFAULT, Upper,
};
use lacuna_planner::chart::{Axis, Chart, Series};
use lacuna_wire::Qpn;
use lacuna_wire::rc::{CodeKind, Fields, Opcode, RcHeader, Strength};

/// Queue pairs of a host.
const QUEUE_PAIRS: [usize; 3] = [1, 1_000, 100_000];
/// Payload of packets: the paper's MTU, and the largest of RDMA.
const MTUS_BYTES: [usize; 2] = [1024, 4096];
const BLOCK_PACKETS: u16 = 32;
/// The packet that is lost: those behind it wait.
const LOST: usize = 29;
/// Queue pairs that the paper's table of states is for (V).
const PAPER_QUEUE_PAIRS: f64 = 512.0;
/// The paper's table I in megabytes: states, encoding, decoding, and reordering buffer.
const PAPER_MB: [f64; 4] = [0.3, 1.1, 1.1, 2.4];

const QPN: u32 = 0x1234;

/// The memory of a host after its run.
#[derive(Debug, Clone, Copy, PartialEq)]
struct Measured {
    queue_pairs: usize,
    mtu_bytes: usize,
    memory: Memory,
    recovered: u64,
}

impl Measured {
    fn state_bytes_each(&self) -> f64 {
        self.memory.state_bytes as f64 / self.queue_pairs as f64
    }

    /// The rows of the table: what was allocated, and the most.
    fn parts(&self) -> [(&'static str, (usize, usize)); 4] {
        let Memory { state_bytes, encode_bytes, decode_bytes, ring_bytes } = self.memory;
        [
            ("state of connections", (state_bytes, state_bytes)),
            ("units of encoders", encode_bytes),
            ("units of decoders", decode_bytes),
            ("ring", ring_bytes),
        ]
    }
}

/// Takes what comes up, and places nothing ahead: so packets wait in the ring, as in the paper.
struct Sink;

impl Upper for Sink {
    fn take(&mut self, _: &[u8], _: How) {}
}

/// The packets of one message.
fn message(mtu_bytes: usize) -> Vec<Vec<u8>> {
    let packet = |place: u16| {
        let opcode = match place {
            0 => Opcode::SendFirst,
            _ if place + 1 == BLOCK_PACKETS => Opcode::SendLast,
            _ => Opcode::SendMiddle,
        };
        let header = RcHeader {
            opcode,
            destination: Qpn::from_bits(QPN),
            psn: place.into(),
            asks_ack: false,
            is_solicited: false,
            fields: Fields::None,
        };
        let mut packet = vec![place as u8; header.packet_bytes(mtu_bytes)];
        header.emit(mtu_bytes, &mut packet);
        packet
    };
    (0..BLOCK_PACKETS).map(packet).collect()
}

/// Does the run; `None` once `stop` is true.
fn measure(queue_pairs: usize, mtu_bytes: usize, stop: &dyn Fn() -> bool) -> Option<Measured> {
    let config = SharedConfig { payload_bytes_max: mtu_bytes, ..SharedConfig::default() };
    let mut shared = Shared::new(config);
    let strength = Strength { block_packets: BLOCK_PACKETS, repairs: 1, code: CodeKind::Xor };
    let config = ShimConfig { strength: Some(strength), ..ShimConfig::new(Qpn::from_bits(QPN)) };
    let mut shims: Vec<_> = (0..queue_pairs)
        .map(|_| Shim::new(config).expect("a strength that a shim can have"))
        .collect();
    let packets = message(mtu_bytes);
    let mut leaving: Vec<Vec<u8>> = Vec::new();
    for shims in shims.chunks_mut(UNITS_DEFAULT) {
        if stop() {
            return None;
        }
        for (place, packet) in packets.iter().enumerate() {
            for shim in &mut *shims {
                leaving.clear();
                shim.on_send(&mut shared, packet, &mut |kind, bytes| {
                    if !(kind == Leaving::Data && place == LOST) {
                        leaving.push(bytes.to_vec());
                    }
                });
                for bytes in &leaving {
                    shim.on_receive(1, &mut shared, bytes, &mut Sink);
                }
            }
        }
    }
    let recovered = shims.iter().map(|shim| shim.counters().received.packets_recovered).sum();
    Some(Measured { queue_pairs, mtu_bytes, memory: Memory::of(&shared, &shims), recovered })
}

fn mb(bytes: usize) -> f64 {
    bytes as f64 / 1e6
}

/// Megabytes for people: enough digits for one queue pair.
fn show_mb(bytes: usize) -> String {
    match mb(bytes) {
        few if few < 0.1 => format!("{few:.4}"),
        more => format!("{more:.2}"),
    }
}

pub(super) fn table_1(lab: &Lab<'_>) -> Result<Outcome, Stopped> {
    let hosts = || MTUS_BYTES.into_iter().flat_map(|mtu| QUEUE_PAIRS.map(|count| (count, mtu)));
    let all = hosts().count();
    (lab.progress)(0, all);
    let mut measured = Vec::new();
    for (queue_pairs, mtu_bytes) in hosts() {
        measured.push(measure(queue_pairs, mtu_bytes, lab.stop).ok_or(Stopped)?);
        (lab.progress)(measured.len(), all);
    }
    Ok(outcome(&measured))
}

fn outcome(measured: &[Measured]) -> Outcome {
    let mut csv = Csv::new("part,mtu_bytes,queue_pairs,allocated_mb,most_mb,paper_mb");
    for host in measured {
        for ((part, (allocated, most)), paper) in host.parts().into_iter().zip(PAPER_MB) {
            let place = [host.mtu_bytes as f64, host.queue_pairs as f64];
            csv.row(&[part], &[place[0], place[1], mb(allocated), mb(most), paper]);
        }
    }
    let item = Item::Table(1);
    Outcome {
        paper: NAME,
        item,
        live: false,
        title: title(item),
        workload: format!(
            "{UNITS_DEFAULT} units each way, a ring of {RING_PACKETS_DEFAULT} packets; a message of {BLOCK_PACKETS} packets on each queue pair, LoWAR(32,1), one of them lost, {UNITS_DEFAULT} queue pairs at a time"
        ),
        statements: statements(measured),
        charts: MTUS_BYTES.map(|mtu_bytes| chart(measured, mtu_bytes)).into(),
        rows: Some(rows(measured)),
        remarks: Vec::new(),
        csv,
    }
}

/// The table: a row for each part, a column for each number of queue pairs; then what one takes of the state.
fn rows(measured: &[Measured]) -> Rows {
    let count = |host: &Measured| match host.queue_pairs {
        1 => "1 queue pair".to_owned(),
        many => format!("{many}"),
    };
    let mut header = vec!["MB".to_owned(), "MTU".to_owned(), "paper".to_owned()];
    header.extend(measured.iter().take(QUEUE_PAIRS.len()).map(count));
    header.push("at most".to_owned());
    let mut rows = Vec::new();
    for hosts in measured.chunks(QUEUE_PAIRS.len()) {
        let mtu = hosts[0].mtu_bytes.to_string();
        for (index, paper) in PAPER_MB.into_iter().enumerate() {
            let parts: Vec<_> = hosts.iter().map(|host| host.parts()[index]).collect();
            let most = parts.last().map_or(0, |(_, (_, most))| *most);
            // The paper's numbers are of its own MTU.
            let paper =
                if hosts[0].mtu_bytes == MTUS_BYTES[0] { paper.to_string() } else { String::new() };
            let mut row = vec![parts[0].0.to_owned(), mtu.clone(), paper];
            row.extend(parts.iter().map(|(_, (allocated, _))| show_mb(*allocated)));
            row.push(if index == 0 { "no limit".to_owned() } else { show_mb(most) });
            rows.push(row);
        }
    }
    Rows { header, rows }
}

fn statements(measured: &[Measured]) -> Vec<Statement> {
    let Some(most) = measured.iter().rfind(|host| host.mtu_bytes == MTUS_BYTES[0]) else {
        return Vec::new();
    };
    let like = |mine: f64, theirs: f64| match (mine / theirs - 1.0).abs() {
        off if off < 0.1 => Verdict::Holds,
        _ if mine < theirs => Verdict::Exceeded,
        _ => Verdict::Differs,
    };
    let [_, encode, decode, ring] = most.parts().map(|(_, (_, most))| mb(most));
    let each_bytes = most.state_bytes_each();
    let paper_each_bytes = PAPER_MB[0] * 1e6 / PAPER_QUEUE_PAIRS;
    let shared_mb = encode + decode + ring;
    let state_mb = mb(most.memory.state_bytes);
    vec![
        Statement {
            section: "V, table I",
            paper: "1024 coding units take 1.1 MB each for encoders and decoders".to_owned(),
            ours: format!("{encode:.2} and {decode:.2} MB at MTU 1024"),
            verdict: like(encode.max(decode), PAPER_MB[1]),
            why: None,
        },
        Statement {
            section: "V, table I",
            paper: "a ring of 2048 packets takes 2.4 MB".to_owned(),
            ours: format!("{ring:.2} MB at MTU 1024"),
            verdict: like(ring, PAPER_MB[3]),
            why: None,
        },
        Statement {
            section: "V, table I",
            paper: format!(
                "state of 512 queue pairs takes 0.3 MB, {paper_each_bytes:.0} bytes each"
            ),
            ours: format!("{each_bytes:.0} bytes each, both directions"),
            verdict: like(each_bytes, paper_each_bytes),
            why: (each_bytes > paper_each_bytes).then(|| {
                "counters and lists of a program, where the card has fixed bit fields".to_owned()
            }),
        },
        Statement {
            section: "V",
            paper: "with more memory, LoWAR scales to more connections".to_owned(),
            ours: format!(
                "{} queue pairs: {state_mb:.0} MB of state; units and ring stay {shared_mb:.1} MB, and recovered {} packets",
                most.queue_pairs, most.recovered
            ),
            verdict: match most.recovered == most.queue_pairs as u64 {
                true => Verdict::Holds,
                false => Verdict::Differs,
            },
            why: None,
        },
    ]
}

fn chart(measured: &[Measured], mtu_bytes: usize) -> Chart {
    let hosts: Vec<_> = measured.iter().filter(|host| host.mtu_bytes == mtu_bytes).collect();
    let line = |index: usize| {
        let part = |host: &&Measured| host.parts()[index];
        let name = hosts.first().map_or("", |host| part(host).0);
        let point =
            |host: &&Measured| (host.queue_pairs as f64, mb(part(host).1.0).max(f64::MIN_POSITIVE));
        Series::new(name, hosts.iter().map(point).collect())
    };
    Chart {
        title: format!("MTU {mtu_bytes}"),
        x: Axis::log("queue pairs", decimal),
        y: Axis::log("MB allocated", decimal),
        series: (0..PAPER_MB.len()).map(line).collect(),
        marks: Vec::new(),
    }
}

/// A power of ten, written out.
fn decimal(value: f64) -> String {
    let digits = (-value.log10()).round().max(0.0) as usize;
    format!("{value:.digits$}")
}

#[cfg(test)]
mod tests {
    use super::*;

    fn host(queue_pairs: usize, mtu_bytes: usize) -> Measured {
        measure(queue_pairs, mtu_bytes, &|| false).expect("nothing stops it")
    }

    #[test]
    fn pools_are_the_papers_and_do_not_grow_with_queue_pairs() {
        let (few, many) = (host(1, 1024), host(1_500, 1024));
        for (part, paper) in
            [(many.parts()[1], 1.1), (many.parts()[2], 1.1), (many.parts()[3], 2.4)]
        {
            let (name, (allocated, most)) = part;
            assert!(allocated <= most, "{name}");
            assert!((mb(most) / paper - 1.0).abs() < 0.1, "{name}: {} of {paper} MB", mb(most));
        }
        let [_, encode, decode, _] = many.parts().map(|(_, bytes)| bytes);
        assert_eq!((encode.0, decode.0), (encode.1, decode.1), "all units were used");
        let [_, encode, ..] = few.parts().map(|(_, bytes)| bytes);
        assert_eq!(encode.0 * UNITS_DEFAULT, encode.1, "one queue pair has one unit");
        assert!(few.state_bytes_each() < 4_096.0, "{}", few.state_bytes_each());
    }

    #[test]
    fn each_queue_pair_recovers_its_packet() {
        assert_eq!(host(1_100, 1024).recovered, 1_100);
        assert_eq!(host(1, 4096).recovered, 1);
    }

    #[test]
    fn the_table_has_a_row_for_each_part_and_mtu() {
        let measured: Vec<_> =
            MTUS_BYTES.iter().flat_map(|mtu| [1, 2, 3].map(|count| host(count, *mtu))).collect();
        let Outcome { rows, csv: _, statements, charts, .. } = outcome(&measured);
        let rows = rows.expect("a table has rows");
        assert_eq!((rows.rows.len(), rows.header.len()), (8, 7));
        assert!(rows.rows.iter().all(|row| row.len() == rows.header.len()));
        assert_eq!(rows.rows[3][..3], ["ring", "1024", "2.4"]);
        assert_eq!((statements.len(), charts.len()), (4, 2));
    }

    #[test]
    fn powers_of_ten_are_written_out() {
        // As they come back from the logarithm of an axis.
        let label = |power: f64| decimal((power * 10f64.log2()).exp2());
        assert_eq!([-3.0, -1.0, 0.0, 5.0].map(label), ["0.001", "0.1", "1", "100000"]);
    }

    #[test]
    fn a_run_that_is_told_to_stop_ends() {
        assert_eq!(measure(1, 1024, &|| true), None);
    }
}
