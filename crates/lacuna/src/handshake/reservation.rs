//! A queue pair's number and keys, taken before its peer is known, and the queue pair that is made of
//! them once both ends have agreed.

use crate::address::ScopedIp;
use crate::config::{Chosen, ConnectionConfig};
use crate::context::Context;
use crate::error::QueuePairError;
use crate::queue_pair::{Keys, Owner, QueuePair, join, protocol};
use crate::shared::Shared;
use lacuna_engine::kinds::Early;
use lacuna_engine::{Lane, Machine};
use lacuna_path::report_policy::ReportPolicy;
use lacuna_place::geometry::Geometry;
use lacuna_proto::handshake::{End, Rtt};
use lacuna_proto::qp::Peer;
use std::net::SocketAddr;
use std::sync::Arc;

/// Ends the queue pair when the exchange does not get through.
pub(super) struct Reservation {
    owner: Arc<Owner>,
    keys: Keys,
}

/// What a queue pair is made and connected with.
pub(super) struct Terms {
    pub(super) config: ConnectionConfig,
    pub(super) geometry: Geometry,
    pub(super) peer: Peer,
    /// When the peer wants reports, if not by the default.
    pub(super) reports: Option<ReportPolicy>,
    pub(super) addresses: Vec<Option<SocketAddr>>,
    pub(super) rtt: Option<Rtt>,
    /// How long to prove that packets pass.
    pub(super) patience_ns: u64,
}

impl Reservation {
    pub(super) fn new(context: &Context) -> Result<Self, QueuePairError> {
        let keys = Keys::random()?;
        let shared = context.roster().open(keys.qkey, |_| Machine::Reserved(Early::default()))?;
        Ok(Self { owner: Arc::new(Owner::new(context, shared)), keys })
    }

    pub(super) fn shared(&self) -> &Shared {
        &self.owner.shared
    }

    /// The number and key that the peer's control packets carry.
    pub(super) fn local(&self) -> (u32, u32) {
        (self.owner.shared.number(), self.keys.qkey)
    }

    /// How the peer reaches it.
    pub(super) fn end(&self) -> End {
        let context = &self.owner.context;
        End {
            queue_pair: self.owner.shared.number(),
            rkey: self.keys.rkey,
            qkey: self.keys.qkey,
            first_psn: self.keys.first_psn,
            credit_bytes: context.roster().credit_now(),
            ports: context.addresses().iter().map(SocketAddr::port).collect(),
        }
    }

    /// Makes the queue pair that both ends have agreed on, connected, and takes
    /// in what came for it.
    pub(super) fn settle(self, terms: Terms) -> (QueuePair, Chosen) {
        let Terms { config, geometry, peer, reports, addresses, rtt, patience_ns } = terms;
        let rtt_ns = rtt.map(Rtt::most_ns);
        let Self { owner, keys } = self;
        let (context, shared) = (&owner.context, &owner.shared);
        let now_ns = context.clock().now_ns();
        let host = addresses.iter().flatten().next().copied().map(ScopedIp::from);
        let known = host.zip(rtt).map(|(host, rtt)| context.remembered(host, rtt.range_ns()));
        let mut remembered = known.unwrap_or_default();
        remembered.start = config.start_rate().or(remembered.start);
        let start = remembered.start;
        let rtt = remembered.rtt_ns.map(Rtt::Measured).or(rtt);
        let mut qp = protocol(shared.number(), &config, geometry, &keys, 0);
        let writers = join(context, &mut qp, &addresses, peer, rtt, remembered);
        if let Some(reports) = reports {
            qp.set_report_policy(reports);
        }
        qp.prove(now_ns, patience_ns);
        {
            let mut state = shared.lock();
            state.addresses = addresses.into_iter().collect();
            state.machine.connect(qp);
        }
        context.roster().hand_out(shared.number(), writers.into_iter().map(Lane::Sdr));
        if let Some(host) = host {
            context.roster().note_peer(host, shared);
            owner.peer.set(host).ok();
        }
        // Only now, when a change of the shares reaches this queue pair too.
        context.roster().share_credit(Some(shared));
        let credit_bytes = peer.credit_bytes;
        let chosen = Chosen::new(&config, &geometry, context, credit_bytes, rtt_ns, start);
        (QueuePair { owner }, chosen)
    }
}
