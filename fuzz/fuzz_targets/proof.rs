//! The exchange about a one-time code, with a peer who says anything.
//! The checks are those of the ordinary tests, which replay the corpus.

#![no_main]

libfuzzer_sys::fuzz_target!(|bytes: &[u8]| {
    if let Some((choice, words)) = bytes.split_first() {
        lacuna_trust::testing::hear(*choice, words);
    }
});
