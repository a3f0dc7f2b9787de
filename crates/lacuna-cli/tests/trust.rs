//! Keys, tokens and one-time codes, as a user has them. On loopback, where codes work as well as between hosts.

#![cfg(target_os = "linux")]

use serde_json::Value;
use std::fs::{self, Permissions};
use std::io::{BufRead, BufReader};
use std::os::unix::fs::PermissionsExt;
use std::path::Path;
use std::process::{Child, Command, Output, Stdio};

/// A command that sees nobody's files but the folder's.
fn lacuna(folder: &Path, args: &[&str]) -> Command {
    let mut command = Command::new(env!("CARGO_BIN_EXE_lacuna"));
    command
        .args(args)
        .current_dir(folder)
        .env("XDG_CONFIG_HOME", folder)
        .env_remove("LACUNA_TOKEN_FILE")
        .env_remove("LACUNA_INSECURE")
        .stdin(Stdio::null());
    command
}

fn run(folder: &Path, args: &[&str]) -> Output {
    lacuna(folder, args).output().expect("the binary runs")
}

fn stderr(output: &Output) -> String {
    String::from_utf8_lossy(&output.stderr).into_owned()
}

/// A receiver, which ends with this.
struct Receiver(Child, Box<dyn Iterator<Item = Value>>);

impl Receiver {
    /// Starts one; its port and what follows on its output.
    fn start(folder: &Path, args: &[&str]) -> (Self, u64) {
        let args = [&["recv", "--json", "--dir", "in", "--listen", "127.0.0.1:0"], args].concat();
        let mut receiver = Self::of(lacuna(folder, &args));
        let listening = receiver.next("listening");
        let port = listening.as_str().and_then(|at| at.rsplit_once(':')).expect("a port").1;
        (receiver, port.parse().expect("a number"))
    }

    /// A command that goes on until this ends.
    fn of(mut command: Command) -> Self {
        let command = command.stdout(Stdio::piped()).stderr(Stdio::null());
        let mut child = command.spawn().expect("it runs");
        let lines = BufReader::new(child.stdout.take().expect("piped")).lines();
        let objects = lines.map_while(Result::ok).map(|line| {
            serde_json::from_str(&line).unwrap_or_else(|error| panic!("{line}: {error}"))
        });
        Self(child, Box::new(objects))
    }

    /// The next object's value of this name.
    fn next(&mut self, name: &str) -> Value {
        self.1.find_map(|object| object.get(name).cloned()).expect("it says so")
    }
}

