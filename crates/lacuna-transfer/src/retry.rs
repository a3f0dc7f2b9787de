//! Retry policy of the end that connects: when a silent connection counts as broken, how long an
//! attempt to connect may take, and when to give up.
//!
//! The retry limit counts from the last word of the peer, so it includes the time in which the
//! silence is noticed. Progress resets it, and so does a connection that lasted as long as the
//! limit: a peer that hashed a large file for an hour was no outage.
//!
//! An end that accepts uses the same policy, with other limits: it waits for the peer to come back.

use crate::observer::{Event, Observer};
use lacuna_service::Stop;
use std::time::{Duration, Instant};

/// Shortest and longest pause before another attempt.
const BACK_OFF: (Duration, Duration) = (Duration::from_millis(200), Duration::from_secs(5));
/// Shortest and longest silence after which a connection counts as broken. A busy host or a route
/// change may take some seconds; 30 s is the transport's own limit.
const SILENCE: (Duration, Duration) = (Duration::from_secs(5), Duration::from_secs(30));
/// Shortest and longest time for an attempt to connect.
const CONNECT: (Duration, Duration) = (Duration::from_secs(1), Duration::from_secs(10));

/// How long a connection may be silent before it counts as broken: half of the limit, so that the
/// other half remains for attempts.
pub(crate) fn silence(limit: Duration) -> Duration {
    (limit / 2).clamp(SILENCE.0, SILENCE.1)
}

/// The state of the policy.
pub(crate) struct Retry {
    /// How long to retry without progress.
    limit: Duration,
    /// When the peer was last heard, while there is no progress.
    outage: Option<Instant>,
    back_off: Duration,
}

/// The lifetime of a connection.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Life {
    pub(crate) began: Instant,
    /// When the peer was last heard.
    pub(crate) heard: Instant,
    /// Whether there was progress.
    pub(crate) has_progressed: bool,
}

/// An attempt that did not complete the transfer.
#[derive(Debug)]
pub(crate) struct Attempt<E> {
    pub(crate) why: Ended<E>,
    /// The connection's lifetime, if there was one.
    pub(crate) life: Option<Life>,
}

/// Why an attempt ended.
#[derive(Debug)]
pub(crate) enum Ended<E> {
    /// The connection broke: another attempt may succeed.
    Lost(String),
    /// Another attempt would not help.
    Failed(E),
}

/// Why no further attempt is made.
#[derive(Debug)]
pub(crate) enum GivenUp<E> {
    /// The caller requested a stop.
    Interrupted,
    /// The connection broke for this reason, and there was no progress for the time to retry.
    Lost(String),
    Failed(E),
}

/// Makes attempts until one completes the transfer. Each is told whether there was a connection
/// before.
pub(crate) fn attempts<E>(
    limit: Duration,
    stop: &Stop,
    observer: &dyn Observer,
    mut attempt: impl FnMut(&Retry, bool) -> Result<(), Attempt<E>>,
) -> Result<(), GivenUp<E>> {
    let mut retry = Retry::new(limit);
    let mut was_connected = false;
    loop {
        let Err(Attempt { why, life }) = attempt(&retry, was_connected) else { return Ok(()) };
        was_connected |= life.is_some();
        if stop.is_requested() {
            return Err(GivenUp::Interrupted);
        }
        let reason = match why {
            Ended::Failed(error) => return Err(GivenUp::Failed(error)),
            Ended::Lost(reason) => reason,
        };
        let Some(pause) = retry.failed(Instant::now(), life) else {
            return Err(GivenUp::Lost(reason));
        };
        observer.on_event(&Event::Retrying { reason: &reason, pause });
        stop.sleep(pause);
        if stop.is_requested() {
            return Err(GivenUp::Interrupted);
        }
    }
}

impl Retry {
    pub(crate) fn new(limit: Duration) -> Self {
        Self { limit, outage: None, back_off: BACK_OFF.0 }
    }

    /// How long to go on waiting for a peer that connects by itself.
    pub(crate) fn left(&self, now: Instant) -> Duration {
        let since = self.outage.unwrap_or(now);
        self.limit.saturating_sub(now.saturating_duration_since(since))
    }

