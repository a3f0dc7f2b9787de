//! A receiver that connects to a sender that listens, in one process: what arrives, and what a break leaves.

#![cfg(unix)]

use lacuna_transfer::{
    Event, FetchOptions, Fetcher, FileReport, Observer, Progress, ReceiveError, ReceiveOptions,
    SendError, SendListener, SendOptions, Sender, Sources, Status, Stop, Summary,
};
use std::collections::BTreeSet;
use std::io::{Read, Write};
use std::net::{Shutdown, SocketAddr, TcpListener, TcpStream};
use std::path::Path;
use std::sync::{Arc, Mutex};
use std::thread::{self, JoinHandle};
use std::time::Duration;

type Sending = JoinHandle<Result<Summary, SendError>>;

fn listen(paths: &[&Path], options: SendOptions) -> (SocketAddr, Sending) {
    let listener = SendListener::bind("127.0.0.1:0".parse().unwrap(), options).unwrap();
    let (address, sources) = (listener.local_addr(), Sources::check(paths).unwrap());
    (address, thread::spawn(move || listener.send(sources, &())))
}

/// Hears of files, and acts once something has moved.
struct Heard<F> {
    files: Mutex<Vec<(String, Status, Option<String>)>>,
    retries: Mutex<Vec<String>>,
    on_moved: F,
}

impl<F: Fn()> Heard<F> {
    fn new(on_moved: F) -> Self {
        Self { files: Mutex::default(), retries: Mutex::default(), on_moved }
    }

    fn files(self) -> Vec<(String, Status, Option<String>)> {
        let mut files = self.files.into_inner().unwrap();
        files.sort_by(|one, other| one.0.cmp(&other.0));
        files
    }
}

impl<F: Fn() + Send + Sync> Observer for Heard<F> {
    fn on_event(&self, event: &Event<'_>) {
        if let Event::Retrying { reason, .. } = event {
            self.retries.lock().unwrap().push((*reason).to_owned());
        }
    }

    fn on_file(&self, report: &FileReport) {
        let name = String::from_utf8(report.name.clone()).unwrap();
        self.files.lock().unwrap().push((name, report.status, report.error.clone()));
    }

    fn on_progress(&self, progress: &Progress) {
        if progress.moved_bytes > 0 {
            (self.on_moved)();
        }
    }
}

/// Forwards control connections, as a path that can be cut.
#[derive(Clone)]
struct Forwarder {
    address: SocketAddr,
    streams: Arc<Mutex<Vec<TcpStream>>>,
}

impl Forwarder {
    fn to(server: SocketAddr) -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let address = listener.local_addr().unwrap();
        let streams = Arc::<Mutex<Vec<TcpStream>>>::default();
        let kept = streams.clone();
        thread::spawn(move || {
            for client in listener.incoming() {
                let Ok((client, server)) =
                    client.and_then(|c| Ok((c, TcpStream::connect(server)?)))
                else {
                    continue;
                };
                for (from, to) in [(&client, &server), (&server, &client)] {
                    let (from, to) = (from.try_clone().unwrap(), to.try_clone().unwrap());
                    thread::spawn(move || forward(from, to));
                }
                kept.lock().unwrap().extend([client, server]);
            }
        });
        Self { address, streams }
    }

    fn cut(&self) {
        for stream in self.streams.lock().unwrap().drain(..) {
            let _ = stream.shutdown(Shutdown::Both);
        }
    }
}

fn forward(mut from: TcpStream, mut to: TcpStream) {
    let mut bytes = [0; 4096];
    while let Ok(count @ 1..) = from.read(&mut bytes) {
        if to.write_all(&bytes[..count]).is_err() {
            break;
        }
    }
    let _ = to.shutdown(Shutdown::Both);
}

