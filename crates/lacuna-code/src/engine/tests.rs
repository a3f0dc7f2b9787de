//! Every engine that this processor can run against the naive one: all lengths
//! around the vector widths, at odd addresses, all numbers of rows and some of
//! columns, all parts of a matrix, overwriting and adding.

use super::*;

/// Longest slices: more than two steps of the widest engine (128 bytes) and a
/// rest of each kind.
const LEN_MAX: usize = 330;

/// Bytes that no test relies on the meaning of.
fn noise(seed: u64, len: usize) -> Vec<u8> {
    let mut state = seed.wrapping_mul(0x9e37_79b9_7f4a_7c15) | 1;
    let next = || {
        state ^= state << 13;
        state ^= state >> 7;
        state ^= state << 17;
        (state >> 32) as u8
    };
    std::iter::repeat_with(next).take(len).collect()
}

/// A multiplication on one engine: bytes of the outputs, and that nothing
/// around them was touched.
struct Case {
    rows: usize,
    columns: usize,
    first_row: usize,
    first_column: usize,
    row_count: usize,
    input_count: usize,
    len: usize,
    /// What the last input and the last output lack.
    short_by: (usize, usize),
    accumulate: bool,
}

impl Case {
    fn run(&self, engine: Engine, slow: &[u8]) -> Vec<u8> {
        let coefficients = noise(7, self.rows * self.columns);
        // Zero and one are coefficients like any other.
        let coefficients: Vec<u8> = coefficients.iter().map(|c| c % 251).collect();
        let mut plan = Plan::with_capacity(engine, self.rows, self.columns);
        plan.set(&Matrix { coefficients: &coefficients, columns: self.columns });
        // Slices at all misalignments: each starts an odd distance after the last.
        let stride = LEN_MAX + 13;
        let mut inputs = Vec::new();
        for index in 0..self.input_count {
            let len = self.len - if index + 1 == self.input_count { self.short_by.0 } else { 0 };
            inputs.push(&slow[index * stride + 1..][..len]);
        }
        let mut buffer = noise(9, self.row_count * stride);
        let before = buffer.clone();
        let mut outputs = Vec::new();
        for (index, piece) in buffer.chunks_mut(stride).enumerate() {
            let len = self.len - if index + 1 == self.row_count { self.short_by.1 } else { 0 };
            outputs.push(&mut piece[3..][..len]);
        }
        engine.mul(
            &plan,
            (self.first_row, self.first_column),
            &inputs,
            &mut outputs,
            self.accumulate,
        );
        for (index, (piece, before)) in buffer.chunks(stride).zip(before.chunks(stride)).enumerate()
        {
            let len = self.len - if index + 1 == self.row_count { self.short_by.1 } else { 0 };
            assert_eq!(piece[..3], before[..3], "{engine:?} wrote before its output");
            assert_eq!(piece[3 + len..], before[3 + len..], "{engine:?} wrote past its output");
        }
        buffer
    }

    fn compare(&self, slow: &[u8]) {
        let naive = self.run(Engine::new(EngineKind::Naive).unwrap(), slow);
        for engine in Engine::available() {
            assert!(
                self.run(engine, slow) == naive,
                "{} differs from naive: {} of {} rows from {}, {} of {} columns from {}, \
                 {} bytes, short by {:?}, accumulate {}",
                engine.kind(),
                self.row_count,
                self.rows,
                self.first_row,
                self.input_count,
                self.columns,
                self.first_column,
                self.len,
                self.short_by,
                self.accumulate
            );
        }
    }
}

fn sources(count: usize) -> Vec<u8> {
    noise(11, count * (LEN_MAX + 13) + 16)
}

#[test]
fn engines_agree_at_every_length_near_the_vector_widths() {
    let slow = sources(5);
    for len in 0..LEN_MAX {
        for accumulate in [false, true] {
            Case {
                rows: 8,
                columns: 5,
                first_row: 0,
                first_column: 0,
                row_count: 8,
                input_count: 5,
                len,
                short_by: (0, 0),
                accumulate,
            }
            .compare(&slow);
        }
    }
}

#[test]
fn engines_agree_for_every_number_of_rows_and_part_of_a_matrix() {
    let slow = sources(9);
    for rows in 1..=19 {
        for (columns, first_column, input_count) in [(1, 0, 1), (9, 0, 9), (9, 4, 5), (9, 8, 1)] {
            for first_row in (0..rows).step_by(ROW_GROUP) {
                for row_count in 1..=rows - first_row {
                    for (len, accumulate) in [(64, false), (200, true)] {
                        Case {
                            rows,
                            columns,
                            first_row,
                            first_column,
                            row_count,
                            input_count,
                            len,
                            short_by: (0, 0),
                            accumulate,
                        }
                        .compare(&slow);
                    }
                }
            }
        }
    }
}

