//! A control connection that is reused, and what both ends agree on.

use super::*;

#[test]
fn a_reused_connection_that_breaks_or_acknowledges_nothing_is_dead() {
    let mut connect = over_reused(0);
    connect.on_broken(1);
    assert!(matches!(connect.poll(), Some(ConnectStep::Stale(ConnectError::Broken { .. }))));

    // A goodbye of the last use that is none.
    let mut connect = over_reused(0);
    connect.on_bytes(1, &[0xFF; 4]);
    assert!(matches!(connect.poll(), Some(ConnectStep::Stale(_))));

    let mut connect = over_reused(50 * MS);
    assert_eq!(connect.poll_timeout(), Some(SECOND + 200 * MS));
    connect.on_timeout(SECOND + 200 * MS);
    assert!(matches!(connect.poll(), Some(ConnectStep::CheckDelivery)));
    connect.on_delivery(false);
    assert!(matches!(connect.poll(), Some(ConnectStep::Stale(ConnectError::TimedOut { .. }))));
}

#[test]
fn a_hello_that_has_arrived_is_waited_with() {
    let mut connect = over_reused(0);
    connect.on_timeout(SECOND);
    assert!(matches!(connect.poll(), Some(ConnectStep::CheckDelivery)));
    connect.on_delivery(true);
    assert_eq!((connect.poll().is_none(), connect.poll_timeout()), (true, Some(DEADLINE_AFTER_NS)));
    connect.on_timeout(DEADLINE_AFTER_NS);
    assert!(matches!(connect.poll(), Some(ConnectStep::Failed(ConnectError::TimedOut { .. }))));
}

#[test]
fn a_refusal_over_a_reused_connection_is_a_refusal() {
    let mut connect = over_reused(0);
    let refusal = json!({ "Refused": { "version": PROTOCOL_VERSION, "reason": "no" } });
    let said = [&[0; 4][..], &message(refusal.to_string().as_bytes())].concat();
    assert_eq!(connect.on_bytes(1, &said), said.len());
    assert!(matches!(connect.poll(), Some(ConnectStep::Failed(ConnectError::Refused(_)))));
}

#[test]
fn an_accepting_end_reports_as_the_connecting_ends_controller_wants() {
    let wanted = ReportsInfo {
        bytes_max: 16 << 10,
        delay_ns_min: 20_000,
        delay_ns_max: 100_000,
        gap_delay_ns_min: 10_000,
        per_rtt: 4,
        on_mark: true,
    };
    let heard = |reports| {
        let connect =
            Connect::new(0, Offer { reports, ..offer(PARAMETERS) }, DEADLINE_AFTER_NS, None);
        let mut accept = Accept::new(DEADLINE_AFTER_NS);
        accept.on_bytes(1, connect.poll_bytes());
        let Some(AcceptStep::Decide(hello)) = accept.poll() else { panic!("no hello") };
        hello.reports()
    };
    assert_eq!(heard(Some(wanted)).and_then(|policy| policy.to_peer()), Some(wanted));
    assert_eq!(heard(None), None);
}

#[test]
fn siblings_are_agreed_on_if_both_ends_know_them() {
    let peer = Peer { queue_pair: 300, rkey: 1, qkey: 2, first_psn: 3, credit_bytes: 4 };
    let here = Sibling { role: Role::OneSided, peer };
    let there = Sibling { role: Role::OneSided, peer: Peer { queue_pair: 400, ..peer } };
    let agreed = |offered: &[Sibling], answered: &[Sibling]| {
        let siblings = offered.to_vec();
        let offer = Offer { siblings, ..offer(PARAMETERS) };
        let mut connect = Connect::new(0, offer, DEADLINE_AFTER_NS, None);
        let mut accept = Accept::new(DEADLINE_AFTER_NS);
        accept.on_bytes(1, connect.poll_bytes());
        let Some(AcceptStep::Decide(hello)) = accept.poll() else { panic!("no hello") };
        assert_eq!(hello.siblings(), offered);
        let info = info(Mode::Auto, PARAMETERS.geometry(1436, 2).unwrap());
        let (is_mtu_given, keeps, siblings) = (false, false, answered.to_vec());
        accept.welcome(Welcoming { is_mtu_given, info, keeps, siblings });
        connect.on_sent(connect.poll_bytes().len());
        connect.on_bytes(2, accept.poll_bytes());
        let Some(ConnectStep::Probe(_)) = connect.poll() else { panic!("not welcome") };
        connect.on_probing(3, Some(1));
        connect.on_goodbye();
        let Some(ConnectStep::Connected(agreed)) = connect.poll() else { panic!("not agreed") };
        agreed.siblings
    };
    assert_eq!(agreed(&[here], &[there]), [there]);
    assert_eq!(agreed(&[here], &[]), []);
    assert_eq!(agreed(&[], &[there]), [], "nobody asked for it");
}
