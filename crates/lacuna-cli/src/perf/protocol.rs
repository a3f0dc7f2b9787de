//! What client and server of a measurement tell each other on the session's
//! reliable connection: one JSON message each way at the start and at the end.

use crate::failure::Failure;
use lacuna::Connection;
use serde::{Deserialize, Serialize};

/// Longest message of the session.
const MESSAGE_BYTES_MAX: usize = 16 << 10;
/// Most memory that a server lends to one client.
pub(super) const LENT_BYTES_MAX: u64 = 16 << 30;

/// Client to server, first.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub(super) struct Request {
    pub(super) size_bytes: u64,
    pub(super) inflight: u32,
    pub(super) validate: bool,
}

/// Server to client: the receives are being posted, connect to measure.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub(super) enum Answer {
    Ready,
    Refused { reason: String },
}

/// Client to server: all messages have been sent.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub(super) struct Done {
    pub(super) messages: u64,
}

/// Server to client, last.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub(super) struct Counters {
    /// Messages that came complete.
    pub(super) complete: u64,
    /// Chunks missing in messages that did not.
    pub(super) missing_chunks: u64,
    /// Messages with wrong bytes.
    pub(super) wrong: u64,
    pub(super) first_wrong: Option<String>,
    pub(super) lost_packets: u64,
    pub(super) duplicate_packets: u64,
    pub(super) rejected_packets: u64,
    pub(super) receive_drops: u64,
    pub(super) cpu_s: f64,
}

/// Sends one message.
pub(super) fn send(session: &Connection, message: &impl Serialize) -> Result<(), Failure> {
    let bytes = serde_json::to_vec(message)
        .map_err(|error| Failure::Local(format!("cannot write the request: {error}")))?;
    Ok(session.write(&bytes)?)
}

/// Receives one message.
pub(super) fn receive<M: for<'d> Deserialize<'d>>(session: &Connection) -> Result<M, Failure> {
    let mut buffer = vec![0; MESSAGE_BYTES_MAX];
    let received = session.recv(&mut buffer)?;
    serde_json::from_slice(&buffer[..received.len]).map_err(|error| {
        Failure::Network(format!("{} speaks another perf protocol: {error}", session.peer()))
    })
}
