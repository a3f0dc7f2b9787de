//! What must hold for any bytes whatever, from a client, a server or somebody else. The fuzz target
//! calls this, the corpus test replays it over every input that was ever kept.
//!
//! The first byte chooses. `P`: the rest is a packet. Anything else: the rest is a list of
//! [operations](exchange) for a client, a server, and those who write to either of them.

use lacuna_probe::client::filler;
use lacuna_probe::wire::{CONTROL_BYTES, Message, TRAILER_BYTES, VERSION};
use lacuna_probe::{Client, ClientConfig, Server, ServerConfig, Summary};
use std::net::SocketAddr;

/// Headers of IPv4 and UDP.
const OVERHEAD_BYTES: u32 = 28;
const RATE_BITS_PER_S: u64 = 10_000_000;
/// What may go at once: 1 ms worth, or a packet.
const BURST_BYTES: u64 = RATE_BITS_PER_S / 8000 + 1472 + OVERHEAD_BYTES as u64;
const CLIENTS_MAX: usize = 2;
const NONCE: u64 = 77;

pub(crate) fn probe(bytes: &[u8]) {
    match bytes.split_first() {
        Some((b'P', packet)) => {
            parsed(packet);
            parsed(&sealed(packet));
        }
        Some((_, operations)) => exchange(operations),
        None => {}
    }
}

/// Whatever is accepted can be written again and read as the same.
fn parsed(packet: &[u8]) {
    match Message::parse(packet) {
        Ok((key, message)) => {
            let again = match message {
                // As long as it says, and it says how long it is.
                Message::Probe { .. } => message.packet(key, 0, filler()).bytes(filler()),
                _ => message.answer(key),
            };
            assert!(again.len() <= packet.len().max(CONTROL_BYTES));
            assert_eq!(Message::parse(&again), Ok((key, message)));
        }
        Err(error) => assert!(!error.to_string().is_empty()),
    }
}

/// With the trailer that fuzzing would never guess.
fn sealed(bytes: &[u8]) -> Vec<u8> {
    let mut packet = bytes.to_vec();
    packet.extend_from_slice(&lacuna_wire::crc32c(&[bytes]));
    packet
}

struct World {
    now_ns: u64,
    client: Client,
    server: Server,
    /// What the client wrote into its last packet.
    key: u64,
    /// Sent by the client, with headers.
    sent_bytes: u64,
    /// Addresses that were accepted.
    proved: Vec<SocketAddr>,
}

/// One operation is a byte for what, a byte for how, and for some of them as many bytes as that
/// says:
///
/// | | |
/// |---|---|
/// | 0 | so many milliseconds pass, in each of which the client sends what it may and is answered |
/// | 1 | the same, but every `how % 16 + 1`-th packet of either is lost, for 50 ms |
/// | 2, 3 | a packet with these bytes comes to the server, from the client's host or another |
/// | 4, 5 | the same, after magic, version and the client's key: kind, flags, trial, body |
/// | 6 | such a packet comes to the client |
/// | 7 | these bytes come to the client |
/// | 8 | the client is to stop |
/// | 9 | so many seconds pass at once |
/// | 10 | a packet of so many times 8 bytes is too large for the first hop |
/// | 11 | a packet of one of the lanes is refused by the client's host, or taken if `how` is odd |
fn exchange(mut operations: &[u8]) {
    let config = ClientConfig {
        nonce: NONCE,
        seed: 5,
        rate_bits_per_s: RATE_BITS_PER_S,
        overhead_bytes: OVERHEAD_BYTES,
        flows: 3,
        payloads_bytes: vec![100, 1400],
        trials: 2,
        duration_ns: 40_000_000,
        largest_bytes: 1472,
        fragments: false,
    };
    let server = ServerConfig {
        key: [9; 32],
        clients_max: CLIENTS_MAX,
        session_ns_max: 100_000_000_000,
        silence_ns_max: 10_000_000_000,
    };
    let mut world = World {
        now_ns: 0,
        client: Client::new(config, 0).expect("it can be measured"),
        server: Server::new(server),
        key: NONCE,
        sent_bytes: 0,
        proved: Vec::new(),
    };
    while let Some(([what, how], rest)) = operations.split_first_chunk() {
        let has_body = matches!(what, 2..=7);
        let (body, rest) = rest.split_at(if has_body { rest.len().min((*how).into()) } else { 0 });
        operations = rest;
        world.operate(*what, *how, body);
    }
    // What came of it can be summed up.
    let summary = Summary::new(world.client.trials(), OVERHEAD_BYTES);
    for size in &summary.sizes {
        let loss = size.path.loss;
        assert!(0.0 <= loss.low && loss.low <= loss.high && loss.high <= 1.0, "{loss:?}");
    }
}

