//! No reliability: each packet goes out once, and the receiver's bitmap says
//! what came. The paper's benchmark runs so (SDR-RDMA 5.4.1), and an
//! application that brings its own scheme starts here.

mod recv;
mod send;
#[cfg(test)]
mod tests;

pub use recv::Receiver;
pub use send::Sender;
