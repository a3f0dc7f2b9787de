//! Reliable connections (RC) of InfiniBand and RoCEv2, as pure state machines: SEND, RDMA WRITE, RDMA READ
//! and atomic operations, delivered in order and exactly once.
//!
//! It is the connection below which LoWAR repairs losses, and the baseline that LoWAR, OptiNIC and Celeris
//! are measured against: go-back-N, as commodity cards do it. InfiniBand Architecture Specification,
//! volume 1, chapter 9 (transport) and 10.3 (states); names of operations follow libibverbs.
//!
//! | file | what it is |
//! |---|---|
//! | `config` | what a queue pair is made with, and its peer |
//! | `work` | what applications post, and what they get back |
//! | `receive_queue` | posted receives, of one queue pair or shared by several |
//! | `responder` | takes the peer's requests: order, memory, refusals. One worker's own, without a lock |
//! | `requester` | sends own requests: numbers, go-back-N, answers, completions |
//! | `selective`, `held` | selective repeat: what is lost; what waits behind a gap at the responder |
//! | `flow` | how much may leave and how fast: controller, pace, round trips |
//! | `answers` | what the responder says, in order |
//! | `run` | packets that were polled, made into bytes outside of the lock |
//! | `qp` | the queue pair: states, requester and answers together |
//! | `lane` | what one worker has of a queue pair: the responder, and the shim below it (`lacuna_lowar`) |
//!
//! **Two halves.** The [`Responder`] belongs to the one worker that receives the queue pair's packets;
//! [`QueuePair`] is shared with the application under a lock. [`Taken`] carries what the one tells the
//! other, once for all packets in a row. [`Lane`] has the first half, and a repair shim if there is one:
//! neither half knows of it, but that payloads may be placed ahead of their turn and repairs count in window
//! and pace.
//!
//! Invariants: the bytes of a message are in place before its completion; each SEND is delivered once, in
//! order; a duplicate changes no memory; after a queue pair has failed, everything that was posted
//! completes, flushed; nothing that a peer sends makes it panic, grow without bound, or spin.
//!
//! No socket, thread, clock or global randomness: `now_ns` is an argument.

#![forbid(unsafe_code)]

mod answers;
mod config;
mod flow;
mod held;
mod lane;
mod qp;
mod receive_queue;
mod requester;
mod responder;
mod run;
mod selective;
mod work;

pub use config::{
    AckTimeout, ConfigError, MTU_BYTES_MAX, MTU_BYTES_MIN, ParseRepairError, Peer, RcConfig, Repair,
};
pub use lane::{AnswerSink, Coded, Lane, ParseShimError, ShimSettings};
pub use qp::{QpState, QueuePair, RcStats};
pub use receive_queue::ReceiveQueue;
pub use responder::{Refusals, Responder, Taken};
pub use run::Run;
pub use work::{
    Done, Failure, Flags, Operation, PostError, Received, RecvWork, Remote, SendWork, Status, Verb,
};

/// Numbers start so far above the 24 bits of the wire, that those before the first one are no negative
/// ones.
const PSN_BASE: u64 = 1 << lacuna_wire::psn::BITS;

/// What a packet has behind its headers.
#[derive(Clone, Copy)]
enum Payload<'p> {
    Bytes(&'p [u8]),
    /// So many bytes, which were placed ahead.
    Placed(usize),
}

impl Payload<'_> {
    fn len(self) -> usize {
        match self {
            Self::Bytes(bytes) => bytes.len(),
            Self::Placed(bytes) => bytes,
        }
    }
}
