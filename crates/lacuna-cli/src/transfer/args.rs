//! The command lines of `lacuna send` and `lacuna recv`.

#[cfg(unix)]
use super::ssh::{Far, Login, SshArgs, Want};
use crate::capture::CaptureArgs;
#[cfg(unix)]
use crate::failure::Failure;
#[cfg(unix)]
use crate::output::Output;
use crate::pace::PaceArgs;
use crate::trust::known::KnownArgs;
use crate::trust::{self, TrustArgs};
use crate::{address, modes, units, wire};
use clap::Args;
#[cfg(unix)]
use lacuna::ConnectionConfig;
use lacuna::{Mode, Wire};
#[cfg(unix)]
use lacuna_transfer::BUFFERS_BYTES;
use std::ffi::OsString;
use std::net::SocketAddr;
use std::path::PathBuf;
use std::time::Duration;

/// Elsewhere these commands only say that they need a Unix system.
#[cfg(not(unix))]
const BUFFERS_BYTES: std::ops::RangeInclusive<u64> = 0..=u64::MAX;

/// Where a receiver listens unless told otherwise.
pub(super) const PORT: u16 = 7400;

const SEND_EXAMPLES: &str = "\
Examples:
  lacuna send big.iso k7q-2mx@HOST            with the code that lacuna recv shows there
  lacuna send big.iso me@HOST:inbox           over ssh, into a folder there
  lacuna send me@HOST:big.iso .               over ssh, from there into a folder here
  lacuna send big.iso localhost               to another process of this host
  lacuna send --token FILE big.iso HOST       to a host that has the same token
  lacuna send big.iso HOST                    to one that runs lacuna recv --trust FILE
  lacuna send photos notes.txt 10.0.0.7:7401  a folder and a file
  lacuna send --rate 900mbit big.iso HOST     on a link of 1 Gbit/s of your own
  lacuna send --path-memory paths big.iso HOST
                                              begins at the rate that was found last time
  lacuna send --retry 1h big.iso HOST         over a path that may be down";

const RESUMING: &str = "\
Resuming:
  The receiver keeps what has come of a file in a hidden file beside its name.
  Whoever sends a file of that name into that folder again, after whatever break,
  sends only what is missing: both ends compare hashes first, so a file that
  changed is never joined to what came of the old one.";

const METADATA: &str = "\
Time and permissions:
  What is at the receiver already gets those of the source, too: a file of the same
  content its time and permissions, without being sent again (so that --quick need
  not read it the next time), a folder its permissions. The receiver's umask
  applies, the owner can always read a file and open a folder, and a time is kept
  as exactly as the file system there can. Not carried are owners and groups, the
  set-user-ID, set-group-ID and sticky bits, access lists, and times of folders.";

const SPARSE: &str = "\
Sparse files:
  Holes stay holes: they are not sent and take no room, unless the receiver's file
  system keeps none (FAT, exFAT, HFS+). They are hashed as the zeros that they read
  as, at both ends at once, which takes a second for some 4 GB. A file that takes
  all its room at the source is sent as it is, zeros or not.";

const RECV_EXAMPLES: &str = "\
Examples:
  lacuna recv --dir inbox                          on port 7400, IPv6 and IPv4, until Ctrl-C
  lacuna recv --dir inbox --listen 7401 --once     on another port, for one sender
  lacuna recv --dir inbox --clean --older-than 7d  removes what nobody resumed";

const PARTIAL_FILES: &str = "\
Partial files:
  What has come of dir/NAME is in dir/.NAME.HASH.lacuna-part (with sixteen digits
  of a hash of the name) until it is whole, verified and gets its name. It stays
  after a break of any kind, and the next transfer of that name into that folder
  resumes from it. recv --clean removes those that no transfer is using; nothing
  else has to be remembered or removed.

The folder:
  Each sender gets the folder that has the path of --dir when it comes: one that
  was renamed or removed meanwhile is made again. A transfer under way ends in the
  folder that it began in, wherever that was moved; if it was removed, the
  transfer ends with an error and the same command begins anew.

