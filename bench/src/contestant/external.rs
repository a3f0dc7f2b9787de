//! Peers with benchmark programs of their own, used where they are installed:
//! UCX (`ucx_perftest`) and libfabric (`fi_pingpong`).

use super::{Outcome, Place, Sample};
use crate::cell::Cell;
use crate::pin;
use anyhow::{Context, Result, bail};
use std::ffi::OsStr;
use std::net::{Ipv4Addr, TcpListener};
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

/// A server process, ended with this.
struct Server(Child);

impl Drop for Server {
    fn drop(&mut self) {
        // It may have ended by itself.
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

fn is_installed(program: &str) -> bool {
    std::env::var_os("PATH")
        .is_some_and(|path| std::env::split_paths(&path).any(|dir| dir.join(program).is_file()))
}

/// A port that was free a moment ago, below those that the system hands out to
/// clients by itself.
fn free_port() -> Result<u16> {
    let free =
        (20_000..30_000).find(|port| TcpListener::bind((Ipv4Addr::LOCALHOST, *port)).is_ok());
    free.context("no port is free")
}

/// A one-sided put over UCX's TCP transport.
pub(super) fn ucx_put(cell: &Cell, place: &Place) -> Result<Outcome> {
    ucx_put_rate(cell.size, place)
}

/// Puts of so many bytes one after the other: Gbit/s.
pub(crate) fn ucx_put_rate(bytes: u64, place: &Place) -> Result<Outcome> {
    let Some(text) = ucx(bytes, place, "ucp_put_bw")? else { return Ok(ucx_missing()) };
    // Columns of the last line: iterations, latency typical, average, overall,
    // bandwidth average, overall (MB/s of 2^20), message rate average, overall.
    let overall = last_row(&text).and_then(|row| row.get(5).copied());
    let overall = overall.with_context(|| format!("what ucx_perftest printed: {text}"))?;
    let value = overall * f64::from(1 << 20) * 8.0 / 1e9;
    Ok(Outcome::Sample(Sample { value, ..Sample::default() }))
}

/// Puts back and forth, of which each is seen in memory: microseconds one way.
pub(crate) fn ucx_put_latency(bytes: u64, place: &Place) -> Result<Outcome> {
    ucx_latency(bytes, place, "ucp_put_lat")
}

/// UCX's tagged ping-pong over TCP: microseconds one way.
pub(super) fn ucx_tag(cell: &Cell, place: &Place) -> Result<Outcome> {
    ucx_latency(cell.size, place, "tag_lat")
}

fn ucx_latency(bytes: u64, place: &Place, test: &str) -> Result<Outcome> {
    let Some(text) = ucx(bytes, place, test)? else { return Ok(ucx_missing()) };
    let typical = last_row(&text).and_then(|row| row.get(1).copied());
    let value = typical.with_context(|| format!("what ucx_perftest printed: {text}"))?;
    Ok(Outcome::Sample(Sample { value, ..Sample::default() }))
}

fn ucx_missing() -> Outcome {
    Outcome::Skipped("ucx_perftest is not installed (Debian: ucx-utils)".to_owned())
}

fn ucx(bytes: u64, place: &Place, test: &str) -> Result<Option<String>> {
    const PROGRAM: &str = "ucx_perftest";
    if !is_installed(PROGRAM) {
        return Ok(None);
    }
    let port = free_port()?.to_string();
    let command = |core| -> Result<Command> {
        let mut command = pin::command(core, OsStr::new(PROGRAM))?;
        command.env("UCX_TLS", "tcp").env("UCX_NET_DEVICES", "lo").env("UCX_LOG_LEVEL", "fatal");
        command.args(["-p", &port]).stdin(Stdio::null());
        Ok(command)
    };
    // Some thousand messages of any size are a second or so; the client ends by
    // their number, not by time.
    let per_second = if bytes <= 4096 { 100_000.0 } else { 2e9 / bytes as f64 };
    let messages = ((per_second * place.duration.as_secs_f64()) as u64).clamp(20, 1_000_000);
    let output = serve_and_run(
        command(place.receive_core)?,
        || {
            let mut client = command(place.send_core)?;
            client.args(["127.0.0.1", "-t", test, "-f"]);
            client.args(["-s", &bytes.to_string(), "-n", &messages.to_string()]);
            client.args(["-w", &(messages / 10).to_string()]);
            Ok(client)
        },
        60 * place.duration,
    )?;
    Ok(Some(output))
}

/// libfabric's reliable datagrams over UDP: a write there and back, so half of
/// what is moved is counted each way.
pub(super) fn libfabric_rxd(cell: &Cell, place: &Place) -> Result<Outcome> {
    const PROGRAM: &str = "fi_pingpong";
    if !is_installed(PROGRAM) {
        let why = "fi_pingpong is not installed (Debian: libfabric-bin)";
        return Ok(Outcome::Skipped(why.to_owned()));
    }
    let port = free_port()?.to_string();
    let command = |core| -> Result<Command> {
        let mut command = pin::command(core, OsStr::new(PROGRAM))?;
        command.args(["-p", "udp;ofi_rxd", "-e", "rdm", "-I", "100"]).stdin(Stdio::null());
        command.args(["-S", &cell.size.to_string()]);
        Ok(command)
    };
    let mut server = command(place.receive_core)?;
    server.args(["-B", &port]);
    let text = serve_and_run(
        server,
        || {
            let mut client = command(place.send_core)?;
            client.args(["-P", &port, "127.0.0.1"]);
            Ok(client)
        },
        60 * place.duration,
    )?;
    // bytes #sent #ack total time MB/sec usec/xfer Mxfers/sec, MB of 10^6.
    let line = text.lines().last().context("fi_pingpong printed nothing")?;
    let rate = line.split_whitespace().nth(5).and_then(|word| word.parse::<f64>().ok());
    let value = rate.with_context(|| format!("what fi_pingpong printed: {text}"))? * 8.0 / 1e3;
    let note = Some("one message in flight".to_owned());
    Ok(Outcome::Sample(Sample { value, note, ..Sample::default() }))
}

/// Starts a server, then clients until one finds it ready; gives what the
/// client printed.
fn serve_and_run(
    mut server: Command,
    client: impl Fn() -> Result<Command>,
    patience: Duration,
) -> Result<String> {
    let server = server.stdout(Stdio::null()).stderr(Stdio::null()).spawn()?;
    let _server = Server(server);
    let begun = Instant::now();
    let mut refused = String::new();
    // Neither program says when it listens.
    while begun.elapsed() < Duration::from_secs(3) {
        std::thread::sleep(Duration::from_millis(200));
        let child = client()?.stdout(Stdio::piped()).stderr(Stdio::piped()).spawn()?;
        let mut child = Server(child);
        while child.0.try_wait()?.is_none() {
            if begun.elapsed() > patience {
                bail!("no end after {} s", patience.as_secs());
            }
            std::thread::sleep(Duration::from_millis(20));
        }
        let status = child.0.wait()?;
        let text = std::io::read_to_string(child.0.stdout.take().context("no output")?)?;
        if status.success() {
            return Ok(text);
        }
        refused = std::io::read_to_string(child.0.stderr.take().context("no output")?)?;
    }
    bail!("it failed: {}", refused.trim())
}

/// The numbers of the last line that begins with one.
fn last_row(text: &str) -> Option<Vec<f64>> {
    let mut rows = text.lines().rev().map(|line| {
        // UCX begins its rows with "[thread 0]".
        let row = line.rsplit_once(']').map_or(line, |(_, row)| row);
        row.split_whitespace().map_while(|word| word.parse().ok()).collect::<Vec<f64>>()
    });
    rows.find(|row: &Vec<f64>| row.len() >= 4)
}

#[cfg(test)]
mod tests {
    use super::last_row;

    #[test]
    fn the_last_row_of_numbers_is_read() {
        let text = "+---+\n|  head |\n[thread 0]   100  1.5 1.6 1.7  800.5 790.25  5 6\n\n";
        assert_eq!(last_row(text).unwrap()[..3], [100.0, 1.5, 1.6]);
        assert_eq!(last_row("nothing"), None);
    }
}
