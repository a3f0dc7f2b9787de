use super::*;
use lacuna_place::reason::Reason;

/// The receive `ordinal` of one slot, on the channels of this mask.
fn span(ordinal: u64, channels: u32) -> Span {
    Span { first: ordinal, last: ordinal, ordinal, ended_on: None, goes_on: false, channels }
}

#[test]
fn the_packet_that_ends_the_message_ends_it_on_its_channel_only() {
    let mut watch = Watch::new(8, 2);
    let ended = |channels| Span { ended_on: Some(0), ..span(0, channels) };
    watch.on_packet(0, 0, 0);
    assert_eq!(watch.verdict(&ended(1)), Some(Reason::End));
    assert_eq!(watch.verdict(&ended(3)), None, "the other channel may bring more");
    watch.on_packet(1, 1, 1);
    assert_eq!(watch.verdict(&ended(3)), Some(Reason::End));
}

#[test]
fn parity_comes_behind_the_end_of_the_data() {
    let mut watch = Watch::new(8, 1);
    let ended = Span { ended_on: Some(0), goes_on: true, ..span(0, 1) };
    watch.on_packet(0, 0, 0);
    assert_eq!(watch.verdict(&ended), None);
    watch.on_word(0, 1);
    assert_eq!(watch.verdict(&ended), Some(Reason::End));
}

#[test]
fn the_senders_word_ends_what_has_lost_its_tail() {
    let mut watch = Watch::new(8, 2);
    assert!(watch.on_word(0, 3));
    assert!(!watch.on_word(0, 2), "an older word says nothing new");
    assert_eq!(watch.verdict(&span(2, 1)), Some(Reason::Accounted));
    assert_eq!(watch.verdict(&span(2, 3)), None, "the word is about its channel");
    watch.on_word(1, 3);
    assert_eq!(watch.verdict(&span(2, 3)), Some(Reason::Accounted));
    assert_eq!(watch.verdict(&span(3, 3)), None);
}

#[test]
fn a_message_a_window_further_on_preempts() {
    let mut watch = Watch::new(4, 1);
    for newest in 0..8 {
        assert!(watch.on_packet(0, newest, newest));
        let over = (0..=newest).filter(|ordinal| watch.verdict(&span(*ordinal, 1)).is_some());
        let expected = 0..(newest + 1).saturating_sub(4);
        assert_eq!(over.collect::<Vec<_>>(), expected.collect::<Vec<_>>(), "newest {newest}");
    }
    assert_eq!(watch.verdict(&span(0, 1)), Some(Reason::Preempted));
}

#[test]
fn a_window_counts_receives_and_not_slots() {
    let mut watch = Watch::new(1, 1);
    // The receive 0 has the slots 0 to 3, the receive 1 begins with 4.
    let first = Span { last: 3, ..span(0, 1) };
    watch.on_packet(0, 3, 0);
    assert_eq!(watch.verdict(&first), None);
    watch.on_packet(0, 4, 1);
    assert_eq!(watch.verdict(&first), Some(Reason::Preempted));
}
