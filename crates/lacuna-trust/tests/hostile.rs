//! Peers that say inside TLS what is not according to the exchange of a code, or is, and should not be believed.

mod common;
#[path = "common/raw.rs"]
mod raw;

use common::Stream;
use lacuna_trust::{Code, CodeEnd, CodeOffer, HostKey, Session, SessionError, Trust};
use proptest::prelude::*;
use raw::{CODE, CONFIRM, KNOWN, NONE, PROVE, Raw, WRONG};

const RIGHT: &str = "k7q-2mx";

fn code() -> Code {
    RIGHT.parse().unwrap()
}

fn receiver() -> (Trust, CodeOffer) {
    Trust::offering(&HostKey::generate().unwrap(), code())
}

/// A session and the evil peer.
struct Meeting {
    session: Session,
    stream: Stream,
    peer: Raw,
    found: Option<SessionError>,
}

impl Meeting {
    /// TLS has ended its handshake. What the session says of itself has arrived.
    fn new(session: Session, peer: Raw) -> Self {
        let mut meeting = Self { session, stream: Stream::default(), peer, found: None };
        for _ in 0..4 {
            meeting.step();
        }
        assert!(!meeting.peer.is_handshaking());
        meeting
    }

    /// With one that connects by code.
    fn of_sender() -> Self {
        let trust = Trust::by_code(&HostKey::generate().unwrap(), code());
        Self::new(Session::connecting(&trust).unwrap(), Raw::accepting())
    }

    /// With one that offers a code.
    fn of_receiver(trust: &Trust) -> Self {
        Self::new(Session::accepting(trust).unwrap(), Raw::connecting())
    }

    fn step(&mut self) {
        self.peer.pump();
        self.stream.came.extend(self.peer.stream.said.drain(..));
        match self.session.pump(&mut self.stream) {
            Ok(_) => assert!(self.found.is_none(), "an error stays"),
            Err(error) => self.found = Some(error),
        }
        self.peer.stream.came.extend(self.stream.said.drain(..));
        self.peer.pump();
    }

    /// Says something, and returns what the session says then.
    fn say(&mut self, bytes: &[u8]) -> Vec<u8> {
        self.peer.say(bytes);
        self.step();
        self.peer.heard()
    }

    /// The peer keeps to the exchange, except that `change` changes all that it says. Whether the session's confirmation
    /// came and is right.
    fn exchange(&mut self, change: &mut dyn FnMut(&mut Vec<u8>)) -> bool {
        let (proving, message) = self.peer.prove(RIGHT);
        let mut changed = |word, behind: &[u8]| {
            let mut says = [&[word][..], behind].concat();
            change(&mut says);
            says
        };
        let opened = self.peer.heard();
        let (is_sender, challenge) = match opened.is_empty() {
            true => (false, self.say(&changed(CODE, &message))),
            false => (true, opened),
        };
        if challenge.len() != 34 {
            return false;
        }
        let [own, peer] = proving.confirmations(&challenge[1..]);
        let confirmed = match is_sender {
            true => {
                let confirmed = self.say(&changed(PROVE, &message));
                self.say(&changed(CONFIRM, &own));
                confirmed
            }
            false => self.say(&changed(CONFIRM, &own)),
        };
        confirmed == [&[CONFIRM][..], &peer].concat()
    }

    /// Nothing passes either way.
    fn assert_is_closed(&mut self) {
        let Self { session, .. } = self;
        assert!(session.is_handshaking() && session.peer().is_none());
        assert!(session.secret().is_err() && session.write(b"text").is_err());
        assert!(session.look().is_err() && session.read(&mut [0; 9]).is_err());
    }
}

#[test]
fn one_who_keeps_to_the_exchange_is_believed_and_what_follows_is_not_lost() {
    let (trust, offer) = receiver();
    for mut meeting in [Meeting::of_sender(), Meeting::of_receiver(&trust)] {
        // With the last word comes what an application says.
        let mut said = 0;
        let is_right = meeting.exchange(&mut |says| {
            said += 1;
            if said == 2 {
                says.extend(b"text");
            }
        });
        assert!(is_right);
        assert!(meeting.found.is_none() && !meeting.session.is_handshaking());
        assert_eq!(meeting.session.peer(), Some(meeting.peer.own));
        let mut read = [0; 9];
        assert_eq!((meeting.session.read(&mut read).unwrap(), &read[..4]), (4, &b"text"[..]));
    }
    assert_eq!(offer.end(), Some(CodeEnd::Used));
}

#[test]
fn one_between_the_ends_who_passes_on_what_they_say_is_believed_by_neither() {
    let (trust, offer) = receiver();
    for tried in 1..=3 {
        let (mut left, mut right) = (Meeting::of_sender(), Meeting::of_receiver(&trust));
        for _ in 0..4 {
            let heard = left.peer.heard();
            right.say(&heard).iter().for_each(|byte| left.peer.say(&[*byte]));
            left.step();
        }
        assert!(matches!(right.found, Some(SessionError::CodeWrong)), "{:?}", right.found);
        assert!(matches!(left.found, Some(SessionError::CodeWrong)), "{:?}", left.found);
        left.assert_is_closed();
        right.assert_is_closed();
        // It has cost a try, as a guess would.
        assert_eq!(offer.end(), (tried == 3).then_some(CodeEnd::Spent));
    }
}

