//! Shared codecs: all queue pairs of a process with the same code share one. Its tables do not change and
//! take up to some tens of KiB (32+8 without GFNI: 16), more than the rest of a queue pair.
//!
//! Invariant: the list keeps no codec alive, and has at most as many entries as codecs were in use when it
//! was last added to.

use crate::code::Code;
use crate::codec::Codec;
use crate::engine::Engine;
use std::sync::{Arc, Mutex, MutexGuard, TryLockError, Weak};

static CODECS: Mutex<Vec<Weak<Codec>>> = Mutex::new(Vec::new());

impl Codec {
    /// The codec of a code on an engine, shared in this process while it is in use.
    pub fn shared(code: Code, engine: Engine) -> Arc<Self> {
        let Some(mut codecs) = list() else { return Arc::new(Self::with_engine(code, engine)) };
        let mut in_use = codecs.iter().filter_map(Weak::upgrade);
        if let Some(codec) = in_use.find(|codec| codec.code == code && codec.engine == engine) {
            return codec;
        }
        drop(in_use);
        let codec = Arc::new(Self::with_engine(code, engine));
        codecs.retain(|codec| codec.strong_count() > 0);
        codecs.push(Arc::downgrade(&codec));
        codec
    }
}

/// Locks the list; `None` if it stays locked. A forked child may inherit the lock from a thread that does
/// not exist there; its codecs are then not shared.
fn list() -> Option<MutexGuard<'static, Vec<Weak<Codec>>>> {
    /// Far more than a lock holder needs, even if it waits for a core.
    const TRIES_MAX: u32 = 1000;
    for _ in 0..TRIES_MAX {
        match CODECS.try_lock() {
            Ok(codecs) => return Some(codecs),
            // The list is consistent at any time, also after a panic.
            Err(TryLockError::Poisoned(poisoned)) => return Some(poisoned.into_inner()),
            Err(TryLockError::WouldBlock) => std::thread::yield_now(),
        }
    }
    None
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::engine::EngineKind;

    #[test]
    fn a_codec_is_one_for_all_as_long_as_it_is_in_use() {
        let engines =
            [EngineKind::Naive, EngineKind::Portable].map(|kind| Engine::new(kind).unwrap());
        // No other test of this crate asks for a codec that is shared.
        let codes = [Code::mds(31, 7).unwrap(), Code::xor(31, 7).unwrap()];
        let all = || codes.map(|code| engines.map(|engine| Codec::shared(code, engine)));
        let (first, again) = (all(), all());
        for (first, again) in first.as_flattened().iter().zip(again.as_flattened()) {
            assert!(Arc::ptr_eq(first, again));
        }
        for (codecs, code) in first.iter().zip(codes) {
            for (codec, engine) in codecs.iter().zip(engines) {
                assert_eq!((codec.code(), codec.engine()), (code, engine));
            }
        }
        let kept = Arc::downgrade(&first[0][0]);
        drop((first, again));
        assert!(kept.upgrade().is_none(), "nobody uses it any more");
        Codec::shared(codes[0], engines[0]);
        assert_eq!(CODECS.lock().unwrap().len(), 1, "what nobody uses is off the list");
    }
}
