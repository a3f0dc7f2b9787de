//! Reduction kernels: two ranges of elements become one, at the speed of memory.
//!
//! The arithmetic is in plain loops (`number`, `loops`) that compilers vectorise; `vector` compiles them
//! for wider instructions, and the best that the processor has is chosen once. All engines give the same
//! bits: no sum is taken in another order, no product fused with a sum. Slices need no alignment.

mod loops;
mod number;
#[cfg(test)]
mod tests;
#[cfg(target_arch = "x86_64")]
mod vector;

use crate::element::{Element, Op};
use loops::Work;
use std::sync::OnceLock;

/// The engines by name, slowest first.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum EngineKind {
    /// What every processor of the target has.
    Portable,
    /// 32 bytes at a time.
    Avx2,
    /// 64 bytes at a time.
    Avx512,
}

impl EngineKind {
    /// All of them, slowest first.
    pub const ALL: [Self; 3] = [Self::Portable, Self::Avx2, Self::Avx512];
}

/// An engine that this processor can run.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Engine(Inner);

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Inner {
    Portable,
    #[cfg(target_arch = "x86_64")]
    Avx2(vector::Avx2),
    #[cfg(target_arch = "x86_64")]
    Avx512(vector::Avx512),
}

impl Engine {
    /// The engine; `None` if this processor lacks its instructions.
    #[must_use]
    pub fn new(kind: EngineKind) -> Option<Self> {
        match kind {
            EngineKind::Portable => Some(Self(Inner::Portable)),
            #[cfg(target_arch = "x86_64")]
            EngineKind::Avx2 => vector::Avx2::new().map(|engine| Self(Inner::Avx2(engine))),
            #[cfg(target_arch = "x86_64")]
            EngineKind::Avx512 => vector::Avx512::new().map(|engine| Self(Inner::Avx512(engine))),
            #[cfg(not(target_arch = "x86_64"))]
            EngineKind::Avx2 | EngineKind::Avx512 => None,
        }
    }

    /// The fastest that this processor can run.
    #[must_use]
    pub fn best() -> Self {
        static BEST: OnceLock<Engine> = OnceLock::new();
        *BEST.get_or_init(|| {
            let mut kinds = EngineKind::ALL.into_iter().rev();
            kinds.find_map(Self::new).unwrap_or(Self(Inner::Portable))
        })
    }

    /// `dst = op(dst, src)`; an average is a sum here, see [`Engine::divide`].
    ///
    /// # Panics
    /// If the lengths differ, or are no multiple of the element's.
    pub fn reduce_into(self, op: Op, element: Element, dst: &mut [u8], src: &[u8]) {
        check(element, dst.len(), src.len());
        self.work(op, element, Work::Into(dst, src));
    }

    /// `to = op(a, b)`.
    ///
    /// # Panics
    /// As [`Engine::reduce_into`].
    pub fn reduce(self, op: Op, element: Element, to: &mut [u8], a: &[u8], b: &[u8]) {
        check(element, to.len(), a.len());
        check(element, to.len(), b.len());
        self.work(op, element, Work::Apart(to, a, b));
    }

    /// Divides by a number of contributions; by 0 changes nothing, as there is nothing.
    ///
    /// # Panics
    /// As [`Engine::reduce_into`].
    pub fn divide(self, element: Element, data: &mut [u8], by: u32) {
        check(element, data.len(), data.len());
        if by > 1 {
            self.work(Op::Sum, element, Work::Divide(data, by));
        }
    }

    fn work(self, op: Op, element: Element, work: Work<'_>) {
        match self.0 {
            Inner::Portable => loops::work(op, element, work),
            #[cfg(target_arch = "x86_64")]
            Inner::Avx2(engine) => engine.work(op, element, work),
            #[cfg(target_arch = "x86_64")]
            Inner::Avx512(engine) => engine.work(op, element, work),
        }
    }
}

fn check(element: Element, dst_bytes: usize, src_bytes: usize) {
    assert_eq!(dst_bytes, src_bytes, "bytes to reduce, bytes to reduce with");
    assert!(dst_bytes.is_multiple_of(element.size_bytes()), "{dst_bytes} bytes of {element}");
}

/// `dst = op(dst, src)` by the best engine.
///
/// # Panics
/// As [`Engine::reduce_into`].
pub fn reduce_into(op: Op, element: Element, dst: &mut [u8], src: &[u8]) {
    Engine::best().reduce_into(op, element, dst, src);
}

/// A small number as an element, for tests.
#[cfg(test)]
pub(crate) fn encode(element: Element, value: i8) -> Vec<u8> {
    let wide = f32::from(value);
    match element {
        Element::F16 => number::F16::from_f32(wide).0.to_le_bytes().to_vec(),
        Element::Bf16 => number::Bf16::from_f32(wide).0.to_le_bytes().to_vec(),
        Element::F32 => wide.to_le_bytes().to_vec(),
        Element::F64 => f64::from(value).to_le_bytes().to_vec(),
        _ => i64::from(value).to_le_bytes()[..element.size_bytes()].to_vec(),
    }
}
