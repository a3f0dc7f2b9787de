//! Fills blocks with records and data, and sends a block when it is full or when there is nothing
//! to add.

use super::item_queue::Ended;
use crate::digest::{Digest, HashThread};
use crate::outbound::{Outbound, OutboundError};
use crate::pool::{Block, BufferPool};
use crate::wire::{BLOCK_BYTES, DATA_HEADER_BYTES, Hash, RECORD_BYTES_MAX, Record, data_header};
use blake3::Hasher;
use lacuna::SendBuffer;
use lacuna_service::STOP_POLL;
use std::fs::File;
use std::io;
use std::ops::Range;
use std::os::unix::fs::FileExt;
use std::sync::Arc;

/// Least room in a block to add data; with less, the block is sent.
const ROOM_MIN: usize = 64 << 10;
const _: () = assert!(ROOM_MIN > RECORD_BYTES_MAX + DATA_HEADER_BYTES);

/// The block that is being filled, and the connection it is sent on.
pub(crate) struct Packer<'l> {
    outbound: &'l Outbound,
    pool: BufferPool,
    hashes: &'l HashThread,
    stop: &'l dyn Fn() -> bool,
    block: Option<Block>,
    used: usize,
    /// Length at which the block counts as full.
    limit: usize,
    /// File bytes in the block.
    payload_bytes: u64,
    /// Parts that are still to be hashed, in order.
    unhashed: Vec<Unhashed>,
    scratch: Vec<u8>,
}

enum Unhashed {
    /// A range of the block.
    Data(Range<usize>),
    Zeros(u64),
}

/// A file could not be read, or the session has ended.
#[derive(Debug)]
pub(crate) enum PackError {
    Read(io::Error),
    Ended(Ended),
}

impl<'l> Packer<'l> {
    pub(crate) fn new(
        outbound: &'l Outbound,
        pool: BufferPool,
        hashes: &'l HashThread,
        stop: &'l dyn Fn() -> bool,
    ) -> Self {
        Self {
            outbound,
            pool,
            hashes,
            stop,
            block: None,
            used: 0,
            limit: BLOCK_BYTES,
            payload_bytes: 0,
            unhashed: Vec::new(),
            scratch: Vec::new(),
        }
    }

    /// Adds a record.
    pub(crate) fn put(&mut self, record: &Record<'_>) -> Result<(), Ended> {
        self.make_room()?;
        let mut scratch = std::mem::take(&mut self.scratch);
        scratch.clear();
        record.emit(&mut scratch);
        let used = self.used;
        self.block()?.bytes_mut()[used..used + scratch.len()].copy_from_slice(&scratch);
        self.used += scratch.len();
        self.scratch = scratch;
        Ok(())
    }

    /// Begins the hash of a file; `so_far` has hashed its beginning. Abandons the hash of a file
    /// that was given up.
    pub(crate) fn begin(&mut self, size_bytes: u64, so_far: Hasher) -> Digest {
        self.unhashed.clear();
        self.hashes.begin(size_bytes, so_far)
    }

    /// Adds data of `file` from `offset`, at most `len_max` and what fits; returns how much. An
    /// empty read is an error: the file became shorter.
    pub(crate) fn read(
        &mut self,
        file: &File,
        offset: u64,
        len_max: u64,
        digest: &mut Digest,
    ) -> Result<u64, PackError> {
        self.make_room().map_err(PackError::Ended)?;
        self.block().map_err(PackError::Ended)?;
        let start = self.used + DATA_HEADER_BYTES;
        let len = len_max.min((self.limit - start) as u64) as usize;
        let room = &mut self.block().map_err(PackError::Ended)?.bytes_mut()[start..start + len];
        file.read_exact_at(room, offset).map_err(PackError::Read)?;
        let hashed_here = matches!(digest, Digest::Inline(_));
        if let Digest::Inline(hasher) = digest {
            hasher.update(room);
        }
        let header = self.used..start;
        self.block().map_err(PackError::Ended)?.bytes_mut()[header]
            .copy_from_slice(&data_header(len));
        if !hashed_here {
            self.unhashed.push(Unhashed::Data(start..start + len));
        }
        self.used = start + len;
        self.payload_bytes += len as u64;
        Ok(len as u64)
    }

    /// Adds a hole of `len_bytes`.
    pub(crate) fn skip(&mut self, len_bytes: u64, digest: &mut Digest) -> Result<(), Ended> {
        self.put(&Record::Hole { len: len_bytes })?;
        match digest {
            Digest::Inline(_) => self.hashes.zeros(digest, len_bytes),
            // After the data of this block.
            Digest::Thread => self.unhashed.push(Unhashed::Zeros(len_bytes)),
        }
        Ok(())
    }

    /// The hash of a file whose data was all added.
    pub(crate) fn finish(&mut self, digest: Digest) -> Result<Hash, Ended> {
        if matches!(digest, Digest::Thread) {
            // The last data is hashed once its block was sent.
            self.flush()?;
        }
        self.hashes.finish(digest).ok_or_else(|| Ended::Lost("stopped".to_owned()))
    }

    /// Sends the block.
    pub(crate) fn flush(&mut self) -> Result<(), Ended> {
        let Some(block) = self.block.take() else { return Ok(()) };
        let whole = SendBuffer::new(Arc::new(block));
        for unhashed in self.unhashed.drain(..) {
            match unhashed {
                Unhashed::Data(range) => {
                    let data = whole.part(range.start, range.len()).expect("within the block");
                    self.hashes.update(&mut Digest::Thread, data);
                }
                Unhashed::Zeros(len_bytes) => self.hashes.zeros(&mut Digest::Thread, len_bytes),
            }
        }
        let message = whole.part(0, self.used).expect("within the block");
        let payload_bytes = std::mem::take(&mut self.payload_bytes);
        self.used = 0;
        self.outbound.send(message, payload_bytes, self.stop).map_err(|error| match error {
            OutboundError::Stopped => Ended::Lost("stopped".to_owned()),
            error => Ended::Lost(format!("lost the receiver: {error}")),
        })
    }

    fn make_room(&mut self) -> Result<(), Ended> {
        if self.block.is_some() && self.limit - self.used < ROOM_MIN {
            self.flush()?;
        }
        Ok(())
    }

    /// The block that is being filled; waits for a free one.
    fn block(&mut self) -> Result<&mut Block, Ended> {
        while self.block.is_none() {
            if (self.stop)() {
                return Err(Ended::Lost("stopped".to_owned()));
            }
            self.block = self.pool.take_within(STOP_POLL);
            self.limit = self.outbound.fill_bytes();
        }
        Ok(self.block.as_mut().expect("taken above"))
    }
}
