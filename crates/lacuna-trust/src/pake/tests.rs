//! Answers that another implementation gives, and what a proof is bound to.

use super::*;

fn bytes<const N: usize>(hex: &str) -> [u8; N] {
    assert_eq!(hex.len(), 2 * N);
    std::array::from_fn(|at| u8::from_str_radix(&hex[2 * at..2 * at + 2], 16).unwrap())
}

/// From python-spake2's `test_compat.SPAKE2.test_asymmetric`: password "password", identities "idA" and "idB".
#[test]
fn messages_and_key_are_those_of_another_implementation() {
    let drawn = |scalar: &str| {
        let mut wide = Zeroizing::new([0; 64]);
        wide[..32].copy_from_slice(&bytes::<32>(scalar));
        Drawn(wide)
    };
    let identities = [b"idA", b"idB"].map(|id| Zeroizing::new(id.to_vec()));
    let begin = |role, scalar| Pake::begin_with(role, b"password", &identities, drawn(scalar));
    let (a, said_a) =
        begin(Role::Connecting, "25184061a70b1142f1a9f043a52cf7033dc308b5a0a32e42b003ecd59c2ac605");
    let (b, said_b) =
        begin(Role::Accepting, "9fb5e845084e0cbe27ac8b4d3af139b33f3f8a047d4234e2d45d33c5cd367b0f");
    let [point_a, point_b] = [
        "416fc960df73c9cf8ed7198b0c9534e2e96a5984bfc5edc023fd24dacf371f2af9",
        "42354e97b88406922b1df4bea1d7870f17aed3dba7c720b313edae315b00959309",
    ];
    assert_eq!(said_a, bytes::<MESSAGE_BYTES>(point_a));
    assert_eq!(said_b, bytes::<MESSAGE_BYTES>(point_b));
    let key = bytes::<32>("712295de7219c675ddd31942184aa26e0a957cf216bc230d165b215047b520c1");
    assert_eq!(a.state.finish(&said_b).unwrap(), key);
    assert_eq!(b.state.finish(&said_a).unwrap(), key);
}

fn binding(role: Role, own: u8, peer: u8, session: u8) -> Binding {
    let [own, peer] = [own, peer].map(|byte| PublicKey::new([byte; 32]));
    Binding { role, own, peer, session: Zeroizing::new([session; 32]) }
}

/// Whether each end finds the other's confirmation right.
fn exchange(codes: [&str; 2], bindings: [Binding; 2]) -> [bool; 2] {
    let codes = codes.map(|code| code.parse().unwrap());
    let [(a, said_a), (b, said_b)] =
        [0, 1].map(|end| Pake::begin(&codes[end], &bindings[end]).unwrap());
    let [a, b] = [a.finish(&said_b).unwrap(), b.finish(&said_a).unwrap()];
    assert_ne!(a.own, b.own, "an end cannot be shown its own confirmation");
    assert!(!a.is_right(&a.own) && !b.is_right(&b.own));
    [a.is_right(&b.own), b.is_right(&a.own)]
}

#[test]
fn confirmations_are_right_for_the_same_code_keys_roles_and_session_only() {
    use Role::{Accepting, Connecting};
    let codes = ["k7q-2mx"; 2];
    let a = binding(Connecting, 1, 2, 3);
    assert_eq!(exchange(codes, [a.clone(), binding(Accepting, 2, 1, 3)]), [true; 2]);
    for other in [
        // Another session, another key that the peer shows, another key that the peer sees.
        binding(Accepting, 2, 1, 4),
        binding(Accepting, 9, 1, 3),
        binding(Accepting, 2, 9, 3),
    ] {
        assert_eq!(exchange(codes, [a.clone(), other]), [false; 2]);
    }
    let other = ["k7q-2mx", "k7q-2my"];
    assert_eq!(exchange(other, [a, binding(Accepting, 2, 1, 3)]), [false; 2]);
}

#[test]
fn an_end_does_not_take_its_own_message_nor_one_that_is_no_point() {
    let code = "k7q-2mx".parse().unwrap();
    let begin = || Pake::begin(&code, &binding(Role::Connecting, 1, 2, 3)).unwrap();
    let (pake, mut said) = begin();
    assert!(pake.finish(&said).is_none(), "of its own side");
    said[0] = b'B';
    let (pake, _) = begin();
    assert!(pake.finish(&said[..32]).is_none());
    // Its own point under the other side's name gives a key which nobody who lacks the code can confirm.
    let (pake, mut said) = begin();
    said[0] = b'B';
    let reflected = pake.finish(&said).unwrap();
    assert!(!reflected.is_right(&reflected.own));
    // y = 2 is not on the curve.
    let mut none = [0; MESSAGE_BYTES];
    (none[0], none[1]) = (b'B', 2);
    assert!(begin().0.finish(&none).is_none());
}
