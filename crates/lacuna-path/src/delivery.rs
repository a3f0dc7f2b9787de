//! Delivery-rate samples: how fast the path carried what was in flight with a
//! run (draft-cheng-iccrg-delivery-rate-estimation, section 3; taken over by
//! draft-ietf-ccwg-bbr, section 4.1).
//!
//! Each run stores the bytes delivered by the time it was sent. When the run is reported, a sample is
//! the bytes delivered since then, divided by the longer of two times: the time that sending took and
//! the time that arriving took. So a sample never exceeds the rate of the path, even if reports
//! arrive in bunches.
//!
//! Three things are known here that TCP does not know:
//!
//! - a report has the peer's delay, which is subtracted from the arrival time;
//! - a report counts packets, so a loss is known before it is repaired;
//! - the pacer knows when the host's scheduler delayed the sender. The path was idle then, so that
//!   time is left out of the interval. A host with more threads than cores delays the sender in every
//!   round trip; a rate that included the delay would shrink with each round trip.
//!
//! All bytes are *wire bytes*: UDP payload and 28 bytes of headers a packet, as a link counts them.

/// Totals at the time when a run was sent.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Stamp {
    /// Bytes delivered by then.
    pub delivered_bytes: u64,
    /// When the last of them had arrived.
    pub delivered_ns: u64,
    /// When the newest run delivered by then had been sent.
    pub first_sent_ns: u64,
    /// Total lateness of the host: by then, and when that newest run was sent.
    pub late_ns: (u64, u64),
    /// Bytes lost by then.
    pub lost_bytes: u64,
    /// Bytes in flight, this run among them.
    pub in_flight_bytes: u64,
    /// The application ran out of data within the last round trip.
    pub is_app_limited: bool,
}

/// A delivery-rate sample.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct RateSample {
    /// Bytes per second.
    pub rate: u64,
    /// Bytes delivered since the run left.
    pub delivered_bytes: u64,
    /// Bytes delivered in all when the run left: a round has passed once this
    /// reaches the total at the round's start.
    pub prior_delivered_bytes: u64,
    /// Bytes lost since the run left.
    pub lost_bytes: u64,
    /// Bytes in flight when the run left.
    pub in_flight_bytes: u64,
    /// The application, not the path, may have set the rate.
    pub is_app_limited: bool,
    /// Total lateness of the sender's host when the run was sent.
    pub late_ns: u64,
}

/// Totals of one path.
#[derive(Debug, Clone, Default)]
pub struct Delivery {
    delivered_bytes: u64,
    delivered_ns: u64,
    first_sent_ns: u64,
    /// Total lateness of the host: by now, and when the newest run delivered was sent.
    late_ns: (u64, u64),
    lost_bytes: u64,
    /// Runs sent before this total is delivered are limited by the application;
    /// 0 if none are.
    app_limited_end_bytes: u64,
}

impl Delivery {
    /// Bytes delivered in all.
    pub fn delivered_bytes(&self) -> u64 {
        self.delivered_bytes
    }

    /// A run leaves; `in_flight_bytes` includes it.
    pub fn on_sent(&mut self, now_ns: u64, bytes: u64, in_flight_bytes: u64) -> Stamp {
        if in_flight_bytes <= bytes {
            // Nothing was in flight, so the pause before this run is no part of any interval.
            self.first_sent_ns = now_ns;
            self.delivered_ns = now_ns;
            self.late_ns.1 = self.late_ns.0;
        }
        Stamp {
            delivered_bytes: self.delivered_bytes,
            delivered_ns: self.delivered_ns,
            first_sent_ns: self.first_sent_ns,
            late_ns: self.late_ns,
            lost_bytes: self.lost_bytes,
            in_flight_bytes,
            is_app_limited: self.app_limited_end_bytes > 0,
        }
    }

    /// Nothing is left to send although more would be allowed.
    pub fn on_out_of_data(&mut self, in_flight_bytes: u64) {
        self.app_limited_end_bytes = (self.delivered_bytes + in_flight_bytes).max(1);
    }

    /// The host ran the sender `late_ns` too late, while the path was idle.
    pub fn on_late(&mut self, late_ns: u64) {
        self.late_ns.0 += late_ns;
    }

    /// `bytes` had arrived by `arrived_ns` plus the time that the report took back, on the sender's
    /// clock.
    pub fn on_delivered(&mut self, arrived_ns: u64, bytes: u64) {
        self.delivered_bytes += bytes;
        self.delivered_ns = self.delivered_ns.max(arrived_ns);
        if self.delivered_bytes > self.app_limited_end_bytes {
            self.app_limited_end_bytes = 0;
        }
    }

    /// `bytes` were lost.
    pub fn on_lost(&mut self, bytes: u64) {
        self.lost_bytes += bytes;
    }

