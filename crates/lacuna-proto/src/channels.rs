//! One of something for each channel of a queue pair.
//!
//! Mostly there is one channel. Its part then lies in its owner, not in a heap piece of
//! its own: with a thousand queue pairs none is in a cache when its turn comes, and each
//! piece is a line and a page to wait for.

use std::ops::{Deref, DerefMut};

/// A slice with an element for each channel.
#[derive(Debug, Clone)]
pub struct Channels<T>(Elements<T>);

#[derive(Debug, Clone)]
enum Elements<T> {
    One([T; 1]),
    Several(Box<[T]>),
}

impl<T> FromIterator<T> for Channels<T> {
    fn from_iter<I: IntoIterator<Item = T>>(elements: I) -> Self {
        let elements = elements.into_iter().collect::<Vec<T>>();
        Self(
            <[T; 1]>::try_from(elements).map_or_else(
                |several| Elements::Several(several.into_boxed_slice()),
                Elements::One,
            ),
        )
    }
}

impl<T> Deref for Channels<T> {
    type Target = [T];

    #[inline]
    fn deref(&self) -> &[T] {
        match &self.0 {
            Elements::One(one) => one,
            Elements::Several(several) => several,
        }
    }
}

impl<T> DerefMut for Channels<T> {
    #[inline]
    fn deref_mut(&mut self) -> &mut [T] {
        match &mut self.0 {
            Elements::One(one) => one,
            Elements::Several(several) => several,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_number_of_channels_is_a_slice() {
        for count in [0, 1, 2, 32] {
            let mut channels: Channels<usize> = (0..count).collect();
            for (index, element) in channels.iter_mut().enumerate() {
                assert_eq!(*element, index);
                *element += 1;
            }
            assert_eq!(channels.len(), count);
            assert!(channels.iter().copied().eq(1..=count));
        }
    }

    #[test]
    fn what_one_channel_has_lies_in_its_owner() {
        let one: Channels<[u64; 8]> = [[7; 8]].into_iter().collect();
        let (start, element) = (std::ptr::from_ref(&one).addr(), one.as_ptr().addr());
        assert!((start..start + size_of_val(&one)).contains(&element));
    }
}
