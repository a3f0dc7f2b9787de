//! `sdr.h` and `sdr_mr.h`: the API that the authors of SDR-RDMA published (table 1, section 3.1),
//! over plain UDP.
//!
//! Names, parameter orders and fields are fixed by that API; programs written against the authors'
//! headers compile against these. Decisions that the API leaves open:
//!
//! - A send is complete when the transport has dropped its last reference to the bytes.
//! - The sends of a queue pair lend out at most `max_in_flight_log_bytes` at a time; beyond that,
//!   `sdr_send_post` returns `SDR_RETRY`.
//! - A handle whose operation is over returns an error until its queue pair reuses the object, some
//!   hundred operations later.
//!   uses the object again, which takes some hundred operations.

pub mod context;
pub mod qp;
pub mod recv;
pub mod region;
pub mod send;
mod shape;
pub mod types;
