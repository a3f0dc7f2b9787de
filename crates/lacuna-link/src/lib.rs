//! Models of links, for emulators and simulators of every shape: what a link loses, what it delays
//! and what it drops.
//!
//! | module | what it holds |
//! |---|---|
//! | [`SplitMix64`] | a seeded generator with one word of state |
//! | [`Prng`] | a seeded generator with numbered streams |
//! | [`Fraction`] | a probability as an exact integer |
//! | [`Loss`], [`LossProcess`] | which packets are lost: independently, in bursts (Gilbert-Elliott), as recorded |
//! | [`Link`] | a transmitter of fixed rate with a drop-tail queue in front of it |
//! | [`Dice`], [`Luck`] | all that chance does to one packet, and [`Order`], which keeps packets in theirs |
//! | [`Pipe`] | one direction of a path, of all these: loss, queue, rate, delay, and the rest |
//! | [`Schedule`] | packets in flight, in order of their release |
//!
//! There is no socket, thread or clock here: time and randomness are arguments. The same seed and the
//! same calls give the same losses in every emulator that is built from these parts, on every machine.
//! What the parts are joined to (a datapath, the two ways between emulated hosts, a simulator) is
//! their user's.

#![forbid(unsafe_code)]

mod fraction;
mod link;
mod loss;
mod luck;
mod pipe;
mod prng;
mod schedule;
mod split_mix;

pub use fraction::Fraction;
pub use link::Link;
pub use loss::{Loss, LossError, LossProcess};
pub use luck::{Chances, Dice, Luck, Order};
pub use pipe::{Passed, Pipe, PipeConfig};
pub use prng::Prng;
pub use schedule::{Held, PACKET_CHARGE_BYTES, Schedule, SlotIndex, charge_bytes};
pub use split_mix::SplitMix64;
