//! Packets of datagram queue pairs, judged by an encoder of their own in `fixtures/make_ddp.py`, which says what they
//! contain.

#[path = "../fixtures/mod.rs"]
mod fixtures;

mod bytes;
mod expected;
