//! Two reliable connections and a stranger who knows their numbers: every request ends once and in order.
//! The checks are those of the ordinary tests, which replay the corpus.

#![no_main]

#[path = "../../crates/lacuna-rc/tests/checks/mod.rs"]
mod checks;
#[path = "../../crates/lacuna-rc/tests/common/mod.rs"]
mod common;

libfuzzer_sys::fuzz_target!(|bytes: &[u8]| checks::connection(bytes));
