//! quinn, the QUIC of the Rust world: one unidirectional stream, 1 MiB writes,
//! a single-threaded runtime at each end, offloads on. It encrypts, which the
//! others here do not.

use super::{Place, Sample};
use crate::cell::Cell;
use crate::meter::Meter;
use crate::pin;
use anyhow::{Context, Result};
use quinn::crypto::rustls::QuicClientConfig;
use quinn::rustls::pki_types::{CertificateDer, PrivatePkcs8KeyDer};
use quinn::rustls::{RootCertStore, crypto};
use quinn::{ClientConfig, Endpoint, EndpointConfig, ServerConfig, TokioRuntime, TransportConfig};
use std::net::{Ipv4Addr, SocketAddr, UdpSocket};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

const WRITE_BYTES: usize = 1 << 20;
pub(crate) const NAME: &str = "localhost";

/// `mtu`: packets of that size from the start; without it quinn's defaults.
pub(super) fn run(cell: &Cell, place: &Place, mtu: Option<u16>) -> Result<Sample> {
    let (certificate, key) = identity()?;
    let transport = Arc::new(transport(mtu));
    let server = server_config(&certificate, &key, transport.clone())?;
    let client = client_config(&certificate, transport)?;

    let sockets =
        [UdpSocket::bind((Ipv4Addr::LOCALHOST, 0))?, UdpSocket::bind((Ipv4Addr::LOCALHOST, 0))?];
    let address = sockets[0].local_addr()?;
    let [server_socket, client_socket] = sockets;
    let received = AtomicU64::new(0);
    let buffer_bytes = (cell.size as usize * cell.inflight as usize).max(WRITE_BYTES);
    let cpu_before = pin::process_time();
    let rate = std::thread::scope(|scope| -> Result<f64> {
        let receiving = scope.spawn(|| {
            pin::this_thread(place.receive_core)?;
            receive(server_socket, server, mtu, buffer_bytes, &received)
        });
        let sending = scope.spawn(|| {
            pin::this_thread(place.send_core)?;
            send(client_socket, client, address, mtu, buffer_bytes, place, &received)
        });
        let rate = sending.join().map_err(|_| anyhow::anyhow!("the sender panicked"))?;
        receiving.join().map_err(|_| anyhow::anyhow!("the receiver panicked"))??;
        rate
    })?;
    let cpu = (pin::process_time() - cpu_before).as_secs_f64();
    let moved = received.load(Ordering::Relaxed) as f64;
    Ok(Sample {
        value: rate,
        cpu_s_per_gbyte: Some(cpu / (moved / 1e9)),
        note: Some("encrypted".to_owned()),
        ..Sample::default()
    })
}

/// A new certificate and its key, DER.
pub(crate) fn identity() -> Result<(Vec<u8>, Vec<u8>)> {
    let key = rcgen::generate_simple_self_signed([NAME.to_owned()])?;
    Ok((key.cert.der().to_vec(), key.signing_key.serialize_der()))
}

pub(crate) fn server_config(
    certificate: &[u8],
    key: &[u8],
    transport: Arc<TransportConfig>,
) -> Result<ServerConfig> {
    let certificate = CertificateDer::from(certificate.to_vec());
    let key = PrivatePkcs8KeyDer::from(key.to_vec());
    let mut server = ServerConfig::with_single_cert(vec![certificate], key.into())?;
    server.transport_config(transport);
    Ok(server)
}

/// For a client that knows the server's certificate.
pub(crate) fn client_config(
    certificate: &[u8],
    transport: Arc<TransportConfig>,
) -> Result<ClientConfig> {
    let mut roots = RootCertStore::empty();
    roots.add(CertificateDer::from(certificate.to_vec()))?;
    let tls = quinn::rustls::ClientConfig::builder_with_provider(Arc::new(
        crypto::ring::default_provider(),
    ))
    .with_protocol_versions(&[&quinn::rustls::version::TLS13])?
    .with_root_certificates(roots)
    .with_no_client_auth();
    let mut client = ClientConfig::new(Arc::new(QuicClientConfig::try_from(tls)?));
    client.transport_config(transport);
    Ok(client)
}

fn transport(mtu: Option<u16>) -> TransportConfig {
    let mut transport = TransportConfig::default();
    if let Some(mtu) = mtu {
        transport.initial_mtu(mtu).min_mtu(mtu).mtu_discovery_config(None);
    }
    transport
}

/// On a socket; with `mtu`, for packets of that size.
pub(crate) fn endpoint(
    socket: UdpSocket,
    server: Option<ServerConfig>,
    mtu: Option<u16>,
) -> Result<Endpoint> {
    let mut config = EndpointConfig::default();
    if let Some(mtu) = mtu {
        config.max_udp_payload_size(mtu)?;
    }
    Ok(Endpoint::new(config, server, socket, Arc::new(TokioRuntime))?)
}

pub(crate) fn runtime() -> Result<tokio::runtime::Runtime> {
    Ok(tokio::runtime::Builder::new_current_thread().enable_all().build()?)
}

fn receive(
    socket: UdpSocket,
    config: ServerConfig,
    mtu: Option<u16>,
    buffer_bytes: usize,
    received: &AtomicU64,
) -> Result<()> {
    runtime()?.block_on(async {
        let endpoint = endpoint(socket, Some(config), mtu)?;
        let connection = endpoint.accept().await.context("nobody connects")?.await?;
        let mut stream = connection.accept_uni().await?;
        let mut buffer = vec![0u8; buffer_bytes];
        let mut at = 0;
        while let Some(bytes) = stream.read(&mut buffer[at..]).await? {
            received.fetch_add(bytes as u64, Ordering::Relaxed);
            at = if at + bytes == buffer_bytes { 0 } else { at + bytes };
        }
        Ok(())
    })
}

#[allow(clippy::too_many_arguments, reason = "one caller, each of another kind")]
fn send(
    socket: UdpSocket,
    config: ClientConfig,
    to: SocketAddr,
    mtu: Option<u16>,
    buffer_bytes: usize,
    place: &Place,
    received: &AtomicU64,
) -> Result<f64> {
    runtime()?.block_on(async {
        let endpoint = endpoint(socket, None, mtu)?;
        let connection = endpoint.connect_with(config, to, NAME)?.await?;
        let mut stream = connection.open_uni().await?;
        let buffer = vec![0x5Au8; buffer_bytes];
        let mut meter = Meter::start(place.duration);
        for bytes in buffer.chunks(WRITE_BYTES).cycle() {
            if !meter.goes_on(received.load(Ordering::Relaxed)) {
                break;
            }
            stream.write_all(bytes).await?;
        }
        let rate = meter.gbit_per_s(received.load(Ordering::Relaxed));
        stream.finish()?;
        stream.stopped().await?;
        connection.close(0u32.into(), b"");
        endpoint.wait_idle().await;
        Ok(rate)
    })
}
