//! Transfers over ssh, with a stand-in for ssh that starts the far end on this host: in a home folder of its own, by a
//! shell that greets first.

#![cfg(target_os = "linux")]

use rustix::process::{Pid, Signal, kill_process};
use std::fs;
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};
use std::process::{Command, Output, Stdio};
use std::time::{Duration, Instant};

const LACUNA: &str = env!("CARGO_BIN_EXE_lacuna");
/// As ssh: the host, then words for a shell there. It says when the far end is gone.
const SSH: &str = r#"#!/bin/sh
host=$1
shift
echo $$ >"$HERE/pid"
if [ "$host" = nowhere ]; then
    echo "ssh: connect to host nowhere port 22: No route to host" >&2
    exit 255
fi
echo "Welcome to $host!"
printf 'and no end of line'
cd "$HERE/home" || exit 1
HOME=$HERE/home SSH_CONNECTION="127.0.0.1 1 127.0.0.1 22" sh -c "$*"
code=$?
echo $code >"$HERE/ended"
exit $code
"#;

/// A folder with that ssh, a file to send, and the home folder of the other host.
struct Hosts(tempfile::TempDir);

impl Hosts {
    fn new() -> Self {
        let folder = tempfile::tempdir().expect("a folder");
        fs::create_dir(folder.path().join("home")).unwrap();
        fs::write(folder.path().join("ssh"), SSH).unwrap();
        fs::write(folder.path().join("a:b"), vec![7; 300_000]).unwrap();
        Self(folder)
    }

    fn path(&self, name: &str) -> PathBuf {
        self.0.path().join(name)
    }

    fn command(&self, lacuna: &str, words: &[&str]) -> Command {
        let mut command = Command::new(LACUNA);
        command
            .args(["send", "-e", &format!("sh {}", self.path("ssh").display())])
            .args(["--remote-lacuna", lacuna])
            .args(words)
            .current_dir(self.0.path())
            .env("HERE", self.0.path())
            .env("XDG_CONFIG_HOME", self.0.path())
            .env_remove("LACUNA_TOKEN_FILE")
            .env_remove("LACUNA_INSECURE")
            .stdin(Stdio::null());
        command
    }

    fn send(&self, words: &[&str]) -> Output {
        self.command(LACUNA, words).output().expect("the binary runs")
    }
}

fn stderr(output: &Output) -> String {
    String::from_utf8_lossy(&output.stderr).into_owned()
}

/// A failure that is said in a line, behind what ssh says.
fn assert_fails(output: &Output, code: i32, part: &str) {
    let said = stderr(output);
    assert_eq!(output.status.code(), Some(code), "{said}");
    assert!(said.lines().last().is_some_and(|line| line.contains(part)), "{said}");
}

fn is_same(hosts: &Hosts, there: &Path) -> bool {
    fs::read(hosts.path("a:b")).unwrap() == fs::read(there).unwrap()
}

#[test]
fn files_arrive_in_a_folder_of_any_name_and_nothing_stays_behind() {
    let hosts = Hosts::new();
    for folder in ["in", "it's \"here\"; $(touch x) *", "", "~/in/below"] {
        let to = format!("me@host:{folder}");
        let sent = hosts.send(&["--json", "./a:b", &to]);
        assert_eq!(sent.status.code(), Some(0), "{folder}: {}", stderr(&sent));
        let said = String::from_utf8_lossy(&sent.stdout);
        assert!(said.contains("\"wire\":\"sealed\""), "{said}");
        let folder = folder.strip_prefix("~/").unwrap_or(folder);
        assert!(is_same(&hosts, &hosts.path("home").join(folder).join("a:b")), "{folder}");
        // Its input has ended, and so has it.
        assert_eq!(fs::read_to_string(hosts.path("ended")).unwrap(), "0\n");
        fs::remove_file(hosts.path("ended")).unwrap();
    }
}

