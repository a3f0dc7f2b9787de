//! A go-back-N connection over two shims and a lossy path, in virtual time.
//!
//! The sender sends messages without a pause at the path's rate, up to a window of two round trips. The
//! receiver takes packets in order and says once per gap that something is missing; the sender then goes
//! back. A timeout does so, too. What goes back to the sender is lost by the same chances.
//!
//! Packets have short payloads, so that a run takes no time to copy, and take the time of long ones on the
//! link.

use lacuna_link::{Loss, LossProcess, Prng};
use lacuna_lowar::{
    AutoConfig, DecoderConfig, How, Leaving, Shared, SharedConfig, Shim, ShimConfig, Upper,
};
use lacuna_wire::Qpn;
use lacuna_wire::rc::{Fields, Opcode, RcHeader, RepairHeader, Strength};
use std::collections::VecDeque;

const PAYLOAD_BYTES: usize = 16;
/// What the payload is taken for, and the headers and trailers of IP, UDP and RoCE that are not here.
const MTU_BYTES: u64 = 1024;
const MORE_BYTES: u64 = MTU_BYTES - PAYLOAD_BYTES as u64 + 4 + 28;
const QPN: u32 = 0x12;
/// Packets for which one acknowledgement is sent.
const ACK_PACKETS: u64 = 32;

/// The path and the connection.
#[derive(Clone, Debug)]
pub(crate) struct Setup {
    pub(crate) rate_bits_per_s: u64,
    pub(crate) rtt_ns: u64,
    pub(crate) message_packets: u64,
    pub(crate) seed: u64,
    /// How the packets are protected.
    pub(crate) protection: Protection,
    /// Most repairs for a hundred packets that the sender grants.
    pub(crate) granted_percent: u16,
}

#[derive(Clone, Copy, PartialEq, Debug)]
pub(crate) enum Protection {
    Off,
    Fixed(Strength),
    Auto,
}

impl Setup {
    /// One gigabit per second and 40 ms, messages of 1 MiB.
    pub(crate) fn long_path(seed: u64, protection: Protection) -> Self {
        Self {
            rate_bits_per_s: 1_000_000_000,
            rtt_ns: 40_000_000,
            message_packets: 1024,
            seed,
            protection,
            granted_percent: 100,
        }
    }

    pub(crate) fn packet_ns(&self) -> f64 {
        let bytes = 12 + PAYLOAD_BYTES as u64 + MORE_BYTES;
        bytes as f64 * 8e9 / self.rate_bits_per_s as f64
    }
}

/// A packet on the link.
struct Flying {
    at_ns: u64,
    bytes: [u8; 64],
    len: u8,
}

/// What goes to the sender.
enum Answer {
    Acknowledged(u64),
    GoBack(u64),
    Repair([u8; 16]),
}

/// The receiver of the connection.
#[derive(Default)]
struct Receiver {
    expected: u64,
    is_silent: bool,
    acknowledged: u64,
    message_packets: u64,
    answers: Vec<Answer>,
}

impl Upper for Receiver {
    fn take(&mut self, packet: &[u8], _: How) {
        let psn = u32::from_be_bytes([0, packet[9], packet[10], packet[11]]);
        let number = lacuna_wire::psn::unwrap(psn, self.expected);
        let payload = &packet[12..28];
        assert_eq!(payload, payload_of(number), "packet {number}");
        if number == self.expected {
            self.expected += 1;
            self.is_silent = false;
            let is_end = self.expected.is_multiple_of(self.message_packets);
            if is_end || self.expected >= self.acknowledged + ACK_PACKETS {
                self.acknowledged = self.expected;
                self.answers.push(Answer::Acknowledged(self.expected));
            }
        } else if number > self.expected && !std::mem::replace(&mut self.is_silent, true) {
            self.answers.push(Answer::GoBack(self.expected));
        } else if number < self.expected {
            // A duplicate: the sender may have missed an acknowledgement.
            let is_end = (number + 1).is_multiple_of(self.message_packets);
            if is_end || self.expected > self.acknowledged || number.is_multiple_of(ACK_PACKETS) {
                self.acknowledged = self.expected;
                self.answers.push(Answer::Acknowledged(self.expected));
            }
        }
    }
}

