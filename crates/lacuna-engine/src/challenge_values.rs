//! The values of path challenges: a pseudorandom function of a secret and a counter, so that who has seen some of them
//! cannot guess the next one (RFC 9000, 8.2.1: unpredictable), and the same secret gives the same values.

use lacuna_secure::Secret;

/// Draws values.
#[derive(Debug)]
pub(crate) struct ChallengeValues {
    secret: Secret,
    drawn: u64,
}

impl ChallengeValues {
    pub(crate) fn new(secret: Secret) -> Self {
        Self { secret, drawn: 0 }
    }

    pub(crate) fn draw(&mut self) -> u64 {
        self.drawn += 1;
        self.secret.number(b"lacuna path challenge", self.drawn)
    }
}
