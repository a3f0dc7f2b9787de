//! The library as another program uses it, without the command line: two ends in one process.

#![cfg(unix)]

#[path = "../examples/send_file.rs"]
#[allow(dead_code, reason = "its main is not run here")]
mod send_file;

use lacuna::Connection;
use lacuna_transfer::{
    BindError, Blames, CleanError, CleanEvent, CleanOptions, Event, Fault, FileReport, Observer,
    PathError, Progress, ReceiveError, ReceiveOptions, Receiver, SendError, SendOptions, Sender,
    Sessions, Status, Stop, Summary, clean,
};
use std::error::Error;
use std::net::SocketAddr;
use std::path::Path;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex};
use std::thread::{self, JoinHandle};
use std::time::Duration;

fn loopback() -> SocketAddr {
    "127.0.0.1:0".parse().unwrap()
}

fn receive(folder: &Path, options: ReceiveOptions) -> (String, Receiving) {
    let receiver = Receiver::bind(loopback(), folder, options).unwrap();
    let address = receiver.local_addr().to_string();
    (address, thread::spawn(move || receiver.recv()))
}

type Receiving = JoinHandle<Result<Summary, ReceiveError>>;

/// No retries: a test does not wait for what does not come.
fn sender(stop: &Stop) -> Sender {
    Sender::new(SendOptions { retry: Duration::ZERO, stop: stop.clone(), ..SendOptions::default() })
}

/// Hears everything.
#[derive(Default)]
struct Heard {
    files: Mutex<Vec<(String, Status)>>,
    folders: AtomicU64,
    last: Mutex<Progress>,
    summary: Mutex<Option<Summary>>,
    connections: AtomicU64,
}

impl Observer for Heard {
    fn on_event(&self, event: &Event<'_>) {
        if matches!(event, Event::Connected { .. }) {
            self.connections.fetch_add(1, Ordering::Relaxed);
        }
    }

    fn on_file(&self, report: &FileReport) {
        let name = String::from_utf8(report.name.clone()).unwrap();
        self.files.lock().unwrap().push((name, report.status));
    }

    fn on_folder(&self, _: &[u8], _: bool, _: Option<&str>) {
        self.folders.fetch_add(1, Ordering::Relaxed);
    }

    fn on_progress(&self, progress: &Progress) {
        self.last.lock().unwrap().clone_from(progress);
    }

    fn on_summary(&self, summary: &Summary) {
        assert!(self.summary.lock().unwrap().replace(summary.clone()).is_none(), "told once");
    }
}

#[test]
fn the_example_sends_a_file_to_itself() {
    let dir = tempfile::tempdir().unwrap();
    let (file, inbox) = (dir.path().join("a file"), dir.path().join("inbox"));
    std::fs::write(&file, vec![7; 3 << 20]).unwrap();
    assert_eq!(send_file::send_file(&file, &inbox).unwrap(), 3 << 20);
    assert_eq!(std::fs::read(inbox.join("a file")).unwrap(), vec![7; 3 << 20]);
}

#[test]
fn an_observer_hears_of_every_file_and_of_the_sum() {
    let top = tempfile::tempdir().unwrap();
    let (tree, inbox) = (top.path().join("tree"), top.path().join("inbox"));
    std::fs::create_dir_all(tree.join("sub")).unwrap();
    std::fs::write(tree.join("one"), "1").unwrap();
    std::fs::write(tree.join("sub/two"), vec![2; 100_000]).unwrap();
    std::os::unix::fs::symlink("one", tree.join("link")).unwrap();
    let stop = Stop::new();
    for (status, moved_bytes) in [(Status::Complete, 100_001), (Status::Identical, 0)] {
        let (address, receiving) = receive(&inbox, ReceiveOptions::default());
        let heard = Heard::default();
        let sent = sender(&stop).send(&[&tree], &address, &heard).unwrap();
        assert!(sent.complete && sent.is_reached);
        assert_eq!((sent.files, sent.folders, sent.skipped), (2, 2, 1));
        assert_eq!((sent.bytes, sent.moved_bytes), (100_001, moved_bytes));
        let told = heard.summary.into_inner().unwrap().expect("told");
        assert_eq!((told.files, told.moved_bytes), (sent.files, sent.moved_bytes));
        let mut files = heard.files.into_inner().unwrap();
        files.sort_by(|one, other| one.0.cmp(&other.0));
        let expected = [("tree/link", Status::Skipped), ("tree/one", status)];
        let expected = expected.into_iter().chain([("tree/sub/two", status)]);
        let expected = expected.map(|(name, status)| (name.to_owned(), status));
        assert_eq!(files, expected.collect::<Vec<_>>());
        assert_eq!(heard.folders.into_inner(), 2);
        assert_eq!(heard.connections.into_inner(), 1);
        let received = receiving.join().unwrap().unwrap();
        assert_eq!((received.files, received.moved_bytes), (2, moved_bytes));
    }
    assert_eq!(std::fs::read(inbox.join("tree/sub/two")).unwrap(), vec![2; 100_000]);
}

