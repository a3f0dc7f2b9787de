//! Programs that move standard input to standard output, such as SRT's sample application. One
//! message is one run of both; its time is the client's life, so it holds what starting and
//! connecting take, as it does for whoever uses such a program.

use super::{Line, Message, Order, Task, WRITE_BYTES, now_ns, say, thread, watch};
use anyhow::{Context, Result, bail, ensure};
use lacuna::ScopedIp;
use std::io::{Read, Write};
use std::process::{Child, Command, Stdio};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

fn command(order: &Order, words: &[String]) -> Result<Command> {
    let address = order.address;
    let filled = |word: &String| {
        word.replace("{host}", &ScopedIp::from(address).to_string())
            .replace("{port}", &address.port().to_string())
    };
    let [program, arguments @ ..] = words else { bail!("a program without a name") };
    let mut command = Command::new(program);
    command.args(arguments.iter().map(filled));
    Ok(command)
}

/// A program that is ended with this.
struct Running(Child);

impl Drop for Running {
    fn drop(&mut self) {
        // It may have ended by itself.
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

pub(super) fn serve(order: &Order, words: &[String]) -> Result<()> {
    let mut is_first = true;
    loop {
        let mut command = command(order, words)?;
        let child = command.stdin(Stdio::null()).stdout(Stdio::piped()).spawn()?;
        let mut running = Running(child);
        let mut out = running.0.stdout.take().context("piped")?;
        if std::mem::take(&mut is_first) {
            say(&Line::Listening)?;
        }
        let mut buffer = vec![0; WRITE_BYTES];
        if let Task::Bulk { seconds } = order.task {
            let first = out.read(&mut buffer)?;
            let received = Arc::new(AtomicU64::new(first as u64));
            let counted = received.clone();
            thread(move || {
                while let Ok(bytes @ 1..) = out.read(&mut buffer) {
                    counted.fetch_add(bytes as u64, Ordering::Relaxed);
                }
            })?;
            return watch(seconds, || Ok(received.load(Ordering::Relaxed)));
        }
        while out.read(&mut buffer)? > 0 {}
        running.0.wait()?;
    }
}

pub(super) fn send(order: &Order, words: &[String]) -> Result<()> {
    let data = vec![0x5A; order.task.message_bytes()];
    let start = || -> Result<Child> {
        Ok(command(order, words)?.stdin(Stdio::piped()).stdout(Stdio::null()).spawn()?)
    };
    match order.task {
        Task::Bulk { .. } => {
            let mut running = Running(start()?);
            let mut input = running.0.stdin.take().context("piped")?;
            loop {
                input.write_all(&data)?;
            }
        }
        Task::Messages { count, .. } => {
            for _ in 0..count {
                let began_ns = now_ns();
                let mut running = Running(start()?);
                let mut input = running.0.stdin.take().context("piped")?;
                input.write_all(&data)?;
                drop(input);
                let status = running.0.wait()?;
                ensure!(status.success(), "{} ended with {status}", words[0]);
                let took_ns = now_ns() - began_ns;
                say(&Line::Message(Message { began_ns, setup_ns: 0, took_ns }))?;
            }
            Ok(())
        }
        Task::Crowd { .. } => bail!("{} serves one client at a time", words[0]),
    }
}
