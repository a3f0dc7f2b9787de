//! Bytes per second of the chosen kernel and of `crc-fast`: from the L2 cache, and copied
//! into memory. `cargo bench -p lacuna-crc`.

use lacuna_crc::Crc32c;
use std::hint::black_box;
use std::time::Instant;

/// Packets of a coalesced burst, which lie in the cache.
const PACKETS: usize = 64;
const BURST_BYTES: usize = PACKETS * 4116;
/// Memory that no cache holds.
const MEMORY_BYTES: usize = 256 << 20;

/// The best of some runs.
fn gigabytes_per_s(bytes: usize, mut work: impl FnMut()) -> f64 {
    let seconds = (0..9).map(|_| {
        let start = Instant::now();
        work();
        start.elapsed().as_secs_f64()
    });
    bytes as f64 / seconds.fold(f64::MAX, f64::min) / 1e9
}

fn main() {
    let burst = vec![2; BURST_BYTES];
    let mut memory = vec![1; MEMORY_BYTES];
    println!("GB/s            sum   library   copy after library   sum and copy in one");
    for payload in [64, 1400, 4096] {
        let place = |index: usize| &burst[index % PACKETS * 4116..][..payload];
        let (rounds, count) = (40_000, MEMORY_BYTES / payload);
        let sum = gigabytes_per_s(rounds * payload, || {
            for index in 0..rounds {
                black_box(lacuna_crc::crc32c(black_box(place(index))));
            }
        });
        let library = gigabytes_per_s(rounds * payload, || {
            for index in 0..rounds {
                black_box(crc_fast::crc32_iscsi(black_box(place(index))));
            }
        });
        let two_passes = gigabytes_per_s(count * payload, || {
            for (index, to) in memory.chunks_exact_mut(payload).enumerate() {
                black_box(crc_fast::crc32_iscsi(black_box(place(index))));
                to.copy_from_slice(place(index));
            }
        });
        let one_pass = gigabytes_per_s(count * payload, || {
            for (index, to) in memory.chunks_exact_mut(payload).enumerate() {
                let mut sum = Crc32c::new();
                sum.copy(&[], black_box(place(index)), to);
                black_box(sum.value());
            }
        });
        println!("{payload:5} B  {sum:9.1} {library:9.1} {two_passes:20.1} {one_pass:21.1}");
    }
}
