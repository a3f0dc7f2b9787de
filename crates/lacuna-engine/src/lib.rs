//! The engine of the Lacuna transport: many queue pairs over some channels.
//!
//! An [`Engine`] takes the packets that its datapaths received, has the queue pairs take turns, cuts
//! what they may send into packets, and calls each again when its time has come. It reads the time
//! from whoever owns it ([`Time`]), and waits for nothing: the owner decides when the next step is,
//! with the [idle policy](idle) to ask. So the same engine runs on the threads of a transport and in
//! virtual time.
//!
//! | file | what it is |
//! |---|---|
//! | `engine.rs` | the engine and the order of a step |
//! | `intake.rs` | received packets: placed, or handed on |
//! | `run_queue.rs`, `locals.rs` | whose turn it is; the queue pairs by number |
//! | `serve.rs`, `packetize.rs` | a turn; runs cut into packets |
//! | `settle.rs`, `control_queue.rs` | behind a turn: what the peer and the owner are told |
//! | `books.rs` | what the engines and the application share of a queue pair, and its lock |
//! | [`kinds`] | the kinds of queue pairs: who understands the packets |
//! | [`idle`] | when to look again: at once, after a spin, after a while, when woken |
//! | [`event`] | what the owner is told |
//!
//! An engine shares nothing with other engines but the queue pairs' locks, taken once for the packets
//! of a receive call, and the atomic bitmaps of receives.

#![forbid(unsafe_code)]

pub mod books;
mod channel;
mod control_queue;
pub mod counters;
mod engine;
pub mod event;
pub mod harness;
pub mod idle;
mod intake;
pub mod kinds;
mod locals;
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
pub use kinds::{Lane, Machine};
pub use packetize::SentHeader;
pub use time::Time;
