//! Times of single messages by the transport's own protocol, in virtual time: two engines, a queue pair on
//! each, and a link that loses packets both ways. Packets have no bytes, so a link of 400 Gbit/s costs no
//! copies.
//!
//! Receives are posted ahead, and the sender begins a message when the one before is acknowledged. So a time is
//! that of a message on a warm connection: from the first packet until all of it is at the receiver, and until
//! the sender knows that.

use lacuna_engine::harness::{Handle, Links, Net};
use lacuna_link::{Fraction, Loss, PipeConfig};
use lacuna_path::RtoConfig;
use lacuna_path::controller::ControllerConfig;
use lacuna_place::buffer::{SendBuffer, Zeros};
use lacuna_place::geometry::{Geometry, GeometryConfig};
use lacuna_place::placement::Placement;
use lacuna_proto::modes::{Mode, auto};
use lacuna_proto::qp::{PostedReceive, QpConfig, SendRequest};
use std::collections::VecDeque;
use std::sync::Arc;

/// Receives that are posted before their messages.
const RECEIVES_AHEAD: usize = 4;
/// The most that is asked for at once: by the encoder, a submessage.
const RANGE_BYTES: usize = 4 << 20;
/// Messages before the first one that counts: round trips are measured by them.
const WARM_UP: usize = 8;
/// A message that takes longer is a fault of the protocol.
const LIMIT_NS: u64 = 600_000_000_000;

/// Messages of one size on one path.
#[derive(Debug, Clone, PartialEq)]
pub(crate) struct Messages {
    pub(crate) mode: Mode,
    pub(crate) rate_bits_per_s: u64,
    pub(crate) rtt_ns: u64,
    /// Of each packet, both ways, independently.
    pub(crate) loss: f64,
    pub(crate) packet_bytes: u32,
    pub(crate) bytes: usize,
    pub(crate) count: usize,
    pub(crate) seed: u64,
}

/// How long a message took, from when its sender began.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Took {
    /// Until all of it was at the receiver.
    pub(crate) received_ns: u64,
    /// Until its sender knew that.
    pub(crate) acknowledged_ns: u64,
}

impl Messages {
    fn config(&self, queue_pair: u32) -> QpConfig {
        let geometry = GeometryConfig {
            mtu_bytes: self.packet_bytes,
            max_message_bytes: self.bytes as u64,
            code: self.mode.code(),
            ..GeometryConfig::default()
        };
        QpConfig {
            geometry: Geometry::new(geometry).expect("a geometry with that packet size"),
            mode: self.mode,
            policy: auto::plan,
            controller: ControllerConfig::Fixed { rate_bits_per_s: self.rate_bits_per_s },
            rto: RtoConfig::default(),
            queue_pair,
            rkey: 0x1000 + queue_pair,
            qkey: 0x2000 + queue_pair,
            first_psn: 7,
            credit_bytes: u32::MAX / 2,
            silence_max_ns: LIMIT_NS,
        }
    }

    /// Sends them, one by one. `None` if it was told to stop.
    ///
    /// # Panics
    /// If a message does not end, which is a fault of the protocol.
    pub(crate) fn run(&self, stop: &dyn Fn() -> bool) -> Option<Vec<Took>> {
        let path_bytes = u128::from(self.rate_bits_per_s) * u128::from(self.rtt_ns) / 8_000_000_000;
        let pipe = PipeConfig {
            delay_ns: self.rtt_ns / 2,
            rate_bits_per_s: Some(self.rate_bits_per_s),
            queue_bytes: (path_bytes as u64).max(4 << 20),
            loss: Loss::Independent(Fraction::from_f64(self.loss)),
            ..PipeConfig::default()
        };
        let (mut net, mut links) = (Net::new(), Links::new(pipe, self.seed));
        let hosts = [(); 2].map(|()| net.add_host_without_bytes(1));
        let [from, to] = net.connect(hosts, [1, 2].map(|number| self.config(number)));
        let now_ns = net.now_ns();
        // As the handshake does.
        from.qp().on_rtt_sample(now_ns, self.rtt_ns);
        let data = SendBuffer::new(Arc::new(Zeros::new(self.bytes, RANGE_BYTES)));
        let mut receives: VecDeque<PostedReceive> = VecDeque::new();
        let mut took = Vec::with_capacity(self.count);
        for message in 0..WARM_UP + self.count {
            while receives.len() < RECEIVES_AHEAD {
                receives.push_back(self.post(&mut net, &to));
            }
            if message == 0 {
                net.run_until(4 * self.rtt_ns, &mut links, |_| false);
            }
            let request = SendRequest { data: data.clone(), immediate: None, deadline_ns: None };
            let begun_ns = net.now_ns();
            let id = from.qp().queue_send(request).expect("it may wait");
            net.kick(&from);
            let receive = receives.pop_front().expect("it was posted");
            let mut received_ns = None;
            let is_over = net.run_until(LIMIT_NS, &mut links, |net| {
                if received_ns.is_none() && receive.is_complete() {
                    received_ns = Some(net.now_ns() - begun_ns);
                }
                let status = from.qp().send_status(id).expect("it is not released");
                status.outcome.is_some() || stop()
            });
            if stop() {
                return None;
            }
            assert!(is_over, "a message of {self:?} does not end");
            from.qp().release_send(id);
            let acknowledged_ns = net.now_ns() - begun_ns;
            let received_ns = received_ns.expect("what is acknowledged has come");
            if message >= WARM_UP {
                took.push(Took { received_ns, acknowledged_ns });
            }
            Self::close(&mut net, &to, &receive);
        }
        Some(took)
    }

    fn post(&self, net: &mut Net, to: &Handle) -> PostedReceive {
        let buffer = Placement::phantom(self.bytes);
        let posted = to.qp().post_receive(net.now_ns(), buffer).expect("a slot is free");
        net.kick(to);
        posted
    }

    fn close(net: &mut Net, to: &Handle, receive: &PostedReceive) {
        let mut qp = to.qp();
        receive.parts.iter().for_each(|part| _ = qp.table().close(part.number()));
        qp.on_receive_closed(net.now_ns(), receive);
        drop(qp);
        net.kick(to);
    }
}
