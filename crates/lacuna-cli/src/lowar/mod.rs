//! `lacuna lowar gateway`: repairs for the RDMA packets of other hosts, between a local network and a long
//! path.
//!
//! `lacuna_gateway` decides what becomes of each frame; here are the interfaces that frames come from and go
//! to, time, and what is told about it. One thread: frames of one connection stay in order.

mod interface;
mod outbox;
mod report;
mod sealed;
mod syscall;
mod tunnel;

use crate::failure::{Ending, Failure};
use crate::output::{Output, conclude};
use crate::trust::{self, TrustArgs};
use crate::{address, interrupt, units};
use clap::{Args, Subcommand};
use interface::{Frame, Interface};
use lacuna_gateway::{AutoConfig, Config, Gateway, Strength};
use outbox::Outbox;
use report::GatewayResult;
use rustix::event::{PollFd, PollFlags, Timespec, poll};
use std::fmt;
use std::net::{Ipv4Addr, Ipv6Addr, SocketAddr, ToSocketAddrs};
use std::os::fd::BorrowedFd;
use std::time::{Duration, Instant};
use tunnel::Tunnel;

const EXAMPLES: &str = "\
Examples:
  lacuna lowar gateway --local eth1 --remote eth0
                                     inline: between a switch and a long path, at each end of it
  lacuna lowar gateway --local eth1 --remote eth0 --shim 8:1 --rtt 40ms
                                     more repairs, and the round trip if it is known
  lacuna lowar gateway --local eth1 --remote eth0 --shim auto
                                     as many repairs as losses need: the far end says how many
  lacuna lowar gateway --local eth1 --remote site-b.example.org --token cluster.token
                                     an encrypted tunnel: at the other site the same with this
                                     one's name; lacuna key token makes the token

Rights: CAP_NET_RAW, for packet sockets; root has it. It is enough to say, once,
  setcap cap_net_raw+ep $(which lacuna)

Counters are told at the end (Ctrl-C), with --json as one object.";

/// Recover losses of RDMA reliable connections: LoWAR's shim for other hosts
#[derive(Debug, Args)]
#[command(arg_required_else_help = true, after_help = EXAMPLES)]
pub(crate) struct LowarArgs {
    #[command(subcommand)]
    command: LowarCommand,
}

#[derive(Debug, Subcommand)]
enum LowarCommand {
    // Described where its arguments are.
    Gateway(GatewayArgs),
}

/// Protect the RoCEv2 packets that pass between a local network and a long path
///
/// One gateway stands at each end of the path. All frames pass through it, as through a cable; it adds
/// repairs to RDMA packets of reliable connections that leave for the path, and recovers and orders those
/// that come. Hosts are not changed and need not know. A frame that it does not understand passes
/// unchanged, and a gateway may start and end at any time.
#[derive(Debug, Args)]
#[command(arg_required_else_help = true, after_help = EXAMPLES, after_long_help = [EXAMPLES, trust::HELP].join("\n\n"))]
struct GatewayArgs {
    /// Interface of the local network
    #[arg(long, value_name = "IF")]
    local: String,
    /// Interface of the path; or the gateway at its other end, to which frames go in datagrams
    #[arg(long, value_name = "IF|HOST[:PORT]")]
    remote: String,
    /// Repairs: C for R packets of a message, as R:C or mds:R:C; auto, as losses need; or off
    ///
    /// With auto a gateway watches what the path loses of the packets that come, and asks the far one for the
    /// repairs that pay, which that one grants with auto alone. Both ends need it. At most 50 repairs for a
    /// hundred packets are granted, and none before the round trip is known.
    #[arg(long, value_name = "R:C|auto|off", default_value = "32:1", value_parser = shim)]
    shim: Shim,
    /// Short messages have only their share of the repairs
    #[arg(long)]
    cap_short: bool,
    /// Round trip of the path; measured if it is not given
    #[arg(long, value_name = "TIME", value_parser = units::some_duration)]
    rtt: Option<Duration>,
    /// Of a tunnel: where to listen, by default at port 7406 of all addresses
    #[arg(long, value_name = "[ADDRESS:]PORT", value_parser = |text: &str| address::at(text, tunnel::PORT))]
    listen: Option<SocketAddr>,
    /// End after this time
    #[arg(long, value_name = "TIME", value_parser = units::some_duration)]
    time: Option<Duration>,
    /// Of a tunnel.
    #[command(flatten)]
    trust: TrustArgs,
}