Room:
  A file whose data cannot fit on the disk is refused when it is offered, so that
  smaller ones can still come. If others fill the disk meanwhile, the file fails,
  is kept as far as it came, and can be resumed once there is room.";

/// Send files and folders to a receiver, or fetch them from a host over ssh.
///
/// Regular files and folders are sent, with their permissions, and files with their
/// times; symbolic links and special files below the given paths are skipped with a
/// note (a link that is given as a PATH is followed). Names are sent byte for byte,
/// whatever their script, text or not.
///
/// A transfer that broke, at either end and for whatever reason, is resumed by
/// the same command: what has arrived is compared by its hash, not sent again.
#[derive(Debug, Args)]
#[command(
    override_usage = "lacuna send [OPTIONS] <PATH>... <[CODE@]HOST[:PORT]>\n       lacuna send [OPTIONS] <PATH>... <[USER@]HOST:FOLDER>\n       lacuna send [OPTIONS] <[USER@]HOST:PATH>... <FOLDER>",
    after_help = SEND_EXAMPLES,
    after_long_help =
        [SEND_EXAMPLES, RESUMING, METADATA, SPARSE, trust::HELP, address::HELP, units::HELP]
            .join("\n\n")
)]
pub(crate) struct SendArgs {
    /// Files and folders, which keep their last names; the last word is the
    /// receiver: HOST, or HOST:PORT if the port is not 7400, and CODE@ before it if it
    /// shows a code; or HOST:FOLDER or USER@HOST:FOLDER, which ssh starts lacuna for.
    /// Or HOST:PATH or USER@HOST:PATH, all of one host, and last a folder here that they are
    /// fetched into; such a path is taken as it is, without wildcards, and ~/ is the
    /// home folder there (a file here whose name has a colon is ./NAME)
    #[arg(required = true, num_args = 1.., value_name = "PATH")]
    pub(super) words: Vec<OsString>,
    /// How long to try to go on without any progress; 0s gives up at the first
    /// break. A path is broken after half of it without an answer, but not
    /// before 5s and not later than 30s
    #[arg(long, default_value = "60s", value_parser = units::duration, value_name = "TIME")]
    pub(super) retry: Duration,
    /// Take files of the same size and time at the receiver as identical, without reading
    /// them; permissions are compared all the same
    #[arg(long)]
    pub(super) quick: bool,
    /// Reliability; auto measures the path and says what it chose
    #[arg(long, default_value = "auto", value_parser = modes::reliable())]
    pub(super) mode: Mode,
    /// Form of data packets; the receiver takes either, if its datapath can
    #[arg(long, default_value = "short", value_parser = wire::parser())]
    pub(super) wire: Wire,
    #[command(flatten)]
    pub(super) pace: PaceArgs,
    /// Payload bytes per packet; found by probing if not given
    #[arg(long, value_parser = units::packet_bytes, value_name = "SIZE")]
    pub(super) mtu: Option<u32>,
    /// Bytes per chunk, rounded up to whole packets: what a lost packet costs to repair;
    /// one packet if not given
    #[arg(long, value_parser = units::some_bytes, value_name = "SIZE")]
    pub(super) chunk: Option<u64>,
    /// Sockets, each with its own 4-tuple: as many as both ends ask for, 16 at most
    #[arg(long, default_value = "1", value_parser = units::count(1..=16u8), value_name = "COUNT")]
    pub(super) channels: u8,
    /// Memory for data on its way; by the round-trip time if not given (32 to 160 MiB)
    #[arg(long, value_parser = buffers, value_name = "SIZE")]
    pub(super) buffers: Option<u64>,
    #[command(flatten)]
    pub(super) capture: CaptureArgs,
    #[command(flatten)]
    pub(super) trust: TrustArgs,
    #[command(flatten)]
    pub(super) known: KnownArgs,
    #[cfg(unix)]
    #[command(flatten)]
    pub(super) ssh: SshArgs,
}

