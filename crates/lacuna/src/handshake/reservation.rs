//! Reserves a queue pair's number and keys for the handshake, and makes the queue pair once both
//! ends have agreed.

use crate::address::ScopedIp;
use crate::config::{Chosen, ConnectionConfig};
use crate::context::Context;
use crate::error::QueuePairError;
use crate::queue_pair::{Keys, Owner, QueuePair, connect_qp, new_qp};
use crate::shared::Shared;
use lacuna_engine::kinds::Early;
use lacuna_engine::{Lane, Machine};
use lacuna_path::report_policy::ReportPolicy;
use lacuna_place::geometry::Geometry;
use lacuna_proto::handshake::{End, Role, Rtt, Sibling};
use lacuna_proto::qp::Peer;
use lacuna_secure::{Association, Cipher, End as SecureEnd, Limits, Secret};
use lacuna_wire::Seal;
use std::net::SocketAddr;
use std::sync::Arc;

/// A reserved number with its keys; dropping it frees the number.
pub(super) struct Reservation {
    owner: Arc<Owner>,
    keys: Keys,
}

/// Parameters of the queue pair to make and connect.
pub(super) struct Terms {
    pub(super) config: ConnectionConfig,
    pub(super) geometry: Geometry,
    pub(super) peer: Peer,
    /// The peer's report policy, unless it is the default.
    pub(super) reports: Option<ReportPolicy>,
    pub(super) addresses: Vec<Option<SocketAddr>>,
    pub(super) rtt: Option<Rtt>,
    /// How long the channels may take to prove that packets pass.
    pub(super) probe_timeout_ns: u64,
}

impl Reservation {
    /// `seal`: of all its packets.
    pub(super) fn new(context: &Context, seal: Seal) -> Result<Self, QueuePairError> {
        let keys = Keys::random()?;
        let machine = |_| Machine::Reserved(Early::default());
        let shared = context.roster().open_sealed(keys.qkey, seal, machine)?;
        Ok(Self { owner: Arc::new(Owner::new(context, shared)), keys })
    }

    pub(super) fn shared(&self) -> &Shared {
        &self.owner.shared
    }

    /// Sets the keys of its packets, which follow from the secret of the connection.
    pub(super) fn secure(
        &self,
        (cipher, secret): &(Cipher, Secret),
        own: SecureEnd,
        role: Option<Role>,
    ) {
        let context = &self.owner.context;
        let secret =
            secret.derive(b"lacuna queue pair", role.map_or("main", Role::name).as_bytes());
        let (channels, now_ns) = (context.config().channels, context.clock().now_ns());
        let association =
            Association::new(*cipher, secret, own, channels, Limits::default(), now_ns);
        self.shared().books().secure(association);
    }

    /// The queue pair number and Q_Key that the peer's control packets carry.
    pub(super) fn local(&self) -> (u32, u32) {
        (self.owner.shared.number(), self.keys.qkey)
    }

    /// This queue pair as a sibling of another.
    pub(super) fn sibling(&self, role: Role) -> Sibling {
        let End { queue_pair, rkey, qkey, first_psn, credit_bytes, .. } = self.end();
        Sibling { role, peer: Peer { queue_pair, rkey, qkey, first_psn, credit_bytes } }
    }

    /// This end as the peer addresses it.
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

    /// Makes and connects the queue pair that both ends agreed on. It takes the packets that
    /// arrived early.
    pub(super) fn into_queue_pair(self, terms: Terms) -> (QueuePair, Chosen) {
        self.into_prepared(terms, |_| ())
    }

    /// Makes and connects a sibling beside the queue pair of these terms. `None` if there is no such
    /// geometry.
    pub(super) fn into_sibling(self, role: Role, terms: &Terms, peer: Peer) -> Option<QueuePair> {
        let parameters = terms.config.parameters().of_sibling(role);
        let (mtu_bytes, channels) = (terms.geometry.mtu_bytes(), terms.geometry.channels());
        let geometry = parameters.geometry(mtu_bytes, channels).ok()?;
        let config = terms.config.with(&parameters);
        let terms = Terms { config, geometry, peer, addresses: terms.addresses.clone(), ..*terms };
        if role != Role::OneSided {
            return Some(self.into_queue_pair(terms).0);
        }
        let keys = self.owner.context.keys().clone();
        // A region must not have the queue pair's own key.
        if !self.owner.reserve_key(self.keys.rkey) {
            return None;
        }
        let number = u64::from(self.owner.shared.number());
        let prepare = |qp: &mut lacuna_proto::qp::QueuePair| qp.become_one_sided(keys, number);
        Some(self.into_prepared(terms, prepare).0)
    }

    fn into_prepared(
        self,
        terms: Terms,
        prepare: impl FnOnce(&mut lacuna_proto::qp::QueuePair),
    ) -> (QueuePair, Chosen) {
        let Terms { config, geometry, peer, reports, addresses, rtt, probe_timeout_ns } = terms;
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
        let mut qp = new_qp(shared.number(), &config, geometry, &keys, 0);
        prepare(&mut qp);
        let writers = connect_qp(context, &mut qp, &addresses, peer, rtt, remembered);
        if let Some(reports) = reports {
            qp.set_report_policy(reports);
        }
        qp.prove(now_ns, probe_timeout_ns);
        {
            let mut state = shared.lock();
            state.addresses = addresses.into_iter().collect();
            state.machine.connect(qp);
        }
        context.roster().hand_out(shared.number(), writers.into_iter().map(Lane::Sdr));
        if let Some(host) = host {
            context.roster().register_peer(host, shared);
            owner.peer.set(host).ok();
        }
        // After the queue pair is in place, so that it learns of later changes of the division,
        // too.
        context.roster().share_credit(Some(shared));
        let credit_bytes = peer.credit_bytes;
        let chosen = Chosen::new(&config, &geometry, context, credit_bytes, rtt_ns, start);
        (QueuePair { owner }, chosen)
    }
}
