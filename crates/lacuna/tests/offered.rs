//! Sends that are written part by part, over real sockets that lose packets.

use lacuna::datapath::impair::{Fraction, Impair, Impairment, Loss};
use lacuna::{ConnectionConfig, Context, ContextConfig, OfferError, QueuePair, Reason, Wrap};
use std::net::{IpAddr, Ipv4Addr};
use std::sync::Arc;
use std::time::Duration;

const LOCALHOST: IpAddr = IpAddr::V4(Ipv4Addr::LOCALHOST);
const LONG: Duration = Duration::from_secs(20);

fn connected(mode: &str, loss: f64) -> (QueuePair, QueuePair) {
    let config = ConnectionConfig { mode: mode.parse().unwrap(), ..ConnectionConfig::default() };
    let [a, b] = [1, 2].map(|seed| {
        let wrap: Wrap = Arc::new(move |channel, datapath| {
            let loss = Loss::Independent(Fraction::from_f64(loss));
            let impairment = Impairment { loss, ..Impairment::default() };
            Box::new(Impair::new(datapath, impairment, 10 * u64::from(channel) + seed))
        });
        let context = Context::new(ContextConfig {
            bind: LOCALHOST.into(),
            wrap: Some(wrap),
            ..ContextConfig::default()
        });
        context.unwrap().queue_pair(&config).unwrap()
    });
    a.connect(&b.info(LOCALHOST)).unwrap();
    b.connect(&a.info(LOCALHOST)).unwrap();
    (a, b)
}

#[test]
fn parts_written_in_any_order_by_several_threads_are_repaired() {
    for mode in ["auto", "sr", "ec"] {
        let (a, b) = connected(mode, 0.05);
        let message: Vec<u8> = (0..1_000_003u32).map(|i| ((i * 7) >> 3) as u8).collect();
        let receive = b.post_recv(vec![0; message.len()]).unwrap();
        let send = a.send_offered(message.len(), Some(5)).unwrap();
        std::thread::scope(|scope| {
            for thread in 0..3 {
                let (send, message) = (&send, &message);
                scope.spawn(move || {
                    for (index, part) in message.chunks(10_000).enumerate().rev() {
                        if index % 3 == thread {
                            send.write(index * 10_000, part).unwrap();
                        }
                    }
                });
            }
        });
        send.wait().unwrap();
        receive.wait(LONG).unwrap();
        let done = receive.complete();
        assert!(done.buffer == message, "{mode}");
        assert_eq!((done.reason, done.immediate), (Reason::Whole, Some(5)));
        assert!(matches!(send.write(0, &[1]), Err(OfferError::WrittenBefore { .. })));
        assert!(matches!(send.write(1_000_003, &[1]), Err(OfferError::Outside { .. })));
    }
}

#[test]
fn a_part_is_there_before_the_next_is_written() {
    let (a, b) = connected("auto", 0.0);
    let receive = b.post_recv(vec![0; 1 << 20]).unwrap();
    let chunk_bytes = receive.geometry().chunk_bytes() as usize;
    let chunks = (1 << 20) / chunk_bytes;
    let send = a.send_offered(1 << 20, None).unwrap();
    for chunk in (0..chunks).rev() {
        send.write(chunk * chunk_bytes, &vec![chunk as u8; chunk_bytes]).unwrap();
        while !receive.has_chunk(chunk as u32) {
            std::thread::yield_now();
        }
        assert!(receive.chunk(chunk as u32).unwrap().iter().all(|byte| *byte == chunk as u8));
    }
    send.wait().unwrap();
}

#[test]
fn a_send_that_is_given_up_before_all_was_written_ends_the_peers_receive() {
    let (a, b) = connected("auto", 0.0);
    let receive = b.post_recv(vec![0; 20_000]).unwrap();
    let send = a.send_offered(20_000, None).unwrap();
    send.write(0, &[1; 10_000]).unwrap();
    while receive.placed_bytes() == 0 {
        std::thread::yield_now();
    }
    send.cancel();
    drop(send);
    assert_eq!(receive.wait_over(LONG), Some(Reason::Cancelled));
}
