//! What the ends of a transfer over ssh say to each other through it: a line of JSON each.
//!
//! The near end's is data on the far end's standard input, so no shell there reads the name of a folder. The far end's
//! comes behind [`MARK`], since a shell's start-up files may print what they like before it.

use crate::failure::Failure;
use serde::{Deserialize, Serialize};
use std::io::BufRead;
use std::net::IpAddr;

/// Changes when the words do.
pub(super) const PROTOCOL: u32 = 2;
/// Comes before the far end's word.
const MARK: &str = "lacuna-over-ssh ";
/// The most that is read of the far end's word, and of what a shell prints before it.
const REPLY_BYTES_MAX: u64 = 8 << 20;
/// The most that is read of the near end's word: as many paths as a command line has, on most systems.
pub(super) const REQUEST_BYTES_MAX: u64 = 8 << 20;

/// What the near end says.
#[derive(Debug, Serialize, Deserialize)]
pub(super) struct Request {
    pub(super) protocol: u32,
    pub(super) version: String,
    /// The near end's public key.
    pub(super) key: String,
    pub(super) want: Want,
    /// Sockets of the near end.
    pub(super) channels: u8,
    /// Ports to listen at, the first and the last; any if there are none.
    pub(super) ports: Option<(u16, u16)>,
}

/// What all versions have in common.
#[derive(Debug, Deserialize)]
struct Greeting {
    protocol: u32,
}

/// What the near end wants. Paths are bytes: names need not be text. They are relative to the home folder.
#[derive(Debug, Clone, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub(in crate::transfer) enum Want {
    /// That the far end receives.
    Receive {
        folder: Vec<u8>,
        /// Replace existing files whose content differs.
        overwrite: bool,
    },
    /// That it sends.
    Send {
        paths: Vec<Vec<u8>>,
        /// Compare sizes and times alone.
        quick: bool,
        /// The name of the congestion controller.
        controller: Option<String>,
        rate_bits_per_s: Option<u64>,
    },
}

impl Want {
    pub(super) fn verb(&self) -> &'static str {
        match self {
            Self::Receive { .. } => "receive",
            Self::Send { .. } => "send",
        }
    }
}

/// The far end's word.
#[derive(Debug, Serialize, Deserialize)]
pub(super) struct Reply {
    pub(super) protocol: u32,
    pub(super) version: String,
    #[serde(flatten)]
    pub(super) outcome: Outcome,
}

#[derive(Debug, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub(super) enum Outcome {
    Ready(Ready),
    /// It cannot, and why not.
    Unable(String),
}

/// It listens.
#[derive(Debug, Serialize, Deserialize)]
pub(super) struct Ready {
    /// The far end's public key.
    pub(super) key: String,
    pub(super) port: u16,
    /// The address at which ssh reached it, if ssh said so.
    pub(super) address: Option<IpAddr>,
    /// The names under which it sends, one for each path.
    pub(super) names: Vec<Vec<u8>>,
}

impl Reply {
    pub(super) fn new(outcome: Outcome) -> Self {
        Self { protocol: PROTOCOL, version: env!("CARGO_PKG_VERSION").to_owned(), outcome }
    }

    /// As it is said. On a line of its own, whatever was printed before.
    pub(super) fn to_line(&self) -> Result<String, Failure> {
        Ok(format!("\n{MARK}{}", json(self)?))
    }
}

/// A word as JSON.
pub(super) fn json(word: &impl Serialize) -> Result<String, Failure> {
    serde_json::to_string(word).map_err(|error| Failure::Local(error.to_string()))
}

/// Reads the near end's word.
pub(super) fn read_request(input: impl BufRead) -> Result<Request, String> {
    let mut line = Vec::new();
    let read = input.take(REQUEST_BYTES_MAX).read_until(b'\n', &mut line);
    read.map_err(|error| error.to_string())?;
    let nonsense = |_| "this is started by lacuna send, over ssh".to_owned();
    let greeting: Greeting = serde_json::from_slice(&line).map_err(nonsense)?;
    match greeting.protocol {
        PROTOCOL => serde_json::from_slice(&line).map_err(nonsense),
        _ => Err(format!("lacuna there is of version {}", env!("CARGO_PKG_VERSION"))),
    }
}

/// Reads the far end's word; `None` if there is none. What a shell printed before is skipped.
pub(super) fn read_reply(output: impl BufRead) -> Option<Reply> {
    let mut output = output.take(REPLY_BYTES_MAX);
    let mut line = Vec::new();
    loop {
        line.clear();
        if !matches!(output.read_until(b'\n', &mut line), Ok(1..)) {
            return None;
        }
        let word = line.strip_prefix(MARK.as_bytes());
        if let Some(reply) = word.and_then(|word| serde_json::from_slice(word).ok()) {
            return Some(reply);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_a_shell_prints_before_is_skipped() {
        let (key, names) = ("a key".to_owned(), vec![b"\xff".to_vec()]);
        let ready = Ready { key, port: 7, address: None, names };
        let reply = Reply::new(Outcome::Ready(ready));
        for noise in ["", "Welcome!\n", "no end of line", "lacuna-over-ssh {}\n\u{7}\n"] {
            let said = format!("{noise}{}\n", reply.to_line().unwrap());
            let read = read_reply(said.as_bytes()).expect(noise);
            assert!(matches!(read.outcome, Outcome::Ready(ready) if ready.port == 7));
        }
    }

    #[test]
    fn noise_without_an_end_and_no_word_at_all_are_no_reply() {
        assert!(read_reply(&b""[..]).is_none());
        assert!(read_reply(&b"bash: lacuna: command not found\n"[..]).is_none());
        assert!(read_reply(std::io::BufReader::new(std::io::repeat(b'a'))).is_none());
    }

    #[test]
    fn a_request_is_read_and_nonsense_is_not() {
        let request = |protocol| Request {
            protocol,
            version: "1".to_owned(),
            key: "a key".to_owned(),
            want: Want::Receive { folder: b"it's \xff \"here\"; rm *\n".to_vec(), overwrite: true },
            channels: 3,
            ports: Some((1, 2)),
        };
        let line = |protocol| format!("{}\n", json(&request(protocol)).unwrap());
        let read = read_request(line(PROTOCOL).as_bytes()).unwrap();
        assert_eq!((read.channels, read.ports), (3, Some((1, 2))));
        let Want::Receive { folder, .. } = read.want else { panic!("it was to receive") };
        assert_eq!(folder, b"it's \xff \"here\"; rm *\n");
        let newer = read_request(line(PROTOCOL + 1).as_bytes()).unwrap_err();
        assert!(newer.contains("version"), "{newer}");
        // Of a version that had other words.
        let older = read_request(&br#"{"protocol":1,"version":"0","key":"","folder":[]}"#[..]);
        assert!(older.unwrap_err().contains("version"));
        assert!(read_request(&b"GET / HTTP/1.1\n"[..]).unwrap_err().contains("lacuna send"));
    }
}
