//! Packets of a measurement, and what a client and a server make of them from anybody.
//! The checks are those of the ordinary tests, which replay the corpus.

#![no_main]

#[path = "../../crates/lacuna-probe/tests/checks/mod.rs"]
mod checks;

libfuzzer_sys::fuzz_target!(|bytes: &[u8]| checks::probe(bytes));
