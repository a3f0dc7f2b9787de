//! The setting `pcap`: contexts made with the same settings write to one capture file.

use crate::outcome::{self, Failure};
use lacuna::ContextConfig;
use lacuna::datapath::{PcapOptions, PcapTime, PcapWriter};
use std::path::PathBuf;
use std::sync::{Arc, Mutex, PoisonError};

/// Default limit of a capture file: disks have room for it, and Wireshark opens it.
const LIMIT_BYTES: u64 = 1 << 30;

/// A capture file. Clones share it, once the first context has opened it.
#[derive(Clone)]
pub(super) struct Capture {
    path: Option<PathBuf>,
    limit_bytes: u64,
    writer: Arc<Mutex<Option<PcapWriter>>>,
}

impl Default for Capture {
    fn default() -> Self {
        Self { path: None, limit_bytes: LIMIT_BYTES, writer: Arc::default() }
    }
}

impl Capture {
    pub(super) fn set_path(&mut self, path: Option<PathBuf>) {
        *self = Self { path, limit_bytes: self.limit_bytes, ..Self::default() };
    }

    /// Sets the limit of a file that is not open yet; an open one keeps its limit.
    pub(super) fn set_limit_bytes(&mut self, limit_bytes: u64) {
        self.limit_bytes = limit_bytes;
    }

    /// Adds the capture to a context's configuration, if there is one.
    pub(super) fn around(&self, config: ContextConfig) -> Result<ContextConfig, Failure> {
        let Some(path) = &self.path else { return Ok(config) };
        let mut shared = self.writer.lock().unwrap_or_else(PoisonError::into_inner);
        let writer = match &*shared {
            Some(writer) => writer.clone(),
            None => {
                let options = PcapOptions {
                    time: PcapTime::System,
                    bytes_max: Some(self.limit_bytes),
                    ..PcapOptions::default()
                };
                let writer = PcapWriter::create_with(path, options).map_err(|error| {
                    let text = format!("pcap: cannot write {}: {error}", path.display());
                    Failure::new(outcome::SYSTEM, text)
                })?;
                shared.insert(writer).clone()
            }
        };
        Ok(ContextConfig { wrap: Some(lacuna::captured(config.wrap.clone(), writer)), ..config })
    }
}
