//! The two ends as child processes.

pub(crate) use crate::process::{Finished, Running, lacuna, spawn};
use crate::process::{PATIENCE, piped};
use rustix::process::Signal;
use serde_json::Value;
use std::fs;
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};
use tempfile::TempDir;

impl Finished {
    /// The summary, which comes last.
    pub(crate) fn summary(&self) -> Value {
        let last = self.objects().pop().unwrap_or_else(|| panic!("no results: {}", self.stderr));
        assert!(last.get("complete").is_some(), "{last}");
        last
    }

    /// The result of one file.
    pub(crate) fn file(&self, name: &str) -> Value {
        let mut objects = self.objects().into_iter();
        objects
            .find(|object| object["file"] == name)
            .unwrap_or_else(|| panic!("nothing on {name}:\n{}\n{}", self.stdout, self.stderr))
    }
}

/// Sends and waits for the end.
pub(crate) fn send(paths: &[&Path], address: &str, args: &[&str]) -> Finished {
    spawn(lacuna(&["send"]).args(args).args(paths).arg(address)).finish()
}

/// A receiver that listens; ended when this goes.
pub(crate) struct Receiver {
    running: Running,
    pub(crate) address: String,
}

impl Receiver {
    pub(crate) fn start(dir: &Path, args: &[&str]) -> Self {
        Self::start_at("127.0.0.1:0", dir, args)
    }

    pub(crate) fn start_at(address: &str, dir: &Path, args: &[&str]) -> Self {
        let mut command = lacuna(&["recv", "--listen", address, "--dir"]);
        Self::from(spawn(command.arg(dir).args(args)))
    }

    /// With a limit on the size of files, in blocks of 512 bytes.
    pub(crate) fn start_limited(blocks: u64, dir: &Path, args: &[&str]) -> Self {
        let script = format!("trap '' XFSZ; ulimit -f {blocks}; exec \"$@\"");
        let mut command = piped("sh", &["-c", &script, "sh"]);
        command.arg(env!("CARGO_BIN_EXE_lacuna"));
        command.args(["recv", "--listen", "127.0.0.1:0", "--dir"]).arg(dir).args(args);
        Self::from(spawn(&mut command))
    }

    /// With other permissions taken from what is new than the test has.
    pub(crate) fn start_with_umask(umask: &str, dir: &Path, args: &[&str]) -> Self {
        let script = format!("umask {umask}; exec \"$@\"");
        let mut command = piped("sh", &["-c", &script, "sh"]);
        command.arg(env!("CARGO_BIN_EXE_lacuna"));
        command.args(["recv", "--listen", "127.0.0.1:0", "--dir"]).arg(dir).args(args);
        Self::from(spawn(&mut command))
    }

    /// As a user who owns nothing; `None` where that cannot be.
    pub(crate) fn start_as_nobody(dir: &Path, args: &[&str]) -> Option<Self> {
        let nobody = ["--reuid", "65534", "--regid", "65534", "--clear-groups"];
        let works = piped("setpriv", &nobody).arg("true").status().is_ok_and(|end| end.success());
        works.then(|| {
            let mut command = piped("setpriv", &nobody);
            command.arg(env!("CARGO_BIN_EXE_lacuna"));
            command.args(["recv", "--listen", "127.0.0.1:0", "--dir"]).arg(dir).args(args);
            Self::from(spawn(&mut command))
        })
    }

    /// With results in a pipe that nobody reads.
    pub(crate) fn start_unread(dir: &Path) -> Self {
        let script = "mkfifo \"$2.pipe\" && exec \"$1\" recv --json --listen 127.0.0.1:0 --dir \"$2\" \
            <>\"$2.pipe\" >\"$2.pipe\"";
        let mut command = piped("sh", &["-c", script, "sh", env!("CARGO_BIN_EXE_lacuna")]);
        Self::from(spawn(command.arg(dir)))
    }

