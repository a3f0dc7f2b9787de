//! The program as a child process: what it says as it says it, and how it ends.

// Each test file uses a part.
#![allow(dead_code)]

use serde_json::Value;
use std::io::{BufRead, BufReader, Read};
use std::process::{Child, Command, Stdio};
use std::sync::mpsc::{Receiver, channel};
use std::sync::{Arc, Mutex};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

/// Far longer than anything here takes; what takes longer hangs.
pub(crate) const PATIENCE: Duration = Duration::from_secs(60);

/// The program with its first arguments.
pub(crate) fn lacuna(args: &[&str]) -> Command {
    piped(env!("CARGO_BIN_EXE_lacuna"), args)
}

/// Runs the program to its end.
pub(crate) fn run(args: &[&str]) -> Finished {
    spawn(&mut lacuna(args)).finish()
}

/// Starts the program.
pub(crate) fn start(args: &[&str]) -> Running {
    spawn(&mut lacuna(args))
}

/// Starts a perf server on a free port and says which.
pub(crate) fn perf_server(options: &[&str]) -> (Running, String) {
    let listen = ["perf", "server", "--listen", "127.0.0.1:0"];
    let server = start(&[&listen, options].concat());
    let address = server.address();
    (server, address)
}

/// Any program, to be watched.
pub(crate) fn piped(program: &str, args: &[&str]) -> Command {
    let mut command = Command::new(program);
    command.args(args).stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::piped());
    command
}

/// A process whose output is read as it comes; it ends with this.
pub(crate) struct Running {
    child: Child,
    stdout: Option<JoinHandle<String>>,
    stderr: Option<JoinHandle<()>>,
    stderr_text: Arc<Mutex<String>>,
    stderr_lines: Receiver<String>,
}

/// A process that has ended.
#[derive(Debug)]
pub(crate) struct Finished {
    pub(crate) code: i32,
    pub(crate) stdout: String,
    pub(crate) stderr: String,
}

pub(crate) fn spawn(command: &mut Command) -> Running {
    let mut child = command.spawn().expect("the program starts");
    let mut stdout = child.stdout.take().expect("piped");
    let stderr = child.stderr.take().expect("piped");
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
            text.lock().expect("no panics").push_str(&format!("{line}\n"));
            let _ = lines.send(line);
        }
    });
    let (stdout, stderr) = (Some(stdout), Some(stderr));
    Running { child, stdout, stderr, stderr_text, stderr_lines }
}

impl Running {
    #[cfg(unix)]
    pub(crate) fn signal(&self, signal: rustix::process::Signal) {
        use rustix::process::{Pid, kill_process};
        kill_process(Pid::from_child(&self.child), signal).expect("it runs");
    }

    pub(crate) fn finish(mut self) -> Finished {
        let since = Instant::now();
        let status = loop {
            if let Some(status) = self.child.try_wait().expect("it is a child") {
                break status;
            }
            assert!(since.elapsed() < PATIENCE, "it hangs; it said:\n{}", self.stderr());
            std::thread::sleep(Duration::from_millis(5));
        };
        let stdout = self.stdout.take().expect("taken once").join().expect("no panic");
        self.stderr.take().expect("taken once").join().expect("no panic");
        Finished { code: status.code().unwrap_or(-1), stdout, stderr: self.stderr() }
    }

    /// What it said until now.
    pub(crate) fn stderr(&self) -> String {
        self.stderr_text.lock().expect("no panics").clone()
    }

    /// Waits for its next line on standard error.
    pub(crate) fn next_line(&self) -> Option<String> {
        self.stderr_lines.recv_timeout(PATIENCE).ok()
    }

    /// Waits for a line on standard error that contains this.
    pub(crate) fn wait_for(&self, part: &str) -> String {
        loop {
            match self.next_line() {
                Some(line) if line.contains(part) => return line,
                Some(_) => {}
                None => panic!("no line with \"{part}\"; it said:\n{}", self.stderr()),
            }
        }
    }

    /// Where it says that it listens.
    pub(crate) fn address(&self) -> String {
        let line = self.wait_for("listening on ");
        let (_, rest) = line.split_once("listening on ").expect("it contains that");
        rest.split([',', ' ']).next().expect("there is a first").to_owned()
    }
}

impl Drop for Running {
    fn drop(&mut self) {
        // Without a word, if it still runs.
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

impl Finished {
    /// Its results.
    pub(crate) fn objects(&self) -> Vec<Value> {
        let lines = self.stdout.lines();
        lines.map(|line| serde_json::from_str(line).expect("a JSON object per line")).collect()
    }
}
