//! The queue pairs of the client: each a socket, so that the server sees as many peers.
//!
//! One has a thread, if --progress says so; of several this program makes the progress, in turns.

use super::{ClientArgs, Offered, settings};
use crate::failure::Failure;
use crate::perf::turns::Turns;
use lacuna::datagram::{self, Done, PeerId, PostError, QueuePair, SendWork, Settings, Stats, Verb};
use lacuna::{Connection, Context, ContextConfig, Progress, Wrap};
use std::net::SocketAddr;
use std::time::Duration;

/// What is read from a socket of one of several at a time, and what the kernel is asked to keep.
const RECEIVE_BUFFER_BYTES: usize = 1 << 20;

/// See the module's text.
#[derive(Debug)]
pub(in crate::perf) struct Ends {
    /// Each with its handle of the server.
    all: Vec<(QueuePair, PeerId)>,
    turns: Turns,
}

impl Ends {
    /// Opens as many as were asked for, to the server where the session's peer is. `wrap` goes around the datapath
    /// of each.
    pub(in crate::perf) fn open(
        args: &ClientArgs,
        session: &Connection,
        packet_bytes: u32,
        offered: &Offered,
        wrap: Option<Wrap>,
    ) -> Result<Self, Failure> {
        let progress = if args.peers > 1 { Progress::Manual } else { args.end.progress() };
        let security = session.queue_pair().context().config().security.clone();
        let config = ContextConfig { progress, wrap, security, ..ContextConfig::default() };
        let context = Context::new(config)?;
        let mut settings = Settings { packet_bytes: packet_bytes as usize, ..settings(args) };
        if args.peers > 1 {
            settings.receive_buffer_bytes = RECEIVE_BUFFER_BYTES;
        }
        let mut server: SocketAddr = session.peer();
        server.set_port(offered.port);
        let open = |at: u16| {
            let qp = context.datagram_queue_pair(&settings).map_err(|error| of_open(&error, at))?;
            let peer = args.group.map_or_else(|| qp.peer(server), |group| qp.group(group));
            let peer = peer.ok_or_else(|| {
                Failure::Local("a queue pair has no place for the server".to_owned())
            })?;
            Ok((qp, peer))
        };
        let all = (0..args.peers).map(open).collect::<Result<_, Failure>>()?;
        Ok(Self { all, turns: Turns::default() })
    }

    pub(super) fn len(&self) -> usize {
        self.all.len()
    }

    /// Posts a work request of one of them to the server.
    pub(super) fn post(
        &self,
        line: usize,
        (id, verb): (u64, Verb),
        deadline: Option<Duration>,
    ) -> Result<(), PostError> {
        let (qp, server) = &self.all[line];
        let deadline_ns = deadline.map(|deadline| {
            let ns = u64::try_from(deadline.as_nanos()).unwrap_or(u64::MAX);
            qp.now_ns().saturating_add(ns)
        });
        let work = SendWork { deadline_ns, ..SendWork::new(id, *server, verb) };
        qp.post_send(work)?;
        // Of several nobody else makes progress.
        qp.progress();
        Ok(())
    }

    /// The next completion of any, and whose it is; waits at most so long.
    pub(super) fn wait(&self, limit: Duration) -> Option<(usize, Done)> {
        self.turns.wait(&self.all, |(qp, _)| qp.poll(), |(qp, _), limit| qp.wait(limit), limit)
    }

    /// The counters of all together.
    pub(in crate::perf) fn stats(&self) -> Stats {
        self.all.iter().fold(Stats::default(), |mut all, (qp, _)| {
            let stats = qp.stats();
            all.packets_sent += stats.packets_sent;
            all.packets_taken += stats.packets_taken;
            all.bytes_again += stats.bytes_again;
            let (sum, one) = (&mut all.discards, stats.discards);
            sum.duplicate += one.duplicate;
            sum.late += one.late;
            sum.inconsistent += one.inconsistent;
            sum.no_buffer += one.no_buffer;
            all
        })
    }

    pub(super) fn close(&self) {
        self.all.iter().for_each(|(qp, _)| qp.close());
    }
}

/// Why a queue pair could not be opened, after so many were.
fn of_open(error: &datagram::Error, before: u16) -> Failure {
    match (error, before) {
        (datagram::Error::PacketBytes { .. }, _) => Failure::Usage(error.to_string()),
        (error, 0) => Failure::Local(error.to_string()),
        (error, before) => {
            Failure::Local(format!("{error}, after {before} queue pairs: choose fewer --peers"))
        }
    }
}