#[test]
fn a_file_that_differs_is_refused_and_says_whose_fault_that_is() {
    let top = tempfile::tempdir().unwrap();
    let (file, inbox) = (top.path().join("file"), top.path().join("inbox"));
    std::fs::create_dir(&inbox).unwrap();
    std::fs::write(&file, "new").unwrap();
    std::fs::write(inbox.join("file"), "old content").unwrap();
    let (address, receiving) = receive(&inbox, ReceiveOptions::default());
    let error = sender(&Stop::new()).send(&[&file], &address, &()).unwrap_err();
    assert!(matches!(&error, SendError::Files(files) if files.failed == 1 && files.of == 1));
    assert_eq!((error.fault(), error.is_retryable()), (Fault::Peer, false));
    let error = receiving.join().unwrap().unwrap_err();
    assert_eq!((error.fault(), error.is_retryable()), (Fault::Machine, false));
    assert_eq!(std::fs::read(inbox.join("file")).unwrap(), b"old content");
    let overwrite = ReceiveOptions { overwrite: true, ..ReceiveOptions::default() };
    let (address, receiving) = receive(&inbox, overwrite);
    sender(&Stop::new()).send(&[&file], &address, &()).unwrap();
    receiving.join().unwrap().unwrap();
    assert_eq!(std::fs::read(inbox.join("file")).unwrap(), b"new");
}

/// Asks for an end once something has moved.
struct Impatient(Stop);

impl Observer for Impatient {
    fn on_progress(&self, progress: &Progress) {
        if progress.moved_bytes > 0 {
            self.0.request();
        }
    }
}

#[test]
fn a_token_ends_both_ends_and_what_has_come_is_resumed() {
    const SIZE_BYTES: u64 = 64 << 20;
    let top = tempfile::tempdir().unwrap();
    let (file, inbox) = (top.path().join("file"), top.path().join("inbox"));
    let content: Vec<u8> = (0..SIZE_BYTES).map(|at| (at * 31 / 7) as u8).collect();
    std::fs::write(&file, &content).unwrap();
    let stop = Stop::new();
    let (address, receiving) = receive(&inbox, ReceiveOptions::default());
    // Slow, so that it is in the middle of the file.
    let mut slow = SendOptions { stop: stop.clone(), ..SendOptions::default() };
    slow.connection.rate_bits_per_s = Some(100_000_000);
    let error = Sender::new(slow).send(&[&file], &address, &Impatient(stop)).unwrap_err();
    assert!(matches!(error, SendError::Interrupted), "{error:?}");
    assert!(error.is_retryable() && error.fault() == Fault::Stopped);
    let error = receiving.join().unwrap().unwrap_err();
    assert!(matches!(error, ReceiveError::Lost { kept: Some(_), .. }), "{error:?}");
    assert!(!inbox.join("file").exists(), "a file under its name is whole");
    let (address, receiving) = receive(&inbox, ReceiveOptions::default());
    let sent = sender(&Stop::new()).send(&[&file], &address, &()).unwrap();
    assert!(sent.unmoved_bytes > 0 && sent.moved_bytes + sent.unmoved_bytes == SIZE_BYTES);
    receiving.join().unwrap().unwrap();
    assert!(std::fs::read(inbox.join("file")).unwrap() == content);
}

