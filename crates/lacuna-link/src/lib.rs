//! Link models for emulators and simulators: loss, rate, queueing, delay, reordering, corruption.
//!
//! | type | model |
//! |---|---|
//! | [`SplitMix64`] | a seeded generator with one word of state |
//! | [`Prng`] | a seeded generator with numbered streams |
//! | [`Fraction`] | a probability as an exact integer |
//! | [`Loss`], [`LossProcess`] | packet loss: independent, in bursts (Gilbert-Elliott), from a trace |
//! | [`Link`] | a transmitter of fixed rate with a drop-tail queue in front of it |
//! | [`Background`] | traffic of others on a link: bursts of packets that nobody here receives |
//! | [`FaultGenerator`], [`Faults`] | the random faults of each packet; [`Order`] keeps packets in order |
//! | [`Pipe`] | one direction of a path, built from these: loss, queue, rate, delay and faults |
//! | [`Schedule`] | packets in flight, in order of their release |
//!
//! There is no socket, thread or clock here: time and seed are arguments. The same seed and the same
//! calls give the same losses in every emulator that uses these models, on every machine. The users
//! connect them to a datapath, to emulated hosts or to a simulator.

#![forbid(unsafe_code)]

mod background;
mod faults;
mod fraction;
mod link;
mod loss;
mod pipe;
mod prng;
mod schedule;
mod split_mix;

pub use background::{Background, BackgroundCounters};
pub use faults::{Chances, FaultGenerator, Faults, Order};
pub use fraction::Fraction;
pub use link::Link;
pub use loss::{Loss, LossError, LossProcess};
pub use pipe::{Passed, Pipe, PipeConfig};
pub use prng::Prng;
pub use schedule::{InFlight, PACKET_CHARGE_BYTES, Schedule, SlotIndex, charge_bytes};
pub use split_mix::SplitMix64;
