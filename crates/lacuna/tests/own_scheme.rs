//! A reliability scheme above the live bitmap, as docs/own-scheme.md builds it: the
//! receiver names gaps, the sender fills them, over a path that loses packets.

use lacuna::datapath::impair::{Fraction, Impair, Impairment, Loss};
use lacuna::{
    ConnectionConfig, Context, ContextConfig, Mode, PostSendError, QueuePair, SendBuffer, Wrap,
};
use std::net::{IpAddr, Ipv4Addr};
use std::sync::Arc;
use std::sync::mpsc::{Receiver, Sender, channel};
use std::time::{Duration, Instant};

const LOCALHOST: IpAddr = IpAddr::V4(Ipv4Addr::LOCALHOST);
/// Chunks named in one NACK.
const NACK_MAX: usize = 64;
/// Silence after which missing packets count as lost.
const SILENCE: Duration = Duration::from_millis(2);

fn lossy() -> QueuePair {
    let wrap: Wrap = Arc::new(|channel, datapath| {
        let loss = Loss::Independent(Fraction::from_f64(0.05));
        let impairment = Impairment { loss, ..Impairment::default() };
        Box::new(Impair::new(datapath, impairment, u64::from(channel) + 1))
    });
    let context = Context::new(ContextConfig {
        bind: LOCALHOST.into(),
        wrap: Some(wrap),
        ..ContextConfig::default()
    });
    let config = ConnectionConfig {
        mode: Mode::Raw,
        chunk_bytes: 8192,
        mtu_bytes: Some(1024),
        ..ConnectionConfig::default()
    };
    context.unwrap().queue_pair(&config).unwrap()
}

fn receive(queue_pair: &QueuePair, message_bytes: usize, nacks: &Sender<Vec<u32>>) -> Vec<u8> {
    let receive = queue_pair.post_recv(vec![0; message_bytes]).unwrap();
    let (mut before, mut since) = (0, Instant::now());
    while receive.chunks_done() < receive.chunks() {
        if receive.chunks_done() > before {
            (before, since) = (receive.chunks_done(), Instant::now());
        } else if since.elapsed() > SILENCE {
            let missing = (0..receive.chunks()).filter(|chunk| !receive.has_chunk(*chunk));
            nacks.send(missing.take(NACK_MAX).collect()).unwrap();
            since = Instant::now();
        }
    }
    receive.complete().buffer
}

fn send(queue_pair: &QueuePair, data: &SendBuffer, nacks: &Receiver<Vec<u32>>) -> usize {
    let stream = loop {
        match queue_pair.open_stream(None) {
            Ok(stream) => break stream,
            Err(PostSendError::Unposted { .. }) => std::thread::yield_now(),
            Err(error) => panic!("{error}"),
        }
    };
    let chunk_bytes = queue_pair.geometry().chunk_bytes() as usize;
    let send = |chunk: u32| {
        let start = chunk as usize * chunk_bytes;
        let len = chunk_bytes.min(data.len() - start);
        let part = data.part(start, len).unwrap();
        match stream.push(start as u64, part, start + len == data.len()) {
            // The receiver has completed the message meanwhile.
            Ok(()) | Err(PostSendError::NoSuchSend) => {}
            Err(error) => panic!("{error}"),
        }
    };
    (0..data.len().div_ceil(chunk_bytes) as u32).for_each(send);
    let mut repaired = 0;
    // Ends when the receiver has everything and drops its end.
    for missing in nacks {
        repaired += missing.len();
        missing.into_iter().for_each(send);
    }
    repaired
}

#[test]
fn a_scheme_above_the_bitmap_repairs_a_lossy_path() {
    let (a, b) = (lossy(), lossy());
    a.connect(&b.info(LOCALHOST)).unwrap();
    b.connect(&a.info(LOCALHOST)).unwrap();
    let message: Vec<u8> = (0..2_000_123u32).map(|i| (i ^ i >> 8) as u8).collect();
    let (nacks, named) = channel();
    let len = message.len();
    let receiver = std::thread::spawn(move || receive(&b, len, &nacks));
    let repaired = send(&a, &SendBuffer::from(message.clone()), &named);
    assert!(receiver.join().unwrap() == message);
    assert!(repaired > 0, "the path has lost nothing");
}
