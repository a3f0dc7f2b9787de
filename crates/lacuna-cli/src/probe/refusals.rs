//! Why and how often this host refused packets: losses of this host and not of the path.

use crate::failure::Failure;
use crate::units::show_count;
use lacuna::datapath::SendError;
use serde::Serialize;
use std::io::ErrorKind;

/// Most distinct errors; further ones count as the last.
const KINDS_MAX: usize = 8;

/// Refused packets by error.
#[derive(Debug, Clone, Default, Serialize)]
#[serde(transparent)]
pub(super) struct Refusals(Vec<Refusal>);

#[derive(Debug, Clone, Serialize)]
struct Refusal {
    error: String,
    packets: u64,
    /// There is no route, rather than a rule of this host.
    #[serde(skip)]
    is_no_way: bool,
}

impl Refusals {
    /// A packet was refused with this error.
    pub(super) fn add(&mut self, error: &SendError) {
        let (text, is_no_way) = match error {
            SendError::Io(error) => (error.to_string(), is_no_way(error.kind())),
            // One entry for all sizes: the message is the same.
            SendError::PacketTooLarge { .. } => ("larger than the path takes".to_owned(), false),
        };
        // Search backwards: mostly the newest error repeats.
        match self.0.iter().rposition(|refusal| refusal.error == text) {
            Some(at) => {
                self.0[at].packets += 1;
                let newest = self.0.remove(at);
                self.0.push(newest);
            }
            None if self.0.len() == KINDS_MAX => self.0[KINDS_MAX - 1].packets += 1,
            None => self.0.push(Refusal { error: text, packets: 1, is_no_way }),
        }
    }

    /// All packets that were refused.
    pub(super) fn packets(&self) -> u64 {
        self.0.iter().map(|refusal| refusal.packets).sum()
    }

    /// The newest error.
    pub(super) fn newest(&self) -> Option<&str> {
        self.0.last().map(|refusal| &*refusal.error)
    }

    /// The failure of a host that can send nothing, with `text`, blamed by the newest error.
    pub(super) fn failure(&self, text: String) -> Failure {
        match self.0.last() {
            Some(refusal) if !refusal.is_no_way => Failure::Local(text),
            _ => Failure::Network(text),
        }
    }

    /// `this host refused 12 packets: Operation not permitted`; `None` if there are none.
    pub(super) fn describe(&self) -> Option<String> {
        let errors: Vec<String> = match &self.0[..] {
            [] => return None,
            [only] => vec![only.error.clone()],
            all => all.iter().map(|one| format!("{} of them {}", one.packets, one.error)).collect(),
        };
        let packets = show_count(self.packets(), "packet");
        Some(format!("this host refused {packets}: {}", errors.join(", ")))
    }
}

fn is_no_way(kind: ErrorKind) -> bool {
    matches!(
        kind,
        ErrorKind::NetworkUnreachable | ErrorKind::HostUnreachable | ErrorKind::NetworkDown
    )
}

#[cfg(all(test, unix))]
mod tests {
    use super::*;
    use std::io;

    #[test]
    fn each_error_is_counted_and_the_newest_decides_whose_fault_it_is() {
        let mut refusals = Refusals::default();
        let mut add = |code| refusals.add(&SendError::Io(io::Error::from_raw_os_error(code)));
        // EPERM, ENETUNREACH of Linux and others.
        let (not_permitted, unreachable) = (1, io::ErrorKind::NetworkUnreachable);
        add(not_permitted);
        add(not_permitted);
        assert_eq!(refusals.describe().unwrap().matches('2').count(), 1);
        assert!(matches!(refusals.failure(String::new()), Failure::Local(_)));
        refusals.add(&SendError::Io(unreachable.into()));
        assert!(matches!(refusals.failure(String::new()), Failure::Network(_)));
        let text = refusals.describe().unwrap();
        assert!(text.starts_with("this host refused 3 packets: 2 of them "), "{text}");
        for bytes in 0..100 {
            refusals.add(&SendError::PacketTooLarge { packet_bytes: bytes });
        }
        assert_eq!((refusals.packets(), refusals.0.len()), (103, 3));
    }
}
