//! Packets of datagram queue pairs, judged by others: an encoder of their own in `fixtures/make_ddp.py`, which says
//! what they contain, tshark's dissectors of iWARP, and the dissector in `wireshark/lacuna-datagram.lua`.

#[path = "../fixtures/mod.rs"]
mod fixtures;

mod bytes;
mod captures;
mod dissector;
mod expected;
mod iwarp;
