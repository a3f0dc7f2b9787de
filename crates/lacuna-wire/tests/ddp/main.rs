//! Packets of datagram queue pairs, judged by others: an encoder of their own in `fixtures/make_ddp.py`, which says
//! what they contain, and tshark's dissectors of iWARP.

#[path = "../fixtures/mod.rs"]
mod fixtures;

mod bytes;
mod captures;
mod expected;
mod iwarp;
