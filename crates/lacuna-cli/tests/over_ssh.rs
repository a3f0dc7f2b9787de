//! Transfers over ssh, with a stand-in for ssh that starts the far end on this host: in a home folder of its own, by a
//! shell that greets first.

#![cfg(target_os = "linux")]

use rustix::process::{Pid, Signal, kill_process};
use std::fs;
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Output, Stdio};
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

    /// How the far end has ended, once it has.
    fn far_end(&self) -> String {
        let since = Instant::now();
        loop {
            match fs::read_to_string(self.path("ended")) {
                Ok(code) if code.ends_with('\n') => return code,
                _ => assert!(since.elapsed() < Duration::from_secs(60), "it hangs"),
            }
            std::thread::yield_now();
        }
    }

    /// Starts a transfer of the file `long`, and waits until more of it is in `folder`.
    fn begin_long(&self, words: &[&str], folder: &str) -> Child {
        let has_bytes = || {
            let entries = fs::read_dir(self.path(folder)).into_iter().flatten().flatten();
            let found = entries.filter_map(|entry| entry.metadata().ok());
            found.map(|found| found.len()).max().unwrap_or(0)
        };
        let before_bytes = has_bytes();
        let words = [&["--rate", "20mbit"], words].concat();
        let mut child = self.command(LACUNA, &words).stderr(Stdio::piped()).spawn().unwrap();
        let since = Instant::now();
        while has_bytes() < before_bytes + 500_000 {
            assert!(since.elapsed() < Duration::from_secs(60));
            assert!(child.try_wait().unwrap().is_none(), "it has ended");
            std::thread::yield_now();
        }
        child
    }

    /// Ends the ssh that runs.
    fn kill_ssh(&self) {
        let pid = fs::read_to_string(self.path("pid")).unwrap().trim().parse().unwrap();
        kill_process(Pid::from_raw(pid).unwrap(), Signal::KILL).unwrap();
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
    let child = hosts.begin_long(&["long", "host:in"], "home/in");
    hosts.kill_ssh();
    let ended = child.wait_with_output().unwrap();
    assert_fails(&ended, 3, "the ssh connection with host ended");
    let resumed = hosts.send(&["--json", "long", "host:in"]);
    assert_eq!(resumed.status.code(), Some(0), "{}", stderr(&resumed));
    let said = String::from_utf8_lossy(&resumed.stdout);
    assert!(!said.contains("\"resumed_at_bytes\":0,"), "{said}");
    assert_eq!(fs::read(hosts.path("home/in/long")).unwrap(), vec![7; 20_000_000]);
}

fn stdout(output: &Output) -> String {
    String::from_utf8_lossy(&output.stdout).into_owned()
}

#[test]
fn files_of_any_name_are_fetched_and_nothing_stays_behind() {
    let hosts = Hosts::new();
    let odd = "it's \"here\"; $(touch x) *";
    fs::create_dir_all(hosts.path("home/in/below")).unwrap();
    for name in [odd, "in/a:b", "in/below/c"] {
        fs::write(hosts.path("home").join(name), name.repeat(50_000)).unwrap();
    }
    let absolute = hosts.path("home/in/a:b").to_str().unwrap().to_owned();
    for (path, name) in [
        (odd, odd),
        ("in/a:b", "a:b"),
        ("./in/../in/a:b", "a:b"),
        ("~/in/below/c", "c"),
        (&absolute, "a:b"),
        ("~/in", "in"),
        ("in/below/", "below"),
    ] {
        let _ = fs::remove_dir_all(hosts.path("out"));
        let fetched = hosts.send(&["--json", &format!("me@host:{path}"), "out"]);
        assert_eq!(fetched.status.code(), Some(0), "{path}: {}", stderr(&fetched));
        let said = stdout(&fetched);
        assert!(
            said.contains("\"wire\":\"sealed\"") && said.contains("\"complete\":true"),
            "{said}"
        );
        let there = hosts.path("home").join(path.strip_prefix("~/").unwrap_or(path));
        let mut same = Command::new("diff");
        same.arg("-r").arg(there).arg(hosts.path("out").join(name));
        assert!(same.status().unwrap().success(), "{path}");
        assert_eq!(hosts.far_end(), "0\n");
        fs::remove_file(hosts.path("ended")).unwrap();
    }
    assert!(!hosts.path("home/x").exists(), "no shell has read a path");
}

