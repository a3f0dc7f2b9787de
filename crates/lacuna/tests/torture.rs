//! Everything bad at once over real sockets: loss 20 %, reordering 50 %,
//! duplication 20 %, corruption 1 %, messages of random lengths, some with
//! immediates, both directions, several channels. All must arrive intact.
//!
//! The ordinary run is short. The full one, 1,000 messages of up to 64 MiB:
//! `LACUNA_TORTURE_MESSAGES=1000 LACUNA_TORTURE_BYTES=67108864 \
//!  cargo test --release -p lacuna --test torture -- --nocapture`

use lacuna::datapath::{Fraction, Impair, Impairment, Loss};
use lacuna::{Connection, ConnectionConfig, Context, ContextConfig, Listener, Mode};
use lacuna_link::SplitMix64;
use std::net::Ipv4Addr;
use std::sync::Arc;
use std::thread;
use std::time::Duration;

fn from_env(name: &str, default: u64) -> u64 {
    std::env::var(name).ok().and_then(|text| text.parse().ok()).unwrap_or(default)
}

/// Lengths of all magnitudes, the ends of the range included.
fn length(rng: &mut SplitMix64, max: u64) -> usize {
    let bits = rng.below(64 - u64::from(max.leading_zeros()) + 1);
    (rng.next_u64() & ((1 << bits) - 1)).min(max) as usize
}

fn context(seed: u64) -> Context {
    let impairment = Impairment {
        loss: Loss::Independent(Fraction::from_f64(0.2)),
        delay_ns: 200_000,
        reorder: Fraction::from_f64(0.5),
        reorder_delay_ns: 300_000,
        duplicate: Fraction::from_f64(0.2),
        corrupt: Fraction::from_f64(0.01),
        ..Impairment::default()
    };
    let wrap = move |channel: u8, inner| -> Box<dyn lacuna::datapath::Datapath> {
        Box::new(Impair::new(inner, impairment.clone(), seed + u64::from(channel)))
    };
    Context::new(ContextConfig {
        bind: Ipv4Addr::LOCALHOST.into(),
        channels: 2,
        wrap: Some(Arc::new(wrap)),
        ..ContextConfig::default()
    })
    .expect("sockets on loopback")
}

/// Sends the messages that `seed` makes, several at a time.
fn send_all(connection: &Connection, seed: u64, messages: u64, max: u64) {
    let mut rng = SplitMix64::new(seed);
    let mut sends = std::collections::VecDeque::new();
    for number in 0..messages {
        let len = length(&mut rng, max);
        let immediate = (number % 3 == 0).then_some(number as u32 ^ 0xABCD_0000);
        let message = rng.bytes(len);
        sends.push_back(connection.start_send(message, immediate).expect("the send is taken"));
        if sends.len() >= 8
            && let Some(oldest) = sends.pop_front()
        {
            oldest.wait().unwrap_or_else(|error| panic!("message near {number}: {error}"));
        }
    }
    for send in sends {
        send.wait().expect("the last messages arrive");
    }
}

fn receive_all(connection: &Connection, seed: u64, messages: u64, max: u64) -> u64 {
    let mut rng = SplitMix64::new(seed);
    let mut posted = std::collections::VecDeque::new();
    let mut total = 0;
    for _ in 0..8u64.min(messages) {
        posted.push_back(connection.post_recv(vec![0; max as usize]).expect("a free slot"));
    }
    for number in 0..messages {
        let len = length(&mut rng, max);
        let expected = rng.bytes(len);
        let receive = posted.pop_front().expect("posted ahead");
        receive
            .wait(Duration::from_secs(300))
            .unwrap_or_else(|error| panic!("message {number} of {len} bytes: {error}"));
        let done = receive.complete();
        assert_eq!(done.len, Some(len), "message {number}");
        assert!(done.buffer[..len] == *expected, "message {number} of {len} bytes");
        let immediate = (number % 3 == 0).then_some(number as u32 ^ 0xABCD_0000);
        assert_eq!(done.immediate, immediate, "message {number}");
        total += len as u64;
        if number + 8 < messages {
            posted.push_back(connection.post_recv(done.buffer).expect("a free slot"));
        }
    }
    total
}

#[test]
fn all_messages_arrive_intact_both_ways() {
    both_ways(Mode::SR);
}

#[test]
fn all_coded_messages_arrive_intact_both_ways() {
    both_ways("ec:mds:8:4".parse().unwrap());
}

fn both_ways(mode: Mode) {
    let messages = from_env("LACUNA_TORTURE_MESSAGES", 40);
    let max = from_env("LACUNA_TORTURE_BYTES", 2 << 20);
    let config = ConnectionConfig {
        mode,
        deadline: Duration::from_secs(600),
        chunk_bytes: 8192,
        ..ConnectionConfig::default()
    };
    let listening = context(1000);
    let listener = Listener::bind(&listening, "127.0.0.1:0".parse().unwrap(), config).unwrap();
    let address = listener.local_addr();
    let accepting = thread::spawn(move || listener.accept().expect("the peer connects"));
    let a = Connection::connect(&context(1), address, config).expect("it accepts");
    let b = accepting.join().unwrap();
    // Half of the messages each way.
    let share = messages / 2;
    let runs = [(a.clone(), b.clone(), 7), (b.clone(), a.clone(), 8)].map(|(from, to, seed)| {
        let sending = thread::spawn(move || send_all(&from, seed, share, max));
        let receiving = thread::spawn(move || receive_all(&to, seed, share, max));
        (sending, receiving)
    });
    let mut total = 0;
    for (sending, receiving) in runs {
        total += receiving.join().expect("the receiving side");
        sending.join().expect("the sending side");
    }
    let damaged = |stats: &lacuna::ConnectionStats| -> u64 {
        stats.channels.iter().filter_map(|channel| channel.discarded.get("key")).sum()
    };
    assert!(b.stats().context.rejected_packets() > 0, "corruption was seen and refused");
    // A tag is over the key as well: where packets are encrypted, none is looked at that was damaged.
    let is_clear = b.chosen().cipher.is_none();
    assert_eq!(damaged(&b.stats()) > 0, is_clear, "and of packets whose key is in the trailer");
    println!("{total} bytes in {messages} messages; {}", b.stats().to_json());
}
