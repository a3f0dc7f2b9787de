//! Two local networks with hosts that have queue pairs, a gateway at each or none, and a long path with
//! faults between them, in virtual time.
#![allow(dead_code, reason = "each test binary uses its part")]

#[path = "../../../lacuna-rc/tests/common/mod.rs"]
pub(crate) mod hosts;

use hosts::{End, START_NS, config};
use lacuna_gateway::{Config, Gateway, Layout};
use lacuna_link::{InFlight, Pipe, PipeConfig, Schedule};
use lacuna_rc::{Peer, RcConfig, ShimSettings};
use lacuna_wire::rc::{REPAIR_OPCODE, rc_destination};
use lacuna_wire::{icrc_ipv4, icrc_ipv6};

/// How frames of the test look.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Look {
    V4,
    V4Tagged,
    V6,
}

/// The frame of a packet from one side to the other.
pub(crate) fn frame_of(look: Look, from: usize, packet: &[u8], identification: u16) -> Vec<u8> {
    let mut frame = vec![2, 0, 0, 0, 0, 2 - from as u8, 2, 0, 0, 0, 0, 1 + from as u8];
    if look == Look::V4Tagged {
        frame.extend([0x81, 0x00, 0x60, 0x05]);
    }
    let udp_bytes = (8 + packet.len() + 4) as u16;
    let [l1, l0] = udp_bytes.to_be_bytes();
    let udp = [0xc0, 0x12 + from as u8, 0x12, 0xb7, l1, l0, 0, 0];
    let icrc = if look == Look::V6 {
        frame.extend([0x86, 0xdd]);
        let mut ip = [0; 40];
        ip[..8].copy_from_slice(&[0x6a, 0x81, 0x23, 0x45, l1, l0, 17, 61]);
        (ip[8], ip[23], ip[24], ip[39]) = (0xfd, 1 + from as u8, 0xfd, 2 - from as u8);
        frame.extend(ip);
        icrc_ipv6(&ip, &udp, &[packet])
    } else {
        frame.extend([0x08, 0x00]);
        let [t1, t0] = (20 + udp_bytes).to_be_bytes();
        let [i1, i0] = identification.to_be_bytes();
        let mut ip = [
            0x45,
            0x6a,
            t1,
            t0,
            i1,
            i0,
            0x40,
            0,
            61,
            17,
            0,
            0,
            10,
            0,
            0,
            1 + from as u8,
            10,
            0,
            0,
            2 - from as u8,
        ];
        let words = ip.chunks(2).map(|word| u32::from(u16::from_be_bytes([word[0], word[1]])));
        let sum = words.sum::<u32>();
        let sum = (sum >> 16) + (sum & 0xffff);
        ip[10..12].copy_from_slice(&(!(sum as u16)).to_be_bytes());
        frame.extend(ip);
        icrc_ipv4(&ip, &udp, &[packet])
    };
    frame.extend(udp);
    frame.extend(packet);
    frame.extend(icrc);
    frame
}

/// Checks everything that a card checks, and gives the packet.
pub(crate) fn packet_of(frame: &[u8]) -> Vec<u8> {
    let layout = Layout::of(frame).expect("a frame that a card takes");
    assert!(layout.is_intact(frame), "a wrong ICRC");
    let ip = &frame[layout.ip..];
    if ip[0] == 0x45 {
        let words = ip[..20].chunks(2).map(|w| u32::from(u16::from_be_bytes([w[0], w[1]])));
        let sum = words.sum::<u32>();
        assert_eq!((sum >> 16) + (sum & 0xffff), 0xffff, "a wrong header checksum");
    }
    layout.packet(frame).to_vec()
}

/// A pair of queue pairs, one at each side.
pub(crate) struct Connection {
    pub(crate) ends: [End; 2],
}

/// Everything.
pub(crate) struct World {
    pub(crate) now_ns: u64,
    pub(crate) look: Look,
    pub(crate) connections: Vec<Connection>,
    pub(crate) gateways: [Option<Gateway>; 2],
    pipes: [Pipe; 2],
    schedule: Schedule<usize>,
    identification: u16,
    /// Repairs that reached a host.
    pub(crate) repairs_at_hosts: u64,
    /// Frames that went over the path.
    pub(crate) path_frames: u64,
}

impl World {
    pub(crate) fn new(count: u32, gateways: [Option<Config>; 2], pipe: &PipeConfig) -> Self {
        let connections = (0..count).map(|index| {
            let mut configs = [config(3 + 2 * index, 1024), config(4 + 2 * index, 1024)];
            // Far from each other, as cards choose them, and some near the end.
            configs.iter_mut().for_each(|config| {
                config.first_psn = 0xff_fff8 - 60_000 * config.number.queue_pair() % 0xff_0000;
            });
            let describe = |config: &RcConfig| Peer {
                number: config.number,
                first_psn: config.first_psn,
                answers_max: config.answers_max,
            };
            let peers = [describe(&configs[1]), describe(&configs[0])];
            let ends =
                [0, 1].map(|at| End::new(&configs[at], ShimSettings::Off, peers[at], 1 << 16));
            Connection { ends }
        });
        Self {
            now_ns: START_NS,
            look: Look::V4,
            connections: connections.collect(),
            gateways: gateways.map(|config| config.map(|config| Gateway::new(config).unwrap())),
            pipes: [Pipe::new(pipe.clone(), 1, 0), Pipe::new(pipe.clone(), 1, 100)],
            schedule: Schedule::default(),
            identification: 0,
            repairs_at_hosts: 0,
            path_frames: 0,
        }
    }

