//! `lacuna.h`: Lacuna's own interface for C. Contexts, listeners, connections
//! with a mode and deadlines, live bitmaps, statistics, error texts; regions and
//! one-sided operations; completion queues; datagram queue pairs; groups of ranks and their operations.
//!
//! Thin over the facade crate: each object holds one of its types. Receives and
//! sends live in pools of their connection, so that a handle which is used after
//! its end is an error. Contexts, listeners, connections, settings, regions, windows,
//! maps, completion queues, datagram queue pairs and groups are freed by their `_free` function, which
//! must be the last call with them.

pub mod address;
mod capture;
pub mod class;
pub mod codes;
pub mod completion;
pub mod completion_queue;
pub mod connection;
pub mod context;
pub mod datagram;
pub mod ended;
pub mod group;
pub mod map;
pub mod offered;
pub mod one_sided;
mod posted;
pub mod queued;
pub mod receive;
pub mod region;
pub mod send;
pub mod settings;
pub mod slices;
