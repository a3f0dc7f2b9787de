use super::Sender;
use crate::modes::{MessageShape, SentRun};

#[test]
fn everything_goes_out_once_whatever_is_lost() {
    let shape = MessageShape {
        chunk_packets: 4,
        data_packets: 10,
        total_packets: 10,
        fragments: 0,
        layout: None,
    };
    let mut sender = Sender::new(shape);
    assert_eq!(sender.poll_transmit(), Some(0..10));
    sender.on_passed(1, SentRun { packets: 0..10, sent_ns: 0 }, 100);
    sender.on_expired(SentRun { packets: 0..10, sent_ns: 0 });
    assert_eq!(sender.poll_transmit(), None);
    assert!(!sender.awaits_peer());
}
