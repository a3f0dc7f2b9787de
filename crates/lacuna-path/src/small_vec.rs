//! A vector of fixed length whose first element is stored inline while it is the only one.
//!
//! Most queue pairs have one channel, and most receives take one slot. Their element then lies in
//! the owner and not in a heap allocation of its own: with a thousand queue pairs none is in a cache
//! when its turn comes, and each allocation costs a cache miss and often a page walk.
//!
//! The crate `smallvec` (1.16, with `union`) is not used because its vector can grow. It therefore
//! stores a capacity, and every owner would be 8 bytes larger: 24 bytes for 16 around an `Arc`, 176
//! for 168 around a channel's books.

use std::iter::Chain;
use std::ops::{Deref, DerefMut};
use std::{option, slice, vec};

/// A boxed slice that stores a single element inline.
#[derive(Debug, Clone)]
pub struct SmallVec<T>(Storage<T>);

#[derive(Debug, Clone)]
enum Storage<T> {
    Inline([T; 1]),
    Boxed(Box<[T]>),
}

impl<T> FromIterator<T> for SmallVec<T> {
    fn from_iter<I: IntoIterator<Item = T>>(elements: I) -> Self {
        let mut elements = elements.into_iter();
        Self(match (elements.next(), elements.next()) {
            (Some(only), None) => Storage::Inline([only]),
            (first, second) => {
                Storage::Boxed(first.into_iter().chain(second).chain(elements).collect())
            }
        })
    }
}

impl<T> IntoIterator for SmallVec<T> {
    type Item = T;
    type IntoIter = Chain<option::IntoIter<T>, vec::IntoIter<T>>;

    fn into_iter(self) -> Self::IntoIter {
        let (one, several) = match self.0 {
            Storage::Inline([one]) => (Some(one), Vec::new()),
            Storage::Boxed(several) => (None, several.into_vec()),
        };
        one.into_iter().chain(several)
    }
}

impl<'f, T> IntoIterator for &'f SmallVec<T> {
    type Item = &'f T;
    type IntoIter = slice::Iter<'f, T>;

    fn into_iter(self) -> Self::IntoIter {
        self.iter()
    }
}

impl<T> Deref for SmallVec<T> {
    type Target = [T];

    #[inline]
    fn deref(&self) -> &[T] {
        match &self.0 {
            Storage::Inline(one) => one,
            Storage::Boxed(several) => several,
        }
    }
}

impl<T> DerefMut for SmallVec<T> {
    #[inline]
    fn deref_mut(&mut self) -> &mut [T] {
        match &mut self.0 {
            Storage::Inline(one) => one,
            Storage::Boxed(several) => several,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_number_of_elements_is_a_slice() {
        for count in [0, 1, 2, 32] {
            let mut elements: SmallVec<usize> = (0..count).collect();
            for (index, element) in elements.iter_mut().enumerate() {
                assert_eq!(*element, index);
                *element += 1;
            }
            assert_eq!(elements.len(), count);
            assert!(elements.iter().copied().eq(1..=count));
            assert!(elements.into_iter().eq(1..=count));
        }
    }

    #[test]
    fn a_single_element_lies_in_its_owner() {
        let one: SmallVec<[u64; 8]> = [[7; 8]].into_iter().collect();
        let (start, element) = (std::ptr::from_ref(&one).addr(), one.as_ptr().addr());
        assert!((start..start + size_of_val(&one)).contains(&element));
    }

    #[test]
    fn an_owner_pays_for_no_capacity() {
        assert_eq!(size_of::<SmallVec<std::sync::Arc<u8>>>(), 16);
        assert_eq!(size_of::<SmallVec<(bool, [u64; 20])>>(), size_of::<(bool, [u64; 20])>());
    }
}