#[test]
fn engines_agree_where_the_last_input_or_output_is_shorter() {
    let slow = sources(4);
    for input_count in [1, 4] {
        for row_count in [1, 5, 9] {
            for short_by in [(1, 0), (77, 0), (200, 0), (0, 1), (0, 77), (0, 200)] {
                for accumulate in [false, true] {
                    Case {
                        rows: 9,
                        columns: 4,
                        first_row: 0,
                        first_column: 0,
                        row_count,
                        input_count,
                        len: 200,
                        short_by,
                        accumulate,
                    }
                    .compare(&slow);
                }
            }
        }
    }
}

#[test]
fn engines_agree_on_matrices_of_255_columns_and_tiles_of_long_chunks() {
    let slow = sources(255);
    let long = noise(3, 40 * 5000);
    for engine in Engine::available() {
        Case {
            rows: 10,
            columns: 255,
            first_row: 0,
            first_column: 0,
            row_count: 10,
            input_count: 255,
            len: LEN_MAX,
            short_by: (0, 0),
            accumulate: false,
        }
        .compare(&slow);
        // More rows than fit the registers, more bytes than fit a tile.
        let multiply = |engine: Engine| {
            let mut plan = Plan::with_capacity(engine, 20, 20);
            plan.set(&Matrix { coefficients: &long[..400], columns: 20 });
            let inputs: Vec<&[u8]> = long.chunks(5000).skip(1).take(20).collect();
            let mut outputs = vec![vec![0; 5000]; 20];
            let mut slices: Vec<&mut [u8]> = outputs.iter_mut().map(Vec::as_mut_slice).collect();
            engine.mul(&plan, (0, 0), &inputs, &mut slices, false);
            outputs
        };
        let naive = multiply(Engine::new(EngineKind::Naive).unwrap());
        assert!(multiply(engine) == naive, "{}", engine.kind());
    }
}

#[test]
fn engines_agree_on_sums() {
    let slow = sources(17);
    for engine in Engine::available() {
        let naive = Engine::new(EngineKind::Naive).unwrap();
        for len in 0..LEN_MAX {
            for (count, short_by) in [(0, 0), (1, 0), (1, 1), (2, 70), (4, 0), (17, 5)] {
                let short_by = if count == 0 { 0 } else { short_by.min(len) };
                let inputs: Vec<&[u8]> = (0..count)
                    .map(|index| {
                        let len = if index + 1 == count { len - short_by } else { len };
                        &slow[index * (LEN_MAX + 13)..][..len]
                    })
                    .collect();
                for accumulate in [false, true] {
                    let mut have = noise(5, len + 2);
                    let mut want = have.clone();
                    engine.xor(&inputs, &mut have[1..=len], accumulate);
                    naive.xor(&inputs, &mut want[1..=len], accumulate);
                    assert_eq!(have, want, "{} {len} {count} {short_by}", engine.kind());
                }
            }
        }
    }
}

#[test]
fn the_naive_engine_computes_the_definition() {
    let engine = Engine::new(EngineKind::Naive).unwrap();
    let mut plan = Plan::with_capacity(engine, 1, 2);
    plan.set(&Matrix { coefficients: &[2, 0x1d], columns: 2 });
    let mut output = [0xff];
    engine.mul(&plan, (0, 0), &[&[0x80], &[1]], &mut [&mut output], false);
    assert_eq!(output, [0], "2 * 0x80 is the polynomial's low part, 0x1d");
}

#[test]
fn an_engine_is_chosen_by_its_name_only() {
    for kind in EngineKind::ALL {
        match Engine::named(kind.name()) {
            Ok(engine) => assert_eq!(engine.kind(), *kind),
            Err(error) => assert_eq!(error, EngineError::Unsupported { kind: *kind }),
        }
    }
    let error = Engine::named("AVX2").unwrap_err();
    assert_eq!(error, EngineError::Unknown { name: "AVX2".to_owned() });
    assert!(error.to_string().contains("naive, portable"), "{error}");
}

#[test]
#[should_panic]
fn slices_of_unequal_length_do_not_reach_a_kernel() {
    let engine = Engine::fastest();
    let mut plan = Plan::with_capacity(engine, 1, 2);
    plan.set(&Matrix { coefficients: &[1, 1], columns: 2 });
    engine.mul(&plan, (0, 0), &[&[0; 3], &[0; 4]], &mut [&mut [0; 4]], false);
}
