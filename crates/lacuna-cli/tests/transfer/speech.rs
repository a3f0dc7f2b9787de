//! The file protocol, spoken byte by byte: a sender and a receiver that say
//! whatever a test wants.

use crate::ends::{Receiver, Running, lacuna, spawn};
use lacuna::{ConnectError, Connection, ConnectionConfig, Context, ContextConfig, Listener};
use std::net::{IpAddr, Ipv4Addr};
use std::path::Path;
use std::time::Duration;

const WAIT: Duration = Duration::from_secs(20);
const LOCALHOST: IpAddr = IpAddr::V4(Ipv4Addr::LOCALHOST);

/// Of the file protocol.
pub(crate) const VERSION: u16 = 2;

fn context() -> Context {
    Context::new(ContextConfig { bind: LOCALHOST.into(), ..ContextConfig::default() }).unwrap()
}

/// Connects with a tag that may be refused.
pub(crate) fn try_connect(receiver: &Receiver, tag: [u8; 8]) -> Result<Connection, ConnectError> {
    let config = ConnectionConfig { tag: u64::from_be_bytes(tag), ..ConnectionConfig::default() };
    Connection::connect(&context(), &receiver.address, config)
}

/// Connects as a sender does.
fn connect(receiver: &Receiver) -> Connection {
    try_connect(receiver, *b"FILE\0\0\0\x01").unwrap()
}

pub(crate) fn hello(version: u16) -> Vec<u8> {
    hello_of(7, version)
}

/// The hello of one of several senders: two of the same are one that came back.
pub(crate) fn hello_of(sender: u8, version: u16) -> Vec<u8> {
    [&[1][..], b"lacuna", &version.to_be_bytes(), &[sender; 16], &[0]].concat()
}

/// An offer of a file.
pub(crate) fn offer(name: &[u8], size: u64) -> Vec<u8> {
    offer_sparse(name, size, size)
}

/// An offer of a file of which only so much is data.
pub(crate) fn offer_sparse(name: &[u8], size: u64, data: u64) -> Vec<u8> {
    let (size, data) = (size.to_be_bytes(), data.to_be_bytes());
    let len = (name.len() as u16).to_be_bytes();
    [&[2, 0][..], &0o644u16.to_be_bytes(), &size, &data, &[0; 12], &len, name].concat()
}

pub(crate) fn start(item: u64, from: u64) -> Vec<u8> {
    [&[3][..], &item.to_be_bytes(), &from.to_be_bytes()].concat()
}

pub(crate) fn data(bytes: &[u8]) -> Vec<u8> {
    [&[4][..], &(bytes.len() as u32).to_be_bytes(), bytes].concat()
}

pub(crate) fn hole(len: u64) -> Vec<u8> {
    [&[10][..], &len.to_be_bytes()].concat()
}

pub(crate) fn end(hash: [u8; 32]) -> Vec<u8> {
    [&[5][..], &hash].concat()
}

pub(crate) fn welcome(version: u16) -> Vec<u8> {
    [&[0x81][..], b"lacuna", &version.to_be_bytes(), &[0]].concat()
}

/// A receiver's answer on an item.
pub(crate) fn answer(kind: u8, item: u64, rest: &[u8]) -> Vec<u8> {
    [&[kind][..], &item.to_be_bytes(), rest].concat()
}

/// Says all of `records` in one message and gives back what is answered until
/// the receiver hangs up or has answered `answers` messages.
pub(crate) fn talk(receiver: &Receiver, records: &[Vec<u8>], answers: usize) -> Vec<u8> {
    let connection = connect(receiver);
    connection.send(&records.concat()).unwrap();
    let mut heard = Vec::new();
    for _ in 0..answers {
        let mut buffer = vec![0; 64 << 10];
        match connection.recv_within(&mut buffer, WAIT) {
            Ok(received) => heard.extend(&buffer[..received.len]),
            Err(_) => break,
        }
    }
    heard
}

/// A receiver that answers what the test says.
pub(crate) struct FakeReceiver {
    listener: Listener,
    pub(crate) address: String,
}

/// The test's end of a session, whichever it is.
pub(crate) struct FakeSession {
    connection: Connection,
    heard: Vec<u8>,
}

/// A sender of `file`, and the receiver's end of its session after the hello.
pub(crate) fn sender_of(file: &Path, args: &[&str]) -> (Running, FakeSession) {
    let fake = FakeReceiver::start();
    let sender = spawn(lacuna(&["send"]).args(args).arg(file).arg(&fake.address));
    let mut session = fake.accept();
    session.hear(b"lacuna");
    (sender, session)
}

impl FakeReceiver {
    pub(crate) fn start() -> Self {
        let any = "127.0.0.1:0".parse().unwrap();
        let listener = Listener::bind(&context(), any, ConnectionConfig::default()).unwrap();
        let address = listener.local_addr().to_string();
        Self { listener, address }
    }

    pub(crate) fn accept(&self) -> FakeSession {
        FakeSession { connection: self.listener.accept().unwrap(), heard: Vec::new() }
    }

    /// Refuses the next connection, and gives its tag.
    pub(crate) fn refuse(&self, reason: &str) -> u64 {
        let mut seen = None;
        let refused = self.listener.accept_if(|tag| {
            seen = Some(tag);
            Err(reason.to_owned())
        });
        assert!(refused.is_err());
        seen.expect("it had a tag")
    }
}

impl FakeSession {
    /// The sender's end.
    pub(crate) fn connect(receiver: &Receiver) -> Self {
        Self { connection: connect(receiver), heard: Vec::new() }
    }

    /// Listens until the other end has said `words`.
    pub(crate) fn hear(&mut self, words: &[u8]) {
        let mut buffer = vec![0; 4 << 20];
        while !self.heard.windows(words.len()).any(|window| window == words) {
            let received = self.connection.recv_within(&mut buffer, WAIT).unwrap();
            self.heard.extend(&buffer[..received.len]);
        }
    }

    pub(crate) fn say(&self, words: &[u8]) {
        self.connection.send(words).unwrap();
    }
}