impl World {
    fn operate(&mut self, what: u8, how: u8, body: &[u8]) {
        let client = address(1);
        match what {
            0 => (0..how).for_each(|_| self.pass_ms(None)),
            1 => (0..50).for_each(|_| self.pass_ms(Some(u64::from(how % 16) + 1))),
            2 => drop(self.serve(client, &sealed(body))),
            3 => drop(self.serve(address(2), &sealed(body))),
            4 => drop(self.serve(client, &self.headed(body))),
            5 => drop(self.serve(address(2), &self.headed(body))),
            6 => self.client.on_datagram(self.now_ns, &self.headed(body)),
            7 => self.client.on_datagram(self.now_ns, &sealed(body)),
            8 => self.client.stop(self.now_ns),
            9 => self.now_ns += u64::from(how) * 1_000_000_000,
            10 => self.client.on_too_large(usize::from(how) * 8),
            11 if how % 2 == 1 => self.client.on_taken(),
            11 => self.client.on_refused(self.now_ns, usize::from(how / 2 % 4)),
            _ => {}
        }
        if self.client.is_done() {
            assert_eq!(self.client.poll_timeout(), None);
        }
        assert!(self.server.clients() <= CLIENTS_MAX);
        let progress = self.client.progress(self.now_ns);
        assert!(progress.trials_done <= progress.trials);
    }

    /// `kind`, `flags`, `trial` and the rest of the body behind what everybody has to write.
    fn headed(&self, body: &[u8]) -> Vec<u8> {
        let (kind, rest) = body.split_first().map_or((0, body), |(kind, rest)| (*kind, rest));
        let (flags, rest) = rest.split_at(rest.len().min(2));
        let head = [b"LPRB", &[VERSION, kind][..], flags, &self.key.to_be_bytes(), rest];
        sealed(&head.concat())
    }

    fn pass_ms(&mut self, lost_every: Option<u64>) {
        self.now_ns += 1_000_000;
        let mut count = 0;
        let mut is_lost = || {
            count += 1;
            lost_every.is_some_and(|every| count % every == 0)
        };
        while let Some(packet) = self.client.poll_transmit(self.now_ns, &mut ()) {
            let bytes = packet.bytes(filler());
            self.sent_bytes += bytes.len() as u64 + u64::from(OVERHEAD_BYTES);
            let allowed = RATE_BITS_PER_S as u128 * u128::from(self.now_ns) / 8_000_000_000;
            assert!(u128::from(self.sent_bytes) <= allowed + u128::from(BURST_BYTES));
            let (key, _) = Message::parse(&bytes).expect("a client writes packets");
            self.key = key;
            let from = address(1 + 256 * packet.lane as u16);
            let answer = if is_lost() { None } else { self.serve(from, &bytes) };
            if let Some(answer) = answer.filter(|_| !is_lost()) {
                self.client.on_datagram(self.now_ns, &answer);
            }
        }
    }

    /// The answer is never longer than what it answers, and those who proved nothing get none but a
    /// challenge or a refusal.
    fn serve(&mut self, from: SocketAddr, bytes: &[u8]) -> Option<Vec<u8>> {
        let answer = self.server.on_datagram(self.now_ns, from, bytes, &mut ())?;
        assert!(answer.len() <= bytes.len() && answer.len() <= CONTROL_BYTES);
        assert!(answer.len() > TRAILER_BYTES);
        let (_, message) = Message::parse(&answer).expect("a server writes packets");
        match message {
            Message::Challenge { .. } | Message::Refused(_) => {}
            Message::Accepted { .. } => self.proved.push(from),
            _ => assert!(self.proved.iter().any(|proved| proved.ip() == from.ip()), "{message:?}"),
        }
        Some(answer)
    }
}

/// Host and port: the low byte is the host.
fn address(number: u16) -> SocketAddr {
    ([10, 0, 0, number as u8], 1000 + number).into()
}
