//! Tensors as bytes: the transform takes bytes, so that buffers of any alignment will do.

#![allow(unsafe_code)]

/// The bytes of f32 values.
pub fn bytes_of(values: &[f32]) -> &[u8] {
    // SAFETY: the same memory; f32 has no padding, and a byte needs no alignment.
    unsafe { std::slice::from_raw_parts(values.as_ptr().cast(), size_of_val(values)) }
}

/// The bytes of f32 values, to be written.
pub fn bytes_of_mut(values: &mut [f32]) -> &mut [u8] {
    // SAFETY: as above, and any bytes are an f32.
    unsafe { std::slice::from_raw_parts_mut(values.as_mut_ptr().cast(), size_of_val(values)) }
}