/// How packets are protected.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Shim {
    Off,
    Auto,
    Fixed(Strength),
}

impl fmt::Display for Shim {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Off => f.write_str("off"),
            Self::Auto => f.write_str("as losses need"),
            Self::Fixed(strength) => strength.fmt(f),
        }
    }
}

impl Shim {
    fn config(self) -> Config {
        match self {
            Self::Off => Config::new(None),
            Self::Auto => Config { auto: Some(AutoConfig::default()), ..Config::new(None) },
            Self::Fixed(strength) => Config::new(Some(strength)),
        }
    }
}

fn shim(text: &str) -> Result<Shim, String> {
    let shim = match text {
        "off" => Shim::Off,
        "auto" => Shim::Auto,
        _ => Shim::Fixed(
            text.parse()
                .map_err(|error| format!("{error}: use R:C like 32:1, mds:R:C, auto, or off"))?,
        ),
    };
    match Gateway::new(shim.config()) {
        Ok(_) => Ok(shim),
        Err(error) => Err(error.to_string()),
    }
}

pub(crate) fn run(args: &LowarArgs, output: Output) -> Result<(), Failure> {
    let LowarCommand::Gateway(args) = &args.command;
    if args.local == args.remote {
        let text = format!("--local and --remote are both {}: frames would go round", args.local);
        return Err(Failure::Usage(format!("{text}; use two interfaces")));
    }
    let mut local = Interface::open(&args.local)?;
    let mut remote = Remote::open(args, output)?;
    interrupt::install()?;
    let mut seed = [0; 8];
    getrandom::fill(&mut seed).map_err(no_random_numbers)?;
    let config = Config {
        caps_short_blocks: args.cap_short,
        round_trip_ns: args.rtt.map(|rtt| rtt.as_nanos() as u64),
        frame_bytes_max: remote.frame_bytes_max().max(local.frame_bytes_max()),
        seed: u64::from_le_bytes(seed),
        ..args.shim.config()
    };
    let gateway = Gateway::new(config).map_err(|error| Failure::Usage(error.to_string()))?;
    output.note(&report::introduce(local.name(), &remote.describe(), args.shim));
    let mut service = Service {
        gateway,
        started: Instant::now(),
        to_local: Outbox::default(),
        to_remote: Outbox::default(),
        joined_frames: 0,
    };
    let ended = service.run(&mut local, &mut remote, args.time, output).err();
    service.end(&mut local);
    local.count_drops();
    remote.count_drops();
    let result = GatewayResult::new(&service, &local, &remote, Ending::of(ended.as_ref()));
    let told = match output.json {
        true => output.object(&result),
        false => output.line(&result.text()),
    };
    conclude(ended, told)
}

fn no_random_numbers(error: getrandom::Error) -> Failure {
    Failure::Local(format!("no random numbers: {error}"))
}

/// The side of the path.
#[derive(Debug)]
enum Remote {
    Interface(Interface),
    Tunnel(Tunnel),
}

