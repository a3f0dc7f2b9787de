//! Whatever bytes come.

use super::*;

proptest! {
    /// Whatever a peer says, in whatever pieces: no panic, no byte beyond the message, one outcome.
    #[test]
    fn nothing_that_is_said_does_harm(
        head in prop_oneof![Just(MAGIC.to_vec()), prop::collection::vec(any::<u8>(), 0..9)],
        length in prop_oneof![0u32..200, any::<u32>()],
        body in prop_oneof![
            prop::collection::vec(any::<u8>(), 0..200),
            Just(hello().to_string().into_bytes()),
        ],
        piece_bytes in 1usize..64,
        is_reused: bool,
    ) {
        let said = [&head[..], &length.to_be_bytes(), &body].concat();
        let mut accept = if is_reused {
            Accept::after_goodbye(goodbye::Goodbye::default(), SECOND)
        } else {
            Accept::new(SECOND)
        };
        let mut connect = if is_reused { over_reused(0) } else { connect(0) };
        for piece in said.chunks(piece_bytes) {
            let (wanted, taken) = (accept.wanted(), accept.on_bytes(1, piece));
            prop_assert!(taken <= piece.len() && (wanted > 0 || taken == 0));
            connect.on_bytes(1, piece);
        }
        accept.on_broken();
        connect.on_broken(1);
        let _ = (accept.poll(), connect.poll());
        accept.on_timeout(u64::MAX);
        connect.on_timeout(u64::MAX);
        prop_assert!(accept.poll().is_none() || !accept.poll_bytes().is_empty());
        prop_assert!(connect.poll().is_none());
    }
}
