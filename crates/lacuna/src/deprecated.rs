//! Deprecated names of two-sided operations. They said "write", which in RDMA is one-sided: its
//! target is named by the writing end. Removed in version 0.3.

use crate::connection::Connection;
use crate::error::{PostSendError, SendError};
use crate::handles::SendHandle;
use lacuna_place::buffer::SendBuffer;
use std::time::Duration;

/// The old name of [`SendError`].
#[deprecated(since = "0.2.0", note = "renamed to `SendError`")]
pub type WriteError = SendError;

impl Connection {
    /// The old name of [`Connection::start_send`].
    #[deprecated(since = "0.2.0", note = "renamed to `start_send`")]
    pub fn start_write(
        &self,
        data: impl Into<SendBuffer>,
        immediate: Option<u32>,
    ) -> Result<SendHandle, PostSendError> {
        self.start_send(data, immediate)
    }

    /// The old name of [`Connection::start_send_within`].
    #[deprecated(since = "0.2.0", note = "renamed to `start_send_within`")]
    pub fn start_write_within(
        &self,
        data: impl Into<SendBuffer>,
        immediate: Option<u32>,
        deadline: Duration,
    ) -> Result<SendHandle, PostSendError> {
        self.start_send_within(data, immediate, deadline)
    }

    /// The old name of [`Connection::send`].
    #[deprecated(since = "0.2.0", note = "renamed to `send`")]
    pub fn write(&self, data: &[u8]) -> Result<(), SendError> {
        self.send(data)
    }

    /// The old name of [`Connection::send_with`].
    #[deprecated(since = "0.2.0", note = "renamed to `send_with`")]
    pub fn write_with(
        &self,
        data: &[u8],
        immediate: Option<u32>,
        deadline: Duration,
    ) -> Result<(), SendError> {
        self.send_with(data, immediate, deadline)
    }
}
