//! The Hadamard transform on one core: p = 1,024 beside plain radix 2 compiled for the same processor, in
//! cache and from memory, and the splits of OptiNIC's table 3. Contestants take turns in each round, and a
//! ratio is that of one round.
//!
//! Two plain ones: radix 2 stage by stage, and the same with the first four stages of 16 elements at a time, in
//! a register.
//! Both do the scale with the last stage, and the compiler may use all of the processor's vectors.

use crate::pin;
use crate::run::spread;
use anyhow::{Context as _, Result, ensure};
use lacuna_code::hadamard::{
    Arrived, Element, Engine, Layout, RawBlocks, STRIDE_DEFAULT, Scale, Transform, bytes_of,
    bytes_of_mut,
};
use serde::Serialize;
use std::time::Instant;

/// Elements of a block.
const BLOCK: usize = 1024;

/// How much is transformed.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Effort {
    /// Elements of what comes from memory, and of table 3.
    memory: usize,
    /// How often what is in the cache is transformed.
    turns: usize,
}

impl Effort {
    /// 128 MiB, as in the paper.
    pub(crate) const FULL: Self = Self { memory: 32 << 20, turns: 4000 };
}

/// A contestant's line.
#[derive(Debug, Serialize)]
struct Line {
    what: String,
    unit: &'static str,
    median: f64,
    least: f64,
    most: f64,
}

/// A line of two contestants of the same round.
#[derive(Debug, Serialize)]
struct Ratio {
    ratio: String,
    median: f64,
    least: f64,
    most: f64,
    goal: f64,
    is_met: bool,
}

const LINE_BYTES: usize = 64;
/// In cache: four blocks, which fit the L1 cache. From memory: all.
const CACHED_BLOCKS: usize = 4;
const PLAIN: &str = "radix 2";
const PLAIN_16: &str = "radix 2 after 16 at a time";
const OURS: &str = "ours";

