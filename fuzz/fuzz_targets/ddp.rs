//! Datagrams of datagram queue pairs: `ddp::parse`, the trailer, requests and control frames, and making again what
//! was accepted. The checks are those of the ordinary tests, which replay the corpus.

#![no_main]

#[path = "../../crates/lacuna-wire/tests/checks/mod.rs"]
mod checks;

libfuzzer_sys::fuzz_target!(|bytes: &[u8]| checks::ddp::datagram(bytes));
