//! Views of the chunks of a block, without a list of slices.
//!
//! [`Chunked`] and [`ChunkedMut`] divide one buffer into chunks at equal distances; the last one may be
//! shorter. Slices of byte containers (`[Vec<u8>]`, `[&[u8]]`, `[&mut [u8]]`) are views, too, with one
//! element per chunk.

/// Chunks to read, numbered from 0.
///
/// All have the same length except the last, which may be shorter and then counts as padded with zeros.
pub trait Chunks {
    /// Number of chunks.
    fn count(&self) -> usize;

    /// The bytes of one.
    ///
    /// # Panics
    /// If the index is not below the count.
    fn chunk(&self, index: usize) -> &[u8];
}

/// Chunks to write, of lengths as in [`Chunks`].
pub trait ChunksMut: Chunks {
    /// All chunks at once, ascending, so that some can be read while others are written.
    fn chunks_mut(&mut self) -> impl Iterator<Item = &mut [u8]>;
}

/// A buffer cut into chunks.
#[derive(Debug, Clone, Copy)]
pub struct Chunked<'b> {
    bytes: &'b [u8],
    chunk_bytes: usize,
    stride_bytes: usize,
}

/// A buffer cut into chunks that may be written.
#[derive(Debug)]
pub struct ChunkedMut<'b> {
    bytes: &'b mut [u8],
    chunk_bytes: usize,
    stride_bytes: usize,
}

/// Chunks without bytes or that overlap. The caller's fault.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[error(
    "chunks of {chunk_bytes} bytes every {stride_bytes} bytes: \
     use at least 1 byte and a distance of at least a chunk"
)]
pub struct StrideError {
    /// Bytes per chunk.
    pub chunk_bytes: usize,
    /// Bytes from the start of one chunk to the start of the next.
    pub stride_bytes: usize,
}

impl<'b> Chunked<'b> {
    /// Chunks of `chunk_bytes` one after the other; the last may be shorter.
    pub fn new(bytes: &'b [u8], chunk_bytes: usize) -> Result<Self, StrideError> {
        Self::with_stride(bytes, chunk_bytes, chunk_bytes)
    }

    /// Chunks of `chunk_bytes` that start every `stride_bytes`. The bytes between them are not used:
    /// `with_stride(&buffer[offset..], part, chunk)` is a part of each chunk.
    pub fn with_stride(
        bytes: &'b [u8],
        chunk_bytes: usize,
        stride_bytes: usize,
    ) -> Result<Self, StrideError> {
        check(chunk_bytes, stride_bytes)?;
        Ok(Self { bytes, chunk_bytes, stride_bytes })
    }
}

impl<'b> ChunkedMut<'b> {
    /// As [`Chunked::new`].
    pub fn new(bytes: &'b mut [u8], chunk_bytes: usize) -> Result<Self, StrideError> {
        Self::with_stride(bytes, chunk_bytes, chunk_bytes)
    }

    /// As [`Chunked::with_stride`].
    pub fn with_stride(
        bytes: &'b mut [u8],
        chunk_bytes: usize,
        stride_bytes: usize,
    ) -> Result<Self, StrideError> {
        check(chunk_bytes, stride_bytes)?;
        Ok(Self { bytes, chunk_bytes, stride_bytes })
    }
}

fn check(chunk_bytes: usize, stride_bytes: usize) -> Result<(), StrideError> {
    if chunk_bytes == 0 || stride_bytes < chunk_bytes {
        return Err(StrideError { chunk_bytes, stride_bytes });
    }
    Ok(())
}

/// The chunk at `index` of a buffer; `None` if it starts past the end.
fn cut(bytes: &[u8], index: usize, chunk_bytes: usize, stride_bytes: usize) -> Option<&[u8]> {
    let rest = bytes.get(index.checked_mul(stride_bytes)?..)?;
    (!rest.is_empty()).then(|| &rest[..chunk_bytes.min(rest.len())])
}

impl Chunks for Chunked<'_> {
    fn count(&self) -> usize {
        self.bytes.len().div_ceil(self.stride_bytes)
    }

    fn chunk(&self, index: usize) -> &[u8] {
        cut(self.bytes, index, self.chunk_bytes, self.stride_bytes).expect("index below the count")
    }
}

impl Chunks for ChunkedMut<'_> {
    fn count(&self) -> usize {
        self.bytes.len().div_ceil(self.stride_bytes)
    }

    fn chunk(&self, index: usize) -> &[u8] {
        cut(self.bytes, index, self.chunk_bytes, self.stride_bytes).expect("index below the count")
    }
}

impl ChunksMut for ChunkedMut<'_> {
    fn chunks_mut(&mut self) -> impl Iterator<Item = &mut [u8]> {
        let chunk_bytes = self.chunk_bytes;
        self.bytes.chunks_mut(self.stride_bytes).map(move |chunk| {
            let len = chunk_bytes.min(chunk.len());
            &mut chunk[..len]
        })
    }
}

impl<T: AsRef<[u8]>> Chunks for [T] {
    fn count(&self) -> usize {
        self.len()
    }

    fn chunk(&self, index: usize) -> &[u8] {
        self[index].as_ref()
    }
}

impl<T: AsRef<[u8]> + AsMut<[u8]>> ChunksMut for [T] {
    fn chunks_mut(&mut self) -> impl Iterator<Item = &mut [u8]> {
        self.iter_mut().map(AsMut::as_mut)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_last_chunk_is_what_is_left() {
        let bytes: Vec<u8> = (0..10).collect();
        let chunks = Chunked::new(&bytes, 4).unwrap();
        assert_eq!(chunks.count(), 3);
        assert_eq!(chunks.chunk(1), [4, 5, 6, 7]);
        assert_eq!(chunks.chunk(2), [8, 9]);
        assert_eq!(Chunked::new(&[], 4).unwrap().count(), 0);
    }

    #[test]
    fn a_stride_leaves_out_what_is_between() {
        let mut bytes: Vec<u8> = (0..10).collect();
        let chunks = Chunked::with_stride(&bytes[1..], 2, 4).unwrap();
        assert_eq!(chunks.count(), 3);
        assert_eq!(chunks.chunk(0), [1, 2]);
        assert_eq!(chunks.chunk(2), [9]);
        let mut chunks = ChunkedMut::with_stride(&mut bytes[1..], 2, 4).unwrap();
        assert_eq!((chunks.count(), chunks.chunk(1)), (3, &[5, 6][..]));
        chunks.chunks_mut().for_each(|chunk| chunk.fill(0xff));
        assert_eq!(bytes, [0, 0xff, 0xff, 3, 4, 0xff, 0xff, 7, 8, 0xff]);
    }

    #[test]
    fn chunks_that_overlap_are_refused() {
        let error = Chunked::with_stride(&[], 4, 3).unwrap_err();
        assert_eq!(error, StrideError { chunk_bytes: 4, stride_bytes: 3 });
        assert!(ChunkedMut::new(&mut [], 0).is_err());
    }
}