fn payload_of(number: u64) -> [u8; PAYLOAD_BYTES] {
    let mut payload = [0; PAYLOAD_BYTES];
    payload[..8].copy_from_slice(&number.wrapping_mul(0x9e37_79b9_7f4a_7c15).to_le_bytes());
    payload[8..].copy_from_slice(&number.to_le_bytes());
    payload
}

/// See the module's text.
pub(crate) struct World {
    setup: Setup,
    pub(crate) now_ns: u64,
    sender: Shim,
    receiver: Shim,
    shared: Shared,
    up: Receiver,
    forth: VecDeque<Flying>,
    back: VecDeque<(u64, Answer)>,
    losses: [LossProcess; 2],
    /// When the link is free.
    free_ns: f64,
    next: u64,
    acknowledged: u64,
    /// Nothing from this number on is sent.
    limit: u64,
    due_ns: Option<u64>,
    /// Packets that left, by what they are.
    pub(crate) packets: u64,
    pub(crate) repairs: u64,
    pub(crate) go_backs: u64,
}

impl World {
    pub(crate) fn new(setup: Setup) -> Self {
        let hold_ns_max = setup.rtt_ns / 4;
        let decoder = DecoderConfig { hold_ns_max, ..DecoderConfig::new(Qpn::from_bits(QPN)) };
        let config = ShimConfig { decoder, ..ShimConfig::new(Qpn::from_bits(QPN)) };
        let strength = match setup.protection {
            Protection::Fixed(strength) => Some(strength),
            _ => None,
        };
        let requests_percent_max = setup.granted_percent;
        let sender = Shim::new(ShimConfig { strength, requests_percent_max, ..config }).unwrap();
        let auto = (setup.protection == Protection::Auto).then(AutoConfig::default);
        let receiver = Shim::new(ShimConfig { auto, ..config }).unwrap();
        let shared = SharedConfig { payload_bytes_max: PAYLOAD_BYTES, ..SharedConfig::default() };
        let losses = [0, 1].map(|way| LossProcess::new(Loss::None, Prng::new(setup.seed, way)));
        let message_packets = setup.message_packets;
        Self {
            setup,
            now_ns: 0,
            sender,
            receiver,
            shared: Shared::new(shared),
            up: Receiver { message_packets, ..Receiver::default() },
            forth: VecDeque::new(),
            back: VecDeque::new(),
            losses,
            free_ns: 0.0,
            next: 0,
            acknowledged: 0,
            limit: u64::MAX,
            due_ns: None,
            packets: 0,
            repairs: 0,
            go_backs: 0,
        }
    }

    /// The path loses so from now on.
    pub(crate) fn set_loss(&mut self, loss: &Loss) {
        self.losses.iter_mut().for_each(|process| process.change(loss.clone()));
    }

    /// Packets that the connection's receiver has taken in order.
    pub(crate) fn received(&self) -> u64 {
        self.up.expected
    }

    pub(crate) fn receiver(&self) -> &Shim {
        &self.receiver
    }

    /// Sends messages one by one; returns how long each took.
    pub(crate) fn messages(&mut self, count: usize) -> Vec<u64> {
        (0..count)
            .map(|_| {
                let begin_ns = self.now_ns;
                self.limit = self.acknowledged + self.setup.message_packets;
                self.run(u64::MAX, |world| world.acknowledged == world.limit);
                self.due_ns = None;
                let took_ns = self.now_ns - begin_ns;
                // The link goes on meanwhile, and forgets.
                self.losses.iter_mut().for_each(LossProcess::end_burst);
                took_ns
            })
            .collect()
    }

    /// Runs until a time.
    pub(crate) fn run_to(&mut self, end_ns: u64) {
        self.run(end_ns, |_| false);
    }