    /// The sample of the newest run delivered, which left at `sent_ns`.
    pub fn sample(&mut self, sent_ns: u64, stamp: &Stamp) -> RateSample {
        let send_ns = sent_ns.saturating_sub(stamp.first_sent_ns);
        let arrival_ns = self.delivered_ns.saturating_sub(stamp.delivered_ns);
        let interval_ns = send_ns.max(arrival_ns);
        let late_ns = (stamp.late_ns.0 - stamp.late_ns.1).min(interval_ns - interval_ns / 8);
        self.first_sent_ns = self.first_sent_ns.max(sent_ns);
        self.late_ns.1 = self.late_ns.1.max(stamp.late_ns.0);
        let delivered_bytes = self.delivered_bytes.saturating_sub(stamp.delivered_bytes);
        RateSample {
            rate: rate_of(delivered_bytes, interval_ns - late_ns),
            delivered_bytes,
            prior_delivered_bytes: stamp.delivered_bytes,
            lost_bytes: self.lost_bytes.saturating_sub(stamp.lost_bytes),
            in_flight_bytes: stamp.in_flight_bytes,
            is_app_limited: stamp.is_app_limited,
            late_ns: stamp.late_ns.0,
        }
    }
}

/// Bytes per second; a time of 0 counts as a nanosecond.
pub fn rate_of(bytes: u64, time_ns: u64) -> u64 {
    let rate = u128::from(bytes) * 1_000_000_000 / u128::from(time_ns.max(1));
    u64::try_from(rate).unwrap_or(u64::MAX)
}

#[cfg(test)]
mod tests {
    use super::*;

    const MS: u64 = 1_000_000;

    #[test]
    fn reports_in_a_bunch_do_not_make_the_path_faster() {
        // A megabyte per second, sent evenly; all is reported at once at the end.
        let mut delivery = Delivery::default();
        let stamps: Vec<Stamp> =
            (0..10u64).map(|i| delivery.on_sent(i * MS, 1000, (i + 1) * 1000)).collect();
        let mut rates = Vec::new();
        for (i, stamp) in stamps.iter().enumerate() {
            delivery.on_delivered(20 * MS, 1000);
            rates.push(delivery.sample(i as u64 * MS, stamp).rate);
        }
        assert!(rates.iter().all(|rate| *rate <= 1_000_000), "{rates:?}");
    }

    #[test]
    fn a_sender_slower_than_the_path_marks_its_samples() {
        let mut delivery = Delivery::default();
        let free = delivery.on_sent(0, 1000, 1000);
        delivery.on_out_of_data(1000);
        let limited = delivery.on_sent(MS, 1000, 2000);
        delivery.on_delivered(10 * MS, 1000);
        assert!(!delivery.sample(0, &free).is_app_limited);
        delivery.on_delivered(11 * MS, 1000);
        assert!(delivery.sample(MS, &limited).is_app_limited);
        // What was sent once the pause had drained is not marked.
        let stamp = delivery.on_sent(12 * MS, 1000, 1000);
        assert!(!stamp.is_app_limited);
    }

    #[test]
    fn time_that_the_host_took_is_no_part_of_an_interval() {
        // A megabyte per second over 5 ms of path; nothing leaves from 20 to 30 ms.
        let lowest = |is_told: bool| {
            let mut delivery = Delivery::default();
            let (mut on_the_way, mut rates) = (std::collections::VecDeque::new(), Vec::new());
            for now_ms in (0..20).chain(30..50u64) {
                let came = |sent: &(u64, Stamp)| sent.0 + 5 * MS <= now_ms * MS;
                while let Some((sent_ns, stamp)) = on_the_way.pop_front_if(|sent| came(sent)) {
                    delivery.on_delivered(sent_ns + 5 * MS, 1000);
                    rates.push(delivery.sample(sent_ns, &stamp).rate);
                }
                if now_ms == 30 && is_told {
                    delivery.on_late(10 * MS);
                }
                let in_flight_bytes = 1000 * (on_the_way.len() as u64 + 2);
                on_the_way
                    .push_back((now_ms * MS, delivery.on_sent(now_ms * MS, 1000, in_flight_bytes)));
            }
            rates[5..].iter().min().copied()
        };
        assert!(lowest(true) > Some(700_000), "{:?}", lowest(true));
        assert!(lowest(false) < Some(100_000), "{:?}", lowest(false));
    }

    #[test]
    fn a_pause_is_no_part_of_an_interval() {
        let mut delivery = Delivery::default();
        let stamp = delivery.on_sent(0, 1000, 1000);
        delivery.on_delivered(10 * MS, 1000);
        delivery.sample(0, &stamp);
        let stamp = delivery.on_sent(9000 * MS, 1000, 1000);
        delivery.on_delivered(9010 * MS, 1000);
        assert_eq!(delivery.sample(9000 * MS, &stamp).rate, 100_000);
    }
}
