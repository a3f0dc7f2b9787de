//! Sessions between ends that know each other by a one-time code.

mod common;

use common::{Pair, texts};
use lacuna_trust::offer::TRIES_MAX;
use lacuna_trust::{Code, CodeEnd, CodeOffer, HostKey, SessionError, Trust};
use std::io;

fn key() -> HostKey {
    HostKey::generate().unwrap()
}

fn code(text: &str) -> Code {
    text.parse().unwrap()
}

const RIGHT: &str = "k7q-2mx";
const WRONG: &str = "k7q-2my";

/// A receiver that shows the right code.
fn receiver() -> (Trust, CodeOffer) {
    Trust::offering(&key(), code(RIGHT))
}

fn sender(text: &str) -> Trust {
    Trust::by_code(&key(), code(text))
}

/// What both ends find, and whether they are ready to speak.
fn meet(connecting: &Trust, accepting: &Trust) -> [Option<SessionError>; 2] {
    let mut pair = Pair::new(connecting, accepting);
    let found = pair.run();
    let is_fine = found.iter().all(Option::is_none);
    // A connecting end that needs no code does not wait for the other's judgement.
    assert_eq!(!pair.sessions[1].is_handshaking(), is_fine, "{found:?}");
    if is_fine {
        assert!(!pair.sessions[0].is_handshaking());
        assert_eq!(pair.sessions[0].peer(), accepting.own());
        assert_eq!(pair.sessions[1].peer(), connecting.own());
        let [here, there] = pair.sessions.each_mut().map(|session| session.secret().unwrap());
        assert_eq!(here, there);
        for end in [0, 1] {
            assert_eq!(pair.sessions[end].write(b"text").unwrap(), 4);
            assert_eq!(texts(&pair.run()), ["", ""]);
            let mut read = [0; 9];
            assert_eq!(pair.sessions[1 - end].read(&mut read).unwrap(), 4);
        }
    }
    found
}

macro_rules! assert_found {
    ($found:expr, $connecting:pat, $accepting:pat) => {
        let found = $found;
        assert!(matches!(found, [Some($connecting), Some($accepting)]), "{found:?}");
    };
}

fn assert_fine(found: [Option<SessionError>; 2]) {
    assert_eq!(texts(&found), ["", ""]);
}

/// The accepting end has begun a try and waits for the connecting one's confirmation.
fn begun(connecting: &Trust, accepting: &Trust) -> Pair {
    let mut pair = Pair::new(connecting, accepting);
    for end in [0, 1, 0, 1] {
        assert!(pair.step(end).is_none());
    }
    pair
}

#[test]
fn ends_with_the_same_code_speak_and_not_before_both_have_proved_it() {
    let (receiver, offer) = receiver();
    let sender = sender(RIGHT);
    let mut pair = Pair::new(&sender, &receiver);
    for end in [0, 1, 0, 1, 0] {
        assert!(pair.step(end).is_none());
        for session in &mut pair.sessions {
            assert!(session.is_handshaking() && session.peer().is_none());
            assert!(session.secret().is_err());
            let would_block = io::ErrorKind::WouldBlock;
            assert_eq!(session.write(b"text").unwrap_err().kind(), would_block);
            assert_eq!(session.read(&mut [0; 9]).unwrap_err().kind(), would_block);
            assert_eq!(session.look().unwrap_err().kind(), would_block);
        }
    }
    assert_eq!((offer.end(), offer.user()), (None, None));
    assert!(pair.step(1).is_none() && !pair.sessions[1].is_handshaking());
    assert!(pair.sessions[0].is_handshaking(), "the receiver has not proved it yet");
    assert!(pair.step(0).is_none() && !pair.sessions[0].is_handshaking());
    assert_eq!((offer.end(), offer.user()), (Some(CodeEnd::Used), sender.own()));
    let [here, there] = pair.sessions.each_mut().map(|session| session.secret().unwrap());
    assert_eq!(here, there);
}

#[test]
fn bytes_may_come_one_at_a_time() {
    let (receiver, _) = receiver();
    let mut pair = Pair::new(&sender(RIGHT), &receiver);
    pair.streams.iter_mut().for_each(|stream| stream.piece_bytes = 1);
    assert_fine(pair.run());
    assert!(pair.sessions.iter().all(|session| !session.is_handshaking()));
}

#[test]
fn after_three_wrong_codes_the_right_one_is_refused() {
    let (receiver, offer) = receiver();
    for _ in 0..TRIES_MAX {
        assert_eq!(offer.end(), None);
        assert_found!(
            meet(&sender(WRONG), &receiver),
            SessionError::CodeWrong,
            SessionError::CodeWrong
        );
    }
    assert_eq!(offer.end(), Some(CodeEnd::Spent));
    assert_found!(
        meet(&sender(RIGHT), &receiver),
        SessionError::CodeEnded(CodeEnd::Spent),
        SessionError::CodeEnded(CodeEnd::Spent)
    );
    offer.replace(code(RIGHT));
    assert_fine(meet(&sender(RIGHT), &receiver));
}

