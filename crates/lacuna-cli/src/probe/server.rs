//! The server: one socket and one thread that answers packets as they come.

use super::ServerArgs;
use super::host::Receiving;
use super::sockets::{Clock, broken};
use crate::failure::Failure;
use crate::interrupt::POLL_INTERVAL;
use crate::output::Output;
use crate::units::{show_count, show_time};
use lacuna::Wrap;
use lacuna::address::show;
use lacuna::datapath::{
    BindError, BurstBuffers, Datapath, Placer, ReceivedBatch, Udp, UdpConfig, Waiter,
};
use lacuna_probe::server::End;
use lacuna_probe::wire::Refusal;
use lacuna_probe::{ServerConfig, ServerEvent};
use std::net::SocketAddr;
use std::time::Duration;

/// How long a client may be silent: longer than it waits for an answer.
const SILENCE: Duration = Duration::from_secs(30);
/// How long an ending server waits for the client that it serves.
const GOODBYE: Duration = Duration::from_secs(2);

/// A probe server.
pub(super) struct Server {
    datapath: Box<dyn Datapath>,
    buffers: BurstBuffers,
    waiter: Waiter,
    answers: Answers,
    once: bool,
    output: Output,
}

/// Collects answers until the datapath has delivered all packets.
struct Answers {
    server: lacuna_probe::Server,
    host: Receiving,
    clock: Clock,
    pending: Vec<(SocketAddr, Vec<u8>)>,
}

impl Placer for Answers {
    fn on_packets(&mut self, batch: ReceivedBatch<'_>) {
        // Read after they arrived, as at the client.
        let now_ns = self.clock.now_ns();
        for packet in batch.packets() {
            let source = batch.source;
            let answer = self.server.on_datagram(now_ns, source, packet, &mut self.host);
            self.pending.extend(answer.map(|answer| (source, answer)));
        }
    }
}

impl Server {
    /// Listens. `wrap` goes around the datapath.
    pub(super) fn open(
        args: &ServerArgs,
        wrap: Option<&Wrap>,
        output: Output,
    ) -> Result<Self, Failure> {
        let bound = Udp::bind_boxed(UdpConfig::new(args.listen)).map_err(|error| match &error {
            BindError::Io { source, .. } => Failure::listen(&error, Some(source)),
            _ => Failure::listen(&error, None),
        })?;
        let datapath = match wrap {
            Some(wrap) => wrap(0, bound),
            None => bound,
        };
        let mut key = [0; 32];
        getrandom::fill(&mut key).map_err(|error| {
            Failure::Local(format!("the system has no random numbers: {error}"))
        })?;
        let server = lacuna_probe::Server::new(ServerConfig {
            key,
            clients_max: args.clients.into(),
            session_ns_max: u64::try_from(args.max_time.as_nanos()).unwrap_or(u64::MAX),
            silence_ns_max: SILENCE.as_nanos() as u64,
        });
        let (waiter, _) = Waiter::new().map_err(broken)?;
        let host = Receiving::default();
        Ok(Self {
            datapath,
            buffers: BurstBuffers::new(),
            waiter,
            answers: Answers { server, host, clock: Clock::start(), pending: Vec::new() },
            once: args.once,
            output,
        })
    }

    pub(super) fn local_addr(&self) -> SocketAddr {
        self.datapath.local_addr()
    }

    /// Serves until it is stopped, or with `once` until its client has ended. A client being served
    /// gets a moment to fetch its counters: Ctrl-C often ends both.
    pub(super) fn run(&mut self, stop: &dyn Fn() -> bool) -> Result<(), Failure> {
        let mut stopped_ns = None;
        loop {
            let ended = self.turn()?;
            if self.once && ended {
                return Ok(());
            }
            if stop() {
                let since_ns = *stopped_ns.get_or_insert(self.answers.clock.now_ns());
                let waited_ns = self.answers.clock.now_ns() - since_ns;
                if self.answers.server.clients() == 0 || waited_ns > GOODBYE.as_nanos() as u64 {
                    return Err(Failure::Interrupted);
                }
            }
        }
    }

    /// Answers all packets, then waits for more, for a short time. Returns whether a client has
    /// ended.
    fn turn(&mut self) -> Result<bool, Failure> {
        let answers = &mut self.answers;
        loop {
            let now_ns = answers.clock.now_ns();
            answers.host.socket_drops = self.datapath.receive_drops();
            let came = self.datapath.receive(now_ns, answers).map_err(broken)?;
            for (to, answer) in answers.pending.drain(..) {
                let mut burst = self.buffers.start(to);
                burst.push(&answer, &[], &[]);
                // An answer that cannot be sent now is requested again.
                if let Err(error) = self.datapath.send(answers.clock.now_ns(), &burst) {
                    tracing::debug!(%to, %error, "no answer");
                }
            }
            if came == 0 {
                break;
            }
        }
        let now_ns = answers.clock.now_ns();
        answers.server.on_timeout(now_ns);
        let mut has_ended = false;
        while let Some(event) = answers.server.poll_event() {
            has_ended |= matches!(event, ServerEvent::Ended { .. });
            self.output.note(&describe(&event));
        }
        if has_ended {
            return Ok(true);
        }
        let next = [answers.server.poll_timeout(), self.datapath.next_event_ns()];
        let left_ns = next.into_iter().flatten().min().map(|next| next.saturating_sub(now_ns));
        let timeout = left_ns
            .map_or(POLL_INTERVAL, |left_ns| Duration::from_nanos(left_ns).min(POLL_INTERVAL));
        self.waiter.wait([self.datapath.as_ref()], Some(timeout)).map_err(broken)?;
        Ok(false)
    }
}

fn describe(event: &ServerEvent) -> String {
    match event {
        ServerEvent::Opened { peer } => format!("{}: measures", show(*peer)),
        ServerEvent::Refused { peer, refusal } => match (show(*peer), refusal) {
            (peer, Refusal::Busy) => format!("{peer} was refused: busy with other clients"),
            (peer, Refusal::TooLong { limit_s }) => {
                let limit = show_time(f64::from(*limit_s));
                format!("{peer} was refused: it would take longer than {limit} (--max-time)")
            }
            (peer, Refusal::Impossible) => format!("{peer} was refused: it asked for nonsense"),
        },
        ServerEvent::Ended { peer, trials, end } => {
            let how = match end {
                End::Closed => "served",
                End::Silent => "said nothing any more",
                End::TimeUp => "its time was up (--max-time)",
            };
            format!("{}: {how}, {}", show(*peer), show_count((*trials).into(), "trial"))
        }
    }
}