#[test]
fn several_paths_are_fetched_and_what_does_not_come_is_said() {
    let hosts = Hosts::new();
    fs::create_dir(hosts.path("home/tree")).unwrap();
    fs::write(hosts.path("home/tree/inner"), "1").unwrap();
    std::os::unix::fs::symlink("inner", hosts.path("home/tree/link")).unwrap();
    fs::write(hosts.path("home/.hidden"), "2").unwrap();
    let fetched = hosts.send(&["--json", "host:tree", "host:.hidden", "."]);
    assert_eq!(fetched.status.code(), Some(0), "{}", stderr(&fetched));
    assert!(stderr(&fetched).contains("tree/link: the sender: skipped: a symbolic link"));
    let summary = stdout(&fetched).lines().last().map(str::to_owned).unwrap();
    assert!(summary.contains("\"files\":2") && summary.contains("\"skipped\":1"), "{summary}");
    assert_eq!(fs::read_to_string(hosts.path("tree/inner")).unwrap(), "1");
    assert_eq!(fs::read_to_string(hosts.path(".hidden")).unwrap(), "2");

    // Nothing is made here, either.
    for path in ["absent", "tree/*"] {
        let fetched = hosts.send(&[&format!("host:{path}"), "out"]);
        assert_fails(&fetched, 3, &format!("lacuna at host cannot send: cannot read {path}"));
    }
    let same = hosts.send(&["host:tree/inner", "host:./tree/../tree/inner", "out"]);
    assert_fails(&same, 3, "two of the paths end in \"inner\"");
    assert!(!hosts.path("out").exists());
    for (words, part) in [
        (&["host:tree", "other:in"][..], "both ends are on other hosts"),
        (&["host:tree", "./a:b", "."], "a transfer goes one way"),
        (&["host:tree", "other:tree", "."], "from one host at a time"),
        (&["host:tree", "./a:b"], "is none"),
        (&["host:tree"], "nothing to send"),
        (&["--path-memory", "m", "host:tree", "."], "--path-memory is for the end that sends"),
        (&["--insecure", "host:tree", "."], "keys are exchanged by ssh"),
    ] {
        let refused = hosts.send(words);
        assert_fails(&refused, 2, part);
        assert_eq!(stderr(&refused).lines().count(), 1, "{}", stderr(&refused));
    }
}

#[test]
fn what_differs_here_is_replaced_only_if_that_was_asked_for() {
    let hosts = Hosts::new();
    fs::write(hosts.path("home/file"), "there").unwrap();
    // Of another size, and of the same.
    for content in ["here", "other"] {
        fs::write(hosts.path("file"), content).unwrap();
        let kept = hosts.send(&["host:file", "."]);
        assert_ne!(kept.status.code(), Some(0), "{}", stderr(&kept));
        assert!(stderr(&kept).contains("(--overwrite replaces it)"), "{}", stderr(&kept));
        assert_eq!(fs::read_to_string(hosts.path("file")).unwrap(), content);
    }
    let replaced = hosts.send(&["--overwrite", "host:file", "."]);
    assert_eq!(replaced.status.code(), Some(0), "{}", stderr(&replaced));
    assert_eq!(fs::read_to_string(hosts.path("file")).unwrap(), "there");
}

#[test]
fn what_is_fetched_ends_with_ssh_or_ctrl_c_and_is_resumed() {
    let hosts = Hosts::new();
    fs::write(hosts.path("home/long"), vec![7; 20_000_000]).unwrap();
    let child = hosts.begin_long(&["host:long", "out"], "out");
    hosts.kill_ssh();
    assert_fails(&child.wait_with_output().unwrap(), 3, "the ssh connection with host ended");

    let child = hosts.begin_long(&["host:long", "out"], "out");
    kill_process(Pid::from_child(&child), Signal::INT).unwrap();
    let ended = child.wait_with_output().unwrap();
    assert_fails(&ended, 130, "interrupted");
    assert!(stderr(&ended).contains("the same command resumes"), "{}", stderr(&ended));
    assert_eq!(hosts.far_end(), "0\n");

    let resumed = hosts.send(&["--json", "host:long", "out"]);
    assert_eq!(resumed.status.code(), Some(0), "{}", stderr(&resumed));
    assert!(!stdout(&resumed).contains("\"resumed_at_bytes\":0,"), "{}", stdout(&resumed));
    assert_eq!(fs::read(hosts.path("out/long")).unwrap(), vec![7; 20_000_000]);
}

#[test]
fn a_far_end_of_another_version_or_with_another_file_is_not_believed() {
    let hosts = Hosts::new();
    let other = hosts.path("other");
    let key = "lacuna-ed25519 AAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAA";
    let ready = format!(
        r#"lacuna-over-ssh {{"protocol":2,"version":"0","ready":{{"key":"{key}","port":9,"address":null,"names":[[46,112]]}}}}"#
    );
    for (answer, part) in [
        (r#"lacuna-over-ssh {"protocol":99,"version":"9.0.0","unable":"?"}"#, "of version 9.0.0"),
        (&ready, "the other end would send .p"),
    ] {
        fs::write(&other, format!("#!/bin/sh\necho '\n{answer}'\ncat >/dev/null\n")).unwrap();
        fs::set_permissions(&other, fs::Permissions::from_mode(0o755)).unwrap();
        let words = ["host:file", "out"];
        let other = hosts.command(other.to_str().unwrap(), &words).output().unwrap();
        assert_fails(&other, 3, part);
    }
}
