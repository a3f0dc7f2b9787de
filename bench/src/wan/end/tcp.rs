//! TCP: the kernel's, with the congestion control that is asked for on both sockets. Windows are
//! the hosts' settings. A message is its length, its bytes, and the peer's answer of one byte.

use super::{Line, Message, Order, Reuse, Task, WRITE_BYTES, crowd, now_ns, say, thread, watch};
use anyhow::{Context, Result};
use rustix::net::sockopt::set_tcp_congestion;
use std::io::{ErrorKind, Read, Write};
use std::net::{SocketAddr, TcpListener, TcpStream};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

pub(super) fn serve(order: &Order, cc: &str) -> Result<()> {
    let listener = TcpListener::bind(order.address)?;
    set_tcp_congestion(&listener, cc).with_context(|| format!("no {cc} here"))?;
    // A crowd comes at once; the standard library's backlog is 128.
    rustix::net::listen(&listener, 4096)?;
    say(&Line::Listening)?;
    if let Task::Bulk { seconds } = order.task {
        let (mut stream, _) = listener.accept()?;
        let received = Arc::new(AtomicU64::new(0));
        let counted = received.clone();
        thread(move || {
            let mut buffer = vec![0; WRITE_BYTES];
            // The client is ended in the middle of it.
            while let Ok(bytes @ 1..) = stream.read(&mut buffer) {
                counted.fetch_add(bytes as u64, Ordering::Relaxed);
            }
        })?;
        return watch(seconds, || Ok(received.load(Ordering::Relaxed)));
    }
    loop {
        let (stream, _) = listener.accept()?;
        let bytes = order.task.message_bytes();
        thread(move || {
            if let Err(error) = take(stream, bytes) {
                eprintln!("{error:#}");
            }
        })?;
    }
}

/// Takes messages of at most so many bytes until the client has no more.
fn take(mut stream: TcpStream, bytes_max: usize) -> Result<()> {
    stream.set_nodelay(true)?;
    let mut buffer = vec![0; bytes_max];
    loop {
        let mut length = [0; 8];
        match stream.read_exact(&mut length) {
            Err(error) if error.kind() == ErrorKind::UnexpectedEof => return Ok(()),
            result => result?,
        }
        let length = usize::try_from(u64::from_le_bytes(length))?;
        stream.read_exact(buffer.get_mut(..length).context("more than was announced")?)?;
        stream.write_all(&[1])?;
    }
}

pub(super) fn send(order: &Order, cc: &str) -> Result<()> {
    let (address, cc) = (order.address, cc.to_owned());
    let data = Arc::new(vec![0x5A; order.task.message_bytes()]);
    match order.task {
        Task::Bulk { .. } => {
            let mut stream = connect(address, &cc)?;
            loop {
                stream.write_all(&data)?;
            }
        }
        Task::Messages { count, connection, .. } => {
            let mut kept = None;
            for _ in 0..count {
                let began_ns = now_ns();
                let mut stream = match kept.take() {
                    Some(stream) => stream,
                    None => connect(address, &cc)?,
                };
                say(&Line::Message(write(&mut stream, &data, began_ns)?))?;
                kept = (connection == Reuse::Kept).then_some(stream);
            }
            Ok(())
        }
        Task::Crowd { connections, .. } => crowd(connections, move || {
            let began_ns = now_ns();
            write(&mut connect(address, &cc)?, &data, began_ns)
        }),
    }
}

fn connect(address: SocketAddr, cc: &str) -> Result<TcpStream> {
    use rustix::net::{AddressFamily, SocketType, socket};
    let family = if address.is_ipv4() { AddressFamily::INET } else { AddressFamily::INET6 };
    // The congestion control belongs to the handshake already.
    let socket = socket(family, SocketType::STREAM, None)?;
    set_tcp_congestion(&socket, cc).with_context(|| format!("no {cc} here"))?;
    rustix::net::connect(&socket, &address)?;
    let stream = TcpStream::from(socket);
    stream.set_nodelay(true)?;
    Ok(stream)
}

fn write(stream: &mut TcpStream, data: &[u8], connecting_ns: u64) -> Result<Message> {
    let began_ns = now_ns();
    stream.write_all(&(data.len() as u64).to_le_bytes())?;
    stream.write_all(data)?;
    stream.read_exact(&mut [0])?;
    let took_ns = now_ns() - began_ns;
    Ok(Message { began_ns, setup_ns: began_ns - connecting_ns, took_ns })
}
