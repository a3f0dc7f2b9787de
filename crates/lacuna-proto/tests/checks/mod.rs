//! What must hold for both ends of the handshake, whatever a stranger says and whenever: no panic,
//! no byte taken beyond the message, no more asked for than a message may have, one outcome by the
//! deadline. Shared by the tests and the fuzz target.

use lacuna_proto::handshake::goodbye::Goodbye;
use lacuna_proto::handshake::{
    Accept, AcceptStep, Connect, ConnectStep, End, HostLimits, Offer, Parameters, Welcoming, Wire,
};
use lacuna_proto::modes::Mode;
use lacuna_wire::ImmediateSplit;

const SECOND: u64 = 1_000_000_000;
const DEADLINE_NS: u64 = 10 * SECOND;
/// Longest message and its head, with some bytes to spare.
const WANTED_MAX: usize = 17 << 10;

/// The first byte chooses what happens, bit by bit; the rest is what the stranger says.
pub(crate) fn handshake(input: &[u8]) {
    let Some((how, said)) = input.split_first() else { return };
    let is_reused = how & 1 != 0;
    // Bytes that come together, from 1 to all.
    let part_bytes = if how & 2 != 0 { usize::from(how >> 4) + 1 } else { usize::MAX };
    accept(said, is_reused, part_bytes, how & 4 != 0);
    connect(said, is_reused, part_bytes, how & 8 != 0);
}

/// What the stranger says, in parts.
fn parts(said: &[u8], part_bytes: usize) -> impl Iterator<Item = &[u8]> {
    said.chunks(part_bytes.min(said.len()).max(1))
}

fn accept(said: &[u8], is_reused: bool, part_bytes: usize, is_fixed: bool) {
    let mut accept = match is_reused {
        true => Accept::after_goodbye(Goodbye::default(), DEADLINE_NS),
        false => Accept::new(DEADLINE_NS),
    };
    for part in parts(said, part_bytes) {
        let wanted = accept.wanted();
        assert!(wanted <= WANTED_MAX);
        let taken = accept.on_bytes(SECOND, part);
        assert!(taken <= part.len() && (wanted > 0 || taken == 0));
    }
    let host = HostLimits {
        mtu_bytes: is_fixed.then_some(1024),
        packet_bytes: (!is_fixed).then_some(1500),
        header_bytes: 28,
        channels: 4,
    };
    let mut outcomes = 0;
    loop {
        match accept.poll() {
            Some(AcceptStep::Decide(hello)) => match hello.negotiate(&host) {
                Ok((_, geometry)) => {
                    assert!((1..=4).contains(&geometry.channels()));
                    let _ = (hello.end.peer(), hello.reports(), hello.check_path(None));
                    let info = vec![0; 100];
                    let (keeps, siblings) = (hello.keeps, hello.siblings());
                    let is_mtu_given = is_fixed;
                    accept.welcome(Welcoming { is_mtu_given, info, keeps, siblings });
                }
                Err(reason) => accept.refuse(reason),
            },
            Some(AcceptStep::Welcomed | AcceptStep::Failed(_)) => outcomes += 1,
            None => {
                let left = accept.poll_bytes().len();
                if left == 0 {
                    break;
                }
                accept.on_sent(left.min(part_bytes));
            }
        }
    }
    accept.on_timeout(DEADLINE_NS);
    accept.on_broken();
    outcomes += usize::from(matches!(accept.poll(), Some(AcceptStep::Failed(_))));
    assert_eq!(outcomes, 1);
    assert!(accept.poll().is_none() && accept.poll_timeout().is_none());
}

fn connect(said: &[u8], is_reused: bool, part_bytes: usize, is_late: bool) {
    let mut connect =
        Connect::new(0, offer(), DEADLINE_NS, is_reused.then(|| (Goodbye::default(), 30_000_000)));
    connect.on_sent(connect.poll_bytes().len());
    let now_ns = if is_late { 9 * SECOND } else { SECOND };
    connect.on_timeout(now_ns);
    let mut outcomes = 0;
    for part in parts(said, part_bytes) {
        if let Some(step) = connect.poll() {
            outcomes += on_step(&mut connect, step, now_ns);
        }
        let wanted = connect.wanted();
        assert!(wanted <= WANTED_MAX);
        let taken = connect.on_bytes(now_ns, part);
        assert!(taken <= part.len() && (wanted > 0 || taken == 0));
    }
    while let Some(step) = connect.poll() {
        outcomes += on_step(&mut connect, step, now_ns);
    }
    connect.on_goodbye();
    connect.on_broken(now_ns);
    connect.on_timeout(DEADLINE_NS);
    connect.on_sent(connect.poll_bytes().len());
    while let Some(step) = connect.poll() {
        outcomes += on_step(&mut connect, step, DEADLINE_NS);
    }
    assert_eq!(outcomes, 1);
    assert!(connect.poll_timeout().is_none());
}

/// What the owner does; 1 if that was the outcome.
fn on_step(connect: &mut Connect, step: ConnectStep, now_ns: u64) -> usize {
    match step {
        ConnectStep::CheckDelivery => connect.on_delivery(true),
        ConnectStep::Probe(plan) => {
            assert!(!plan.candidates.is_empty() && !plan.ports.is_empty());
            connect.on_probing(now_ns, Some(20_000_000));
        }
        ConnectStep::Connected(agreed) => {
            assert_eq!(agreed.ports.len(), usize::from(agreed.geometry.channels()));
            return 1;
        }
        ConnectStep::Reconnect { .. } | ConnectStep::Stale(_) | ConnectStep::Failed(_) => return 1,
    }
    0
}

/// What the connecting end of all inputs says of itself.
pub(crate) fn offer() -> Offer {
    let parameters = Parameters {
        mode: Mode::Auto,
        chunk_bytes: 1,
        mtu_bytes: None,
        split: ImmediateSplit::DEFAULT,
        generations: 4,
        max_message_bytes: 0,
        tag: 0,
        wire: Wire::Short,
    };
    let end = End {
        queue_pair: 1,
        rkey: 6,
        qkey: 7,
        first_psn: 8,
        credit_bytes: 1 << 20,
        ports: vec![9, 10],
    };
    Offer {
        parameters,
        end,
        packet_bytes: Some(1500),
        keeps: true,
        reports: None,
        siblings: vec![],
        ends: None,
    }
}
