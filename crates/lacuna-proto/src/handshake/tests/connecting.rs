//! The connecting end and what answers it.

use super::*;

#[test]
fn a_listener_that_is_something_else_is_named() {
    let Some(ConnectStep::Failed(error)) = connect_to_bytes(b"HTTP/1.1 400 Bad Request\r\n\r\n")
    else {
        panic!()
    };
    assert!(error.to_string().contains("it began with \"HTTP/1.1\""), "{error}");

    let refusal = |reason| json!({ "Refused": { "version": PROTOCOL_VERSION, "reason": reason } });
    assert_eq!(
        connect_to(&refusal("full\u{1b}[31m")),
        ConnectError::Refused("full\\u{1b}[31m".into())
    );

    let accepted = |info: Vec<u8>| {
        json!({ "Accepted":
            { "version": PROTOCOL_VERSION, "agent": "test", "is_mtu_given": false, "info": info } })
    };
    let error = connect_to(&accepted([&b"LCQP"[..], &[0; 60]].concat()));
    assert!(matches!(error, ConnectError::Info(_)), "{error}");

    // Another geometry than this end's parameters make.
    let other = Parameters { generations: 2, ..PARAMETERS }.geometry(1436, 2).unwrap();
    let error = connect_to(&accepted(info(Mode::Auto, other)));
    let what = "the number of generations";
    assert_eq!(error, ConnectError::Disagreement(Disagreement::Number { what, here: 4, there: 2 }));
    let more = Parameters { mode: Mode::SR, ..PARAMETERS }.geometry(1436, 2).unwrap();
    let error = connect_to(&accepted(info(Mode::SR, more)));
    assert!(matches!(error, ConnectError::Disagreement(Disagreement::Code { .. })), "{error}");
}

#[test]
fn a_channel_at_port_0_is_no_channel() {
    let geometry = PARAMETERS.geometry(1436, 2).unwrap();
    let mut info = lacuna_wire::QpInfo::parse(&info(Mode::Auto, geometry)).unwrap();
    info.channels[1].set_port(0);
    let accepted = json!({ "Accepted": { "version": PROTOCOL_VERSION, "agent": "test",
        "is_mtu_given": false, "info": info.emit() } });
    let error = connect_to(&accepted).to_string();
    assert!(error.contains("port 0 for channel 1"), "{error}");
}

#[test]
fn a_listener_that_says_nothing_is_waited_for_until_the_deadline() {
    let mut connect = connect(0);
    assert_eq!(connect.doing(), "introducing itself");
    connect.on_sent(connect.poll_bytes().len());
    connect.on_timeout(DEADLINE_AFTER_NS - 1);
    assert!(connect.poll().is_none());
    assert_eq!(connect.poll_timeout(), Some(DEADLINE_AFTER_NS));
    connect.on_timeout(DEADLINE_AFTER_NS);
    let error = ConnectError::TimedOut { doing: "waiting for the welcome" };
    assert!(matches!(connect.poll(), Some(ConnectStep::Failed(failed)) if failed == error));
}

/// The welcome of a listener that agrees to everything.
fn welcome() -> Vec<u8> {
    let geometry = PARAMETERS.geometry(1436, 2).unwrap();
    encode(&messages::Welcome::Accepted {
        version: PROTOCOL_VERSION,
        agent: "test".to_owned(),
        is_mtu_given: false,
        info: info(Mode::Auto, geometry),
        keeps: false,
        siblings: vec![],
    })
}

#[test]
fn the_time_until_the_ends_know_each_other_is_no_part_of_the_round_trip() {
    let welcome = welcome();
    let mut connect = connect(0);
    connect.on_authenticated(120 * MS);
    connect.on_sent(connect.poll_bytes().len());
    connect.on_bytes(160 * MS, &[&welcome[..], &[0; 4]].concat());
    assert!(matches!(connect.poll(), Some(ConnectStep::Probe(_))));
    connect.on_probing(160 * MS, Some(40 * MS));
    connect.on_goodbye();
    let Some(ConnectStep::Connected(agreed)) = connect.poll() else { panic!() };
    assert_eq!(agreed.rtt, Rtt::Measured(40 * MS));
}

#[test]
fn a_goodbye_behind_the_welcome_ends_the_search() {
    let welcome = welcome();
    let mut connect = connect(0);
    connect.on_sent(connect.poll_bytes().len());
    assert_eq!(connect.on_bytes(MS, &[&welcome[..], &[0; 4]].concat()), welcome.len());
    assert!(matches!(connect.poll(), Some(ConnectStep::Probe(_))));
    connect.on_probing(MS, None);
    connect.on_goodbye();
    let Some(ConnectStep::Connected(agreed)) = connect.poll() else { panic!() };
    assert_eq!(agreed.rtt, Rtt::Guessed(MS, MS), "what the exchange took");
}
