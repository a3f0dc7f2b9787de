//! Gigabytes of one operand per second, by engine, type and operation: in the L2 cache, and from memory.
//! `cargo bench -p lacuna-schedule --bench reduce`

use lacuna_schedule::element::{Element, Op};
use lacuna_schedule::reduce::{Engine, EngineKind};
use std::time::Instant;

fn gbyte_per_s(bytes: usize, rounds: usize, mut once: impl FnMut()) -> f64 {
    let mut times: Vec<f64> = (0..11)
        .map(|_| {
            let start = Instant::now();
            (0..rounds).for_each(|_| once());
            start.elapsed().as_secs_f64() / rounds as f64
        })
        .collect();
    times.sort_by(f64::total_cmp);
    bytes as f64 / times[5] / 1e9
}

fn main() {
    // `cargo test` runs benchmarks too, with no argument of this kind.
    let is_measured = std::env::args().any(|argument| argument == "--bench");
    let sizes = if is_measured { [128 << 10, 64 << 20] } else { [4 << 10, 8 << 10] };
    println!("GB/s of one operand, median of 11");
    println!("{:<10}{:<6}{:<10}{:>10}{:>10}", "engine", "type", "op", "cache", "memory");
    for kind in EngineKind::ALL {
        let Some(engine) = Engine::new(kind) else { continue };
        for element in [Element::F32, Element::F64, Element::F16, Element::Bf16, Element::U8] {
            for op in [Op::Sum, Op::Max] {
                let [cache, memory] = sizes.map(|bytes| {
                    let src = vec![0u8; bytes];
                    let mut dst = vec![0u8; bytes];
                    let rounds = (16 << 20) / bytes.max(1 << 20) * 4 + 1;
                    gbyte_per_s(bytes, rounds, || {
                        engine.reduce_into(op, element, &mut dst, std::hint::black_box(&src));
                    })
                });
                println!(
                    "{:<10}{:<6}{:<10}{cache:>10.1}{memory:>10.1}",
                    format!("{kind:?}"),
                    element.name(),
                    op.name()
                );
            }
        }
    }
    let source = vec![1u8; sizes[1]];
    let mut copy = vec![0u8; sizes[1]];
    let speed = gbyte_per_s(sizes[1], 3, || copy.copy_from_slice(std::hint::black_box(&source)));
    println!("a copy in memory: {speed:.1}");
}
