//! Several ranks on this machine: this process starts one of its own kind for each, and waits for them. Rank 0 prints the
//! results; if one fails or Ctrl-C comes, all end.

use crate::failure::Failure;
use crate::interrupt;
use crate::output::Output;
use lacuna_collective::rendezvous::HeldPort;
use std::net::Ipv4Addr;
use std::process::{Child, Command, ExitStatus, Stdio};
use std::time::{Duration, Instant};

/// Set for the processes that are started.
const CHILD: &str = "LACUNA_COLLECTIVE_CHILD";
/// Between two looks at them.
const LOOK_EVERY: Duration = Duration::from_millis(20);
/// What the others have to end by themselves once one has failed, and to say why.
const END_FOR: Duration = Duration::from_secs(5);

pub(super) fn is_child() -> bool {
    std::env::var_os(CHILD).is_some()
}

pub(super) fn start(ranks: u16, output: Output) -> Result<(), Failure> {
    let local = |what: &str, error: std::io::Error| Failure::Local(format!("{what}: {error}"));
    let program =
        std::env::current_exe().map_err(|error| local("cannot find this program", error))?;
    let held = HeldPort::any(Ipv4Addr::LOCALHOST.into());
    let held = held.map_err(|error| local("no free port", error))?;
    output.note(&format!("starting {ranks} processes"));
    let mut children = Children(Vec::new());
    for rank in 0..ranks {
        let out = if rank == 0 { Stdio::inherit() } else { Stdio::null() };
        let child = Command::new(&program)
            .args(std::env::args_os().skip(1))
            .env(CHILD, "1")
            .env("RANK", rank.to_string())
            .env("WORLD_SIZE", ranks.to_string())
            .env("LACUNA_RENDEZVOUS", held.address().to_string())
            .env("LACUNA_JOB", std::process::id().to_string())
            .stdin(Stdio::null())
            .stdout(out)
            .spawn()
            .map_err(|error| local("cannot start a process", error))?;
        children.0.push(child);
    }
    children.wait()
}

/// They end with this.
struct Children(Vec<Child>);

impl Children {
    fn wait(&mut self) -> Result<(), Failure> {
        let mut failed: Option<(usize, ExitStatus, Instant)> = None;
        loop {
            let mut is_any_left = false;
            for (rank, child) in self.0.iter_mut().enumerate() {
                match child.try_wait() {
                    Ok(None) => is_any_left = true,
                    Ok(Some(status)) if !status.success() => {
                        failed.get_or_insert((rank, status, Instant::now()));
                    }
                    Ok(Some(_)) => {}
                    Err(error) => {
                        return Err(Failure::Local(format!(
                            "cannot wait for rank {rank}: {error}"
                        )));
                    }
                }
            }
            let is_time_over = failed.is_some_and(|(_, _, at)| at.elapsed() > END_FOR);
            if !is_any_left || is_time_over {
                break;
            }
            std::thread::sleep(LOOK_EVERY);
        }
        if interrupt::requested() {
            return Err(Failure::Interrupted);
        }
        let Some((rank, status, _)) = failed else { return Ok(()) };
        // It has said why itself.
        let text = format!("rank {rank} ended with {status}");
        Err(match status.code() {
            Some(2) => Failure::Usage(text),
            Some(4) => Failure::Verification(text),
            Some(5) => Failure::Local(text),
            _ => Failure::Network(text),
        })
    }
}

impl Drop for Children {
    fn drop(&mut self) {
        for child in &mut self.0 {
            if matches!(child.try_wait(), Ok(None)) {
                let _ = child.kill();
                let _ = child.wait();
            }
        }
    }
}