/// Counts sessions that ended well.
#[derive(Default)]
struct Counting(AtomicU64);

impl Sessions for Counting {
    type Observer = ();

    fn begin(&self, _: &Connection) -> Result<(), Box<dyn Error + Send + Sync>> {
        Ok(())
    }

    fn end(&self, (): (), _: SocketAddr, result: Result<(), &ReceiveError>) {
        result.expect("it brought its file");
        self.0.fetch_add(1, Ordering::Relaxed);
    }
}

#[test]
fn a_receiver_serves_several_senders_until_it_is_stopped() {
    let top = tempfile::tempdir().unwrap();
    let stop = Stop::new();
    let options = ReceiveOptions { stop: stop.clone(), ..ReceiveOptions::default() };
    let receiver = Receiver::bind(loopback(), top.path().join("inbox"), options).unwrap();
    let address = receiver.local_addr().to_string();
    let sessions = Arc::new(Counting::default());
    let serving = {
        let sessions = sessions.clone();
        thread::spawn(move || receiver.serve(sessions))
    };
    thread::scope(|scope| {
        for number in 0..3 {
            let file = top.path().join(format!("file {number}"));
            std::fs::write(&file, [number]).unwrap();
            let address = &address;
            scope.spawn(move || sender(&Stop::new()).send(&[&file], address, &()).unwrap());
        }
    });
    stop.request();
    assert!(matches!(serving.join().unwrap(), Err(ReceiveError::Interrupted)));
    assert_eq!(sessions.0.load(Ordering::Relaxed), 3);
}

#[test]
fn what_can_be_wrong_before_the_first_packet_is_told_as_what_it_is() {
    let top = tempfile::tempdir().unwrap();
    let file = top.path().join("file");
    std::fs::write(&file, "x").unwrap();
    let send = |paths: &[&Path], to: &str| sender(&Stop::new()).send(paths, to, &()).unwrap_err();
    let error = send(&[Path::new("/dev/null")], "127.0.0.1:1");
    assert!(matches!(error, SendError::Path(PathError::Kind { .. })));
    assert_eq!(error.fault(), Fault::Caller);
    let error = send(&[&top.path().join("absent")], "127.0.0.1:1");
    assert_eq!((error.fault(), error.is_retryable()), (Fault::Machine, false));
    // A port that was free a moment ago.
    let free = std::net::TcpListener::bind(loopback()).unwrap().local_addr().unwrap();
    let error = send(&[&file], &free.to_string());
    assert!(matches!(error, SendError::Connect(_)), "{error:?}");
    assert_eq!(error.fault(), Fault::Peer);
    let taken = std::net::TcpListener::bind(loopback()).unwrap();
    let address = taken.local_addr().unwrap();
    let error = Receiver::bind(address, top.path(), ReceiveOptions::default()).unwrap_err();
    assert!(matches!(error, BindError::Listen(_)) && error.is_retryable());
    let error = Receiver::bind(loopback(), &file, ReceiveOptions::default()).unwrap_err();
    assert!(matches!(error, BindError::Folder(_)) && error.fault() == Fault::Machine);
    // Stopped before it began.
    let stop = Stop::new();
    stop.request();
    let error = sender(&stop).send(&[&file], "127.0.0.1:1", &()).unwrap_err();
    assert!(matches!(error, SendError::Interrupted), "{error:?}");
}

#[test]
fn cleaning_tells_of_each_partial_file() {
    let top = tempfile::tempdir().unwrap();
    let partial = top.path().join(".file.0011223344556677.lacuna-part");
    std::fs::write(&partial, "part").unwrap();
    let mut seen = Vec::new();
    let summary = clean(top.path(), CleanOptions::default(), &Stop::new(), |event| {
        if let CleanEvent::Partial(partial) = event {
            seen.push((partial.path.clone(), partial.removed));
        }
        Ok::<_, CleanError>(())
    });
    assert_eq!(summary.unwrap().files, 1);
    assert_eq!(seen, [(partial.clone(), true)]);
    assert!(!partial.exists());
}
