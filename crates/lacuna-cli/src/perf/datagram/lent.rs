//! What a server has for a client of datagrams: one queue pair, however many the client has, and memory.

use super::contents::{PLACES_MAX, ROUNDS};
use super::{Asked, Offered, PEERS_MAX, group};
use crate::perf::pattern;
use crate::perf::protocol::Request;
use crate::perf::verb::Verb;
use lacuna::controller::ControllerConfig;
use lacuna::datagram::{OpenLimits, QueuePair, Reliable, Settings};
use lacuna::{Connection, Context, ContextConfig, Region, RegionOptions, Rights, Window};

/// Memory for receives, at least: sources know nothing of receives, and fill many before this program has looked.
const RECEIVE_BYTES: u64 = 64 << 20;
/// Receives because of that, at most.
const RECEIVES_MAX: u64 = 8192;
/// Places of each peer, when what is there is checked, if they are small: the checking lags behind.
const CHECKED_BYTES: u64 = 16 << 20;
const CHECKED_PLACES_MAX: u64 = 1024;

/// See the module's text.
pub(in crate::perf) struct Lent {
    pub(super) qp: QueuePair,
    pub(super) region: Region,
    /// Further keys of the region.
    windows: Vec<Window>,
    /// Of the region: places of each peer, and of all of them. Receives have one each.
    pub(super) places: Shape,
    pub(super) verb: Verb,
}

/// How the server's memory is divided.
#[derive(Debug, Clone, Copy)]
pub(in crate::perf) struct Shape {
    pub(super) of_each: u32,
    pub(super) all: Request,
}

impl Shape {
    /// How memory for these messages is divided, or why there can be none.
    pub(in crate::perf) fn new(
        request: &Request,
        verb: Verb,
        asked: &Asked,
    ) -> Result<Self, String> {
        if let Some(refused) = verb.refused(true) {
            return Err(refused);
        }
        if asked.peers == 0 || asked.peers > PEERS_MAX.into() {
            let peers = asked.peers;
            return Err(format!("{peers} peers: this server measures 1 to {PEERS_MAX} at a time"));
        }
        let inflight = u64::from(request.inflight.max(1));
        let peers = u64::from(asked.peers);
        let stride = Request { inflight: 1, ..*request }.region_bytes().max(1);
        let (of_each, times) = match verb {
            Verb::Send => {
                let many = (RECEIVE_BYTES / stride).min(RECEIVES_MAX);
                (many.max(2 * inflight * peers), 1)
            }
            Verb::WriteRecord if request.validate => {
                let small = (CHECKED_BYTES / stride / peers).min(CHECKED_PLACES_MAX);
                (small.min(PLACES_MAX / peers).max(inflight), asked.peers)
            }
            Verb::WriteRecord => (inflight, asked.peers),
            // All read the same.
            _ => (inflight, 1),
        };
        let of_each = u32::try_from(of_each).unwrap_or(u32::MAX);
        let all = Request { inflight: of_each, ..*request }.times(times as usize);
        Ok(Self { of_each, all })
    }

    /// The region that this needs.
    pub(in crate::perf) fn all(&self) -> &Request {
        &self.all
    }
}

impl Lent {
    /// Opens the queue pair over memory of this shape.
    pub(in crate::perf) fn open(
        session: &Connection,
        (verb, shape): (Verb, Shape),
        request: &Request,
        asked: &Asked,
        mut memory: Vec<u8>,
    ) -> Result<Self, String> {
        if verb == Verb::Read {
            for number in 0..u64::from(shape.all.inflight) {
                let at = shape.all.place(number) as usize;
                let place = memory.get_mut(at..at + request.size_bytes as usize);
                pattern::fill(place.unwrap_or_default(), 0, number);
            }
        }
        // A context of its own: what a capture of the other one writes are packets of another kind.
        let ContextConfig { progress, security, .. } = session.queue_pair().context().config();
        let (progress, security) = (*progress, security.clone());
        let config = ContextConfig { progress, security, ..ContextConfig::default() };
        let context = Context::new(config).map_err(|error| error.to_string())?;
        let rights = match verb {
            Verb::Read => Rights::REMOTE_READ,
            _ => Rights::REMOTE_WRITE,
        };
        let options = RegionOptions { rights, ..RegionOptions::default() };
        let region = context.register(memory, options).map_err(|error| error.to_string())?;
        let rounds = if verb == Verb::WriteRecord && request.validate { ROUNDS } else { 1 };
        let window = |_| region.window(0..region.len(), rights).map_err(|error| error.to_string());
        let windows = (1..rounds).map(window).collect::<Result<_, _>>()?;
        let open = OpenLimits {
            // Messages in flight of a peer, and those that wait for their silence.
            of_source: (request.inflight as usize).max(64) * 2,
            in_all: Settings::default().open.in_all.max(asked.peers as usize * 64),
        };
        let settings = Settings {
            packet_bytes: asked.packet_bytes as usize,
            rate_bits_per_s: asked.rate_bits_per_s.map(|rate| rate.max(1)),
            open,
            port: asked.group.map(|group| group.port()),
            reliable: asked.reliable.then(|| {
                let controller =
                    ControllerConfig::of(None, asked.rate_bits_per_s.map(|rate| rate.max(1)));
                Reliable { controller: controller.unwrap_or_default(), ..Reliable::default() }
            }),
            ..Settings::default()
        };
        let qp = context.datagram_queue_pair(&settings).map_err(|error| error.to_string())?;
        if let Some(group) = asked.group {
            group::join(&qp, group)?;
        }
        Ok(Self { qp, region, windows, places: shape, verb })
    }

    /// What the client is told.
    pub(in crate::perf) fn offered(&self) -> Offered {
        let keys = std::iter::once(self.region.key()).chain(self.windows.iter().map(Window::key));
        Offered {
            port: self.qp.local_addr().port(),
            keys: keys.collect(),
            places: self.places.of_each,
        }
    }

    /// The round whose key this is.
    pub(super) fn round(&self, key: u32) -> Option<u32> {
        let mut keys =
            std::iter::once(self.region.key()).chain(self.windows.iter().map(Window::key));
        keys.position(|known| known == key).map(|at| at as u32)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn asked(peers: u32) -> Asked {
        Asked { peers, packet_bytes: 1472, rate_bits_per_s: None, reliable: false, group: None }
    }

    #[test]
    fn memory_is_divided_by_verb_and_bounded() {
        let request = Request { size_bytes: 1000, inflight: 4, validate: false };
        let of = |verb, peers| Shape::new(&request, verb, &asked(peers)).expect("little");
        assert_eq!(of(Verb::Send, 1).all.inflight, 8192);
        assert_eq!(of(Verb::Send, 4096).all.inflight, 2 * 4 * 4096);
        let records = of(Verb::WriteRecord, 10);
        assert_eq!((records.of_each, records.all.inflight), (4, 40));
        assert_eq!(of(Verb::Read, 10).all.inflight, 4, "all read the same");
        let request = Request { validate: true, ..request };
        let checked = Shape::new(&request, Verb::WriteRecord, &asked(10)).expect("little");
        assert_eq!((checked.of_each, checked.all.inflight), (1024, 10_240));
        for (verb, peers, part) in [
            (Verb::Write, 1, "take write-record"),
            (Verb::Send, 0, "1 to 4096"),
            (Verb::Send, 5000, "1 to 4096"),
        ] {
            let refused = Shape::new(&request, verb, &asked(peers)).expect_err(part);
            assert!(refused.contains(part), "{refused}");
        }
    }
}
