//! `--pcap` of the commands that send packets: one file for all packets of a command, over all its
//! sockets, connections and attempts.
//!
//! The file is opened first, so that an unwritable file costs no transfer. A later error ends the
//! capture and not the work; it is reported when it happens, and the command fails at its end if
//! nothing else has failed.
//! happens, and the command fails at its end if nothing else has failed.

use crate::failure::Failure;
use crate::output::{Output, complain};
use crate::units::{self, show_bytes, show_count};
use clap::Args;
use lacuna::Wrap;
use lacuna::datapath::{PcapOptions, PcapTime, PcapWriter};
use serde::Serialize;
use std::io;
use std::path::PathBuf;

/// Parts of a captured packet that are not from the wire.
const MADE_UP: &str = "IP and UDP headers, the UDP destination port 4791 and the ICRC are made up";
/// The same for captured probes.
const MADE_UP_OF_PROBES: &str = "IP and UDP headers are made up";

/// Where packets are captured.
#[derive(Debug, Clone, Default, Args)]
pub(crate) struct CaptureArgs {
    /// Write every packet that is sent and received to this file, which Wireshark and tshark decode
    ///
    /// A socket does not see the headers of its packets, so in the file IP and UDP headers are made
    /// up: addresses, source ports and marks of congestion are true, the rest is what a RoCEv2 sender
    /// would write. The UDP destination port is always 4791 and the trailer the ICRC for these
    /// headers, so that Wireshark decodes what is in the packets (those of probe keep their ports and
    /// bytes). What goes over the TCP control connection is not in the file. It is replaced if it
    /// exists, and can be read at any time, also after the command was killed.
    #[arg(long, value_name = "FILE")]
    pcap: Option<PathBuf>,
    /// The capture ends before its file is larger than this; the command goes on
    #[arg(
        long,
        requires = "pcap",
        default_value = "1GiB",
        value_name = "SIZE",
        value_parser = units::some_bytes
    )]
    pcap_limit: u64,
}

/// The kind of packets.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Captures {
    Transport,
    Probes,
}

/// A command's capture, or none. Clones are the same.
#[derive(Debug, Clone, Default)]
pub(crate) struct Capture(Option<Open>);

#[derive(Debug, Clone)]
struct Open {
    path: PathBuf,
    limit_bytes: u64,
    writer: PcapWriter,
}

/// What a capture holds by now, for `--json`.
#[derive(Debug, Clone, Serialize)]
pub(crate) struct Captured {
    file: String,
    /// Packets in the file.
    packets: u64,
    bytes: u64,
    /// Packets of this command, in the file or not.
    sent_packets: u64,
    received_packets: u64,
    left_out_packets: u64,
    limit_bytes: u64,
    /// Whether the capture ended at its size limit.
    limit_hit: bool,
    /// The error of the file, if any.
    error: Option<String>,
}

impl CaptureArgs {
    /// Whether packets are captured.
    pub(crate) fn is_on(&self) -> bool {
        self.pcap.is_some()
    }
}

impl Capture {
    /// Creates the file, if requested, and notes which parts are not from the wire.
    pub(crate) fn open(
        args: &CaptureArgs,
        what: Captures,
        output: Output,
    ) -> Result<Self, Failure> {
        let Some(path) = &args.pcap else { return Ok(Self(None)) };
        let options = PcapOptions {
            time: PcapTime::System,
            bytes_max: Some(args.pcap_limit),
            is_foreign: what == Captures::Probes,
        };
        let writer = PcapWriter::create_with(path, options)
            .map_err(|error| Failure::file("write", path, &error))?;
        let made_up = match what {
            Captures::Transport => MADE_UP,
            Captures::Probes => MADE_UP_OF_PROBES,
        };
        let shown = path.display().to_string();
        output.note(&format!("capturing to {shown}: {made_up}"));
        writer.on_end(move |end| match end {
            Ok(full) => output.note(&format!(
                "{shown} is full: the capture ends after {}, {} (--pcap-limit)",
                show_count(full.packets, "packet"),
                show_bytes(full.bytes),
            )),
            Err(error) => complain(format_args!("{}", broken(&shown, error))),
        });
        Ok(Self(Some(Open { path: path.clone(), limit_bytes: args.pcap_limit, writer })))
    }

    /// A wrap that captures packets outside of `inner`.
    pub(crate) fn around(&self, inner: Option<Wrap>) -> Option<Wrap> {
        match &self.0 {
            Some(open) => Some(lacuna::captured(inner, open.writer.clone())),
            None => inner,
        }
    }

    /// State of the capture.
    pub(crate) fn so_far(&self) -> Option<Captured> {
        let open = self.0.as_ref()?;
        let summary = open.writer.summary();
        Some(Captured {
            file: open.path.display().to_string(),
            packets: summary.packets,
            bytes: summary.bytes,
            sent_packets: summary.sent,
            received_packets: summary.received,
            left_out_packets: summary.left_out,
            limit_bytes: open.limit_bytes,
            limit_hit: summary.is_full,
            error: open.writer.finish().err().map(|error| error.to_string()),
        })
    }

    /// Ends the capture and reports it, best after the sockets were closed. The command fails if
    /// the file did.
    pub(crate) fn conclude(
        &self,
        ended: Result<(), Failure>,
        output: Output,
    ) -> Result<(), Failure> {
        let Some(open) = &self.0 else { return ended };
        match open.writer.close() {
            Ok(summary) => {
                output.note(&format!(
                    "captured {} ({} sent, {} received), {}: {}",
                    show_count(summary.packets + summary.left_out, "packet"),
                    summary.sent,
                    summary.received,
                    match summary.left_out {
                        0 => show_bytes(summary.bytes),
                        left_out => format!("{left_out} of them not in the file"),
                    },
                    open.path.display(),
                ));
                ended
            }
            Err(error) => ended.and(Err(broken(&open.path.display().to_string(), &error))),
        }
    }
}

fn broken(shown: &str, error: &io::Error) -> Failure {
    Failure::Local(format!("cannot write {shown}: {error}; the capture ends there"))
}
