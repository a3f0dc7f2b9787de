//! What the tests of the C interface share: the library installed as a user
//! installs it, a C compiler, and programs that run against each other.
#![allow(dead_code, reason = "each test binary uses its part")]

use std::collections::BTreeSet;
use std::io::{BufRead, BufReader, Read};
use std::path::{Path, PathBuf};
use std::process::{Child, ChildStdout, Command, Stdio};
use std::sync::OnceLock;
use std::sync::atomic::{AtomicU32, Ordering};

/// A program that hangs is ended by its own watch: an alarm that kills it. Far more
/// than any takes, under valgrind too.
const SECONDS_MAX: u32 = 300;

/// Where cargo has put the libraries of this package: beside the test.
pub(crate) fn built() -> PathBuf {
    let test = std::env::current_exe().expect("a running test is a file");
    test.parent().expect("in a folder").to_path_buf()
}

pub(crate) fn root() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../..")
}

/// A folder that goes with the process, with the library installed in `prefix`.
pub(crate) fn installed() -> &'static Path {
    static INSTALLED: OnceLock<PathBuf> = OnceLock::new();
    INSTALLED.get_or_init(|| {
        let folder = Path::new(env!("CARGO_TARGET_TMPDIR")).join(format!(
            "c-{}-{}",
            env!("CARGO_CRATE_NAME"),
            std::process::id()
        ));
        let prefix = folder.join("prefix");
        let status = Command::new(root().join("scripts/install-c.sh"))
            .arg("--prefix")
            .arg(&prefix)
            .arg("--built")
            .arg(built())
            .stdout(Stdio::null())
            .status()
            .expect("bash runs");
        assert!(status.success(), "the library installs");
        folder
    })
}

pub(crate) fn prefix() -> PathBuf {
    installed().join("prefix")
}

/// Removes what [`installed`] made: the last of a test binary's tests cannot be
/// known, so old folders are removed at the next run.
pub(crate) fn remove_old() {
    let Ok(entries) = std::fs::read_dir(env!("CARGO_TARGET_TMPDIR")) else { return };
    for entry in entries.flatten() {
        let name = entry.file_name().to_string_lossy().into_owned();
        let Some((_, pid)) = name.rsplit_once('-').filter(|_| name.starts_with("c-")) else {
            continue;
        };
        if !Path::new("/proc").join(pid).exists() {
            let _ = std::fs::remove_dir_all(entry.path());
        }
    }
}

/// Whether a program can be started.
pub(crate) fn has(program: &str) -> bool {
    Command::new(program)
        .arg("--version")
        .stdout(Stdio::null())
        .stderr(Stdio::null())
        .status()
        .is_ok()
}

/// Functions that the installed headers declare.
pub(crate) fn declared() -> BTreeSet<String> {
    let mut names = BTreeSet::new();
    for header in ["sdr.h", "sdr_mr.h", "lacuna.h"] {
        let path = root().join("crates/lacuna-capi/include").join(header);
        for line in std::fs::read_to_string(path).expect("a header").lines() {
            let Some((before, _)) = line.split_once('(') else { continue };
            let name = before.rsplit([' ', '*']).next().unwrap_or_default();
            let is_ours = name.starts_with("sdr_") || name.starts_with("lacuna_");
            // Comments are indented by a star.
            if is_ours && !line.starts_with(' ') {
                names.insert(name.to_owned());
            }
        }
    }
    names
}

/// What a compiler is called with.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Build {
    C11,
    Cxx17,
    /// With the address and undefined behaviour sanitizers.
    Sanitized,
    /// With the static library.
    Static,
}