impl Drop for Receiver {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

#[test]
fn a_code_lets_one_sender_in_and_shows_nowhere() {
    let folder = tempfile::tempdir().expect("a folder");
    let folder = folder.path();
    fs::write(folder.join("a"), vec![7; 100_000]).unwrap();
    fs::write(folder.join("b"), "later").unwrap();
    let (mut receiver, port) = Receiver::start(folder, &[]);
    let code = receiver.next("code").as_str().expect("a text").to_owned();

    let wrong = run(folder, &["send", "a", &format!("000-000@127.0.0.1:{port}")]);
    assert_eq!(wrong.status.code(), Some(3));
    assert!(stderr(&wrong).contains("the code is wrong"), "{}", stderr(&wrong));
    let right = format!("{code}@127.0.0.1:{port}");
    let sent = run(folder, &["send", "--json", "a", &right]);
    assert_eq!(sent.status.code(), Some(0), "{}", stderr(&sent));
    let said = String::from_utf8(sent.stdout).expect("text");
    assert!(said.contains("\"wire\":\"sealed\""), "{said}");
    assert_eq!(fs::read(folder.join("in/a")).unwrap(), vec![7; 100_000]);

    // The next code is another one; the first is over.
    let next = receiver.next("code");
    assert_ne!(next, code.as_str());
    let again = run(folder, &["send", "b", &right]);
    assert_eq!(again.status.code(), Some(3), "{}", stderr(&again));
    let next = format!("{}@127.0.0.1:{port}", next.as_str().unwrap());
    assert_eq!(run(folder, &["send", "b", &next]).status.code(), Some(0));
}

#[test]
fn a_code_is_not_among_the_arguments_of_the_process_that_sends() {
    let folder = tempfile::tempdir().expect("a folder");
    let folder = folder.path();
    fs::write(folder.join("a"), "something").unwrap();
    // Nobody answers there, and nobody refuses: it waits.
    let silent = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
    let at = silent.local_addr().unwrap().to_string();
    let mut child = lacuna(folder, &["send", "a", &format!("k7q-2mx@{at}")])
        .stdout(Stdio::null())
        .stderr(Stdio::null())
        .spawn()
        .unwrap();
    // Once it has connected, it is the process that it goes on as.
    let accepted = silent.accept().unwrap();
    let shown = fs::read(format!("/proc/{}/cmdline", child.id())).unwrap();
    let shown = String::from_utf8_lossy(&shown).replace('\0', " ");
    child.kill().unwrap();
    child.wait().unwrap();
    drop(accepted);
    assert!(shown.ends_with(&format!("send a {at} ")), "{shown}");
}

#[test]
fn a_token_is_made_once_and_whoever_has_it_is_let_in() {
    let folder = tempfile::tempdir().expect("a folder");
    let folder = folder.path();
    fs::write(folder.join("a"), "something").unwrap();
    assert_eq!(run(folder, &["key", "token", "ours"]).status.code(), Some(0));
    let again = run(folder, &["key", "token", "ours"]);
    assert_eq!(again.status.code(), Some(2), "{}", stderr(&again));
    assert_eq!(run(folder, &["key", "token", "theirs"]).status.code(), Some(0));

    let (_receiver, port) = Receiver::start(folder, &["--token", "ours"]);
    let at = format!("127.0.0.1:{port}");
    let send = |args: &[&str]| run(folder, &[&["send", "--json", "a", &at], args].concat());
    for (args, why) in [
        (&["--token", "theirs"][..], "not trusted"),
        (&[], "does not trust this end's key"),
        (&["--insecure"], "encrypted connections only"),
    ] {
        let refused = send(args);
        let said = stderr(&refused);
        assert_eq!(refused.status.code(), Some(3), "{said}");
        assert!(said.contains(why), "{args:?}: {said}");
    }
    assert_eq!(send(&["--token", "ours"]).status.code(), Some(0));
    let mut by_variable = lacuna(folder, &["send", "--json", "a", &at]);
    let by_variable = by_variable.env("LACUNA_TOKEN_FILE", "ours").output().unwrap();
    assert_eq!(by_variable.status.code(), Some(0), "{}", stderr(&by_variable));

    fs::set_permissions(folder.join("ours"), Permissions::from_mode(0o644)).unwrap();
    let exposed = send(&["--token", "ours"]);
    assert_eq!(exposed.status.code(), Some(5));
    assert!(stderr(&exposed).contains("chmod 600"), "{}", stderr(&exposed));
}

#[test]
fn with_a_token_reliable_connections_are_encrypted_too() {
    let folder = tempfile::tempdir().expect("a folder");
    let folder = folder.path();
    assert_eq!(run(folder, &["key", "token", "ours"]).status.code(), Some(0));
    let args = ["perf", "server", "--json", "--listen", "127.0.0.1:0", "--token", "ours"];
    let mut server = Receiver::of(lacuna(folder, &args));
    let at = server.next("listening").as_str().expect("a text").to_owned();
    for more in [&["--verb", "write"][..], &["--shim", "lowar:8:1"], &["--verb", "read"]] {
        let args = ["perf", "client", "--json", &at, "--qp", "rc", "--size", "100000"];
        let args = [&args[..], &["--iters", "20", "--validate", "--token", "ours"], more].concat();
        let measured = run(folder, &args);
        let (said, told) = (String::from_utf8_lossy(&measured.stdout), stderr(&measured));
        assert_eq!(measured.status.code(), Some(0), "{said}{told}");
        assert!(said.contains("\"wire\":\"sealed\""), "{said}");
    }
    let args = ["collective", "bench", "--ranks", "2", "--qp", "rc", "--token", "ours"];
    let summed = run(folder, &[&args[..], &["-b", "100000", "-e", "100000", "-n", "2"]].concat());
    assert_eq!(summed.status.code(), Some(0), "{}", stderr(&summed));
}

#[test]
fn hosts_that_have_each_others_keys_know_each_other() {
    let folders = [(); 3].map(|()| tempfile::tempdir().expect("a folder"));
    let [here, there, stranger] = folders.each_ref().map(tempfile::TempDir::path);
    let key = |folder: &Path| String::from_utf8(run(folder, &["key"]).stdout).unwrap();
    assert_eq!(key(here), key(here), "made once");
    fs::write(there.join("trusted"), format!("# who may send\n{}", key(here))).unwrap();
    for folder in [here, stranger] {
        fs::write(folder.join("trusted"), key(there)).unwrap();
        fs::write(folder.join("a"), "something").unwrap();
    }
    let (_receiver, port) = Receiver::start(there, &["--trust", "trusted"]);
    let at = format!("127.0.0.1:{port}");
    let send = |folder| run(folder, &["send", "--trust", "trusted", "a", &at]);
    let refused = send(stranger);
    assert_eq!(refused.status.code(), Some(3), "{}", stderr(&refused));
    let sent = send(here);
    assert_eq!(sent.status.code(), Some(0), "{}", stderr(&sent));
}

/// A host with its key, and what it shows of it.
fn host() -> (tempfile::TempDir, String) {
    let folder = tempfile::tempdir().expect("a folder");
    fs::write(folder.path().join("a"), "something").unwrap();
    let key = String::from_utf8(run(folder.path(), &["key"]).stdout).unwrap();
    (folder, key.trim().to_owned())
}

#[test]
fn a_receiver_is_known_by_its_key_from_the_first_time_on() {
    let [(here, own), (there, shown), (_, another)] = [(); 3].map(|()| host());
    let (here, there) = (here.path(), there.path());
    fs::write(there.join("trusted"), own).unwrap();
    let (_receiver, port) = Receiver::start(there, &["--trust", "trusted"]);
    let at = format!("127.0.0.1:{port}");
    let send = |args: &[&str]| run(here, &[&["send", "a", &at], args].concat());
    let known = here.join("lacuna/known_hosts");

    let unknown = send(&[]);
    let said = stderr(&unknown);
    assert_eq!(unknown.status.code(), Some(2), "{said}");
    assert!(said.contains("met for the first time") && said.contains("--accept-new"), "{said}");
    assert!(said.contains(&shown) && said.lines().count() == 1, "{said}");
    assert!(!known.exists() && !there.join("in/a").exists());

    let taken = send(&["--accept-new"]);
    assert_eq!(taken.status.code(), Some(0), "{}", stderr(&taken));
    assert!(stderr(&taken).contains(&format!("{at} is new")), "{}", stderr(&taken));
    assert_eq!(fs::read_to_string(&known).unwrap(), format!("{at} {shown}\n"));
    assert_eq!(fs::metadata(&known).unwrap().permissions().mode() & 0o777, 0o600);
    for args in [&["--json"][..], &["--json", "--accept-new"]] {
        let again = send(args);
        assert_eq!(again.status.code(), Some(0), "{}", stderr(&again));
        assert!(!stderr(&again).contains("is new"), "{}", stderr(&again));
        let said = String::from_utf8(again.stdout).unwrap();
        assert!(said.contains("\"wire\":\"sealed\""), "{said}");
    }

    // As if another key had been there before.
    let before = format!("# hosts\n{at} {another}\n");
    fs::write(&known, &before).unwrap();
    fs::write(here.join("a"), "something else").unwrap();
    for args in [&[][..], &["--accept-new"]] {
        let changed = send(args);
        let said = stderr(&changed);
        assert_eq!(changed.status.code(), Some(3), "{said}");
        assert!(said.contains("WARNING") && said.contains(&shown), "{said}");
        assert!(said.contains(&format!("{}, line 2", known.display())), "{said}");
        assert_eq!(fs::read_to_string(&known).unwrap(), before);
    }
    assert_eq!(fs::read_to_string(there.join("in/a")).unwrap(), "something");
}

#[test]
fn a_receiver_that_lets_this_host_in_by_nothing_is_not_remembered() {
    let [(here, _), (there, shown)] = [(); 2].map(|()| host());
    let (here, there) = (here.path(), there.path());
    fs::write(there.join("trusted"), shown).unwrap();
    for (args, part, code) in [
        // It knows nobody but itself.
        (&["--trust", "trusted"][..], "does not trust this end's key", 3),
        // It shows a code.
        (&[], "give the code that lacuna recv shows there", 2),
    ] {
        let (_receiver, port) = Receiver::start(there, args);
        let refused = run(here, &["send", "--accept-new", "a", &format!("127.0.0.1:{port}")]);
        let said = stderr(&refused);
        assert_eq!(refused.status.code(), Some(code), "{said}");
        assert!(said.contains(part) && said.lines().count() == 1, "{said}");
        assert!(!here.join("lacuna/known_hosts").exists());
    }
}

#[test]
fn peers_on_this_host_are_as_others_if_a_command_says_so() {
    let folder = tempfile::tempdir().expect("a folder");
    let folder = folder.path();
    fs::write(folder.join("a"), "something").unwrap();
    let (mut receiver, port) = Receiver::start(folder, &["--sealed"]);
    let at = format!("127.0.0.1:{port}");
    let in_clear = run(folder, &["send", "a", &at]);
    assert_eq!(in_clear.status.code(), Some(2), "{}", stderr(&in_clear));
    let code = receiver.next("code").as_str().expect("a text").to_owned();
    let sent = run(folder, &["send", "--json", "--sealed", "a", &format!("{code}@{at}")]);
    assert_eq!(sent.status.code(), Some(0), "{}", stderr(&sent));
    assert!(String::from_utf8(sent.stdout).unwrap().contains("\"wire\":\"sealed\""));

    let (_in_clear, port) = Receiver::start(folder, &["--insecure"]);
    let refused = run(folder, &["send", "--sealed", "a", &format!("127.0.0.1:{port}")]);
    assert!(!refused.status.success());
    assert_eq!(stderr(&refused).lines().count(), 1, "{}", stderr(&refused));
}

#[test]
fn what_contradicts_itself_is_refused_in_a_line() {
    let folder = tempfile::tempdir().expect("a folder");
    let folder = folder.path();
    fs::write(folder.join("a"), "something").unwrap();
    fs::write(folder.join("empty"), "# nobody\n").unwrap();
    for (args, part) in [
        (&["send", "--insecure", "--token", "t", "a", "localhost"][..], "cannot be used with"),
        (&["send", "--insecure", "--sealed", "a", "localhost"], "cannot be used with"),
        (&["perf", "client", "--sealed", "localhost"], "nothing to know a peer by"),
        (&["send", "--accept-new", "--token", "t", "a", "localhost"], "cannot be used with"),
        (&["send", "--insecure", "a", "k7q-2mx@localhost"], "give one of them"),
        (&["send", "--trust", "empty", "a", "localhost"], "nobody would be trusted"),
    ] {
        let output = run(folder, args);
        assert!(matches!(output.status.code(), Some(2 | 3)), "{output:?}");
        let said = stderr(&output);
        assert_eq!(said.lines().count(), 1, "{said}");
        assert!(said.contains(part), "{args:?}: {said}");
    }
}
