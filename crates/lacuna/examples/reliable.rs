//! A reliable connection: messages of any length, each whole or an error with a reason by its
//! deadline. The same as `examples/c/reliable.c`, and they understand each other.
//!
//! ```text
//! cargo run -p lacuna --example reliable -- server                     # all addresses, port 7412
//! cargo run -p lacuna --example reliable -- server [fe80::1%eth0]:7412
//! cargo run -p lacuna --example reliable -- client 127.0.0.1:7412
//! ```

use lacuna::address::{self, show};
use lacuna::{Connection, ConnectionConfig, Context, ContextConfig, Listener};
use std::error::Error;
use std::process::ExitCode;
use std::time::Duration;

const MESSAGES: u32 = 20;
const MESSAGE_BYTES: usize = 3_000_000;
const PATIENCE: Duration = Duration::from_secs(20);

fn main() -> ExitCode {
    let words: Vec<String> = std::env::args().skip(1).collect();
    let words: Vec<&str> = words.iter().map(String::as_str).collect();
    let result = match words[..] {
        ["server"] => serve("[::]:7412"),
        ["server", at] => serve(at),
        ["client", peer] => send_all(peer),
        _ => {
            eprintln!("usage: reliable server [ADDRESS:PORT]\n       reliable client HOST:PORT");
            return ExitCode::from(2);
        }
    };
    match result {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("{error}");
            ExitCode::FAILURE
        }
    }
}

/// Both ends know what a message has to be.
fn message(number: u32) -> Vec<u8> {
    let length = MESSAGE_BYTES - number as usize;
    (0..length).map(|at| (number as usize * 17 + at + (at >> 8) * 5) as u8).collect()
}

fn serve(at: &str) -> Result<(), Box<dyn Error>> {
    let at = address::parse(at)?;
    // Packets come to sockets at the same address, on ports of their own.
    let context = Context::new(ContextConfig { bind: at.into(), ..ContextConfig::default() })?;
    let listener = Listener::bind(&context, at, ConnectionConfig::default())?;
    println!("listening on {}", show(listener.local_addr()));
    let connection = listener.accept()?;
    println!("{}: {}", show(connection.peer()), connection.chosen());
    let mut buffer = vec![0; MESSAGE_BYTES];
    for number in 0..MESSAGES {
        let received = connection.recv(&mut buffer)?;
        let is_right = received.immediate == Some(number);
        if !is_right || buffer[..received.len] != message(number) {
            return Err(format!("message {number} is wrong").into());
        }
    }
    // The acknowledgement of the last messages may be lost: answer until the peer has gone.
    connection.wait_closed(PATIENCE);
    println!("{MESSAGES} messages, all of them right");
    Ok(())
}

fn send_all(peer: &str) -> Result<(), Box<dyn Error>> {
    let context = Context::new(ContextConfig::default())?;
    let config = ConnectionConfig { deadline: PATIENCE, ..ConnectionConfig::default() };
    let connection = Connection::connect(&context, peer, config)?;
    println!("{}: {}", show(connection.peer()), connection.chosen());
    for number in 0..MESSAGES {
        connection.send_with(&message(number), Some(number), PATIENCE)?;
    }
    connection.flush(PATIENCE);
    Ok(())
}