#[test]
fn two_wrong_codes_leave_a_try() {
    let (receiver, _) = receiver();
    let key = key();
    for _ in 1..TRIES_MAX {
        meet(&Trust::by_code(&key, code(WRONG)), &receiver);
    }
    assert_fine(meet(&Trust::by_code(&key, code(RIGHT)), &receiver));
}

#[test]
fn a_sender_does_not_prove_its_code_to_ever_more_receivers() {
    let sender = sender(WRONG);
    for _ in 0..TRIES_MAX {
        meet(&sender, &receiver().0);
    }
    let (receiver, offer) = receiver();
    let mut pair = Pair::new(&sender, &receiver);
    let found = pair.run();
    assert!(matches!(found, [Some(SessionError::CodeEnded(CodeEnd::Spent)), None]), "{found:?}");
    assert!(pair.sessions[1].is_handshaking() && offer.user().is_none());
}

#[test]
fn who_used_the_code_comes_back_without_it_and_nobody_else_comes() {
    let (receiver, offer) = receiver();
    let sender = sender(RIGHT);
    for _ in 0..5 {
        assert_fine(meet(&sender, &receiver));
    }
    assert_eq!(offer.user(), sender.own());
    let other = self::sender(RIGHT);
    assert_found!(
        meet(&other, &receiver),
        SessionError::CodeEnded(CodeEnd::Used),
        SessionError::CodeEnded(CodeEnd::Used)
    );
    // Nor does it need a code where another one has replaced it.
    offer.replace(code("777-777"));
    assert_fine(meet(&sender, &receiver));
    assert_eq!(offer.end(), None);
}

#[test]
fn a_sender_demands_the_key_that_it_met_first() {
    let (first, _) = receiver();
    let sender = sender(RIGHT);
    assert_fine(meet(&sender, &first));
    // Somebody else, even one with the same code.
    let (second, offer) = receiver();
    assert_found!(meet(&sender, &second), SessionError::Untrusted, SessionError::Refused);
    assert_eq!(offer.user(), None);
    // Also if its session had begun before.
    let (sender, third) = (self::sender(RIGHT), receiver().0);
    let mut pair = begun(&sender, &second);
    assert_fine(meet(&sender, &third));
    assert!(matches!(pair.step(0), Some(SessionError::Untrusted)));
}

#[test]
fn a_receiver_that_has_forgotten_a_sender_wants_a_code() {
    let key = key();
    let (first, _) = Trust::offering(&key, code(RIGHT));
    let sender = sender(RIGHT);
    assert_fine(meet(&sender, &first));
    let (again, _) = Trust::offering(&key, code("777-777"));
    assert_found!(meet(&sender, &again), SessionError::CodeWanted, SessionError::CodeMissing);
}

#[test]
fn a_sender_that_did_not_hear_of_its_success_proves_the_code_again() {
    let (receiver, offer) = receiver();
    let sender = sender(RIGHT);
    let mut pair = begun(&sender, &receiver);
    assert!(pair.step(0).is_none() && pair.step(1).is_none());
    assert_eq!(offer.user(), sender.own());
    assert!(pair.sessions[0].is_handshaking(), "the receiver's confirmation is lost");
    assert_fine(meet(&sender, &receiver));
}

#[test]
fn guesses_at_the_same_time_are_not_more_than_three() {
    let (receiver, offer) = receiver();
    let right = sender(RIGHT);
    let mut pairs: Vec<_> =
        [&sender(WRONG), &sender(WRONG), &right].map(|sender| begun(sender, &receiver)).into();
    // All tries are under way. One of them may be right, so the code has not ended; but no more begin.
    assert_eq!(offer.end(), None);
    for _ in 0..3 {
        assert_found!(
            meet(&sender(RIGHT), &receiver),
            SessionError::CodeEnded(CodeEnd::Spent),
            SessionError::CodeEnded(CodeEnd::Spent)
        );
    }
    for pair in &mut pairs[..2] {
        assert_found!(pair.run(), SessionError::CodeWrong, SessionError::CodeWrong);
        assert_eq!(offer.end(), None);
    }
    assert_fine(pairs[2].run());
    assert_eq!(offer.user(), right.own());
}

#[test]
fn of_two_who_prove_the_code_at_the_same_time_the_first_has_it() {
    let (receiver, offer) = receiver();
    let [first, second] = [sender(RIGHT), sender(RIGHT)];
    let mut pairs = [&first, &second].map(|sender| begun(sender, &receiver));
    assert_fine(pairs[1].run());
    assert_found!(
        pairs[0].run(),
        SessionError::CodeEnded(CodeEnd::Used),
        SessionError::CodeEnded(CodeEnd::Used)
    );
    assert_eq!(offer.user(), second.own());
}

