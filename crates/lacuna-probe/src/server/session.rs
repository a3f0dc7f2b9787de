//! A client's session at the server: the record of the current trial, and the counts of the last.
//!
//! A client repeats a request if its answer is lost, so requests are idempotent: a trial that has begun
//! does not begin again, and its counts do not change once they were fetched.

use super::{End, ServerConfig};
use crate::arrivals::Arrivals;
use crate::counted::Counted;
use crate::host::{Host, HostDrops};
use crate::wire::{Message, Refusal, TrialPlan};
use crate::{FLOWS_MAX, PAYLOAD_BYTES_MAX, PAYLOAD_BYTES_MIN, TRIAL_NS_MAX};
use std::net::SocketAddr;

/// One client; see the module's text.
#[derive(Debug)]
pub(super) struct Session {
    peer: SocketAddr,
    time_up_ns: u64,
    silence_ns_max: u64,
    heard_ns: u64,
    trial: Option<Trial>,
    trials: u32,
}

#[derive(Debug)]
struct Trial {
    number: u32,
    plan: TrialPlan,
    arrivals: Arrivals,
    drops_before: HostDrops,
    /// `Some` once it was fetched.
    counted: Option<Box<Counted>>,
}

impl Session {
    pub(super) fn new(now_ns: u64, peer: SocketAddr, config: &ServerConfig) -> Self {
        Self {
            peer,
            time_up_ns: now_ns.saturating_add(config.session_ns_max),
            silence_ns_max: config.silence_ns_max,
            heard_ns: now_ns,
            trial: None,
            trials: 0,
        }
    }

    pub(super) fn peer(&self) -> SocketAddr {
        self.peer
    }

    /// Trials whose result was fetched.
    pub(super) fn trials(&self) -> u32 {
        self.trials
    }

    pub(super) fn heard(&mut self, now_ns: u64) {
        self.heard_ns = self.heard_ns.max(now_ns);
    }

    /// When the session ends unless a packet arrives.
    pub(super) fn ends_ns(&self) -> u64 {
        self.time_up_ns.min(self.heard_ns.saturating_add(self.silence_ns_max))
    }

    /// How the session has ended, if it has.
    pub(super) fn end(&self, now_ns: u64) -> Option<End> {
        if now_ns >= self.time_up_ns {
            Some(End::TimeUp)
        } else if now_ns >= self.ends_ns() {
            Some(End::Silent)
        } else {
            None
        }
    }

    pub(super) fn on_message(
        &mut self,
        now_ns: u64,
        message: Message,
        host: &mut dyn Host,
    ) -> Option<Message> {
        match message {
            Message::Start { trial, plan } => self.start(trial, plan, host),
            Message::Probe { trial, index, sent_ns, wants_echo, bytes } => {
                self.probe(now_ns, trial, index, sent_ns, bytes);
                wants_echo.then_some(Message::Echo { trial, index, sent_ns, bytes })
            }
            Message::Fetch { trial, sent } => self.fetch(trial, sent, host),
            _ => None,
        }
    }

    fn start(&mut self, number: u32, plan: TrialPlan, host: &mut dyn Host) -> Option<Message> {
        let last = self.trial.as_ref().map_or(0, |trial| trial.number);
        if number < last || number == 0 {
            // A late copy of an earlier trial's start.
            return None;
        }
        let is_possible = (PAYLOAD_BYTES_MIN..=PAYLOAD_BYTES_MAX).contains(&plan.payload_bytes)
            && (1..=FLOWS_MAX).contains(&plan.flows)
            && (1..=TRIAL_NS_MAX).contains(&plan.duration_ns);
        if !is_possible {
            return Some(Message::Refused(Refusal::Impossible));
        }
        if number > last {
            self.trial = Some(Trial {
                number,
                plan,
                arrivals: Arrivals::new(&plan),
                drops_before: host.drops(),
                counted: None,
            });
        }
        Some(Message::Started { trial: number })
    }

    fn probe(&mut self, now_ns: u64, trial: u32, index: u32, sent_ns: u64, bytes: u32) {
        let Some(running) = self.trial.as_mut().filter(|running| running.number == trial) else {
            return;
        };
        // Packets that arrive after the result was fetched count as lost.
        if running.counted.is_none() && running.plan.payload_bytes == bytes {
            running.arrivals.on_packet(now_ns, index, sent_ns);
        }
    }

    fn fetch(&mut self, number: u32, sent: u32, host: &mut dyn Host) -> Option<Message> {
        let trial = self.trial.as_mut().filter(|trial| trial.number == number)?;
        let counted = match &trial.counted {
            Some(counted) => counted.clone(),
            None => {
                let drops = host.drops().since(&trial.drops_before);
                let counted = Box::new(Counted { drops, ..trial.arrivals.count(sent) });
                self.trials += 1;
                trial.counted.insert(counted).clone()
            }
        };
        Some(Message::Report { trial: number, counted })
    }
}