impl Remote {
    fn open(args: &GatewayArgs, output: Output) -> Result<Self, Failure> {
        let text = &args.remote;
        // What is no interface here has to be a host.
        let is_interface = !text.contains([':', '.'])
            && rustix::net::socket(
                rustix::net::AddressFamily::UNIX,
                rustix::net::SocketType::DGRAM,
                None,
            )
            .and_then(|any| rustix::net::netdevice::name_to_index(any, text))
            .is_ok();
        if is_interface {
            if args.listen.is_some() {
                let text = format!("--listen is for a tunnel, and {text} is an interface");
                return Err(Failure::Usage(text));
            }
            if args.trust.is_set() || args.trust.is_sealed() {
                let text = format!(
                    "--token, --sealed and --insecure are for a tunnel, and {text} is an interface"
                );
                return Err(Failure::Usage(text));
            }
            return Interface::open(text).map(Self::Interface);
        }
        let host = address::to(text, tunnel::PORT).map_err(Failure::Usage)?;
        let peer = host.to_socket_addrs().ok().and_then(|mut found| found.next()).ok_or_else(|| {
            Failure::Network(format!(
                "{text} is neither an interface that `ip link` shows nor a host that can be looked up"
            ))
        })?;
        let listen = args.listen.unwrap_or(match peer {
            SocketAddr::V4(_) => (Ipv4Addr::UNSPECIFIED, tunnel::PORT).into(),
            SocketAddr::V6(_) => (Ipv6Addr::UNSPECIFIED, tunnel::PORT).into(),
        });
        let security = args.trust.security(output)?;
        let secret = security.secret_towards(peer.ip(), b"gateway tunnel")?;
        Tunnel::open(listen, peer, secret).map(Self::Tunnel)
    }

    fn describe(&self) -> String {
        match self {
            Self::Interface(interface) => interface.name().to_owned(),
            Self::Tunnel(tunnel) => {
                let kind =
                    if tunnel.sealed().is_some() { "encrypted tunnel" } else { "tunnel in clear" };
                let article = if tunnel.sealed().is_some() { "an" } else { "a" };
                format!("{article} {kind} to {}", tunnel.peer())
            }
        }
    }

    fn frame_bytes_max(&self) -> usize {
        match self {
            Self::Interface(interface) => interface.frame_bytes_max(),
            Self::Tunnel(tunnel) => tunnel.frame_bytes_max(),
        }
    }

    fn socket(&self) -> BorrowedFd<'_> {
        match self {
            Self::Interface(interface) => interface.socket(),
            Self::Tunnel(tunnel) => tunnel.socket(),
        }
    }

    fn receive(&mut self, now_ns: u64, take: &mut dyn FnMut(Frame<'_>)) -> Result<bool, Failure> {
        match self {
            Self::Interface(interface) => interface.receive(take),
            Self::Tunnel(tunnel) => Ok(tunnel.receive(now_ns, take)),
        }
    }

    fn send(&mut self, now_ns: u64, outbox: &mut Outbox) {
        match self {
            Self::Interface(interface) => interface.send(outbox),
            Self::Tunnel(tunnel) => tunnel.send(now_ns, outbox),
        }
    }

    fn on_timeout(&mut self, now_ns: u64) {
        if let Self::Tunnel(tunnel) = self {
            tunnel.on_timeout(now_ns);
        }
    }

    fn poll_timeout(&self) -> Option<u64> {
        match self {
            Self::Interface(_) => None,
            Self::Tunnel(tunnel) => tunnel.poll_timeout(),
        }
    }

    fn count_drops(&mut self) {
        if let Self::Interface(interface) = self {
            interface.count_drops();
        }
    }
}

/// A gateway that runs.
#[derive(Debug)]
struct Service {
    gateway: Gateway,
    started: Instant,
    to_local: Outbox,
    to_remote: Outbox,
    /// Frames that were several packets in one, and not looked into.
    joined_frames: u64,
}

impl Service {
    fn now_ns(&self) -> u64 {
        // Not from zero, so that a time of zero is never meant.
        self.started.elapsed().as_nanos() as u64 + 1
    }

