//! What is seen from inside only.

use super::*;

#[test]
fn short_blocks_have_the_repairs_of_the_encoder() {
    let xor = |r, c| Code::xor(r, c).unwrap();
    // Of LoWAR's figure 6, (8, 2) on 1, 5 and 61 packets: 1, 2 and 7 x 2 + 2 repairs.
    let path = ConnectionPath::new(1e-6, 0.04, Loss::PerPacket(0.01));
    let connection = GoBackN::new(&path, Some(Shim::new(xor(8, 2)))).unwrap();
    for (packets, repairs) in [(1, 1.0), (5, 2.0), (61, 16.0)] {
        let blocks = connection.blocks_of(packets);
        assert_eq!(blocks.wire() - blocks.data(), repairs, "{packets}");
    }
    let capped = Shim { code: xor(64, 8), caps_short_blocks: true };
    for (packets, repairs) in [(1, 1), (8, 1), (9, 2), (31, 4), (63, 8)] {
        assert_eq!(capped.of_short(packets).m(), repairs, "{packets}");
    }
    let mds = Shim::new(Code::mds(32, 8).unwrap());
    assert_eq!(mds.of_short(3).m(), 8);
    assert_eq!(Shim { caps_short_blocks: true, ..mds }.of_short(3).m(), 1);
}

#[test]
fn blocks_before_a_failure_are_counted_as_one_by_one() {
    let loss = Loss::bursts(0.05, 3.0).unwrap().of_chunk(1).unwrap();
    let step = Protected::packet(&loss).step;
    for count in [1, 2, 7, 64, 100] {
        let (mut expected, mut run) = ([0.0; 2], Step::nothing());
        for _ in 0..count {
            run = run.then(&step);
            let came = rows(&run.ok);
            expected = [expected[0] + came[0], expected[1] + came[1]];
        }
        let counted = mean_before_failure(&step, count);
        for from in 0..2 {
            assert!((counted[from] / expected[from] - 1.0).abs() < 1e-12, "{count}");
        }
    }
}
