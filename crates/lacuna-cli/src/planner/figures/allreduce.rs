//! Figure 13: ring allreduce over several sites, 99.9th percentile, EC's speedup over SR RTO.

use super::setup::{MIB, Setup};
use super::{Csv, Figure, Headline};
use crate::failure::Failure;
use crate::planner::chart::{Axis, Chart, Drawing, Legend, Series, power};
use crate::units;
use lacuna_model::collective::{ring_allreduce, ring_stages};
use lacuna_model::monte_carlo::{RepeatSampler, SubmessageSampler};
use lacuna_model::{Code, Completion, EcConfig, ErasureCoding, Random, RepairTiming};
use std::path::Path;

/// A fallback this rare in a whole allreduce is not seen at p99.9.
const UNSEEN: f64 = 1e-5;

pub(super) fn figure_13(
    setup: &Setup,
    svg: &Path,
    trials: usize,
    seed: u64,
) -> Result<Figure, Failure> {
    let mut csv = Csv::new("panel,buffer_bytes,sites,loss,sr_p999_s,ec_p999_s,speedup");
    let losses: Vec<f64> = (-12..=-4).map(|step| 10f64.powf(f64::from(step) / 2.0)).collect();
    let mut line = |panel: &str, name: String, buffer: u64, sites: u32| {
        let mut points = Vec::new();
        for loss in &losses {
            let (sr_s, ec_s) = tails_s(setup, buffer, sites, *loss, trials, seed)?;
            csv.row(
                &[panel, &buffer.to_string(), &sites.to_string()],
                &[*loss, sr_s, ec_s, sr_s / ec_s],
            );
            points.push((*loss, sr_s / ec_s));
        }
        Ok::<Series, Failure>(Series { name, points })
    };
    let mut by_sites = Vec::new();
    for sites in [2, 4, 6, 8] {
        by_sites.push(line("sites", format!("N = {sites}"), 128 * MIB, sites)?);
    }
    let mut by_buffer = Vec::new();
    for buffer in [8, 32, 128, 512].map(|mib| mib * MIB) {
        by_buffer.push(line("buffer", units::show_bytes(buffer), buffer, 4)?);
    }
    let four = &by_sites[1].points;
    let at = |loss: f64| {
        four.iter()
            .min_by(|a, b| (a.0 / loss).ln().abs().total_cmp(&(b.0 / loss).ln().abs()))
            .map_or(0.0, |point| point.1)
    };
    let headlines = vec![Headline {
        section: "5.3",
        paper: "EC's speedup over SR grows with the drop rate from 3x to more than 6x",
        ours: format!(
            "N = 4, 128 MiB: {:.1}x at 1e-5, {:.1}x at 1e-4, {:.1}x at 1e-3, {:.1}x at 1e-2",
            at(1e-5),
            at(1e-4),
            at(1e-3),
            at(1e-2)
        ),
    }];
    let chart = |title: &str, series| Chart {
        title: title.to_owned(),
        x: Axis::log("drop rate", power),
        y: Axis::linear("SR RTO over EC, p99.9"),
        series,
        legend: Legend::Left,
    };
    let charts = vec![chart("128 MiB", by_sites), chart("N = 4", by_buffer)];
    let title = format!(
        "Figure 13: ring allreduce, 400 Gbit/s, 25 ms, {}, {trials} trials",
        setup.describe()
    );
    Drawing { title, charts, notes: Headline::notes(&headlines) }.write(svg)?;
    Ok(Figure { number: 13, headlines, csv })
}

/// The 99.9th percentiles of SR RTO and EC.
fn tails_s(
    setup: &Setup,
    buffer: u64,
    sites: u32,
    loss: f64,
    trials: usize,
    seed: u64,
) -> Result<(f64, f64), Failure> {
    let transfer = setup.transfer(buffer.div_ceil(u64::from(sites)), loss)?;
    let mut random = Random::new(seed);
    let sr = RepeatSampler::new(&transfer, RepairTiming::TIMEOUT)?;
    let sr_s = ring_allreduce(&sr, sites, trials, &mut random)?.quantile_s(0.999);
    let config = EcConfig::paper(Code::mds(32, 8)?.shortened_to(transfer.chunks()));
    let ec = ErasureCoding::new(&transfer, config)?;
    let stages = f64::from(ring_stages(sites)?);
    let ec_s = if ec.fallback_probability() * stages * f64::from(sites) < UNSEEN {
        stages * ec.quantile_s(0.0)
    } else {
        let ec = SubmessageSampler::new(&transfer, config)?;
        ring_allreduce(&ec, sites, trials, &mut random)?.quantile_s(0.999)
    };
    Ok((sr_s, ec_s))
}