#[test]
fn an_end_does_not_believe_its_own_words() {
    let mut meeting = Meeting::of_sender();
    let opened = meeting.peer.heard();
    meeting.say(&[&[PROVE], &opened[1..]].concat());
    assert!(matches!(meeting.found, Some(SessionError::Proof(_))), "{:?}", meeting.found);
    meeting.assert_is_closed();
    // With the side changed it looks like a message, but nobody can confirm it.
    let mut meeting = Meeting::of_sender();
    let opened = meeting.peer.heard();
    let confirmed = meeting.say(&[&[PROVE, b'B'], &opened[2..]].concat());
    assert_eq!(confirmed[0], CONFIRM);
    meeting.say(&confirmed);
    assert!(matches!(meeting.found, Some(SessionError::CodeWrong)), "{:?}", meeting.found);
    meeting.assert_is_closed();
    // The same at the other end.
    let (trust, offer) = receiver();
    let mut meeting = Meeting::of_receiver(&trust);
    let (_, message) = meeting.peer.prove(RIGHT);
    let challenge = meeting.say(&[&[CODE], &message[..]].concat());
    assert_eq!(challenge[0], PROVE);
    assert_eq!(meeting.say(&[&[CONFIRM], &challenge[2..]].concat()), [WRONG]);
    assert!(matches!(meeting.found, Some(SessionError::CodeWrong)), "{:?}", meeting.found);
    meeting.assert_is_closed();
    assert_eq!(offer.user(), None);
}

#[test]
fn a_sender_with_a_code_does_not_go_on_without_a_proof() {
    // Not if the peer says that none is needed, nor with a confirmation that comes too early.
    for says in [vec![KNOWN], vec![NONE], [&[CONFIRM][..], &[0; 32]].concat(), vec![0], vec![255]] {
        let mut meeting = Meeting::of_sender();
        meeting.say(&says);
        assert!(matches!(meeting.found, Some(SessionError::Proof(_))), "{:?}", meeting.found);
        meeting.assert_is_closed();
    }
}

#[test]
fn a_receiver_does_not_go_on_without_a_proof() {
    let long = vec![7; 50_000];
    for says in [&[KNOWN][..], &[WRONG], &[0], &[255], &[&[CONFIRM][..], &[0; 32]].concat(), &long]
    {
        let (trust, _) = receiver();
        let mut meeting = Meeting::of_receiver(&trust);
        meeting.say(says);
        assert!(matches!(meeting.found, Some(SessionError::Proof(_))), "{:?}", meeting.found);
        meeting.assert_is_closed();
    }
    // Messages that are longer or no points: what is too much is taken for what follows.
    for length in [34, 35, 50_000] {
        let (trust, offer) = receiver();
        let mut meeting = Meeting::of_receiver(&trust);
        let (_, message) = meeting.peer.prove(RIGHT);
        let mut says = [&[CODE], &message[..]].concat();
        says.resize(length.max(says.len()), 1);
        says.extend([CONFIRM; 40]);
        meeting.say(&says);
        assert!(meeting.found.is_some(), "{length}");
        meeting.assert_is_closed();
        assert_eq!(offer.user(), None);
    }
}

#[test]
fn an_exchange_that_is_cut_ends_the_session() {
    for bytes in 0..67 {
        let (trust, offer) = receiver();
        for mut meeting in [Meeting::of_sender(), Meeting::of_receiver(&trust)] {
            let mut left = bytes;
            meeting.exchange(&mut |says| {
                says.truncate(left);
                left -= says.len();
            });
            assert!(meeting.found.is_none(), "{:?}", meeting.found);
            meeting.assert_is_closed();
            meeting.stream.is_cut = true;
            assert!(meeting.session.pump(&mut meeting.stream).unwrap());
            let error = meeting.session.read(&mut [0; 9]).unwrap_err();
            assert_eq!(error.kind(), std::io::ErrorKind::UnexpectedEof);
        }
        assert_eq!((offer.user(), offer.end()), (None, None));
    }
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(200))]

    #[test]
    fn a_bit_that_is_changed_ends_the_session(bit in 0..67 * 8_usize) {
        let (trust, offer) = receiver();
        for mut meeting in [Meeting::of_sender(), Meeting::of_receiver(&trust)] {
            let mut before = 0;
            meeting.exchange(&mut |says| {
                if let Some(byte) = (bit / 8).checked_sub(before).and_then(|at| says.get_mut(at)) {
                    *byte ^= 1 << (bit % 8);
                }
                before += says.len();
            });
            meeting.assert_is_closed();
        }
        prop_assert_eq!(offer.user(), None);
    }

    #[test]
    fn anything_that_is_said_is_believed_by_nobody(
        pieces in prop::collection::vec(prop::collection::vec(0..12_u8, 0..100), 0..4),
    ) {
        let (trust, offer) = receiver();
        for mut meeting in [Meeting::of_sender(), Meeting::of_receiver(&trust)] {
            for piece in &pieces {
                meeting.say(piece);
            }
            meeting.assert_is_closed();
        }
        prop_assert_eq!(offer.user(), None);
    }
}