    /// How long connecting may take.
    pub(crate) fn connect_within(&self, now: Instant) -> Duration {
        match self.outage {
            None => CONNECT.1,
            Some(_) => self.left(now).clamp(CONNECT.0, CONNECT.1),
        }
    }

    /// An attempt has failed; `life` is that of its connection, if there was one. Returns the pause
    /// before the next attempt, or `None` to give up.
    pub(crate) fn failed(&mut self, now: Instant, life: Option<Life>) -> Option<Duration> {
        if let Some(life) = life {
            let lived = life.heard.saturating_duration_since(life.began);
            if life.has_progressed || lived >= self.limit || self.outage.is_none() {
                (self.outage, self.back_off) = (Some(life.heard), BACK_OFF.0);
            }
        }
        let since = *self.outage.get_or_insert(now);
        let pause = self.back_off;
        if now.saturating_duration_since(since) + pause >= self.limit {
            return None;
        }
        self.back_off = (pause * 2).min(BACK_OFF.1);
        Some(pause)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn s(seconds: f64) -> Duration {
        Duration::from_secs_f64(seconds)
    }

    #[test]
    fn a_silence_is_noticed_with_time_left_for_attempts() {
        assert_eq!(silence(s(60.0)), s(30.0), "what the transport does by itself");
        assert_eq!(silence(s(3600.0)), s(30.0));
        assert_eq!(silence(s(16.0)), s(8.0));
        assert_eq!(silence(s(8.0)), s(5.0));
        assert_eq!(silence(s(0.0)), s(5.0));
    }

    #[test]
    fn the_time_to_notice_a_silence_is_part_of_the_time_to_go_on() {
        let start = Instant::now();
        let mut retry = Retry::new(s(8.0));
        assert_eq!(retry.connect_within(start), CONNECT.1);
        // A dead path: silent since 100 s, noticed 5 s later.
        let life = Life { began: start, heard: start + s(100.0), has_progressed: true };
        let mut now = start + s(105.0);
        let mut pause = retry.failed(now, Some(life));
        let mut attempts = 0;
        while let Some(time) = pause {
            now += time;
            let within = retry.connect_within(now);
            assert!(within <= s(3.0), "{within:?}");
            now += within;
            pause = retry.failed(now, None);
            attempts += 1;
        }
        assert!(attempts >= 1);
        let waited = now - (start + s(100.0));
        assert!(waited > s(7.0) && waited <= s(8.0) + CONNECT.0, "{waited:?}");
    }

    #[test]
    fn progress_resets_the_clock_and_mere_connections_do_not() {
        let start = Instant::now();
        let mut retry = Retry::new(s(10.0));
        let life = |from: f64, to: f64, has_progressed| Life {
            began: start + s(from),
            heard: start + s(to),
            has_progressed,
        };
        assert_eq!(retry.failed(start + s(1.0), Some(life(0.0, 1.0, true))), Some(BACK_OFF.0));
        // The peer takes connections and drops them.
        assert!(retry.failed(start + s(3.0), Some(life(2.0, 3.0, false))).is_some());
        assert!(retry.failed(start + s(6.0), Some(life(5.0, 6.0, false))).is_some());
        assert_eq!(retry.failed(start + s(11.0), Some(life(10.0, 11.0, false))), None);
        // It moved something meanwhile.
        let mut retry = Retry::new(s(10.0));
        assert!(retry.failed(start + s(1.0), Some(life(0.0, 1.0, false))).is_some());
        assert!(retry.failed(start + s(9.0), Some(life(2.0, 9.0, true))).is_some());
        assert!(retry.failed(start + s(17.0), None).is_some());
        // It hashed for an hour before it broke.
        assert!(retry.failed(start + s(3700.0), Some(life(20.0, 3700.0, false))).is_some());
    }

    #[test]
    fn no_time_to_retry_means_one_attempt() {
        let start = Instant::now();
        let mut retry = Retry::new(Duration::ZERO);
        let life = Life { began: start, heard: start, has_progressed: true };
        assert_eq!(retry.failed(start, Some(life)), None);
    }
}
