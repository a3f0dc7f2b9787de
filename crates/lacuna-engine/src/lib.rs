//! The engine of the Lacuna transport: many queue pairs over some channels.
//!
//! An [`Engine`] places the packets that its datapaths received, gives queue pairs turns to send,
//! cuts their runs into packets, and runs their timers. It reads a clock ([`Time`]) and never
//! waits: the caller decides when to step, and may ask the [idle policy](idle). So the same engine
//! runs on the threads of a transport and in virtual time. (The engines of an erasure code,
//! `lacuna_code::Engine`, are another thing.)
//!
//! | file | what it is |
//! |---|---|
//! | `engine.rs` | the engine and the order of a step |
//! | `intake.rs` | received packets: placed, or given to the machine |
//! | `run_queue.rs`, `locals.rs` | whose turn it is; the queue pairs by number |
//! | `serve.rs`, `packetize.rs` | a turn; runs cut into packets |
//! | `settle.rs`, `control_queue.rs` | after a turn: control packets, events, timers |
//! | `migration.rs`, `challenge_values.rs` | the peer's address changes: which packets follow, and when |
//! | `books.rs` | the state of a queue pair that engines and application share, and its lock |
//! | [`kinds`] | the kinds of queue pairs: which protocol handles the packets |
//! | [`idle`] | when to step again: at once, after a spin, after a wait, when woken |
//! | [`event`] | events for the caller |
//!
//! Engines share only the queue pairs' locks, taken once for the packets of a receive call, and the
//! atomic bitmaps of receives.

#![forbid(unsafe_code)]

pub mod books;
mod challenge_values;
mod channel;
mod control_queue;
pub mod counters;
mod engine;
pub mod event;
pub mod harness;
mod icrc;
pub mod idle;
mod intake;
pub mod kinds;
mod locals;
mod migration;
mod packetize;
mod run_queue;
mod serve;
mod settle;
#[cfg(feature = "testing")]
pub mod testing;
mod time;

pub use books::{Books, State};
pub use counters::Counters;
pub use engine::Engine;
pub use event::Event;
pub use intake::NotedPacket;
pub use kinds::{Lane, Machine, RcLane};
pub use packetize::SentHeader;
pub use time::Time;
