//! Packets as another implementation makes them (`vectors.py`): keys, nonces and layout are as they are said to be.

use lacuna_secure::{Association, Cipher, End, Limits, Secret, TRAILER_BYTES};

const TEXT: &[u8] = b"a packet of twenty-six byte";

/// Cipher, epoch, end, channel, number, and the packet.
#[rustfmt::skip]
const PACKETS: [(Cipher, u64, u8, u8, u64, &str); 6] = [
    (Cipher::Aes128Gcm, 0, 0, 0, 0,
     "6465666768696a6b6c6d6e6f0aa69f4e5dcbfd523ccc1f5e6522ebcffff587b9e91590a0f52eb3000000002683382f35c54af09cde386922fcc434"),
    (Cipher::Aes128Gcm, 0, 1, 1, 2,
     "6465666768696a6b6c6d6e6fe1c53eb28017af2af5bf917e82edcb85781b6677a960c8c3fc458300000002d014c4b8d612546509524352501c7ea7"),
    (Cipher::Aes128Gcm, 1, 0, 0, 3,
     "6465666768696a6b6c6d6e6f91fcfcd60df55f5bd3164bb47e78953fe3682cd965a8c7a89bdc0340000003bdc0cd2ebfecf412f719dc0441b46296"),
    (Cipher::ChaCha20Poly1305, 0, 0, 0, 0,
     "6465666768696a6b6c6d6e6f94c180b232c0519e69edc70411456c72e3088ddc29767d43d5a6cf00000000a0282a30ff21be2dad34deafa2840776"),
    (Cipher::ChaCha20Poly1305, 0, 1, 1, 2,
     "6465666768696a6b6c6d6e6f286a8fbf83d1175f913984fb5ebb0a0b7e4a89abba36175c6c326e0000000200d4c633d13d51c8fc0458963bceda16"),
    (Cipher::ChaCha20Poly1305, 1, 0, 0, 3,
     "6465666768696a6b6c6d6e6f0537366ba3491b025dbf0c2212bb5f23a94a96142e4e164ed49c0f40000003c38236a62f1528a7d121f903815a5801"),
];

#[test]
fn packets_are_those_of_another_implementation() {
    for (cipher, epoch, end, channel, number, expected) in PACKETS {
        // The keys are replaced right before this packet, or not at all.
        let limits = match epoch {
            0 => Limits::default(),
            _ => Limits { packets: number, ..Limits::default() },
        };
        let new = |end| {
            let secret = Secret::new(std::array::from_fn(|at| at as u8));
            Association::new(cipher, secret, end, 2, limits, 0)
        };
        let end = if end == 0 { End::Connecting } else { End::Accepting };
        let (own, peer) = (new(end), new(end.other()));
        let sealed = |by: &Association| {
            let mut packet: Vec<u8> = (100..112).chain(TEXT.iter().copied()).collect();
            packet.extend([0; TRAILER_BYTES]);
            by.sealer(channel, 0).unwrap().seal(&mut packet).unwrap();
            packet
        };
        let word = sealed(&peer);
        own.opener(channel, 0).unwrap().open(&word, &mut vec![0; word.len()]).unwrap();
        let mut packet = Vec::new();
        (0..=number).for_each(|_| packet = sealed(&own));
        let found: String = packet.iter().map(|byte| format!("{byte:02x}")).collect();
        assert_eq!((found.as_str(), own.epoch()), (expected, epoch), "{cipher:?}");
    }
}
