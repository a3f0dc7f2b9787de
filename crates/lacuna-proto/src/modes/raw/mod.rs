//! No reliability: each packet is sent once, and the receiver's bitmap tells what came. The paper's
//! benchmark works so (SDR-RDMA 5.4.1), and an application with a scheme of its own starts here.

mod recv;
mod send;
#[cfg(test)]
mod tests;

pub use recv::Receiver;
pub use send::Sender;
