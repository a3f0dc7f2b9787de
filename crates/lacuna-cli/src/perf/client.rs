//! The sending end: keeps messages in flight, waits for them in order, and
//! reports.

use super::protocol::{Answer, Counters, Done, Request, receive, send};
use super::report::Report;
use super::{ClientArgs, cpu, pattern};
use crate::failure::Failure;
use crate::output::Output;
use lacuna::{Connection, ConnectionConfig, Context, ContextConfig, SendBuffer, SendHandle};
use std::collections::VecDeque;
use std::sync::Arc;
use std::time::{Duration, Instant};

const PORT: u16 = 7402;

pub(super) fn run(args: &ClientArgs, output: Output) -> Result<(), Failure> {
    let context = Context::new(ContextConfig {
        channels: args.end.channels,
        progress: args.end.progress(),
        datapath: args.end.datapath(),
        ..ContextConfig::default()
    })?;
    let server = with_port(&args.host);
    let plain = ConnectionConfig { deadline: Duration::MAX, ..ConnectionConfig::default() };
    let session = Connection::connect(&context, server.as_str(), plain)?;
    send(
        &session,
        &Request { size_bytes: args.size, inflight: args.inflight, validate: args.validate },
    )?;
    if let Answer::Refused { reason } = receive(&session)? {
        return Err(Failure::Network(format!("{server} refused: {reason}")));
    }
    let config = ConnectionConfig {
        mode: args.mode,
        chunk_bytes: args.chunk,
        mtu_bytes: args.mtu,
        rate_bits_per_s: args.rate,
        ..plain
    };
    let measured = Connection::connect(&context, server.as_str(), config)?;
    output.note(&format!("{}: {}", measured.peer(), measured.chosen()));

    let mut run = Run::new(args, measured);
    let cpu_before_s = cpu::process_s();
    run.send_all()?;
    let cpu_s = cpu::process_s() - cpu_before_s;
    send(&session, &Done { messages: run.messages })?;
    let counters: Counters = receive(&session)?;
    let report = Report::new(args, &run.measured, &run.times, run.measured_for, &counters, cpu_s);
    report.print(output)?;
    if counters.wrong > 0 {
        let at = counters.first_wrong.unwrap_or_default();
        let wrong = counters.wrong;
        return Err(Failure::Verification(format!("{wrong} messages arrived wrong, first: {at}")));
    }
    Ok(())
}

fn with_port(host: &str) -> String {
    // A bare IPv6 address has colons but no port.
    let has_port = host.rsplit_once(':').is_some_and(|(name, port)| {
        port.parse::<u16>().is_ok() && (!name.contains(':') || name.ends_with(']'))
    });
    match (has_port, host.contains(':') && !host.starts_with('[')) {
        (true, _) => host.to_owned(),
        (false, true) => format!("[{host}]:{PORT}"),
        (false, false) => format!("{host}:{PORT}"),
    }
}

/// A message on its way.
struct InFlight {
    handle: SendHandle,
    posted: Instant,
    buffer: Arc<Vec<u8>>,
}

struct Run<'a> {
    args: &'a ClientArgs,
    measured: Connection,
    in_flight: VecDeque<InFlight>,
    spare: Vec<Arc<Vec<u8>>>,
    messages: u64,
    times: Vec<Duration>,
    measured_for: Duration,
}

impl<'a> Run<'a> {
    fn new(args: &'a ClientArgs, measured: Connection) -> Self {
        // A buffer for each message in flight: as large writes have it, the
        // bytes come from memory, not from a cache.
        let spare = (0..args.inflight)
            .map(|number| {
                let mut buffer = vec![0; args.size as usize];
                pattern::fill(&mut buffer, u64::from(number));
                Arc::new(buffer)
            })
            .collect();
        Self {
            args,
            measured,
            in_flight: VecDeque::new(),
            spare,
            messages: 0,
            times: Vec::new(),
            measured_for: Duration::ZERO,
        }
    }

    fn send_all(&mut self) -> Result<(), Failure> {
        for _ in 0..self.args.inflight {
            self.post()?;
        }
        let warm_up = Instant::now();
        for _ in 0..self.args.warmup {
            // On a slow path a share of the time must do.
            if warm_up.elapsed() > self.args.duration / 4 {
                break;
            }
            self.finish()?;
            self.post()?;
        }
        self.times.clear();
        let start = Instant::now();
        let goes_on = |run: &Self| match run.args.iters {
            Some(iters) => (run.times.len() as u64) < iters,
            // One message at least, however slow the path.
            None => run.times.is_empty() || start.elapsed() < run.args.duration,
        };
        while goes_on(self) {
            self.finish()?;
            self.post()?;
        }
        self.measured_for = start.elapsed();
        // The rest is not counted, so it is not waited for either.
        self.messages -= self.in_flight.len() as u64;
        for message in self.in_flight.drain(..) {
            message.handle.cancel();
        }
        Ok(())
    }

    fn post(&mut self) -> Result<(), Failure> {
        let mut buffer =
            self.spare.pop().unwrap_or_else(|| Arc::new(vec![0; self.args.size as usize]));
        if self.args.validate {
            match Arc::get_mut(&mut buffer) {
                Some(bytes) => pattern::fill(bytes, self.messages),
                // A worker still holds it for a moment.
                None => {
                    let mut bytes = vec![0; self.args.size as usize];
                    pattern::fill(&mut bytes, self.messages);
                    buffer = Arc::new(bytes);
                }
            }
        }
        let posted = Instant::now();
        let handle = self
            .measured
            .start_write(SendBuffer::new(buffer.clone()), None)
            .map_err(|error| Failure::Network(error.to_string()))?;
        self.messages += 1;
        self.in_flight.push_back(InFlight { handle, posted, buffer });
        Ok(())
    }

    /// Waits for the oldest message: until the server has all of it, or has
    /// given it up in a mode without repair.
    fn finish(&mut self) -> Result<(), Failure> {
        let Some(oldest) = self.in_flight.pop_front() else { return Ok(()) };
        oldest.handle.wait()?;
        if !oldest.handle.wait_finished(Duration::from_secs(30)) {
            return Err(Failure::Network("the server takes no more messages".to_owned()));
        }
        self.times.push(oldest.posted.elapsed());
        self.spare.push(oldest.buffer);
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::with_port;

    #[test]
    fn a_missing_port_is_filled_in() {
        for (host, full) in [
            ("host", "host:7402"),
            ("host:1", "host:1"),
            ("10.0.0.1", "10.0.0.1:7402"),
            ("::1", "[::1]:7402"),
            ("fe80::1:2", "[fe80::1:2]:7402"),
            ("[::1]:5", "[::1]:5"),
            ("[::1]", "[::1]:7402"),
        ] {
            assert_eq!(with_port(host), full);
        }
    }
}
