//! Sessions between ends that believe each other, and between ends that do not.

use lacuna_trust::{HostKey, Session, SessionError, Token, Trust};
use std::collections::VecDeque;
use std::io::{self, Read, Write};

/// One end of a stream in memory.
#[derive(Default)]
struct Stream {
    came: VecDeque<u8>,
    said: Vec<u8>,
    is_cut: bool,
}

impl Read for Stream {
    fn read(&mut self, bytes: &mut [u8]) -> io::Result<usize> {
        if self.came.is_empty() {
            return if self.is_cut { Ok(0) } else { Err(io::ErrorKind::WouldBlock.into()) };
        }
        // In small pieces, as TCP may do.
        let count = self.came.len().min(bytes.len()).min(100);
        self.came.drain(..count).zip(bytes).for_each(|(from, to)| *to = from);
        Ok(count)
    }
}

impl Write for Stream {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        self.said.extend(bytes);
        Ok(bytes.len())
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

struct Pair {
    sessions: [Session; 2],
    streams: [Stream; 2],
}

impl Pair {
    fn new(connecting: &Trust, accepting: &Trust) -> Self {
        let sessions =
            [Session::connecting(connecting).unwrap(), Session::accepting(accepting).unwrap()];
        Self { sessions, streams: Default::default() }
    }

    /// Moves bytes until nothing moves; what either end found wrong.
    fn run(&mut self) -> [Option<SessionError>; 2] {
        let mut found = [None, None];
        for _ in 0..20 {
            for (end, found) in found.iter_mut().enumerate() {
                if found.is_none() {
                    *found = self.sessions[end].pump(&mut self.streams[end]).err();
                }
                let said = std::mem::take(&mut self.streams[end].said);
                self.streams[1 - end].came.extend(said);
            }
        }
        found
    }
}

fn texts(found: &[Option<SessionError>; 2]) -> [String; 2] {
    found.each_ref().map(|error| error.as_ref().map_or_else(String::new, ToString::to_string))
}

#[test]
fn ends_with_the_same_token_speak_and_have_the_same_secrets_which_nobody_else_has() {
    let token = Token::generate().unwrap();
    let trust = Trust::of_token(&token);
    let mut pair = Pair::new(&trust, &trust);
    assert!(pair.sessions.iter_mut().all(|session| session.secret().is_err()), "too early");
    assert_eq!(texts(&pair.run()), ["", ""]);
    let mut secrets = Vec::new();
    for _ in 0..3 {
        let [here, there] = &mut pair.sessions;
        let secret = here.secret().unwrap();
        assert_eq!(secret, there.secret().unwrap());
        assert!(!secrets.contains(&secret));
        secrets.push(secret);
    }
    let mut other = Pair::new(&trust, &trust);
    other.run();
    assert!(!secrets.contains(&other.sessions[0].secret().unwrap()), "each session has its own");
    for end in [0, 1] {
        let text = vec![end as u8; 5000];
        assert_eq!(pair.sessions[end].write(&text).unwrap(), text.len());
        pair.run();
        let mut read = vec![0; 6000];
        let (mut count, session) = (0, &mut pair.sessions[1 - end]);
        while let Ok(more) = session.read(&mut read[count..]) {
            count += more;
            session.pump(&mut pair.streams[1 - end]).unwrap();
        }
        assert_eq!(read[..count], text);
    }
}

#[test]
fn each_end_learns_who_the_other_is() {
    let keys = [HostKey::generate().unwrap(), HostKey::generate().unwrap()];
    let [a, b] = [0, 1].map(|end| Trust::of_keys(&keys[end], [keys[1 - end].public()]));
    let mut pair = Pair::new(&a, &b);
    assert_eq!(pair.sessions[0].peer(), None);
    assert_eq!(texts(&pair.run()), ["", ""]);
    assert_eq!(pair.sessions[0].peer(), Some(keys[1].public()));
    assert_eq!(pair.sessions[1].peer(), Some(keys[0].public()));
}

#[test]
fn who_is_not_believed_hears_so_and_nothing_else() {
    let [a, b, stranger] = [(); 3].map(|()| HostKey::generate().unwrap());
    let believes = |own: &HostKey, other: &HostKey| Trust::of_keys(own, [other.public()]);
    // The connecting end does not know the accepting one.
    let mut pair = Pair::new(&believes(&a, &stranger), &believes(&b, &a));
    let found = pair.run();
    assert!(
        matches!(found, [Some(SessionError::Untrusted), Some(SessionError::Refused)]),
        "{found:?}"
    );
    // And the other way round.
    let mut pair = Pair::new(&believes(&a, &b), &believes(&b, &stranger));
    let found = pair.run();
    assert!(
        matches!(found, [Some(SessionError::Refused), Some(SessionError::Untrusted)]),
        "{found:?}"
    );
    assert!(pair.sessions[1].write(b"secret").is_err() && pair.sessions[1].secret().is_err());
    let [token, other] = [(); 2].map(|()| Trust::of_token(&Token::generate().unwrap()));
    let found = Pair::new(&token, &other).run();
    assert!(
        matches!(found, [Some(SessionError::Untrusted), Some(SessionError::Refused)]),
        "{found:?}"
    );
}

#[test]
fn whoever_meddles_with_the_handshake_ends_it() {
    let trust = Trust::of_token(&Token::generate().unwrap());
    for at in (0..4000_usize).step_by(37) {
        let mut pair = Pair::new(&trust, &trust);
        let mut passed = 0;
        let mut found: [Option<SessionError>; 2] = [None, None];
        for _ in 0..10 {
            for (end, found) in found.iter_mut().enumerate() {
                if found.is_none() {
                    *found = pair.sessions[end].pump(&mut pair.streams[end]).err();
                }
                let mut said = std::mem::take(&mut pair.streams[end].said);
                if let Some(byte) = said.get_mut(at.wrapping_sub(passed)) {
                    *byte ^= 0x10;
                }
                passed += said.len();
                pair.streams[1 - end].came.extend(said);
            }
        }
        let both = pair.sessions.iter().all(|session| !session.is_handshaking());
        assert!(
            found.iter().any(Option::is_some) || !both || passed <= at,
            "byte {at} was changed"
        );
    }
}

#[test]
fn what_is_no_tls_is_an_error_and_a_cut_stream_an_end() {
    let trust = Trust::of_token(&Token::generate().unwrap());
    let mut session = Session::accepting(&trust).unwrap();
    let mut stream = Stream::default();
    stream.came.extend(b"LACUNA\r\n and more that is no TLS");
    assert!(matches!(session.pump(&mut stream), Err(SessionError::Tls(_))));
    let mut session = Session::accepting(&trust).unwrap();
    let mut stream = Stream { is_cut: true, ..Stream::default() };
    assert!(session.pump(&mut stream).unwrap());
}