#[cfg(unix)]
impl SendArgs {
    /// The parameters of the connection that are up to the end which makes it.
    pub(super) fn connection(&self) -> ConnectionConfig {
        let plain = ConnectionConfig::default();
        ConnectionConfig {
            mode: self.mode,
            chunk_bytes: self.chunk.unwrap_or(plain.chunk_bytes),
            mtu_bytes: self.mtu,
            wire: self.wire,
            ..plain
        }
    }

    /// Starts the far end over ssh, through which keys are exchanged.
    pub(super) fn far(&self, login: Login, want: Want, output: Output) -> Result<Far, Failure> {
        if self.trust.is_set() || self.known.accept_new {
            return Err(Failure::Usage(
                "over ssh keys are exchanged by ssh: leave --token, --trust, --accept-new or --insecure"
                    .to_owned(),
            ));
        }
        Far::start(login, want, self.channels, &self.ssh, output)
    }
}

/// Receive files and folders.
///
/// Everything stays below the folder: names that lead out of it, and paths on
/// which a symbolic link lies, are refused. A file gets its name only after the
/// hash of its content was verified; until then it is a hidden file ending in
/// .lacuna-part beside it, from which a later transfer resumes.
///
/// Ends by Ctrl-C, or with --once after a sender, with its result; without
/// --once the results of all senders are printed as they come.
#[derive(Debug, Args)]
#[command(
    after_help = RECV_EXAMPLES,
    after_long_help =
        [
            RECV_EXAMPLES,
            PARTIAL_FILES,
            METADATA,
            SPARSE,
            trust::HELP,
            address::LISTEN_HELP,
            units::HELP
        ]
            .join("\n\n")
)]
pub(crate) struct RecvArgs {
    /// Where to listen: ADDRESS:PORT, or a port alone for all addresses,
    /// IPv6 and IPv4; port 0 takes any and prints it
    #[arg(
        long,
        default_value = "[::]:7400",
        value_parser = |text: &str| address::at(text, PORT),
        value_name = "ADDRESS:PORT"
    )]
    pub(super) listen: SocketAddr,
    /// Folder to receive into; made if it does not exist, also if it has gone when a
    /// sender comes
    #[arg(long, default_value = ".")]
    pub(super) dir: PathBuf,
    /// End after one sender, with its result
    #[arg(long)]
    pub(super) once: bool,
    /// Replace existing files whose content differs
    #[arg(long)]
    pub(super) overwrite: bool,
    /// Write each file through to the disk before it gets its name
    #[arg(long)]
    pub(super) sync: bool,
    /// Do not listen: remove the partial files below --dir (which must be given)
    /// that no transfer is using
    #[arg(
        long,
        requires = "dir",
        conflicts_with_all = ["listen", "once", "overwrite", "sync", "channels", "buffers", "pcap"]
    )]
    pub(super) clean: bool,
    /// With --clean: only those that have not changed for so long, such as 7d or 12h
    #[arg(long, requires = "clean", value_parser = units::duration, value_name = "TIME")]
    pub(super) older_than: Option<Duration>,
    /// With --clean: only say what would be removed
    #[arg(long, requires = "clean")]
    pub(super) dry_run: bool,
    /// Sockets, each with its own 4-tuple: as many as both ends ask for, 16 at most
    #[arg(long, default_value = "1", value_parser = units::count(1..=16u8), value_name = "COUNT")]
    pub(super) channels: u8,
    /// Memory for data on its way, per sender; by the round-trip time if not given (32 to 160 MiB)
    #[arg(long, value_parser = buffers, value_name = "SIZE")]
    pub(super) buffers: Option<u64>,
    #[command(flatten)]
    pub(super) capture: CaptureArgs,
    #[command(flatten)]
    pub(super) trust: TrustArgs,
}

fn buffers(text: &str) -> Result<u64, String> {
    units::bytes_within(text, &BUFFERS_BYTES)
}