/// Measures everything `rounds` times; prints tables.
pub(crate) fn run(rounds: u32, json: bool, effort: Effort) -> Result<()> {
    ensure!(rounds > 0, "--rounds must be 1 or more");
    pin::this_thread(pin::allowed()?[0])?;
    let engine = Engine::chosen()?;
    let mut memory: Vec<f32> = (0..effort.memory + LINE_BYTES).map(value).collect();
    let data = aligned(&mut memory, effort.memory);
    let mut values: Vec<(String, &'static str, Vec<f64>)> = Vec::new();
    let mut units = Units::new(effort, engine)?;
    for round in 0..=rounds {
        let mut measured = Vec::new();
        let cached = &mut data[..CACHED_BLOCKS * BLOCK];
        let mut contestants = [PLAIN, PLAIN_16, OURS];
        if round % 2 == 1 {
            contestants.reverse();
        }
        for name in contestants {
            let rate = rate(cached, effort.turns, |data| in_blocks(name, engine, data));
            measured.push((format!("p = 1024 in cache, {name}"), "GB/s", rate));
        }
        for name in contestants {
            let rate = rate(data, 1, |data| in_blocks(name, engine, data));
            measured.push((format!("p = 1024 from memory, {name}"), "GB/s", rate));
        }
        measured.extend(units.measure(data, effort.turns / 64)?);
        for splits in [1, 4, 16, 64] {
            let begun = Instant::now();
            let part = data.len() / splits;
            for part in data.chunks_exact_mut(part) {
                engine.transform_in_place(part, (part.len() as f32).sqrt().recip());
            }
            let ms = begun.elapsed().as_secs_f64() * 1e3;
            measured.push((format!("table 3, {splits} splits"), "ms", ms));
        }
        // Turned around or not, in one order.
        measured.sort_by(|a, b| a.0.cmp(&b.0));
        for (at, (what, unit, value)) in measured.into_iter().enumerate() {
            if values.len() == at {
                values.push((what, unit, Vec::new()));
            }
            // The first round touches the memory.
            if round > 0 {
                values[at].2.push(value);
            }
        }
    }
    let of = |what: &str| &values.iter().find(|line| line.0 == what).expect("measured").2;
    let goals = [
        ("p = 1024 in cache, ours", "p = 1024 in cache, radix 2", 1.6),
        ("p = 1024 in cache, ours", "p = 1024 in cache, radix 2 after 16 at a time", 1.6),
        ("p = 1024 from memory, ours", "p = 1024 from memory, radix 2", 1.3),
        ("p = 1024 from memory, ours", "p = 1024 from memory, radix 2 after 16 at a time", 1.3),
        ("table 3, 1 splits", "table 3, 64 splits", 2.6),
    ];
    if !json {
        println!("engine {}, {} MiB of f32, one core", engine.kind(), effort.memory >> 18);
    }
    let ratios = goals.map(|(ours, theirs, goal)| {
        let pairs = of(ours).iter().zip(of(theirs));
        (format!("{ours} / {theirs}"), pairs.map(|(a, b)| a / b).collect::<Vec<_>>(), goal)
    });
    for (what, unit, values) in values {
        let all = spread(values).context("no rounds")?;
        let line = Line { what, unit, median: all.median, least: all.least, most: all.most };
        if json {
            println!("{}", serde_json::to_string(&line)?);
        } else {
            println!(
                "{:<52} {:>7.2} [{:.2}-{:.2}] {unit}",
                line.what, line.median, line.least, line.most
            );
        }
    }
    for (ratio, values, goal) in ratios {
        let all = spread(values).context("no rounds")?;
        let (median, least, most) = (all.median, all.least, all.most);
        let is_met = median >= goal;
        if json {
            let line = Ratio { ratio, median, least, most, goal, is_met };
            println!("{}", serde_json::to_string(&line)?);
        } else {
            let word = if is_met { "met" } else { "missed" };
            println!("{ratio}: {median:.2} [{least:.2}-{most:.2}], goal {goal}: {word}");
        }
    }
    Ok(())
}

/// So many values from a line's start on, where tensors and packet buffers begin.
fn aligned<T>(memory: &mut [T], len: usize) -> &mut [T] {
    let offset = memory.as_ptr().align_offset(LINE_BYTES);
    &mut memory[offset..offset + len]
}

fn value(index: usize) -> f32 {
    (index.wrapping_mul(0x9e37_79b9_7f4a_7c15) >> 40) as f32 / (1 << 23) as f32 - 1.0
}

/// GB/s of the data.
fn rate(data: &mut [f32], turns: usize, mut transform: impl FnMut(&mut [f32])) -> f64 {
    let begun = Instant::now();
    for _ in 0..turns {
        transform(std::hint::black_box(data));
    }
    (turns * 4 * data.len()) as f64 / begun.elapsed().as_secs_f64() / 1e9
}

/// All blocks in place, one by one.
fn in_blocks(name: &str, engine: Engine, data: &mut [f32]) {
    let scale = 1.0 / 32.0;
    match name {
        PLAIN => data.chunks_exact_mut(BLOCK).for_each(|block| plain::radix_2(block, scale)),
        PLAIN_16 => data.chunks_exact_mut(BLOCK).for_each(|block| plain::radix_2_16(block, scale)),
        _ => data.chunks_exact_mut(BLOCK).for_each(|block| engine.transform_in_place(block, scale)),
    }
}

/// Encoding and decoding as senders and receivers do.
struct Units {
    transform: Transform,
    layout: Layout,
    raw: RawBlocks,
    wire: Vec<u8>,
    decoded: Vec<f32>,
}

impl Units {
    fn new(effort: Effort, engine: Engine) -> Result<Self> {
        let layout = Layout::new(BLOCK, STRIDE_DEFAULT, &[effort.memory])?;
        Ok(Self {
            transform: Transform::with_engine(Element::F32, 7, engine),
            raw: RawBlocks::none(layout.blocks()),
            wire: vec![0; 4 * effort.memory + LINE_BYTES],
            decoded: vec![0.0; effort.memory + LINE_BYTES],
            layout,
        })
    }

    fn measure(&mut self, data: &[f32], turns: usize) -> Result<Vec<(String, &'static str, f64)>> {
        let Self { transform, layout, raw, wire, decoded } = self;
        let mut measured = Vec::new();
        let mut add = |what: &str, bytes: usize, begun: Instant| {
            let rate = bytes as f64 / begun.elapsed().as_secs_f64() / 1e9;
            measured.push((format!("unit of 64 blocks: {what}"), "GB/s", rate));
        };
        let wire = aligned(wire, 4 * data.len());
        let (from, to) = (bytes_of(data), bytes_of_mut(aligned(decoded, data.len())));
        let unit = layout.unit(0);
        let unit_bytes = 4 * unit.wire().len();
        let begun = Instant::now();
        for _ in 0..turns {
            transform.encode_unit(layout, &unit, from, &mut wire[..unit_bytes], raw)?;
        }
        add("encode in cache", turns * unit_bytes, begun);
        let begun = Instant::now();
        for _ in 0..turns {
            let (came, scale) = (Arrived::All, Scale::Kept);
            transform.decode_unit(layout, &unit, &mut wire[..unit_bytes], came, raw, scale, to)?;
        }
        add("decode in cache", turns * unit_bytes, begun);
        let begun = Instant::now();
        for unit in (0..layout.units()).map(|unit| layout.unit(unit)) {
            let arena = &mut wire[..4 * unit.wire().len()];
            transform.encode_unit(layout, &unit, from, arena, raw)?;
        }
        add("encode from memory to one arena", wire.len(), begun);
        let begun = Instant::now();
        transform.encode(layout, from, wire)?;
        add("encode from memory to memory", wire.len(), begun);
        let begun = Instant::now();
        transform.decode(layout, wire, Arrived::All, raw, Scale::Kept, to)?;
        add("decode from memory to memory", wire.len(), begun);
        let begun = Instant::now();
        wire.copy_from_slice(from);
        add("a copy, for comparison", wire.len(), begun);
        Ok(measured)
    }
}

/// Radix 2 as one would write it, compiled for the processor.
mod plain {
    /// Calls the function with all vectors that the processor has.
    macro_rules! compiled_for_the_processor {
        ($name:ident, $inner:ident) => {
            pub(super) fn $name(block: &mut [f32], scale: f32) {
                #[cfg(target_arch = "x86_64")]
                {
                    #[target_feature(enable = "avx2,fma")]
                    fn avx2(block: &mut [f32], scale: f32) {
                        $inner(block, scale);
                    }
                    #[target_feature(enable = "avx2,fma,avx512f,avx512vl,avx512bw,avx512dq")]
                    fn avx512(block: &mut [f32], scale: f32) {
                        $inner(block, scale);
                    }
                    if is_x86_feature_detected!("avx512vl")
                        && is_x86_feature_detected!("avx512bw")
                        && is_x86_feature_detected!("avx512dq")
                    {
                        // SAFETY: the processor has the instructions; those with AVX-512 have AVX2 and FMA.
                        return unsafe { avx512(block, scale) };
                    }
                    if is_x86_feature_detected!("avx2") && is_x86_feature_detected!("fma") {
                        // SAFETY: the processor has the instructions.
                        return unsafe { avx2(block, scale) };
                    }
                }
                $inner(block, scale);
            }
        };
    }

    compiled_for_the_processor!(radix_2, stages_from_1);
    compiled_for_the_processor!(radix_2_16, stages_from_16);

    #[inline(always)]
    fn stages_from_1(block: &mut [f32], scale: f32) {
        stages(block, 1, scale);
    }

    /// The compiler makes scalar code of stages 1 to 8 apart, so these are written for AVX-512 where there is.
    #[inline(always)]
    fn stages_from_16(block: &mut [f32], scale: f32) {
        #[cfg(target_arch = "x86_64")]
        if is_x86_feature_detected!("avx512f") {
            // SAFETY: the processor has the instructions.
            unsafe { sixteens(block) };
            return stages(block, 16, scale);
        }
        stages(block, 1, scale);
    }

    #[cfg(target_arch = "x86_64")]
    #[target_feature(enable = "avx512f")]
    #[inline]
    fn sixteens(block: &mut [f32]) {
        use std::arch::x86_64::*;
        let signs =
            |lanes: u16| _mm512_mask_blend_ps(lanes, _mm512_set1_ps(1.0), _mm512_set1_ps(-1.0));
        let [one, two] = [signs(0b1010_1010_1010_1010), signs(0b1100_1100_1100_1100)];
        let [four, eight] = [signs(0b1111_0000_1111_0000), signs(0b1111_1111_0000_0000)];
        for part in block.as_chunks_mut::<16>().0 {
            // SAFETY: the part has 16 elements.
            let x = unsafe { _mm512_loadu_ps(part.as_ptr()) };
            let x = _mm512_fmadd_ps(x, one, _mm512_permute_ps::<0b10_11_00_01>(x));
            let x = _mm512_fmadd_ps(x, two, _mm512_permute_ps::<0b01_00_11_10>(x));
            let x = _mm512_fmadd_ps(x, four, _mm512_shuffle_f32x4::<0b10_11_00_01>(x, x));
            let x = _mm512_fmadd_ps(x, eight, _mm512_shuffle_f32x4::<0b01_00_11_10>(x, x));
            // SAFETY: the part has 16 elements.
            unsafe { _mm512_storeu_ps(part.as_mut_ptr(), x) };
        }
    }

    #[inline(always)]
    fn stages(block: &mut [f32], first: usize, scale: f32) {
        let last = block.len() / 2;
        let mut half = first;
        while half < last {
            for pair in block.chunks_exact_mut(2 * half) {
                let (low, high) = pair.split_at_mut(half);
                for (low, high) in low.iter_mut().zip(high) {
                    (*low, *high) = (*low + *high, *low - *high);
                }
            }
            half *= 2;
        }
        let (low, high) = block.split_at_mut(last);
        for (low, high) in low.iter_mut().zip(high) {
            (*low, *high) = ((*low + *high) * scale, (*low - *high) * scale);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn all_lines_are_measured() {
        run(1, true, Effort { memory: 1 << 17, turns: 64 }).unwrap();
    }

    #[test]
    fn all_contestants_compute_the_same() {
        let engine = Engine::fastest();
        let data: Vec<f32> = (0..2 * BLOCK).map(value).collect();
        let results = [PLAIN, PLAIN_16, OURS].map(|name| {
            let mut data = data.clone();
            in_blocks(name, engine, &mut data);
            data
        });
        assert!(results.iter().all(|result| *result == results[0]));
    }
}
