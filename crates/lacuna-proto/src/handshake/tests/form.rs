//! The form of packets that both ends agree on.

use super::*;

fn ends(here: &str, peer: &str) -> Option<WireEnds> {
    Some(WireEnds { here: here.parse().unwrap(), peer: peer.parse().unwrap() })
}

/// The hello that asks for the form of RDMA, as the accepting end reads it.
fn rdma_hello() -> Box<Hello> {
    let parameters = Parameters { wire: Wire::Rdma, ..PARAMETERS };
    let offer = Offer { ends: ends("10.0.0.1:1", "10.0.0.2:2"), ..offer(parameters) };
    let connect = Connect::new(0, offer, DEADLINE_AFTER_NS, None);
    let mut accept = Accept::new(DEADLINE_AFTER_NS);
    accept.on_bytes(1, connect.poll_bytes());
    let Some(AcceptStep::Decide(hello)) = accept.poll() else { panic!("no hello") };
    hello
}

#[test]
fn the_connecting_ends_form_of_packets_holds_for_both() {
    let (parameters, geometry) = rdma_hello().negotiate(&HOST).unwrap();
    assert_eq!((parameters.wire, geometry.seal()), (Wire::Rdma, Wire::Rdma.seal()));
    // All packets have addresses, and full ones fit all the same.
    assert_eq!(geometry.overhead_bytes(false), geometry.overhead_bytes(true));
    assert_eq!(geometry.mtu_bytes(), 1436);
}

#[test]
fn an_address_that_was_translated_is_named() {
    let hello = rdma_hello();
    for (here, passes) in [
        (ends("10.0.0.2:2", "10.0.0.1:1"), true),
        (ends("[::ffff:10.0.0.2]:2", "[::ffff:10.0.0.1]:1"), true),
        (None, true),
        (ends("10.0.0.2:2", "192.0.2.7:1"), false),
        (ends("10.0.0.2:2", "10.0.0.1:7"), false),
        (ends("192.168.0.2:2", "10.0.0.1:1"), false),
        (ends("10.0.0.2:8", "10.0.0.1:1"), false),
    ] {
        assert_eq!(hello.check_path(here).is_ok(), passes, "{here:?}");
    }
    let error = hello.check_path(ends("10.0.0.2:2", "192.0.2.7:99")).unwrap_err();
    assert!(error.contains("(your 10.0.0.1:1 is 192.0.2.7:99 here)"), "{error}");
}

#[test]
fn a_form_that_this_end_does_not_know_is_refused() {
    let mut hello = hello();
    hello["wire"] = json!({ "form": "long", "ends": null });
    let mut accept = Accept::new(DEADLINE_AFTER_NS);
    accept.on_bytes(1, &message(hello.to_string().as_bytes()));
    let Some(AcceptStep::Decide(hello)) = accept.poll() else { panic!("no hello") };
    let error = hello.negotiate(&HOST).unwrap_err();
    assert!(error.contains("unknown wire \"long\""), "{error}");
}

/// A peer of before does not read that field of the hello, and welcomes with the form that it knows.
#[test]
fn a_peer_that_does_not_know_the_form_is_noticed() {
    let parameters = Parameters { wire: Wire::Rdma, ..PARAMETERS };
    let mut connect = Connect::new(0, offer(parameters), DEADLINE_AFTER_NS, None);
    let info = info(Mode::Auto, PARAMETERS.geometry(1436, 2).unwrap());
    let accepted = json!({ "Accepted":
        { "version": PROTOCOL_VERSION, "agent": "test", "is_mtu_given": false, "info": info } });
    connect.on_bytes(1, &message(accepted.to_string().as_bytes()));
    let Some(ConnectStep::Failed(error)) = connect.poll() else { panic!("it agrees") };
    let text = error.to_string();
    assert!(text.contains("the form of packets: rdma here, short at the peer"), "{text}");
}