#[test]
fn one_who_breaks_off_has_had_a_try() {
    let (receiver, offer) = receiver();
    for _ in 0..TRIES_MAX {
        assert_eq!(offer.end(), None);
        drop(begun(&sender(WRONG), &receiver));
    }
    assert_eq!(offer.end(), Some(CodeEnd::Spent));
    // Before it says that it has a code it has had none.
    let (receiver, offer) = self::receiver();
    for _ in 0..=TRIES_MAX {
        let mut pair = Pair::new(&sender(RIGHT), &receiver);
        (0..3).for_each(|at| assert!(pair.step(at % 2).is_none()));
    }
    assert_fine(meet(&sender(RIGHT), &receiver));
    assert_eq!(offer.end(), Some(CodeEnd::Used));
}

#[test]
fn a_code_that_has_expired_is_refused_also_in_the_middle() {
    let (receiver, offer) = receiver();
    let mut pair = begun(&sender(RIGHT), &receiver);
    offer.expire();
    assert_found!(
        pair.run(),
        SessionError::CodeEnded(CodeEnd::Expired),
        SessionError::CodeEnded(CodeEnd::Expired)
    );
    assert_found!(
        meet(&sender(RIGHT), &receiver),
        SessionError::CodeEnded(CodeEnd::Expired),
        SessionError::CodeEnded(CodeEnd::Expired)
    );
    assert_eq!((offer.end(), offer.user()), (Some(CodeEnd::Expired), None));
}

#[test]
fn keys_that_are_trusted_need_no_code() {
    let (known, own) = (key(), key());
    let trusted = known.public();
    let (receiver, offer) = Trust::offering_judged(&own, code(RIGHT), move |key| *key == trusted);
    let plain = Trust::of_keys(&known, [own.public()]);
    assert_fine(meet(&plain, &receiver));
    assert_eq!(offer.end(), None);
    offer.expire();
    assert_fine(meet(&plain, &receiver));
    // It may be the receiver's key that is not known yet: then the code is used.
    offer.replace(code(RIGHT));
    assert_fine(meet(&Trust::by_code(&known, code(RIGHT)), &receiver));
    assert_eq!(offer.user(), Some(known.public()));
    // The other way round, a receiver connects to those only whom it trusts.
    assert_fine(meet(&receiver, &Trust::of_keys(&known, [own.public()])));
    let stranger = Trust::of_keys(&key(), [own.public()]);
    assert_found!(meet(&receiver, &stranger), SessionError::Untrusted, SessionError::Refused);
}

#[test]
fn who_has_no_code_hears_that_one_is_needed_or_why_it_would_not_help() {
    let own = key();
    let (receiver, offer) = Trust::offering(&own, code(RIGHT));
    let plain = || Trust::of_keys(&key(), [own.public()]);
    assert_found!(meet(&plain(), &receiver), SessionError::CodeWanted, SessionError::CodeMissing);
    assert_eq!(offer.end(), None);
    assert_fine(meet(&sender(RIGHT), &receiver));
    assert_found!(
        meet(&plain(), &receiver),
        SessionError::CodeEnded(CodeEnd::Used),
        SessionError::CodeEnded(CodeEnd::Used)
    );
    // What it has said in the meantime is not heard.
    let mut pair = Pair::new(&plain(), &receiver);
    for end in [0, 1, 0] {
        assert!(pair.step(end).is_none());
    }
    assert_eq!(pair.sessions[0].write(b"secret").unwrap(), 6);
    assert!(pair.run()[1].is_some());
    assert!(pair.sessions[1].read(&mut [0; 9]).is_err());
    assert!(pair.sessions[1].pump(&mut pair.streams[1]).is_err(), "the error stays");
}

#[test]
fn who_has_a_code_hears_that_the_peer_offers_none() {
    let (sender_key, own) = (key(), key());
    let plain = Trust::of_keys(&own, [sender_key.public()]);
    let sender = Trust::by_code(&sender_key, code(RIGHT));
    assert_found!(meet(&sender, &plain), SessionError::CodeNotWanted, SessionError::CodeNotOffered);
    let stranger = self::sender(RIGHT);
    assert_found!(meet(&stranger, &plain), SessionError::Refused, SessionError::Untrusted);
    // A sender takes nobody but the receiver that it knows.
    let (receiver, _) = Trust::offering(&own, code(RIGHT));
    let back = Trust::of_keys(&own, sender.own());
    assert_found!(meet(&back, &sender), SessionError::Refused, SessionError::Untrusted);
    assert_fine(meet(&sender, &receiver));
    assert_fine(meet(&back, &sender));
}
