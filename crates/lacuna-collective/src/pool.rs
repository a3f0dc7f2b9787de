//! Buffers of receives that are over, for the next ones: fresh pages cost more than the copy into them.

/// Buffers that wait, at most.
const KEPT_MAX: usize = 32;
/// And their bytes.
const KEPT_BYTES_MAX: usize = 256 << 20;

/// See the module's text.
#[derive(Debug, Default)]
pub(crate) struct Buffers {
    kept: Vec<Vec<u8>>,
    bytes: usize,
}

impl Buffers {
    /// A buffer of so many bytes, which hold anything.
    pub(crate) fn take(&mut self, bytes: usize) -> Vec<u8> {
        let fits = |buffer: &Vec<u8>| buffer.capacity() >= bytes && buffer.capacity() <= 2 * bytes;
        let Some(at) = self.kept.iter().position(fits) else { return vec![0; bytes] };
        let mut buffer = self.kept.swap_remove(at);
        self.bytes -= buffer.capacity();
        buffer.resize(bytes, 0);
        buffer
    }

    pub(crate) fn give_back(&mut self, buffer: Vec<u8>) {
        if buffer.capacity() > KEPT_BYTES_MAX {
            return;
        }
        while self.kept.len() >= KEPT_MAX || self.bytes + buffer.capacity() > KEPT_BYTES_MAX {
            // The oldest serve nobody.
            self.bytes -= self.kept.remove(0).capacity();
        }
        self.bytes += buffer.capacity();
        self.kept.push(buffer);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_buffer_serves_again_what_it_is_not_too_long_for() {
        let mut buffers = Buffers::default();
        let first = buffers.take(1000);
        let address = first.as_ptr();
        buffers.give_back(first);
        let short = buffers.take(100);
        assert_ne!(short.as_ptr(), address);
        let again = buffers.take(800);
        assert_eq!((again.as_ptr(), again.len()), (address, 800));
        for _ in 0..100 {
            buffers.give_back(vec![0; 16 << 20]);
        }
        assert!(buffers.bytes <= KEPT_BYTES_MAX && buffers.kept.len() <= KEPT_MAX);
    }
}
