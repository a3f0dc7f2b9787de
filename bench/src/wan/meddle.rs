//! Those on the path who mean harm, or just forget: a NAT that gives the client other ports, and somebody who copies its packets,
//! changes them and sends them on, with or without the link between him and the server.

use super::process::Process;
use anyhow::{Result, ensure};
use lacuna_wan::{Side, Wan};
use std::path::Path;
use std::process::Command;
use std::time::Duration;

/// How long the firewall may take.
const RULES: Duration = Duration::from_secs(5);

/// The client's packets get other ports; what comes to the old ones is dropped, as a NAT knows nothing of them any more. Before
/// the kernel translates back, so by the ports that the server knows.
const REBIND: &str = "iptables -t raw -A PREROUTING -p udp ! -i lo -j DROP && \
    iptables -t nat -A POSTROUTING -p udp ! -o lo -j MASQUERADE --to-ports 20000-20999 && \
    iptables -t raw -I PREROUTING -p udp --dport 20000:20999 -j ACCEPT";

/// Moves the client. Needs `iptables`.
pub(crate) fn rebind(wan: &Wan) -> Result<()> {
    let mut command = Command::new("sh");
    command.args(["-c", REBIND]);
    let mut process = Process::start(wan.host(Side::Client), command)?;
    ensure!(process.has_ended(RULES)?, "iptables does not end");
    let outcome = process.end()?;
    ensure!(outcome.status.success(), "cannot move the client: {}", process.complaint());
    Ok(())
}

/// Somebody who forges, until this is dropped. Needs `python3`.
pub(crate) struct Forger(Process);

impl Drop for Forger {
    fn drop(&mut self) {
        // It is only stopped.
        let _ = self.0.end();
    }
}

/// Begins to forge packets.
pub(crate) fn forge(wan: &Wan, rate_mbit: u64, is_behind: bool) -> Result<Forger> {
    let mut command = Command::new("python3");
    command.arg(Path::new(env!("CARGO_MANIFEST_DIR")).join("wan/forge.py"));
    command.args([rate_mbit.to_string(), Side::Server.ipv4().to_string()]);
    let side = if is_behind { Side::Server } else { Side::Client };
    Ok(Forger(Process::start(wan.host(side), command)?))
}