    /// The path is another one from now on; what is under way arrives.
    pub(crate) fn set_path(&mut self, pipe: &PipeConfig) {
        self.pipes = [Pipe::new(pipe.clone(), 2, 0), Pipe::new(pipe.clone(), 2, 100)];
    }

    fn carry(&mut self, from: usize, frame: &[u8]) {
        self.path_frames += 1;
        let pipe = &mut self.pipes[from];
        let faults = pipe.draw(frame.len() as u64);
        if faults.is_lost {
            return;
        }
        let Some(passed) = pipe.pass(self.now_ns, frame.len() as u64, &faults) else { return };
        for _ in 0..1 + usize::from(faults.is_duplicated) {
            self.schedule
                .insert(passed.release_ns, 1 - from, |bytes| bytes.extend_from_slice(frame));
        }
    }

    fn deliver(&mut self, at: usize, frame: &[u8]) {
        let packet = packet_of(frame);
        if packet[0] == REPAIR_OPCODE {
            self.repairs_at_hosts += 1;
            return;
        }
        let number = rc_destination(&packet);
        let found = self.connections.iter_mut().map(|connection| &mut connection.ends[at]);
        let end = found.into_iter().find(|end| Some(end.qp.config().number) == number);
        end.expect("a packet for a queue pair of this side").take(self.now_ns, &packet);
    }

    fn run_now(&mut self) {
        let now_ns = self.now_ns;
        let mut arrived: Vec<(usize, Vec<u8>)> = Vec::new();
        while let Some(index) = self.schedule.pop_due(now_ns) {
            let InFlight { tag, bytes } = self.schedule.packet(index);
            let at = *tag;
            match &mut self.gateways[at] {
                Some(gateway) => {
                    gateway
                        .on_remote(now_ns, bytes, &mut |frame| arrived.push((at, frame.to_vec())));
                }
                None => arrived.push((at, bytes.clone())),
            }
            self.schedule.remove(index);
        }
        for at in 0..2 {
            if let Some(gateway) = &mut self.gateways[at] {
                gateway.on_timeout(now_ns, &mut |frame| arrived.push((at, frame.to_vec())));
            }
        }
        arrived.iter().for_each(|(at, frame)| self.deliver(*at, frame));
        let mut leaving: Vec<(usize, Vec<u8>)> = Vec::new();
        for connection in &mut self.connections {
            for (at, end) in connection.ends.iter_mut().enumerate() {
                end.settle(now_ns);
                end.on_timeout(now_ns);
                end.settle(now_ns);
                let mut packets = Vec::new();
                while end.poll(now_ns, &mut packets) {
                    leaving.extend(packets.drain(..).map(|packet| (at, packet)));
                    end.settle(now_ns);
                }
            }
        }
        for (at, packet) in leaving {
            self.identification = self.identification.wrapping_add(7);
            let frame = frame_of(self.look, at, &packet, self.identification);
            let mut frames = Vec::new();
            match &mut self.gateways[at] {
                Some(gateway) => {
                    gateway.on_local(now_ns, &frame, &mut |frame| frames.push(frame.to_vec()));
                }
                None => frames.push(frame),
            }
            frames.iter().for_each(|frame| self.carry(at, frame));
        }
    }

    /// Runs until `is_done`; panics if that takes more than ten minutes.
    pub(crate) fn run_until(&mut self, mut is_done: impl FnMut(&mut Self) -> bool) {
        let end_ns = self.now_ns + 600_000_000_000;
        let mut stuck = 0;
        loop {
            self.run_now();
            if is_done(self) {
                return;
            }
            let ends = self.connections.iter().flat_map(|c| &c.ends).filter_map(End::poll_timeout);
            let gateways = self.gateways.iter().flatten().filter_map(Gateway::poll_timeout);
            let next_ns = ends.chain(gateways).chain(self.schedule.next_ns()).min();
            let next_ns = next_ns.expect("something is to be done");
            stuck = if next_ns <= self.now_ns { stuck + 1 } else { 0 };
            assert!(stuck < 1000, "something is due for ever");
            self.now_ns = self.now_ns.max(next_ns);
            assert!(self.now_ns < end_ns, "more than ten minutes");
        }
    }

    /// Packets that hosts sent again.
    pub(crate) fn retransmitted(&self) -> u64 {
        let ends = self.connections.iter().flat_map(|connection| &connection.ends);
        ends.map(|end| end.qp.stats().retransmitted_packets).sum()
    }
}
