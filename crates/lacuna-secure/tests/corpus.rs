//! What fuzzing once found or grew from, and random operations, against the checks of the fuzz target.

mod checks;

use proptest::prelude::*;
use std::path::PathBuf;

#[test]
fn the_corpus_holds() {
    let folder = PathBuf::from(env!("CARGO_MANIFEST_DIR")).join("../../fuzz/corpus/sealed");
    let mut count = 0;
    for entry in std::fs::read_dir(folder).expect("the corpus") {
        checks::sealed(&std::fs::read(entry.expect("a file").path()).expect("readable"));
        count += 1;
    }
    assert!(count > 0);
}

proptest! {
    #[test]
    fn nobody_on_the_path_has_a_packet_opened_that_is_not_the_peers(
        operations in proptest::collection::vec(any::<u8>(), 0..400),
    ) {
        checks::sealed(&operations);
    }
}
