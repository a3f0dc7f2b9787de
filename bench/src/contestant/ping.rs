//! Lacuna's ping-pong: a write of some bytes until it shows in the peer's
//! bitmap, and one back. No thread but the two that play; both poll.

use super::{Place, Sample};
use crate::bare::one_way;
use crate::cell::Cell;
use crate::pin;
use anyhow::{Context as _, Result};
use lacuna::trust::{Token, Trust};
use lacuna::{
    Connection, ConnectionConfig, Context, ContextConfig, Listener, Mode, Progress, RecvHandle,
    Security, SendBuffer,
};
use std::net::{Ipv4Addr, SocketAddr};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

/// Receives posted ahead, so that a write never waits for one.
const AHEAD: usize = 64;

pub(super) fn run(cell: &Cell, place: &Place, is_sealed: bool) -> Result<Sample> {
    let security = match is_sealed {
        true => Security::Keys(Trust::of_token(&Token::generate()?)),
        false => Security::Insecure,
    };
    let config = ConnectionConfig {
        mode: "raw".parse::<Mode>()?,
        mtu_bytes: Some(cell.mtu),
        ..ConnectionConfig::default()
    };
    let end = || {
        Context::new(ContextConfig {
            bind: Ipv4Addr::LOCALHOST.into(),
            progress: Progress::Manual,
            security: security.clone(),
            ..ContextConfig::default()
        })
    };
    let there = end()?;
    let listener = Listener::bind(&there, SocketAddr::from((Ipv4Addr::LOCALHOST, 0)), config)?;
    let address = listener.local_addr();
    let is_over = AtomicBool::new(false);
    let size = cell.size as usize;
    let times = std::thread::scope(|scope| -> Result<Vec<Duration>> {
        let echoing = scope.spawn(|| -> Result<()> {
            pin::this_thread(place.receive_core)?;
            let connection = listener.accept()?;
            let mut player = Player::new(&there, connection, size)?;
            while player.await_message(&is_over)? {
                player.write()?;
                player.take()?;
            }
            Ok(())
        });
        let pinging = scope.spawn(|| -> Result<Vec<Duration>> {
            pin::this_thread(place.send_core)?;
            let here = end()?;
            let connection = Connection::connect(&here, address, config)?;
            let mut player = Player::new(&here, connection, size)?;
            player.connection.wait_clear_to_send(Duration::from_secs(5))?;
            let mut times = Vec::new();
            let begun = Instant::now();
            while begun.elapsed() < place.duration {
                let sent = Instant::now();
                player.write()?;
                if !player.await_message(&is_over)? {
                    break;
                }
                times.push(sent.elapsed());
                player.take()?;
            }
            is_over.store(true, Ordering::Relaxed);
            Ok(times)
        });
        let times = pinging.join();
        is_over.store(true, Ordering::Relaxed);
        echoing.join().map_err(|_| anyhow::anyhow!("the echo panicked"))??;
        times.map_err(|_| anyhow::anyhow!("the ping panicked"))?
    });
    Ok(one_way(times?))
}

struct Player<'c> {
    context: &'c Context,
    connection: Connection,
    message: Arc<Vec<u8>>,
    posted: std::collections::VecDeque<RecvHandle>,
}

impl<'c> Player<'c> {
    fn new(context: &'c Context, connection: Connection, size: usize) -> Result<Self> {
        let mut posted = std::collections::VecDeque::new();
        for _ in 0..AHEAD {
            posted.push_back(connection.post_recv(vec![0; size])?);
        }
        Ok(Self { context, connection, message: Arc::new(vec![0x5A; size]), posted })
    }

    fn write(&mut self) -> Result<()> {
        self.connection.start_send(SendBuffer::new(self.message.clone()), None)?;
        self.context.progress();
        Ok(())
    }

    /// Polls until the next message is in its bitmap; `false` when it is over.
    fn await_message(&self, is_over: &AtomicBool) -> Result<bool> {
        let front = self.posted.front().context("always some posted")?;
        while !front.has_chunk(0) {
            self.context.progress();
            if is_over.load(Ordering::Relaxed) || self.connection.failure().is_some() {
                return Ok(false);
            }
        }
        Ok(true)
    }

    /// Takes the message that is there, and posts its buffer anew.
    fn take(&mut self) -> Result<()> {
        let done = self.posted.pop_front().context("one was awaited")?.complete();
        self.posted.push_back(self.connection.post_recv(done.buffer)?);
        Ok(())
    }
}
