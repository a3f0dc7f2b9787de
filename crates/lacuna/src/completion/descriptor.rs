//! The event of a completion queue: a file descriptor that is readable while it is set. Other systems
//! than Unix have none, and there it does nothing.

use lacuna_completion::Event;
#[cfg(unix)]
use lacuna_datapath::wait::Signal;
use std::io;
#[cfg(unix)]
use std::os::fd::BorrowedFd;

/// See the module's text.
pub(crate) struct Descriptor {
    #[cfg(unix)]
    signal: Signal,
}

#[cfg(unix)]
impl Descriptor {
    pub(crate) fn new() -> io::Result<Self> {
        Ok(Self { signal: Signal::new()? })
    }

    pub(crate) fn as_fd(&self) -> BorrowedFd<'_> {
        self.signal.as_fd()
    }
}

#[cfg(not(unix))]
impl Descriptor {
    pub(crate) fn new() -> io::Result<Self> {
        Ok(Self {})
    }
}

impl Event for Descriptor {
    fn set(&self) {
        #[cfg(unix)]
        self.signal.set();
    }

    fn clear(&self) {
        #[cfg(unix)]
        self.signal.clear();
    }
}
