//! `sdr.h` and `sdr_mr.h`: the API that the authors of SDR-RDMA published
//! (table 1, section 3.1), over plain UDP.
//!
//! Names, parameter orders and fields are the contract; programs written against
//! the authors' headers compile against ours. What the contract leaves open:
//!
//! - a send is complete when the transport has let go of its memory;
//! - at most `max_in_flight_log_bytes` are lent out by sends of a queue pair at
//!   once, and then `sdr_send_post` says `SDR_RETRY`;
//! - a handle whose operation is over answers with an error until its queue pair
//!   uses the object again, which takes some hundred operations.

pub mod context;
pub mod qp;
pub mod recv;
pub mod region;
pub mod send;
mod shape;
pub mod types;
