//! What the figures have in common: 400 Gbit/s, 25 ms for 3750 km, MDS (32, 8), beta = 1, timeouts
//! of 3 RTT, fallback by timeouts (5.1.1, 5.2), and the chunk under test.

use crate::LossPer;
use crate::error::FigureError;
use lacuna_model::{
    Code, Completion, EcConfig, ErasureCoding, Framing, Loss, Path, RepairTiming, SelectiveRepeat,
    Transfer,
};
use lacuna_units as units;

/// The paper's link.
pub(super) const RATE_BITS_PER_S: f64 = 400e9;
/// Its round-trip time over [`KM`].
pub(super) const RTT_S: f64 = 0.025;
/// Its length. 25 ms for 3750 km assumes light in vacuum; in fibre it takes half as long again.
pub(super) const KM: f64 = 3750.0;
/// Payload of its packets.
pub(super) const PACKET_BYTES: u64 = 4096;

pub(super) const MIB: u64 = 1 << 20;
pub(super) const GIB: u64 = 1 << 30;

/// Assumptions behind the figures.
#[derive(Debug, Clone, Copy)]
pub(super) struct Setup {
    chunk_bytes: u64,
    loss_per: LossPer,
    mds: Code,
    xor: Code,
}

/// The schemes of the figures.
#[derive(Debug, Clone, Copy, PartialEq)]
pub(super) enum Scheme {
    Timeout,
    Nack,
    Code(Code),
}

impl Setup {
    pub(super) fn new(chunk_bytes: u64, loss_per: LossPer) -> Result<Self, FigureError> {
        Ok(Self { chunk_bytes, loss_per, mds: Code::mds(32, 8)?, xor: Code::xor(32, 8)? })
    }

    pub(super) fn mds(&self) -> Scheme {
        Scheme::Code(self.mds)
    }

    pub(super) fn xor(&self) -> Scheme {
        Scheme::Code(self.xor)
    }

    /// For a title.
    pub(super) fn describe(&self) -> String {
        let per = match self.loss_per {
            LossPer::Chunk => "chunk",
            LossPer::Packet => "packet of 4 KiB",
        };
        format!("chunks of {}, drop rate per {per}", units::show_bytes(self.chunk_bytes))
    }

    /// Message size with one lost chunk on average, `1 / P` chunks.
    pub(super) fn one_loss_bytes(&self, loss: f64) -> Result<f64, FigureError> {
        let chunk = self.transfer(self.chunk_bytes, loss)?;
        Ok(self.chunk_bytes as f64 / chunk.loss().probability())
    }

    pub(super) fn transfer(&self, size: u64, loss: f64) -> Result<Transfer, FigureError> {
        self.transfer_on(RATE_BITS_PER_S, RTT_S, size, loss)
    }

    pub(super) fn transfer_on(
        &self,
        rate_bits_per_s: f64,
        rtt_s: f64,
        size: u64,
        loss: f64,
    ) -> Result<Transfer, FigureError> {
        let loss = match self.loss_per {
            LossPer::Chunk => Loss::PerChunk(loss),
            LossPer::Packet => Loss::PerPacket(loss),
        };
        let path = Path { rate_bits_per_s, rtt_s, loss };
        let framing = Framing {
            chunk_bytes: self.chunk_bytes,
            packet_bytes: PACKET_BYTES,
            overhead_bytes: 0,
        };
        Ok(Transfer::new(&path, &framing, size)?)
    }
}

/// Mean and 99.9th percentile of a scheme.
pub(super) fn times_s(scheme: Scheme, transfer: &Transfer) -> Result<(f64, f64), FigureError> {
    let both = |model: &dyn Completion| (model.mean_s(), model.quantile_s(0.999));
    Ok(match scheme {
        Scheme::Timeout => both(&SelectiveRepeat::new(transfer, RepairTiming::TIMEOUT)?),
        Scheme::Nack => both(&SelectiveRepeat::new(transfer, RepairTiming::NACK)?),
        Scheme::Code(code) => both(&coded(code, transfer)?),
    })
}

pub(super) fn coded(code: Code, transfer: &Transfer) -> Result<ErasureCoding, FigureError> {
    Ok(ErasureCoding::new(transfer, EcConfig::paper(code))?)
}

/// Values from `low` to `high` by a constant factor, both ends included.
pub(super) fn log_steps(low: f64, high: f64, steps: u32) -> impl Iterator<Item = f64> {
    let factor = (high / low).ln() / f64::from(steps);
    (0..=steps).map(move |i| low * (factor * f64::from(i)).exp())
}
