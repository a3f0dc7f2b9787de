//! Paths that die without a word.

use crate::ends::{Receiver, bytes, lacuna, one_file, spawn, wait_until};
use crate::{MIB, partial_bytes};
use rustix::process::Signal;

#[test]
fn a_path_that_dies_silently_is_noticed_within_the_time_to_retry() {
    let (_dir, file, dst) = one_file(bytes(64 * MIB, 8));
    let receiver = Receiver::start(&dst, &[]);
    let mut command = lacuna(&["send", "--rate", "200mbit", "--retry", "1s"]);
    let sender = spawn(command.arg(&file).arg(&receiver.address));
    wait_until("a part has arrived", || partial_bytes(&dst) >= 4 * MIB as u64);
    receiver.signal(Signal::STOP);
    let sent = sender.finish();
    assert_eq!(sent.code, 3, "{}", sent.stderr);
    // Not the 30 s of the transport, and shown before it is over.
    assert!(sent.stderr.contains("nothing heard of the peer for 5000 ms"), "{}", sent.stderr);
    assert!(sent.stderr.contains("no answer for "), "{}", sent.stderr);
    assert!(sent.stderr.contains("same command again to resume"), "{}", sent.stderr);
    assert!(sent.stdout.starts_with("incomplete: sent "), "{}", sent.stdout);
}
