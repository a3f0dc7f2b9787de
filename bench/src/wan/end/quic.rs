//! quinn: a single-threaded runtime at each end, offloads on, encrypted. A message is a stream of
//! its own, and the peer's answer of one byte; a bulk transfer one unidirectional stream.

use super::{Line, Message, Order, Reuse, Task, WRITE_BYTES, now_ns, say, thread, watch};
use crate::contestant::quic::{client_config, endpoint, runtime, server_config};
use anyhow::{Context, Result, bail};
use quinn::congestion::{BbrConfig, CubicConfig};
use quinn::{Connection, Endpoint, TransportConfig, VarInt};
use std::net::{SocketAddr, UdpSocket};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

/// Of the sockets, as much as this machine's limit lets a user have.
const SOCKET_BYTES: usize = 4 << 20;

fn transport(cc: &str, window_bytes: Option<u32>) -> Result<Arc<TransportConfig>> {
    let mut transport = TransportConfig::default();
    match cc {
        "cubic" => transport.congestion_controller_factory(Arc::new(CubicConfig::default())),
        "bbr" => transport.congestion_controller_factory(Arc::new(BbrConfig::default())),
        _ => bail!("quinn has no congestion control {cc} here: use cubic or bbr"),
    };
    if let Some(window_bytes) = window_bytes {
        transport
            .stream_receive_window(VarInt::from_u32(window_bytes))
            .receive_window(VarInt::from_u32(window_bytes))
            .send_window(u64::from(window_bytes));
    }
    Ok(Arc::new(transport))
}

fn socket(address: SocketAddr) -> Result<UdpSocket> {
    use rustix::net::sockopt::{set_socket_recv_buffer_size, set_socket_send_buffer_size};
    let socket = UdpSocket::bind(address)?;
    set_socket_recv_buffer_size(&socket, SOCKET_BYTES)?;
    set_socket_send_buffer_size(&socket, SOCKET_BYTES)?;
    Ok(socket)
}

pub(super) fn serve(order: &Order, cc: &str, window_bytes: Option<u32>) -> Result<()> {
    let identity = &order.identity;
    let transport = transport(cc, window_bytes)?;
    let config = server_config(&identity.certificate, &identity.key, transport)?;
    let socket = socket(order.address)?;
    runtime()?.block_on(async {
        let endpoint = endpoint(socket, Some(config), None)?;
        say(&Line::Listening)?;
        if let Task::Bulk { seconds } = order.task {
            let connection = endpoint.accept().await.context("nobody connects")?.await?;
            let received = Arc::new(AtomicU64::new(0));
            let watched = received.clone();
            thread(move || {
                let told = watch(seconds, || Ok(watched.load(Ordering::Relaxed)));
                std::process::exit(i32::from(told.is_err()));
            })?;
            return take_bulk(&connection, &received).await;
        }
        let bytes = order.task.message_bytes();
        while let Some(incoming) = endpoint.accept().await {
            tokio::spawn(async move {
                if let Err(error) = take(incoming, bytes).await {
                    eprintln!("{error:#}");
                }
            });
        }
        Ok(())
    })
}

async fn take_bulk(connection: &Connection, received: &AtomicU64) -> Result<()> {
    let mut stream = connection.accept_uni().await?;
    let mut buffer = vec![0; WRITE_BYTES];
    while let Some(bytes) = stream.read(&mut buffer).await? {
        received.fetch_add(bytes as u64, Ordering::Relaxed);
    }
    Ok(())
}

/// Takes messages until the client closes.
async fn take(incoming: quinn::Incoming, bytes_max: usize) -> Result<()> {
    let connection = incoming.await?;
    let mut buffer = vec![0; bytes_max];
    // An error here is the end of the connection.
    while let Ok((mut answer, mut stream)) = connection.accept_bi().await {
        let mut at = 0;
        while let Some(bytes) = stream.read(&mut buffer[at..]).await? {
            at += bytes;
            if at == bytes_max {
                break;
            }
        }
        answer.write_all(&[1]).await?;
        answer.finish()?;
    }
    Ok(())
}

pub(super) fn send(order: &Order, cc: &str, window_bytes: Option<u32>) -> Result<()> {
    let config = client_config(&order.identity.certificate, transport(cc, window_bytes)?)?;
    let unspecified: SocketAddr =
        if order.address.is_ipv4() { "0.0.0.0:0".parse()? } else { "[::]:0".parse()? };
    let socket = socket(unspecified)?;
    let data: Arc<[u8]> = vec![0x5A; order.task.message_bytes()].into();
    runtime()?.block_on(async {
        let mut endpoint = endpoint(socket, None, None)?;
        endpoint.set_default_client_config(config);
        match order.task {
            Task::Bulk { .. } => {
                let connection = connect(&endpoint, order.address).await?;
                let mut stream = connection.open_uni().await?;
                loop {
                    stream.write_all(&data).await?;
                }
            }
            Task::Messages { count, connection: reuse, .. } => {
                let mut kept = None;
                for _ in 0..count {
                    let began_ns = now_ns();
                    let connection = match kept.take() {
                        Some(connection) => connection,
                        None => connect(&endpoint, order.address).await?,
                    };
                    say(&Line::Message(write(&connection, &data, began_ns).await?))?;
                    match reuse {
                        Reuse::Kept => kept = Some(connection),
                        Reuse::Fresh => connection.close(0u32.into(), b""),
                    }
                }
                Ok(())
            }
            Task::Crowd { connections, .. } => {
                let mut all = tokio::task::JoinSet::new();
                for _ in 0..connections {
                    let (endpoint, data, address) = (endpoint.clone(), data.clone(), order.address);
                    all.spawn(async move {
                        let began_ns = now_ns();
                        let connection = connect(&endpoint, address).await?;
                        write(&connection, &data, began_ns).await
                    });
                }
                while let Some(one) = all.join_next().await {
                    match one? {
                        Ok(message) => say(&Line::Message(message))?,
                        Err(error) => eprintln!("{error:#}"),
                    }
                }
                Ok(())
            }
        }
    })
}

async fn connect(endpoint: &Endpoint, address: SocketAddr) -> Result<Connection> {
    Ok(endpoint.connect(address, crate::contestant::quic::NAME)?.await?)
}

async fn write(connection: &Connection, data: &[u8], connecting_ns: u64) -> Result<Message> {
    let began_ns = now_ns();
    let (mut stream, mut answer) = connection.open_bi().await?;
    stream.write_all(data).await?;
    stream.finish()?;
    answer.read_exact(&mut [0]).await?;
    let took_ns = now_ns() - began_ns;
    Ok(Message { began_ns, setup_ns: began_ns - connecting_ns, took_ns })
}
