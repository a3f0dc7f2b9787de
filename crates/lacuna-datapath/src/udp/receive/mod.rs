//! Reading the sockets: how, and when.

pub(super) mod batching;
pub(super) mod small;
