//! The two ends as child processes.

use rustix::process::{Pid, Signal, kill_process};
use serde_json::Value;
use std::fs;
use std::io::{BufRead, BufReader, Read};
use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::sync::mpsc::{Receiver as Channel, channel};
use std::sync::{Arc, Mutex};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

/// Far longer than anything here takes; what takes longer hangs.
const PATIENCE: Duration = Duration::from_secs(60);

/// The program with its first arguments.
pub(crate) fn lacuna(args: &[&str]) -> Command {
    let mut command = Command::new(env!("CARGO_BIN_EXE_lacuna"));
    command.args(args).stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::piped());
    command
}

/// A process whose output is read as it comes.
pub(crate) struct Running {
    child: Child,
    stdout: JoinHandle<String>,
    stderr: JoinHandle<()>,
    stderr_text: Arc<Mutex<String>>,
    stderr_lines: Channel<String>,
}

/// A process that has ended.
pub(crate) struct Finished {
    pub(crate) code: i32,
    pub(crate) stdout: String,
    pub(crate) stderr: String,
}

pub(crate) fn spawn(command: &mut Command) -> Running {
    let mut child = command.spawn().expect("the program starts");
    let mut stdout = child.stdout.take().unwrap();
    let stderr = child.stderr.take().unwrap();
    let stdout = std::thread::spawn(move || {
        let mut text = String::new();
        stdout.read_to_string(&mut text).expect("the output is text");
        text
    });
    let stderr_text = Arc::new(Mutex::new(String::new()));
    let (lines, stderr_lines) = channel();
    let text = stderr_text.clone();
    let stderr = std::thread::spawn(move || {
        for line in BufReader::new(stderr).lines() {
            let line = line.expect("errors are text");
            text.lock().unwrap().push_str(&format!("{line}\n"));
            let _ = lines.send(line);
        }
    });
    Running { child, stdout, stderr, stderr_text, stderr_lines }
}

impl Running {
    pub(crate) fn signal(&self, signal: Signal) {
        kill_process(Pid::from_child(&self.child), signal).expect("it runs");
    }

    pub(crate) fn finish(mut self) -> Finished {
        let since = Instant::now();
        let status = loop {
            if let Some(status) = self.child.try_wait().unwrap() {
                break status;
            }
            if since.elapsed() > PATIENCE {
                let _ = self.child.kill();
                panic!("it hangs; it said:\n{}", self.stderr_text.lock().unwrap());
            }
            std::thread::sleep(Duration::from_millis(5));
        };
        let stdout = self.stdout.join().unwrap();
        self.stderr.join().unwrap();
        let stderr = self.stderr_text.lock().unwrap().clone();
        Finished { code: status.code().unwrap_or(-1), stdout, stderr }
    }

    /// Ends it without a word.
    pub(crate) fn kill(mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }

    /// Where it says that it listens.
    pub(crate) fn address(&self) -> String {
        loop {
            let line = self.stderr_lines.recv_timeout(PATIENCE).expect("it says where it listens");
            if let Some(rest) = line.strip_prefix("listening on ") {
                return rest.split([',', ' ']).next().unwrap().to_owned();
            }
        }
    }
}

impl Finished {
    fn objects(&self) -> impl Iterator<Item = Value> {
        self.stdout.lines().map(|line| serde_json::from_str(line).expect("a JSON object per line"))
    }

    /// The summary, which comes last.
    pub(crate) fn summary(&self) -> Value {
        let last = self.objects().last().unwrap_or_else(|| panic!("no results: {}", self.stderr));
        assert!(last.get("complete").is_some(), "{last}");
        last
    }

    /// The result of one file.
    pub(crate) fn file(&self, name: &str) -> Value {
        self.objects()
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
    running: Option<Running>,
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
        let mut command = shell("sh", &["-c", &script, "sh"]);
        command.arg(env!("CARGO_BIN_EXE_lacuna"));
        command.args(["recv", "--listen", "127.0.0.1:0", "--dir"]).arg(dir).args(args);
        Self::from(spawn(&mut command))
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
        let mut command = shell("unshare", &["--user", "--map-root-user", "--mount"]);
        command.args(["sh", "-c", script, "sh", env!("CARGO_BIN_EXE_lacuna")]).arg(dir);
        // Where there is no `unshare` there is no such test.
        shell("unshare", &["--version"]).output().ok()?;
        let running = spawn(&mut command);
        // Whatever it says first says whether it could mount.
        let first = running.stderr_lines.recv_timeout(PATIENCE).ok()?;
        (first == "mounted").then(|| Row { now: Self::from(running) })
    }

    fn from(running: Running) -> Self {
        let address = running.address();
        Self { running: Some(running), address }
    }

    fn running(&self) -> &Running {
        self.running.as_ref().expect("it was not finished")
    }

    pub(crate) fn signal(&self, signal: Signal) {
        self.running().signal(signal);
    }

    /// What it said until now.
    pub(crate) fn stderr(&self) -> String {
        self.running().stderr_text.lock().unwrap().clone()
    }

    pub(crate) fn finish(mut self) -> Finished {
        self.running.take().expect("it was not finished").finish()
    }

    /// Ends it without a word.
    pub(crate) fn kill(mut self) {
        self.end();
    }

    fn end(&mut self) {
        if let Some(mut running) = self.running.take() {
            let _ = running.child.kill();
            let _ = running.child.wait();
        }
    }
}

impl Drop for Receiver {
    fn drop(&mut self) {
        self.end();
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
        self.now.address = self.now.running().address();
    }
}

fn shell(program: &str, args: &[&str]) -> Command {
    let mut command = Command::new(program);
    command.args(args).stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::piped());
    command
}

/// Waits for something to become true.
pub(crate) fn wait_until(what: &str, mut is_true: impl FnMut() -> bool) {
    let since = Instant::now();
    while !is_true() {
        assert!(since.elapsed() < PATIENCE, "waited in vain until {what}");
        std::thread::sleep(Duration::from_millis(2));
    }
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
