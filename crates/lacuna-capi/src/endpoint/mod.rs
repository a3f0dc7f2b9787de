//! `lacuna.h`: Lacuna's own interface for C. Contexts, listeners, connections
//! with a mode and deadlines, live bitmaps, statistics, error texts.
//!
//! Thin over the facade crate: each object holds one of its types. Receives and
//! sends live in pools of their connection, so that a handle which is used after
//! its end is an error. Contexts, listeners, connections and settings are freed
//! by their `_free` function, which must be the last call with them.

mod capture;
pub mod codes;
pub mod connection;
pub mod context;
pub mod receive;
pub mod send;
pub mod settings;
