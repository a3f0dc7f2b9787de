//! No reliability: each packet is sent once, and the application reads the receiver's bitmap. The
//! paper's benchmark uses this (SDR-RDMA 5.4.1), and so can an application with a scheme of its own.

mod recv;
mod send;
#[cfg(test)]
mod tests;

pub use recv::Receiver;
pub use send::Sender;
