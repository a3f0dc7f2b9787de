//! Which cipher is the faster one on this host: AES where the processor has instructions for it, ChaCha20 elsewhere (RFC 8446, B.4;
//! RFC 8439, 1). It is measured, in less than a millisecond, once in a process: whether instructions are there does not say
//! whether they are used.

use lacuna_secure::{Association, Cipher, End, Limits, SECRET_BYTES, Secret};
use std::sync::OnceLock;
use std::time::{Duration, Instant};

/// A packet as long as most.
const PACKET_BYTES: usize = 1452;
/// Packets that are timed at a time, and how often: the shortest time counts, as others may have the processor meanwhile.
const PACKETS: u32 = 16;
const ROUNDS: u32 = 5;

/// The faster cipher. AES if they are equally fast to a tenth, so that what chance makes of a measurement decides nothing.
pub(crate) fn fastest() -> Cipher {
    static FASTEST: OnceLock<Cipher> = OnceLock::new();
    *FASTEST.get_or_init(|| {
        let [aes, chacha] = [Cipher::Aes128Gcm, Cipher::ChaCha20Poly1305].map(time_of);
        faster(aes, chacha)
    })
}

fn faster(aes: Duration, chacha: Duration) -> Cipher {
    match chacha * 11 < aes * 10 {
        true => Cipher::ChaCha20Poly1305,
        false => Cipher::Aes128Gcm,
    }
}

fn time_of(cipher: Cipher) -> Duration {
    let secret = Secret::new([0; SECRET_BYTES]);
    let association = Association::new(cipher, secret, End::Connecting, 1, Limits::default(), 0);
    let mut packet = [0; PACKET_BYTES];
    let rounds = (0..ROUNDS).map(|_| {
        let began = Instant::now();
        if let Some(mut sealer) = association.sealer(0, 0) {
            for _ in 0..PACKETS {
                // Of a key that is new, and a packet that is long enough.
                let _ = sealer.seal(std::hint::black_box(&mut packet));
            }
        }
        began.elapsed()
    });
    rounds.min().unwrap_or_default()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_cipher_that_takes_clearly_less_time_is_chosen() {
        let ns = Duration::from_nanos;
        assert_eq!(faster(ns(1000), ns(3000)), Cipher::Aes128Gcm);
        assert_eq!(faster(ns(1000), ns(950)), Cipher::Aes128Gcm, "by chance, perhaps");
        assert_eq!(faster(ns(3000), ns(1000)), Cipher::ChaCha20Poly1305);
        assert!(Cipher::ALL.into_iter().all(|cipher| time_of(cipher) > Duration::ZERO));
    }
}
