//! Erasure coding, drawn from the losses of single chunks: which data and parity chunks are lost,
//! which submessages that leaves beyond repair, and the repeats of those.

use super::Sample;
use super::losses::Link;
use super::repeats::Repeats;
use crate::{Code, CodeKind, EcConfig, ErasureCoding, ModelError, Random, Transfer};

/// Draws what [`ErasureCoding`] computes.
#[derive(Debug, Clone)]
pub struct CodedSampler {
    transfer: Transfer,
    config: EcConfig,
    repeats: Repeats,
}

impl CodedSampler {
    /// A message with this code.
    ///
    /// # Errors
    ///
    /// As [`ErasureCoding::new`].
    pub fn new(transfer: &Transfer, config: EcConfig) -> Result<Self, ModelError> {
        ErasureCoding::new(transfer, config)?;
        let config = EcConfig { code: config.code.shortened_to(transfer.chunks()), ..config };
        let repeats = Repeats::new(transfer, config.fallback);
        Ok(Self { transfer: *transfer, config, repeats })
    }

    /// The code of a submessage, and how many chunks come before its data and parity.
    fn submessage(&self, index: u64) -> (Code, u64, u64) {
        let code = self.config.code;
        let (data, parity) = (index * u64::from(code.k()), index * u64::from(code.m()));
        (code.shortened_to(self.transfer.chunks() - data), data, parity)
    }
}

impl Sample for CodedSampler {
    fn sample_s(&self, random: &mut Random) -> f64 {
        let chunks = self.transfer.chunks();
        let (k, m) = (u64::from(self.config.code.k()), u64::from(self.config.code.m()));
        let submessages = chunks.div_ceil(k);
        let (last, _, parity_before) = self.submessage(submessages - 1);
        let parity = parity_before + u64::from(last.m());

        let (mut data_lost, mut parity_lost) = (Vec::new(), Vec::new());
        Link::new(self.transfer.loss(), random)
            .pass_all(chunks, random, |chunk| data_lost.push(chunk));
        // Its parity follows a submessage's data at a distance: the link has forgotten.
        Link::new(self.transfer.loss(), random)
            .pass_all(parity, random, |chunk| parity_lost.push(chunk));

        let (mut failed_chunks, mut parity_needed) = (0, 0);
        let (mut data, mut lost_parity) = (&data_lost[..], &parity_lost[..]);
        while let Some(first) = data.first() {
            let index = first / k;
            let (code, data_before, parity_before) = self.submessage(index);
            let of_this = data.partition_point(|chunk| chunk / k == index);
            let skipped = lost_parity.partition_point(|chunk| *chunk < parity_before);
            lost_parity = &lost_parity[skipped..];
            let parity_end = parity_before + u64::from(code.m());
            let parity_of_this = lost_parity.partition_point(|chunk| *chunk < parity_end);
            match needed(
                code,
                data[..of_this].iter().map(|chunk| (chunk - data_before) as u32),
                lost_parity[..parity_of_this].iter().map(|chunk| (chunk - parity_before) as u32),
            ) {
                Some(needed) => parity_needed = parity_before + u64::from(needed),
                None => failed_chunks += u64::from(code.k()),
            }
            data = &data[of_this..];
        }
        debug_assert!(m >= u64::from(last.m()), "a short submessage has no more parity");

        let (chunk_s, rtt_s) = (self.transfer.chunk_s(), self.transfer.rtt_s());
        let end_s = (chunks + parity) as f64 * chunk_s + rtt_s;
        if failed_chunks > 0 {
            let penalty_s = (1.0 + self.config.beta) * rtt_s;
            end_s + penalty_s + self.repeats.slowest_s(failed_chunks, random)
        } else if self.config.early_ack {
            end_s - (parity - parity_needed) as f64 * chunk_s
        } else {
            end_s
        }
    }
}

/// How many parity chunks, from the first, repair these losses; `None` if all do not.
fn needed(
    code: Code,
    data_lost: impl Iterator<Item = u32>,
    parity_lost: impl Iterator<Item = u32>,
) -> Option<u32> {
    let parity_lost: Vec<u32> = parity_lost.collect();
    match code.kind() {
        CodeKind::Mds => {
            let missing = data_lost.count();
            if missing == 0 {
                return Some(0);
            }
            let mut came = (0..code.m()).filter(|parity| !parity_lost.contains(parity));
            came.nth(missing - 1).map(|parity| parity + 1)
        }
        CodeKind::Xor => {
            let mut groups: Vec<u32> = data_lost.map(|chunk| chunk % code.m()).collect();
            groups.sort_unstable();
            let twice = groups.windows(2).any(|pair| pair[0] == pair[1]);
            if twice || groups.iter().any(|group| parity_lost.contains(group)) {
                return None;
            }
            Some(groups.last().map_or(0, |group| group + 1))
        }
    }
}
