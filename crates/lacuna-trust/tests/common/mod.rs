//! Two sessions and the streams between them, in memory.

// Each test file uses a part.
#![allow(dead_code)]

use lacuna_trust::{Session, SessionError, Trust};
use std::collections::VecDeque;
use std::io::{self, Read, Write};

/// One end of a stream in memory.
pub(crate) struct Stream {
    pub(crate) came: VecDeque<u8>,
    pub(crate) said: Vec<u8>,
    pub(crate) is_cut: bool,
    /// The most that is read at once.
    pub(crate) piece_bytes: usize,
}

impl Default for Stream {
    /// In small pieces, as TCP may do.
    fn default() -> Self {
        Self { came: VecDeque::new(), said: Vec::new(), is_cut: false, piece_bytes: 100 }
    }
}

impl Read for Stream {
    fn read(&mut self, bytes: &mut [u8]) -> io::Result<usize> {
        if self.came.is_empty() {
            return if self.is_cut { Ok(0) } else { Err(io::ErrorKind::WouldBlock.into()) };
        }
        let count = self.came.len().min(bytes.len()).min(self.piece_bytes);
        self.came.drain(..count).zip(bytes).for_each(|(from, to)| *to = from);
        Ok(count)
    }
}

impl Write for Stream {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        self.said.extend(bytes);
        Ok(bytes.len())
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

pub(crate) struct Pair {
    pub(crate) sessions: [Session; 2],
    pub(crate) streams: [Stream; 2],
}

impl Pair {
    pub(crate) fn new(connecting: &Trust, accepting: &Trust) -> Self {
        let sessions =
            [Session::connecting(connecting).unwrap(), Session::accepting(accepting).unwrap()];
        Self { sessions, streams: Default::default() }
    }

    /// Moves bytes until nothing moves; what either end found wrong.
    pub(crate) fn run(&mut self) -> [Option<SessionError>; 2] {
        let mut found = [None, None];
        for _ in 0..20 {
            for (end, found) in found.iter_mut().enumerate() {
                if found.is_none() {
                    *found = self.step(end);
                }
            }
        }
        found
    }

    /// Has one end take what came and say what it has to say; what it found wrong.
    pub(crate) fn step(&mut self, end: usize) -> Option<SessionError> {
        let found = self.sessions[end].pump(&mut self.streams[end]).err();
        let said = std::mem::take(&mut self.streams[end].said);
        self.streams[1 - end].came.extend(said);
        found
    }
}

pub(crate) fn texts(found: &[Option<SessionError>; 2]) -> [String; 2] {
    found.each_ref().map(|error| error.as_ref().map_or_else(String::new, ToString::to_string))
}