    /// Runs until something ends it.
    fn run(
        &mut self,
        local: &mut Interface,
        remote: &mut Remote,
        time: Option<Duration>,
        output: Output,
    ) -> Result<(), Failure> {
        let mut progress = report::Progress::new(output);
        let mut is_busy = false;
        loop {
            if interrupt::requested() {
                return Err(Failure::Interrupted);
            }
            if time.is_some_and(|time| self.started.elapsed() >= time) {
                return Ok(());
            }
            if !is_busy {
                self.wait(local, remote);
            }
            let now_ns = self.now_ns();
            let Self { gateway, to_local, to_remote, joined_frames, .. } = self;
            is_busy = local.receive(&mut |frame| {
                if frame.is_joined {
                    *joined_frames += 1;
                    return to_remote.push_with(frame.bytes, frame.offload);
                }
                gateway.on_local(now_ns, frame.bytes, &mut |frame| to_remote.push(frame));
            })?;
            remote.send(now_ns, to_remote);
            is_busy |= remote.receive(now_ns, &mut |frame| {
                if frame.is_joined {
                    *joined_frames += 1;
                    return to_local.push_with(frame.bytes, frame.offload);
                }
                gateway.on_remote(now_ns, frame.bytes, &mut |frame| to_local.push(frame));
            })?;
            remote.on_timeout(now_ns);
            gateway.on_timeout(now_ns, &mut |frame| to_local.push(frame));
            local.send(to_local);
            progress.tell(now_ns, gateway);
        }
    }

    /// Waits until a frame may be there, or a gap's time is over.
    fn wait(&self, local: &Interface, remote: &Remote) {
        let due = [self.gateway.poll_timeout(), remote.poll_timeout()].into_iter().flatten().min();
        let due = due.map(|due_ns| due_ns.saturating_sub(self.now_ns()));
        let wait = due.map_or(interrupt::POLL_INTERVAL, Duration::from_nanos);
        let wait = wait.min(interrupt::POLL_INTERVAL);
        let wait = Timespec { tv_sec: 0, tv_nsec: wait.subsec_nanos().into() };
        let (local, remote) = (local.socket(), remote.socket());
        let mut sockets = [PollFd::new(&local, PollFlags::IN), PollFd::new(&remote, PollFlags::IN)];
        // An error of a socket shows when it is read.
        let _ = poll(&mut sockets, Some(&wait));
    }

    /// Hands out what still waits.
    fn end(&mut self, local: &mut Interface) {
        let now_ns = self.now_ns();
        let Self { gateway, to_local, .. } = self;
        gateway.flush(now_ns, &mut |frame| to_local.push(frame));
        local.send(to_local);
    }
}

/// Waits for room in a socket's buffer, for a moment.
fn wait_writable(socket: BorrowedFd<'_>) {
    let moment = Timespec { tv_sec: 0, tv_nsec: 2_000_000 };
    let _ = poll(&mut [PollFd::new(&socket, PollFlags::OUT)], Some(&moment));
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_strength_is_read_or_refused_in_words() {
        assert_eq!((shim("off"), shim("auto")), (Ok(Shim::Off), Ok(Shim::Auto)));
        for text in ["32:1", "mds:128:8"] {
            assert_eq!(shim(text), Ok(Shim::Fixed(text.parse().unwrap())));
        }
        for text in ["32", "0:1", "mds:256:16", "lots"] {
            assert!(shim(text).is_err(), "{text}");
        }
    }

    #[test]
    fn what_is_no_interface_and_no_host_is_said() {
        let args = GatewayArgs {
            local: "lo".to_owned(),
            remote: "no-such-thing.invalid".to_owned(),
            shim: Shim::Off,
            cap_short: false,
            rtt: None,
            listen: None,
            time: None,
            trust: TrustArgs::default(),
        };
        let open = |args: &GatewayArgs| {
            let output = Output { json: false, quiet: true };
            Remote::open(args, output).unwrap_err().to_string()
        };
        let error = open(&args);
        assert!(error.contains("neither an interface"), "{error}");
        let listen = Some(([0, 0, 0, 0], 0).into());
        let args = GatewayArgs { remote: "lo".to_owned(), listen, ..args };
        let error = open(&args);
        assert!(error.contains("--listen is for a tunnel"), "{error}");
    }
}