/// Compiles a C source with all warnings as errors, and gives the program.
pub(crate) fn compile(source: &Path, build: Build) -> PathBuf {
    /// Tests run side by side, and a program that runs cannot be written.
    static NUMBER: AtomicU32 = AtomicU32::new(0);
    let name = source.file_stem().unwrap().to_string_lossy();
    let number = NUMBER.fetch_add(1, Ordering::Relaxed);
    let program = installed().join(format!("{name}-{build:?}-{number}"));
    let mut compiler = Command::new(if build == Build::Cxx17 { "c++" } else { "cc" });
    match build {
        Build::Cxx17 => compiler.args(["-x", "c++", "-std=c++17"]),
        _ => compiler.arg("-std=c11"),
    };
    compiler.args(["-Wall", "-Wextra", "-Werror", "-g", "-O1", "-pthread"]);
    if build == Build::Sanitized {
        compiler.args(["-fsanitize=address,undefined", "-fno-sanitize-recover=all"]);
    }
    compiler.arg(source).arg("-o").arg(&program);
    compiler.arg(format!("-I{}", prefix().join("include").display()));
    // Behind `-x c++` a library would be read as source.
    compiler.args(["-x", "none"]);
    let lib = prefix().join("lib");
    if build == Build::Static {
        compiler.arg(lib.join("liblacuna.a"));
        compiler.args(["-lgcc_s", "-lutil", "-lrt", "-lpthread", "-lm", "-ldl", "-lc"]);
    } else {
        compiler.arg(format!("-L{}", lib.display()));
        compiler.args(["-llacuna", &format!("-Wl,-rpath,{}", lib.display())]);
    }
    let output = compiler.output().expect("there is a C compiler");
    assert!(
        output.status.success(),
        "{} as {build:?}:\n{}",
        source.display(),
        String::from_utf8_lossy(&output.stderr)
    );
    program
}

/// How a program is run.
#[derive(Debug, Clone, Default)]
pub(crate) struct Runner {
    pub(crate) valgrind: bool,
    /// What threads have that a child process does not is lost to it.
    pub(crate) loses_memory: bool,
    pub(crate) environment: Vec<(&'static str, String)>,
}

impl Runner {
    fn command(&self, program: &Path, arguments: &[&str]) -> Command {
        let mut command = Command::new("timeout");
        command.arg(SECONDS_MAX.to_string());
        if self.valgrind {
            command.args([
                "valgrind",
                "-q",
                "--error-exitcode=99",
                // Threads of a program that polls must all get their turn.
                "--fair-sched=yes",
                if self.loses_memory { "--leak-check=no" } else { "--leak-check=full" },
                // The thread object of a main thread that is none of Rust's counts
                // as possibly lost.
                "--show-leak-kinds=definite",
                "--errors-for-leak-kinds=definite",
            ]);
        }
        command.arg(program).args(arguments);
        command.env("ASAN_OPTIONS", "detect_leaks=1");
        command.envs(self.environment.iter().cloned());
        command.stdout(Stdio::piped()).stderr(Stdio::piped());
        command
    }

    /// Runs a program to its end; what it printed.
    pub(crate) fn run(&self, program: &Path, arguments: &[&str]) -> String {
        finish(self.command(program, arguments).spawn().expect("it starts"), None)
    }

    /// Runs a program that listens at a port which it prints, and `client` with
    /// that port's number in place of `PORT`; what both printed.
    pub(crate) fn run_pair(
        &self,
        program: &Path,
        server: &[&str],
        client: &[&str],
    ) -> (String, String) {
        let mut serving = self.command(program, server).spawn().expect("it starts");
        let mut output = BufReader::new(serving.stdout.take().expect("piped"));
        let mut line = String::new();
        output.read_line(&mut line).expect("a line");
        let Some(port) = line.trim().strip_prefix("listening on port ") else {
            panic!("no port in \"{line}\": {}", finish(serving, Some(output)));
        };
        let client: Vec<String> = client.iter().map(|text| text.replace("PORT", port)).collect();
        let client: Vec<&str> = client.iter().map(String::as_str).collect();
        let printed = self.run(program, &client);
        (finish(serving, Some(output)), printed)
    }
}

fn finish(child: Child, output: Option<BufReader<ChildStdout>>) -> String {
    let mut printed = String::new();
    if let Some(mut output) = output {
        output.read_to_string(&mut printed).expect("text");
    }
    let ended = child.wait_with_output().expect("it was started");
    printed += &String::from_utf8_lossy(&ended.stdout);
    printed += &String::from_utf8_lossy(&ended.stderr);
    assert!(ended.status.success(), "{}\n{printed}", ended.status);
    printed
}