#[test]
fn a_tree_comes_and_the_receiver_hears_of_what_does_not() {
    let top = tempfile::tempdir().unwrap();
    let (tree, inbox) = (top.path().join("tree"), top.path().join("inbox"));
    std::fs::create_dir_all(tree.join("sub")).unwrap();
    std::fs::write(tree.join("one"), "1").unwrap();
    std::fs::write(tree.join("sub/two"), vec![2; 100_000]).unwrap();
    std::os::unix::fs::symlink("one", tree.join("link")).unwrap();
    for (status, moved_bytes) in [(Status::Complete, 100_001), (Status::Identical, 0)] {
        let (address, sending) = listen(&[&tree], SendOptions::default());
        let heard = Heard::new(|| {});
        let fetcher = Fetcher::default();
        let fetched = fetcher.fetch(&address.to_string(), &inbox, &heard).unwrap();
        assert!(fetched.complete && fetched.is_reached);
        assert_eq!((fetched.files, fetched.folders, fetched.skipped), (2, 2, 1));
        assert_eq!((fetched.bytes, fetched.moved_bytes), (100_001, moved_bytes));
        let sent = sending.join().unwrap().unwrap();
        assert_eq!((sent.files, sent.folders, sent.skipped), (2, 2, 1));
        let link = Some("the sender: skipped: a symbolic link".to_owned());
        let expected =
            [("link", Status::Skipped, link), ("one", status, None), ("sub/two", status, None)];
        let expected =
            expected.map(|(name, status, error)| (format!("tree/{name}"), status, error));
        assert_eq!(heard.files(), expected);
    }
    assert_eq!(std::fs::read(inbox.join("tree/sub/two")).unwrap(), vec![2; 100_000]);
}

#[test]
fn what_was_not_asked_for_is_refused() {
    let top = tempfile::tempdir().unwrap();
    let inbox = top.path().join("inbox");
    for name in ["asked", "forced"] {
        std::fs::create_dir(top.path().join(name)).unwrap();
        std::fs::write(top.path().join(name).join("file"), "x").unwrap();
    }
    let (asked, forced) = (top.path().join("asked"), top.path().join("forced"));
    let (address, sending) = listen(&[&asked, &forced], SendOptions::default());
    let only = Some(BTreeSet::from([b"asked".to_vec()]));
    let fetcher = Fetcher::new(FetchOptions { only, ..FetchOptions::default() });
    let heard = Heard::new(|| {});
    let error = fetcher.fetch(&address.to_string(), &inbox, &heard).unwrap_err();
    assert!(matches!(&error, ReceiveError::Files(files) if files.failed == 2), "{error:?}");
    let refused: Vec<_> =
        heard.files().into_iter().filter(|(_, status, _)| *status == Status::Refused).collect();
    let reason = || Some("was not asked for".to_owned());
    let expected =
        ["forced", "forced/file"].map(|name| (name.to_owned(), Status::Refused, reason()));
    assert_eq!(refused, expected);
    assert!(inbox.join("asked/file").exists() && !inbox.join("forced").exists());
    sending.join().unwrap().unwrap_err();
}

/// Fetches over a path that is cut once, after something has moved.
fn fetch_over_a_cut_path(
    source: &Path,
    inbox: &Path,
    rate_bits_per_s: u64,
) -> (Summary, Vec<String>) {
    let mut options = SendOptions::default();
    options.connection.rate_bits_per_s = Some(rate_bits_per_s);
    let (address, sending) = listen(&[source], options);
    let path = Forwarder::to(address);
    let (cut, once) = (path.clone(), Mutex::new(Some(())));
    let heard = Heard::new(move || {
        if once.lock().unwrap().take().is_some() {
            cut.cut();
        }
    });
    let fetched = Fetcher::default().fetch(&path.address.to_string(), inbox, &heard).unwrap();
    let sent = sending.join().unwrap().unwrap();
    assert_eq!((sent.files, sent.bytes), (fetched.files, fetched.bytes));
    assert_eq!(sent.reconnects, fetched.reconnects);
    (fetched, heard.retries.into_inner().unwrap())
}

