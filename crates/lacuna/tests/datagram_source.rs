//! A datagram queue pair whose host has lost the address that was asked.

use lacuna::datagram::{SendWork, Settings, Target, Verb};
use lacuna::datapath::{Burst, Capabilities, Datapath, EventSources, Placer, SendError};
use lacuna::{Context, ContextConfig, RegionOptions, Rights, ScopedIp, Wrap};
use std::io;
use std::net::{Ipv4Addr, SocketAddr};
use std::sync::Arc;
use std::time::Duration;

const WAIT: Duration = Duration::from_secs(60);

/// No packet leaves from an address that is asked for by name.
struct AddressLost(Box<dyn Datapath>);

impl Datapath for AddressLost {
    fn capabilities(&self) -> Capabilities {
        self.0.capabilities()
    }

    fn local_addr(&self) -> SocketAddr {
        self.0.local_addr()
    }

    fn send(&mut self, now_ns: u64, burst: &Burst<'_, '_>) -> Result<usize, SendError> {
        if burst.source().is_some() {
            return Err(io::Error::from(io::ErrorKind::AddrNotAvailable).into());
        }
        self.0.send(now_ns, burst)
    }

    fn receive(&mut self, now_ns: u64, placer: &mut dyn Placer) -> io::Result<usize> {
        self.0.receive(now_ns, placer)
    }

    fn next_event_ns(&self) -> Option<u64> {
        self.0.next_event_ns()
    }

    fn event_sources(&self) -> EventSources<'_> {
        self.0.event_sources()
    }

    fn tell_local(&mut self) {
        self.0.tell_local();
    }

    fn receive_drops(&self) -> u64 {
        self.0.receive_drops()
    }
}

#[test]
fn a_host_that_lost_the_address_that_was_asked_answers_from_another() {
    let wrap: Wrap = Arc::new(|_, inner| Box::new(AddressLost(inner)));
    let far = Context::new(ContextConfig { wrap: Some(wrap), ..ContextConfig::default() }).unwrap();
    let settings = Settings { bind: ScopedIp::ANY, ..Settings::default() };
    let far = far.datagram_queue_pair(&settings).unwrap();
    let rights = Rights::REMOTE_READ;
    let options = RegionOptions { rights, ..RegionOptions::default() };
    let memory = far.context().register(vec![7; 100], options).unwrap();
    let near = Context::new(ContextConfig::default()).unwrap();
    let settings = Settings { bind: Ipv4Addr::LOCALHOST.into(), ..Settings::default() };
    let near = near.datagram_queue_pair(&settings).unwrap();
    let into = near.context().register(vec![0; 100], RegionOptions::default()).unwrap();
    let to = SocketAddr::from((Ipv4Addr::LOCALHOST, far.local_addr().port()));
    let peer = near.peer(to).unwrap();
    for id in 0..2 {
        let from = Target { key: memory.key(), offset: 0 };
        let verb = Verb::Read { into: into.slice(0..100).unwrap(), from };
        let deadline_ns = Some(near.now_ns() + WAIT.as_nanos() as u64);
        near.post_send(SendWork { deadline_ns, ..SendWork::new(id, peer, verb) }).unwrap();
        assert_eq!(near.wait(WAIT).unwrap().status, Ok(()));
    }
}
