//! Sessions between ends that believe each other, and between ends that do not.

mod common;

use common::{Pair, Stream, texts};
use lacuna_trust::{Code, HostKey, Session, SessionError, Token, Trust};

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

/// Whether a byte of some records of TLS is of a version that must not be looked at (RFC 8446, 5.1).
fn is_legacy_version(records: &[u8], at: usize) -> bool {
    let mut start = 0;
    while let Some([_, _, _, high, low]) = records.get(start..start + 5) {
        let end = start + 5 + usize::from(u16::from_be_bytes([*high, *low]));
        if at < end {
            return at == start + 1 || at == start + 2;
        }
        start = end;
    }
    false
}

#[test]
fn whoever_meddles_with_the_handshake_ends_it() {
    let trust = Trust::of_token(&Token::generate().unwrap());
    for at in (0..4000_usize).step_by(37) {
        let mut pair = Pair::new(&trust, &trust);
        let (mut passed, mut is_looked_at) = (0, true);
        let mut found: [Option<SessionError>; 2] = [None, None];
        for _ in 0..10 {
            for (end, found) in found.iter_mut().enumerate() {
                if found.is_none() {
                    *found = pair.sessions[end].pump(&mut pair.streams[end]).err();
                }
                let mut said = std::mem::take(&mut pair.streams[end].said);
                if let Some(at) = at.checked_sub(passed).filter(|at| *at < said.len()) {
                    is_looked_at = !is_legacy_version(&said, at);
                    said[at] ^= 0x10;
                }
                passed += said.len();
                pair.streams[1 - end].came.extend(said);
            }
        }
        let both = pair.sessions.iter().all(|session| !session.is_handshaking());
        assert!(
            found.iter().any(Option::is_some) || !both || passed <= at || !is_looked_at,
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

#[test]
fn a_key_is_judged_late_and_only_of_one_that_believes_this_end() {
    use std::sync::{Arc, Mutex};
    let [a, b] = [(); 2].map(|()| HostKey::generate().unwrap());
    let asked = Arc::<Mutex<Vec<_>>>::default();
    let asking = |answer: bool| {
        let asked = asked.clone();
        Trust::asking(&a, move |key| {
            asked.lock().unwrap().push(*key);
            answer
        })
    };
    let believes = Trust::of_keys(&b, [a.public()]);
    // Nothing is said before the key was judged.
    let mut pair = Pair::new(&asking(false), &believes);
    while asked.lock().unwrap().is_empty() {
        assert!(pair.sessions[0].is_handshaking());
        assert!(pair.sessions[0].write(b"secret").is_err() && pair.sessions[0].secret().is_err());
        let found = [0, 1].map(|end| pair.step(end));
        assert!(found[1].is_none(), "{found:?}");
    }
    assert_eq!(asked.lock().unwrap().drain(..).collect::<Vec<_>>(), [b.public()]);
    assert!(matches!(pair.run()[0], Some(SessionError::Untrusted)));
    assert!(pair.sessions[0].write(b"secret").is_err());

    let mut pair = Pair::new(&asking(true), &believes);
    assert_eq!(texts(&pair.run()), ["", ""]);
    assert_eq!(pair.sessions[0].peer(), Some(b.public()));
    assert_eq!(pair.sessions[0].secret().unwrap(), pair.sessions[1].secret().unwrap());
    asked.lock().unwrap().clear();

    // One that wants a code, one that does not believe this end, and one that connects to it.
    let (offering, _) = Trust::offering(&b, Code::generate().unwrap());
    let found = Pair::new(&asking(true), &offering).run();
    assert!(matches!(found[0], Some(SessionError::CodeWanted)), "{found:?}");
    let found = Pair::new(&asking(true), &Trust::of_keys(&b, [b.public()])).run();
    assert!(matches!(found[0], Some(SessionError::Refused)), "{found:?}");
    let found = Pair::new(&Trust::of_keys(&b, [a.public()]), &asking(true)).run();
    assert!(matches!(found[1], Some(SessionError::Untrusted)), "{found:?}");
    assert!(asked.lock().unwrap().is_empty());
}
