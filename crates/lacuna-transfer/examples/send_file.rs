//! Sends a file to itself over loopback: `cargo run -p lacuna-transfer --example send_file -- FILE INBOX`.

use lacuna_transfer::{Observer, Progress, ReceiveOptions, Receiver, SendOptions, Sender};
use std::error::Error;
use std::path::Path;

struct Bar;

impl Observer for Bar {
    fn on_progress(&self, progress: &Progress) {
        eprint!("\r{} bytes", progress.done_bytes);
    }
}

/// Sends a file into a folder and returns how many bytes moved.
pub(crate) fn send_file(file: &Path, inbox: &Path) -> Result<u64, Box<dyn Error>> {
    let receiver = Receiver::bind("127.0.0.1:0".parse()?, inbox, ReceiveOptions::default())?;
    let address = receiver.local_addr().to_string();
    let receiving = std::thread::spawn(move || receiver.recv());
    let sent = Sender::new(SendOptions::default()).send(&[file], &address, &Bar)?;
    receiving.join().expect("the receiver does not panic")?;
    Ok(sent.moved_bytes)
}

fn main() -> Result<(), Box<dyn Error>> {
    let args: Vec<_> = std::env::args_os().skip(1).collect();
    let [file, inbox] = &args[..] else { return Err("usage: send_file FILE INBOX".into()) };
    println!("sent {} bytes", send_file(file.as_ref(), inbox.as_ref())?);
    Ok(())
}