#[test]
fn a_break_is_followed_by_another_connection_and_the_rest_of_the_file() {
    const SIZE_BYTES: u64 = 32 << 20;
    let top = tempfile::tempdir().unwrap();
    let (file, inbox) = (top.path().join("file"), top.path().join("inbox"));
    let content: Vec<u8> = (0..SIZE_BYTES).map(|at| (at * 31 / 7) as u8).collect();
    std::fs::write(&file, &content).unwrap();
    let (fetched, retries) = fetch_over_a_cut_path(&file, &inbox, 200_000_000);
    assert_eq!((fetched.reconnects, retries.len(), fetched.files), (1, 1, 1));
    assert!(fetched.unmoved_bytes > 0, "it went on where it was");
    assert!(std::fs::read(inbox.join("file")).unwrap() == content);
}

#[test]
fn a_break_among_many_files_leaves_every_one_counted_once() {
    const FILES: u64 = 3000;
    let top = tempfile::tempdir().unwrap();
    let (tree, inbox) = (top.path().join("tree"), top.path().join("inbox"));
    std::fs::create_dir(&tree).unwrap();
    for number in 0..FILES {
        std::fs::write(tree.join(format!("{number}")), [number as u8; 1000]).unwrap();
    }
    let (fetched, _) = fetch_over_a_cut_path(&tree, &inbox, 20_000_000);
    assert_eq!((fetched.files, fetched.bytes, fetched.folders), (FILES, FILES * 1000, 1));
    assert_eq!(fetched.reconnects, 1);
    assert_eq!(std::fs::read_dir(inbox.join("tree")).unwrap().count() as u64, FILES);
}

#[test]
fn each_end_can_be_stopped_and_says_so() {
    let top = tempfile::tempdir().unwrap();
    let (file, inbox) = (top.path().join("file"), top.path().join("inbox"));
    std::fs::write(&file, vec![7; 64 << 20]).unwrap();
    let slow = |stop: &Stop| {
        let mut options = SendOptions { stop: stop.clone(), ..SendOptions::default() };
        options.connection.rate_bits_per_s = Some(50_000_000);
        options
    };
    let (here, there) = (Stop::new(), Stop::new());
    let (address, sending) = listen(&[&file], slow(&there));
    let receive = ReceiveOptions { stop: here.clone(), ..ReceiveOptions::default() };
    let fetcher = Fetcher::new(FetchOptions { receive, ..FetchOptions::default() });
    let ends = here.clone();
    let heard = Heard::new(move || ends.request());
    let error = fetcher.fetch(&address.to_string(), &inbox, &heard).unwrap_err();
    assert!(matches!(error, ReceiveError::Interrupted), "{error:?}");
    // The sender waits for it to come back.
    there.request();
    assert!(matches!(sending.join().unwrap(), Err(SendError::Interrupted)));

    let there = Stop::new();
    let (address, sending) = listen(&[&file], slow(&there));
    let fetcher = Fetcher::new(FetchOptions { retry: Duration::ZERO, ..FetchOptions::default() });
    let heard = Heard::new(move || there.request());
    let error = fetcher.fetch(&address.to_string(), &inbox, &heard).unwrap_err();
    assert!(matches!(error, ReceiveError::Lost { kept: Some(_), .. }), "{error:?}");
    assert!(matches!(sending.join().unwrap(), Err(SendError::Interrupted)));
}

#[test]
fn a_sender_that_waits_for_a_receiver_is_none_and_waits_not_for_ever() {
    let top = tempfile::tempdir().unwrap();
    let file = top.path().join("file");
    std::fs::write(&file, "x").unwrap();
    let (_, sending) =
        listen(&[&file], SendOptions { retry: Duration::ZERO, ..SendOptions::default() });
    let error = sending.join().unwrap().unwrap_err();
    assert!(error.to_string().contains("no receiver connected"), "{error}");
    let stop = Stop::new();
    let (address, sending) =
        listen(&[&file], SendOptions { stop: stop.clone(), ..SendOptions::default() });
    let error = Sender::default().send(&[&file], &address.to_string(), &()).unwrap_err();
    assert!(error.to_string().contains("lacuna recv"), "{error}");
    stop.request();
    assert!(matches!(sending.join().unwrap(), Err(SendError::Interrupted)));
}
