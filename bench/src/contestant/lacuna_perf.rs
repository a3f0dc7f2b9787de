//! Lacuna as its users run it: `lacuna perf`, two processes, each on its core.

use super::{Place, Sample};
use crate::cell::{Cell, Datapath, Progress};
use crate::pin;
use anyhow::{Context, Result, bail};
use lacuna::trust::{Token, write_secret};
use std::io::{BufRead, BufReader, Read};
use std::path::PathBuf;
use std::process::{Child, Command, Stdio};

/// The server, ended with this.
struct Server(Child);

impl Drop for Server {
    fn drop(&mut self) {
        // It may have ended by itself.
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

/// A token for both ends, which goes with this.
struct TokenFile(PathBuf);

impl TokenFile {
    fn new() -> Result<Self> {
        let path = std::env::temp_dir().join(format!("lacuna-bench-{}.token", std::process::id()));
        // What an earlier process of this number left.
        let _ = std::fs::remove_file(&path);
        write_secret(&path, &Token::generate()?.to_text())?;
        Ok(Self(path))
    }
}

impl Drop for TokenFile {
    fn drop(&mut self) {
        let _ = std::fs::remove_file(&self.0);
    }
}

pub(super) fn run(cell: &Cell, place: &Place, mode: &str, is_sealed: bool) -> Result<Sample> {
    let token = is_sealed.then(TokenFile::new).transpose()?;
    let ends = |command: &mut Command| {
        command.args(["--channels", &cell.channels.to_string()]);
        if cell.progress == Progress::Manual {
            command.args(["--progress", "manual"]);
        }
        if cell.datapath == Datapath::Plain {
            command.arg("--no-offload");
        }
        if let Some(token) = &token {
            command.arg("--token").arg(&token.0);
        }
    };
    let mut command = pin::command(place.receive_core, place.lacuna.as_os_str())?;
    command.args(["perf", "server", "--once", "--listen", "127.0.0.1:0"]);
    ends(&mut command);
    let mut server = Server(
        command
            .stdin(Stdio::null())
            .stdout(Stdio::null())
            .stderr(Stdio::piped())
            .spawn()
            .context("cannot start lacuna perf server")?,
    );
    let said = server.0.stderr.take().context("no standard error")?;
    let address = address_in(&mut BufReader::new(said))?;
    let mut command = pin::command(place.send_core, place.lacuna.as_os_str())?;
    command.args(["perf", "client", &address, "--json", "--mode", mode]);
    command.args(["--size", &cell.size.to_string(), "--mtu", &cell.mtu.to_string()]);
    command.args(["--chunk", &cell.chunk.to_string()]);
    command.args(["--inflight", &cell.inflight.to_string()]);
    command.args(["--duration", &format!("{}ms", place.duration.as_millis())]);
    ends(&mut command);
    let output = command.stdin(Stdio::null()).output().context("cannot start lacuna perf")?;
    if !output.status.success() {
        bail!("lacuna perf client: {}", String::from_utf8_lossy(&output.stderr).trim());
    }
    let report: serde_json::Value =
        serde_json::from_slice(&output.stdout).context("what lacuna perf printed")?;
    let number = |name: &str| report[name].as_f64();
    Ok(Sample {
        value: number("gbit_per_s").context("lacuna perf gave no rate")?,
        cpu_s_per_gbyte: number("cpu_s_per_gbyte"),
        lost: report["lost_packets"].as_u64(),
        retransmitted: report["retransmitted_packets"].as_u64(),
        note: None,
    })
}

/// The address in the server's first line that has one. The rest is read on a
/// thread, so that a full pipe never stops the server.
fn address_in(said: &mut BufReader<std::process::ChildStderr>) -> Result<String> {
    let mut line = String::new();
    while said.read_line(&mut line)? > 0 {
        if let Some((_, address)) = line.trim().split_once("listening on ") {
            let address = address.split_whitespace().next().unwrap_or(address);
            return Ok(address.trim_end_matches([',', '.']).to_owned());
        }
        line.clear();
    }
    let mut rest = String::new();
    let _ = said.read_to_string(&mut rest);
    bail!("lacuna perf server ended: {rest}")
}