    /// One receiver after another on a file system of 12 MiB; `None` where
    /// that cannot be made. The second has 64 MiB, which are filled up when
    /// there is a `dir.fill`, and then there is a `dir.full`; the third has
    /// them for itself.
    pub(crate) fn start_on_tmpfs(dir: &Path) -> Option<Row> {
        let script = "mount -t tmpfs -o size=12m none \"$2\" || exit 99; echo mounted >&2
            \"$1\" recv --listen 127.0.0.1:0 --once --json --dir \"$2\"
            mount -o remount,size=64m \"$2\"
            {
                until [ -e \"$2.fill\" ] || ! [ -d \"$2\" ]; do sleep 0.02; done
                cat /dev/zero >\"$2/filler\"
                : >\"$2.full\"
            } 2>/dev/null &
            \"$1\" recv --listen 127.0.0.1:0 --once --json --dir \"$2\"
            wait; rm \"$2/filler\"
            \"$1\" recv --listen 127.0.0.1:0 --once --json --dir \"$2\"";
        let mut command = piped("unshare", &["--user", "--map-root-user", "--mount"]);
        command.args(["sh", "-c", script, "sh", env!("CARGO_BIN_EXE_lacuna")]).arg(dir);
        // Where there is no `unshare` there is no such test.
        piped("unshare", &["--version"]).output().ok()?;
        let running = spawn(&mut command);
        // Whatever it says first says whether it could mount.
        let first = running.next_line()?;
        (first == "mounted").then(|| Row { now: Self::from(running) })
    }

    /// On a file system of 12 MiB; `None` where that cannot be made.
    pub(crate) fn start_on_12_mib(dir: &Path, args: &[&str]) -> Option<Self> {
        let script = "mount -t tmpfs -o size=12m none \"$2\" || exit 99; echo mounted >&2
            program=$1 dir=$2; shift 2
            exec \"$program\" recv --listen 127.0.0.1:0 --dir \"$dir\" \"$@\"";
        let mut command = piped("unshare", &["--user", "--map-root-user", "--mount"]);
        command.args(["sh", "-c", script, "sh", env!("CARGO_BIN_EXE_lacuna")]).arg(dir).args(args);
        piped("unshare", &["--version"]).output().ok()?;
        let running = spawn(&mut command);
        let first = running.next_line()?;
        (first == "mounted").then(|| Self::from(running))
    }

    fn from(running: Running) -> Self {
        let address = running.address();
        Self { running, address }
    }

    pub(crate) fn signal(&self, signal: Signal) {
        self.running.signal(signal);
    }

    /// What it said until now.
    pub(crate) fn stderr(&self) -> String {
        self.running.stderr()
    }

    pub(crate) fn finish(self) -> Finished {
        self.running.finish()
    }
}

/// Receivers one after the other, in one process tree.
pub(crate) struct Row {
    /// The one that listens now.
    pub(crate) now: Receiver,
}

impl Row {
    /// The next one, once it listens.
    pub(crate) fn proceed(&mut self) {
        self.now.address = self.now.running.address();
    }
}

/// Waits for something to become true.
pub(crate) fn wait_until(what: &str, mut is_true: impl FnMut() -> bool) {
    let since = Instant::now();
    while !is_true() {
        assert!(since.elapsed() < PATIENCE, "waited in vain until {what}");
        std::thread::sleep(Duration::from_millis(2));
    }
}

/// A folder with a file of this content, and a path in it to receive into.
pub(crate) fn one_file(content: impl AsRef<[u8]>) -> (TempDir, PathBuf, PathBuf) {
    let dir = tempfile::tempdir().unwrap();
    let (file, dst) = (dir.path().join("file"), dir.path().join("dst"));
    fs::write(&file, content).unwrap();
    (dir, file, dst)
}

/// Bytes that look random and are the same each time.
pub(crate) fn bytes(len: usize, seed: u64) -> Vec<u8> {
    let mut hash = blake3::Hasher::new().update(&seed.to_be_bytes()).finalize_xof();
    let mut bytes = vec![0; len];
    hash.fill(&mut bytes);
    bytes
}

/// Both trees have the same folders and files with the same content.
pub(crate) fn same_trees(one: &Path, other: &Path) {
    let names = |path: &Path| {
        let mut names: Vec<_> =
            fs::read_dir(path).unwrap().map(|entry| entry.unwrap().file_name()).collect();
        names.sort();
        names
    };
    assert_eq!(names(one), names(other), "{}", one.display());
    for name in names(one) {
        let (one, other) = (one.join(&name), other.join(&name));
        if one.is_dir() {
            same_trees(&one, &other);
        } else {
            assert!(fs::read(&one).unwrap() == fs::read(&other).unwrap(), "{}", one.display());
        }
    }
}
