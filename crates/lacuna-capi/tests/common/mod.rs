//! What the tests of the C interface share.

use std::path::PathBuf;

/// Where cargo has put the libraries of this package: beside the test.
pub fn built() -> PathBuf {
    let test = std::env::current_exe().expect("a running test is a file");
    test.parent().expect("in a folder").to_path_buf()
}
