//! Parity of a submessage, computed while its packets are built.
//!
//! All parity packets of a submessage that will be sent are computed at once, and cached until the
//! last of them was built, because window and pacing may split a run of parity.

use lacuna_code::{Chunked, ChunkedMut, Codec};
use lacuna_place::buffer::SendBuffer;
use lacuna_place::parity::{Layout, codec_like};
use std::collections::VecDeque;
use std::ops::Range;
use std::sync::{Arc, Mutex, PoisonError};

/// Most submessages whose parity is kept at once: at least one for each channel, which builds the
/// packets of one submessage at a time.
const CACHED_MAX: usize = 32;
const _: () = assert!(CACHED_MAX >= lacuna_wire::CHANNELS_MAX);

/// The parity of one submessage.
#[derive(Debug)]
pub(crate) struct Parity {
    bytes: Vec<u8>,
    /// Offset of the first chunk in `bytes`, which aligns the chunks.
    start: usize,
    /// Bytes of each parity chunk.
    chunk_bytes: usize,
    /// Bytes from one chunk to the next.
    stride_bytes: usize,
}

/// Alignment of chunks: a cache line, and the longest vector of the codec.
const ALIGN_BYTES: usize = 64;

impl Parity {
    /// Computes the parity of a submessage with these data.
    fn new(codec: &Codec, parity_chunks: usize, data: &[u8], chunk_bytes: usize) -> Self {
        // A parity chunk is as long as the first data chunk, which is the longest.
        let parity_bytes = data.len().min(chunk_bytes);
        let stride_bytes = parity_bytes.next_multiple_of(ALIGN_BYTES);
        let mut bytes = vec![0; stride_bytes * parity_chunks + ALIGN_BYTES - 1];
        let start = bytes.as_ptr().align_offset(ALIGN_BYTES).min(ALIGN_BYTES - 1);
        let len = (stride_bytes * parity_chunks).saturating_sub(stride_bytes - parity_bytes);
        if parity_bytes > 0 {
            let data = Chunked::new(data, chunk_bytes).expect("a chunk has bytes");
            let target = &mut bytes[start..start + len];
            let mut parity = ChunkedMut::with_stride(target, parity_bytes, stride_bytes)
                .expect("rounded up from bytes that there are");
            codec.encode(&data, &mut parity).expect("the layout cuts what fits the code");
        }
        Self { bytes, start, chunk_bytes: parity_bytes, stride_bytes }
    }

    /// Bytes of a parity chunk: the range, cut at the chunk's end.
    pub(crate) fn chunk(&self, parity: u32, range: Range<usize>) -> &[u8] {
        let base = self.start + parity as usize * self.stride_bytes;
        &self.bytes
            [base + range.start.min(self.chunk_bytes)..base + range.end.min(self.chunk_bytes)]
    }
}

/// Computes the parity of one message; workers of several channels share it.
#[derive(Debug)]
pub(crate) struct Encoder {
    codec: Arc<Codec>,
    cached: Mutex<VecDeque<(u32, Arc<Parity>)>>,
}

impl Encoder {
    /// An encoder with the codec of whole submessages.
    pub(crate) fn new(codec: Arc<Codec>) -> Self {
        Self { codec, cached: Mutex::new(VecDeque::new()) }
    }

    /// The first `count` parity chunks of a submessage of the message `data`, in packets of
    /// `mtu_bytes`. After `is_last` they are not needed again, and are not cached.
    pub(crate) fn parity(
        &self,
        layout: &Layout,
        submessage: u32,
        data: &SendBuffer,
        mtu_bytes: usize,
        (count, is_last): (u32, bool),
    ) -> Arc<Parity> {
        let found = {
            let mut cached = self.cached.lock().unwrap_or_else(PoisonError::into_inner);
            let index = cached.iter().position(|(of, _)| *of == submessage);
            index.and_then(|index| match is_last {
                true => cached.remove(index).map(|(_, parity)| parity),
                false => cached.get(index).map(|(_, parity)| parity.clone()),
            })
        };
        if let Some(parity) = found {
            return parity;
        }
        let start =
            data.len().min(submessage as usize * layout.data_packets() as usize * mtu_bytes);
        let end = data.len().min(start + layout.data_packets() as usize * mtu_bytes);
        let data = &*data.borrow_or_copy(start, end - start);
        let chunk_bytes = layout.chunk_packets() as usize * mtu_bytes;
        let chunks = data.len().div_ceil(chunk_bytes).max(1) as u32;
        let count = layout.parity_chunks(chunks).min(count) as usize;
        let code = layout.code_of(chunks);
        let parity = Arc::new(match code == self.codec.code() {
            true => Parity::new(&self.codec, count, data, chunk_bytes),
            false => Parity::new(&codec_like(&self.codec, code), count, data, chunk_bytes),
        });
        if !is_last {
            let mut cached = self.cached.lock().unwrap_or_else(PoisonError::into_inner);
            if cached.len() == CACHED_MAX {
                cached.pop_front();
            }
            cached.push_back((submessage, parity.clone()));
        }
        parity
    }
}
