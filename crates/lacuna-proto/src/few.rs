//! A slice that mostly has one element: something for each channel of a queue pair, or for
//! each slot of a receive.
//!
//! The one element then lies in its owner, not in a heap piece of its own: with a thousand
//! queue pairs none is in a cache when its turn comes, and each piece is a line and a page to
//! wait for.

use std::iter::Chain;
use std::ops::{Deref, DerefMut};
use std::{option, slice, vec};

/// See the module's text. Its length is fixed.
#[derive(Debug, Clone)]
pub struct Few<T>(Elements<T>);

#[derive(Debug, Clone)]
enum Elements<T> {
    One([T; 1]),
    Several(Box<[T]>),
}

impl<T> FromIterator<T> for Few<T> {
    fn from_iter<I: IntoIterator<Item = T>>(elements: I) -> Self {
        let mut elements = elements.into_iter();
        Self(match (elements.next(), elements.next()) {
            (Some(only), None) => Elements::One([only]),
            (first, second) => {
                Elements::Several(first.into_iter().chain(second).chain(elements).collect())
            }
        })
    }
}

impl<T> IntoIterator for Few<T> {
    type Item = T;
    type IntoIter = Chain<option::IntoIter<T>, vec::IntoIter<T>>;

    fn into_iter(self) -> Self::IntoIter {
        let (one, several) = match self.0 {
            Elements::One([one]) => (Some(one), Vec::new()),
            Elements::Several(several) => (None, several.into_vec()),
        };
        one.into_iter().chain(several)
    }
}

impl<'f, T> IntoIterator for &'f Few<T> {
    type Item = &'f T;
    type IntoIter = slice::Iter<'f, T>;

    fn into_iter(self) -> Self::IntoIter {
        self.iter()
    }
}

impl<T> Deref for Few<T> {
    type Target = [T];

    #[inline]
    fn deref(&self) -> &[T] {
        match &self.0 {
            Elements::One(one) => one,
            Elements::Several(several) => several,
        }
    }
}

impl<T> DerefMut for Few<T> {
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
    fn every_number_of_elements_is_a_slice() {
        for count in [0, 1, 2, 32] {
            let mut few: Few<usize> = (0..count).collect();
            for (index, element) in few.iter_mut().enumerate() {
                assert_eq!(*element, index);
                *element += 1;
            }
            assert_eq!(few.len(), count);
            assert!(few.iter().copied().eq(1..=count));
            assert!(few.into_iter().eq(1..=count));
        }
    }

    #[test]
    fn a_single_element_lies_in_its_owner() {
        let one: Few<[u64; 8]> = [[7; 8]].into_iter().collect();
        let (start, element) = (std::ptr::from_ref(&one).addr(), one.as_ptr().addr());
        assert!((start..start + size_of_val(&one)).contains(&element));
    }
}
