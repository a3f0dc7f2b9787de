//! A forked child drops everything it has inherited, or makes connections of its own; its parent's
//! go on. The C library's tests have more of this.
#![cfg(target_os = "linux")]

use lacuna::{
    ConnectError, Connection, ConnectionConfig, Context, ContextConfig, ContextError, Listener,
    Progress, QueuePairError, RecvHandle, SendError, SendFailure, SendHandle,
};
use std::net::{IpAddr, Ipv4Addr};
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;
use std::time::Duration;

const LOCALHOST: IpAddr = IpAddr::V4(Ipv4Addr::LOCALHOST);
const WAIT: Duration = Duration::from_secs(60);
const BYTES: usize = 1 << 20;

/// Runs `child` in a forked process that is killed if it hangs; returns whether it succeeded.
fn forked(child: impl FnOnce()) -> bool {
    // SAFETY: the child has this thread alone, and takes no lock that another may hold but the
    // memory allocator's, which the C library frees.
    match unsafe { libc::fork() } {
        0 => {
            // SAFETY: ends the process later.
            unsafe { libc::alarm(120) };
            let is_right = catch_unwind(AssertUnwindSafe(child)).is_ok();
            // SAFETY: ends the process.
            unsafe { libc::_exit(i32::from(!is_right)) }
        }
        child => {
            let mut status = -1;
            // SAFETY: the status outlives the call.
            unsafe { libc::waitpid(child, &raw mut status, 0) };
            status == 0
        }
    }
}

fn sockets() -> usize {
    let open = std::fs::read_dir("/proc/self/fd").unwrap().flatten();
    let kinds = open.filter_map(|entry| std::fs::read_link(entry.path()).ok());
    kinds.filter(|kind| kind.to_string_lossy().starts_with("socket:")).count()
}

/// Both ends, their listener, and operations in flight.
struct Ends {
    here: Context,
    there: Context,
    listener: Listener,
    connected: Connection,
    accepted: Connection,
}

fn ends(progress: Progress) -> Ends {
    let config =
        ContextConfig { bind: LOCALHOST.into(), progress, channels: 2, ..Default::default() };
    let (here, there) = (Context::new(config.clone()).unwrap(), Context::new(config).unwrap());
    let config = ConnectionConfig::default();
    let listener = Listener::bind(&there, (LOCALHOST, 0).into(), config).unwrap();
    let address = listener.local_addr();
    let is_connected = AtomicBool::new(false);
    let (connected, accepted) = thread::scope(|scope| {
        let accepting = scope.spawn(|| {
            let accepted = listener.accept().unwrap();
            // For contexts without threads.
            while !is_connected.load(Ordering::Relaxed) {
                there.progress_within(Duration::from_millis(1));
                thread::yield_now();
            }
            accepted
        });
        let connected = Connection::connect(&here, address, config);
        is_connected.store(true, Ordering::Relaxed);
        (connected.unwrap(), accepting.join().unwrap())
    });
    Ends { here, there, listener, connected, accepted }
}

impl Ends {
    fn transfer(&self, round: u8) {
        let data: Vec<u8> = (0..BYTES).map(|at| (at * 7 + (at >> 9)) as u8 ^ round).collect();
        let mut buffer = vec![0; BYTES];
        thread::scope(|scope| {
            scope.spawn(|| self.send(&data));
            self.accepted.recv_within(&mut buffer, WAIT).unwrap();
        });
        assert!(data == buffer);
    }

    /// Sends; repeats a send that landed in a receive which its owner had closed before this end
    /// knew.
    fn send(&self, data: &[u8]) {
        loop {
            match self.connected.send_with(data, None, WAIT) {
                Err(SendError::Failed(SendFailure::ClosedByPeer)) => {}
                sent => return sent.unwrap(),
            }
        }
    }

    fn under_way(&self) -> (SendHandle, RecvHandle) {
        let send = self.accepted.start_send_within(vec![1; 9], None, 10 * WAIT).unwrap();
        (send, self.accepted.post_recv(vec![0; BYTES]).unwrap())
    }
}

/// One test, since the tests of a process must fork one after the other.
#[test]
fn a_child_drops_what_it_has_inherited_or_connects_and_the_parent_goes_on() {
    for progress in [Progress::default(), Progress::Manual] {
        let before = sockets();
        let mut ends = Some(ends(progress));
        for round in 0..3 {
            let inherited = ends.as_ref().unwrap();
            inherited.transfer(round);
            assert!(forked(|| {
                let Ends { here, listener, connected, .. } = inherited;
                assert!(here.is_inherited() && !here.progress());
                let refused = Connection::connect(here, "127.0.0.1:1", ConnectionConfig::default());
                let is_inherited =
                    |error| matches!(error, ConnectError::Context(ContextError::Inherited));
                assert!(is_inherited(refused.unwrap_err()));
                assert!(is_inherited(listener.accept().unwrap_err()));
                let refused = here.queue_pair(&ConnectionConfig::default()).unwrap_err();
                assert!(matches!(refused, QueuePairError::Context(ContextError::Inherited)));
                drop(connected.clone());
            }));
            assert!(forked(|| self::ends(progress).transfer(round)));
            inherited.transfer(round);
        }
        let all = ends.take().unwrap();
        let under_way = all.under_way();
        let mut all = Some((all, under_way));
        assert!(forked(|| {
            assert!(sockets() > before);
            drop(all.take());
            assert_eq!(sockets(), before);
        }));
        let (ends, (send, receive)) = all.take().unwrap();
        drop(receive);
        ends.transfer(9);
        let mut buffer = [0; 9];
        thread::scope(|scope| {
            scope.spawn(|| send.wait().unwrap());
            assert_eq!(ends.connected.recv_within(&mut buffer, WAIT).unwrap().len, 9);
        });
        let Ends { here, there, .. } = &ends;
        assert!(!here.is_inherited() && !there.is_inherited());
    }
}