    fn run(&mut self, end_ns: u64, is_over: impl Fn(&Self) -> bool) {
        while !is_over(self) {
            let window = (2.0 * self.setup.rtt_ns as f64 / self.setup.packet_ns()) as u64;
            let may_send = self.next < self.limit.min(self.acknowledged + window);
            let times = [
                may_send.then_some(self.free_ns as u64),
                self.forth.front().map(|flying| flying.at_ns),
                self.back.front().map(|(at_ns, _)| *at_ns),
                self.receiver.poll_timeout(),
                self.due_ns,
            ];
            let now_ns = times.into_iter().flatten().min().unwrap_or(end_ns).max(self.now_ns);
            if now_ns >= end_ns {
                self.now_ns = end_ns;
                return;
            }
            self.now_ns = now_ns;
            while self.back.front().is_some_and(|(at_ns, _)| *at_ns <= now_ns) {
                let (_, answer) = self.back.pop_front().unwrap();
                self.on_answer(answer);
            }
            if self.due_ns.is_some_and(|due_ns| due_ns <= now_ns) {
                self.go_back(self.acknowledged);
            }
            if self.next < self.limit.min(self.acknowledged + window)
                && self.free_ns as u64 <= now_ns
            {
                self.send();
            }
            if self.receiver.poll_timeout().is_some_and(|at_ns| at_ns <= now_ns) {
                self.receiver.on_timeout(now_ns, &mut self.shared, &mut self.up);
                self.answer();
            }
            while self.forth.front().is_some_and(|flying| flying.at_ns <= now_ns) {
                let flying = self.forth.pop_front().unwrap();
                let bytes = &flying.bytes[..usize::from(flying.len)];
                self.receiver.on_receive(now_ns, &mut self.shared, bytes, &mut self.up);
                self.answer();
            }
        }
    }

    fn answer(&mut self) {
        let request =
            self.receiver.poll_request(self.now_ns, self.setup.rtt_ns, Qpn::from_bits(0x34));
        self.up.answers.extend(request.map(Answer::Repair));
        for answer in self.up.answers.drain(..) {
            if !self.losses[1].loses() {
                self.back.push_back((self.now_ns + self.setup.rtt_ns / 2, answer));
            }
        }
    }

    fn send(&mut self) {
        let number = self.next;
        self.next += 1;
        let place = number % self.setup.message_packets;
        let is_last = place + 1 == self.setup.message_packets;
        let opcode = match (place == 0, is_last) {
            (true, true) => Opcode::SendOnly,
            (true, false) => Opcode::SendFirst,
            (false, true) => Opcode::SendLast,
            (false, false) => Opcode::SendMiddle,
        };
        let header = RcHeader {
            opcode,
            destination: Qpn::from_bits(QPN),
            psn: lacuna_wire::psn::wrap(number),
            asks_ack: is_last,
            is_solicited: false,
            fields: Fields::None,
        };
        let mut packet = [0; 12 + PAYLOAD_BYTES];
        header.emit(PAYLOAD_BYTES, &mut packet);
        packet[12..].copy_from_slice(&payload_of(number));
        self.free_ns = self.free_ns.max(self.now_ns as f64);
        let Self { setup, forth, losses, free_ns, packets, repairs, .. } = self;
        self.sender.on_send(&mut self.shared, &packet, &mut |leaving, bytes| {
            let wire_bytes = match leaving {
                Leaving::Announcement => bytes.len() as u64 + 32,
                _ => bytes.len() as u64 + MORE_BYTES,
            };
            *free_ns += wire_bytes as f64 * 8e9 / setup.rate_bits_per_s as f64;
            *packets += 1;
            *repairs += u64::from(leaving == Leaving::Repair);
            if losses[0].loses() {
                return;
            }
            let mut flying = Flying {
                at_ns: *free_ns as u64 + setup.rtt_ns / 2,
                bytes: [0; 64],
                len: bytes.len() as u8,
            };
            flying.bytes[..bytes.len()].copy_from_slice(bytes);
            forth.push_back(flying);
        });
        self.due_ns.get_or_insert(self.now_ns + self.timeout_ns());
    }

    fn timeout_ns(&self) -> u64 {
        self.setup.rtt_ns + (self.setup.rtt_ns / 4).max(10_000_000)
    }

    fn on_answer(&mut self, answer: Answer) {
        match answer {
            Answer::Acknowledged(number) => self.on_come(number),
            Answer::GoBack(number) => {
                if number >= self.acknowledged {
                    self.on_come(number);
                    self.go_back(number);
                }
            }
            Answer::Repair(header) => {
                assert!(RepairHeader::parse(&header, 0).is_ok());
                let mut up = Receiver::default();
                self.sender.on_receive(self.now_ns, &mut self.shared, &header, &mut up);
            }
        }
    }

    fn on_come(&mut self, number: u64) {
        if number > self.acknowledged {
            self.acknowledged = number;
            self.next = self.next.max(number);
            let is_open = self.acknowledged < self.next;
            self.due_ns = is_open.then_some(self.now_ns + self.timeout_ns());
        }
    }

    fn go_back(&mut self, number: u64) {
        self.go_backs += 1;
        self.next = number;
        self.due_ns = None;
    }
}