#[test]
fn what_differs_there_is_replaced_only_if_that_was_asked_for() {
    let hosts = Hosts::new();
    fs::write(hosts.path("home/a:b"), "something else").unwrap();
    let kept = hosts.send(&["./a:b", "host:"]);
    assert_ne!(kept.status.code(), Some(0), "{}", stderr(&kept));
    assert_eq!(fs::read(hosts.path("home/a:b")).unwrap(), b"something else");
    let replaced = hosts.send(&["--overwrite", "./a:b", "host:"]);
    assert_eq!(replaced.status.code(), Some(0), "{}", stderr(&replaced));
    assert!(is_same(&hosts, &hosts.path("home/a:b")));
}

#[test]
fn what_is_wrong_with_ssh_or_the_other_host_is_said() {
    let hosts = Hosts::new();
    assert_fails(&hosts.send(&["./a:b", "nowhere:in"]), 3, "ssh did not get to nowhere");
    let missing = hosts.command("/nowhere/lacuna", &["./a:b", "host:in"]).output().unwrap();
    assert_fails(&missing, 3, "there is no /nowhere/lacuna at host: install it there");
    let no_ssh = ["-e", "no-such-ssh", "./a:b", "host:in"];
    let no_ssh = Command::new(LACUNA).arg("send").args(no_ssh).current_dir(hosts.0.path()).output();
    assert_fails(&no_ssh.unwrap(), 5, "there is no no-such-ssh here");
    fs::write(hosts.path("home/file"), "in the way").unwrap();
    assert_fails(&hosts.send(&["./a:b", "host:file"]), 3, "cannot receive");
    assert_fails(&hosts.send(&["--insecure", "./a:b", "host:in"]), 2, "keys are exchanged by ssh");

    let other = hosts.path("other");
    for (answer, part) in [
        (r#"lacuna-over-ssh {"protocol":99,"version":"9.0.0","unable":"?"}"#, "of version 9.0.0"),
        ("hello", "is not lacuna"),
    ] {
        fs::write(&other, format!("#!/bin/sh\necho '\n{answer}'\n")).unwrap();
        fs::set_permissions(&other, fs::Permissions::from_mode(0o755)).unwrap();
        let other = hosts.command(other.to_str().unwrap(), &["./a:b", "host:in"]).output().unwrap();
        assert_fails(&other, 3, part);
    }
}

#[test]
fn a_transfer_ends_with_its_ssh_connection_and_is_resumed() {
    let hosts = Hosts::new();
    fs::write(hosts.path("long"), vec![7; 20_000_000]).unwrap();
    let mut child = hosts
        .command(LACUNA, &["--rate", "20mbit", "long", "host:in"])
        .stderr(Stdio::piped())
        .spawn()
        .unwrap();
    // Something has come.
    let since = Instant::now();
    let has_come = || {
        let entries = fs::read_dir(hosts.path("home/in")).into_iter().flatten().flatten();
        entries.filter_map(|entry| entry.metadata().ok()).any(|found| found.len() > 500_000)
    };
    while !has_come() {
        assert!(since.elapsed() < Duration::from_secs(60) && child.try_wait().unwrap().is_none());
        std::thread::yield_now();
    }
    let pid = fs::read_to_string(hosts.path("pid")).unwrap().trim().parse().unwrap();
    kill_process(Pid::from_raw(pid).unwrap(), Signal::KILL).unwrap();
    let ended = child.wait_with_output().unwrap();
    assert_fails(&ended, 3, "the ssh connection with host ended");
    let resumed = hosts.send(&["--json", "long", "host:in"]);
    assert_eq!(resumed.status.code(), Some(0), "{}", stderr(&resumed));
    let said = String::from_utf8_lossy(&resumed.stdout);
    assert!(!said.contains("\"resumed_at_bytes\":0,"), "{said}");
    assert_eq!(fs::read(hosts.path("home/in/long")).unwrap(), vec![7; 20_000_000]);
}
