//! Gives the shared library its soname: what a program that was linked with it
//! asks for when it starts. `docs/c-library.md` says when it changes.

fn main() {
    println!("cargo:rerun-if-changed=build.rs");
    let part = |name: &str| std::env::var(format!("CARGO_PKG_VERSION_{name}")).unwrap_or_default();
    let (major, minor) = (part("MAJOR"), part("MINOR"));
    // Before 1.0 a minor version may break, as in Cargo.
    let abi = if major == "0" { format!("0.{minor}") } else { major };
    if std::env::var("CARGO_CFG_TARGET_OS").is_ok_and(|os| os == "linux") {
        println!("cargo:rustc-cdylib-link-arg=-Wl,-soname,liblacuna.so.{abi}");
    }
}
