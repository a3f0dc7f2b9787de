//! The headers in `include/` are written from the Rust functions, so that a
//! signature cannot differ between the two; and what they declare is what the
//! library exports. After a change of the interface:
//!
//! ```sh
//! LACUNA_WRITE_HEADERS=1 cargo test -p lacuna-capi --test headers
//! ```

mod common;

use cbindgen::{Builder, Config, DocumentationStyle, EnumConfig, Language, Style};
use std::collections::BTreeSet;
use std::path::{Path, PathBuf};

struct Header {
    name: &'static str,
    /// What the file is, above its include guard.
    text: &'static str,
    sources: &'static [&'static str],
    includes: &'static [&'static str],
    /// Enumerations: no signature has them, since Rust takes any number.
    enums: &'static [&'static str],
    /// Types that come from a header that it includes.
    foreign: &'static [&'static str],
}

const HEADERS: [Header; 3] = [
    Header {
        name: "sdr.h",
        text: "The SDR API of the SDR-RDMA paper (table 1, section 3.1) over plain UDP, by Lacuna.",
        sources: &["sdr/types.rs", "sdr/context.rs", "sdr/qp.rs", "sdr/recv.rs", "sdr/send.rs"],
        includes: &[],
        enums: &["sdr_errcode", "sdr_mtu", "sdr_wr_opcode"],
        foreign: &[],
    },
    Header {
        name: "sdr_mr.h",
        text: "Memory registration of the SDR API, by Lacuna.",
        sources: &["sdr/region.rs"],
        includes: &["sdr.h"],
        enums: &["sdr_access_flags"],
        foreign: &["sdr_context"],
    },
    Header {
        name: "lacuna.h",
        text: "Lacuna's own interface: connections with a mode and deadlines, live bitmaps, datagrams, groups.",
        sources: &[
            "endpoint/codes.rs",
            "endpoint/settings.rs",
            "endpoint/context.rs",
            "endpoint/connection.rs",
            "endpoint/receive.rs",
            "endpoint/ended.rs",
            "endpoint/map.rs",
            "endpoint/send.rs",
            "endpoint/offered.rs",
            "endpoint/region.rs",
            "endpoint/one_sided.rs",
            "endpoint/class.rs",
            "endpoint/completion_queue.rs",
            "endpoint/completion.rs",
            "endpoint/queued.rs",
            "endpoint/address.rs",
            "endpoint/slices.rs",
            // With the modules below them.
            "endpoint/datagram/mod.rs",
            "endpoint/group/mod.rs",
        ],
        includes: &[],
        enums: &[
            "lacuna_result",
            "lacuna_reason",
            "lacuna_missing",
            "lacuna_right",
            "lacuna_class",
            "lacuna_arm",
            "lacuna_operation",
            "lacuna_queued",
            "lacuna_datagram_space",
            "lacuna_datagram_refusal",
            "lacuna_element",
            "lacuna_reduction",
            "lacuna_budget",
            "lacuna_divisor",
        ],
        foreign: &[],
    },
];

fn package() -> &'static Path {
    Path::new(env!("CARGO_MANIFEST_DIR"))
}

fn generated(header: &Header) -> String {
    let guard = format!("LACUNA_{}", header.name.to_uppercase().replace('.', "_"));
    let mut config = Config {
        language: Language::C,
        style: Style::Tag,
        cpp_compat: true,
        header: Some(format!(
            "/* {}\n *\n * Written from the Rust sources by crates/lacuna-capi/tests/headers.rs: do not edit.\n * docs/c-library.md is the manual.\n *\n * A thread must not be cancelled (pthread_cancel) while it is inside a call: that aborts\n * the process. A child process (fork) makes a context of its own: of what it has inherited\n * it may free each thing, which changes nothing for its parent, and all other calls with\n * that are errors. */",
            header.text
        )),
        include_guard: Some(guard),
        no_includes: true,
        sys_includes: vec!["stddef.h".to_owned(), "stdint.h".to_owned()],
        includes: header.includes.iter().map(|name| (*name).to_owned()).collect(),
        usize_is_size_t: true,
        documentation_style: DocumentationStyle::Doxy,
        line_length: 90,
        enumeration: EnumConfig { prefix_with_name: false, ..EnumConfig::default() },
        ..Config::default()
    };
    // Rust must not believe C that a number is one of an enumeration's: it takes
    // any, and the header has the type of the contract.
    for name in ["sdr_mtu", "sdr_wr_opcode", "sdr_access_flags"] {
        config.export.rename.insert(format!("{name}_value"), format!("enum {name}"));
        config.export.exclude.push(format!("{name}_value"));
    }
    config.export.include.extend(header.enums.iter().map(|name| (*name).to_owned()));
    for name in header.foreign {
        config.export.rename.insert((*name).to_owned(), format!("struct {name}"));
    }
    let mut builder = Builder::new().with_config(config);
    for source in header.sources {
        builder = builder.with_src(package().join("src").join(source));
    }
    let mut text = Vec::new();
    builder.generate().expect("the sources are Rust").write(&mut text);
    tidy(&String::from_utf8(text).unwrap())
}

/// Rust's sections on safety say what the text before them says, for readers who
/// have no compiler that asks.
fn tidy(text: &str) -> String {
    let mut lines: Vec<&str> = Vec::new();
    let mut in_safety = false;
    for line in text.lines() {
        if line.trim() == "* # Safety" {
            in_safety = true;
            while lines.last().is_some_and(|line| line.trim() == "*") {
                lines.pop();
            }
        }
        in_safety &= line.trim() != "*/";
        if !in_safety {
            lines.push(line);
        }
    }
    lines.join("\n") + "\n"
}

fn checked_in(header: &Header) -> PathBuf {
    package().join("include").join(header.name)
}

#[test]
fn the_headers_are_those_of_the_sources() {
    for header in &HEADERS {
        let (wanted, path) = (generated(header), checked_in(header));
        if std::env::var_os("LACUNA_WRITE_HEADERS").is_some() {
            std::fs::write(&path, &wanted).unwrap();
        }
        let found = std::fs::read_to_string(&path).unwrap_or_default();
        assert!(
            found == wanted,
            "{} is not what the sources say; run LACUNA_WRITE_HEADERS=1 cargo test -p lacuna-capi --test headers",
            path.display()
        );
    }
}

/// Names in front of a list of parameters, outside of comments.
fn declared() -> BTreeSet<String> {
    let mut names = BTreeSet::new();
    for header in &HEADERS {
        let text = generated(header);
        let code = text.lines().filter(|line| !line.trim_start().starts_with('*'));
        for line in code {
            let Some((before, _)) = line.split_once('(') else { continue };
            let name = before.rsplit([' ', '*']).next().unwrap_or_default();
            if name.starts_with("sdr_") || name.starts_with("lacuna_") {
                names.insert(name.to_owned());
            }
        }
    }
    names
}

#[test]
fn the_library_exports_what_the_headers_declare_and_nothing_else() {
    let output = std::process::Command::new("nm")
        .args(["-D", "--defined-only"])
        .arg(common::built().join("liblacuna_capi.so"))
        .output()
        .expect("nm comes with the C compiler");
    let text = String::from_utf8(output.stdout).unwrap();
    let exported: BTreeSet<String> =
        text.lines().filter_map(|line| line.split(' ').nth(2)).map(str::to_owned).collect();
    assert_eq!(exported, declared());
    assert!(exported.len() > 40, "{exported:?}");
}
