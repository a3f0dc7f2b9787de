//! The crate against an independent evaluation of the paper's formulas (`fixtures/reference.py`,
//! which says how it works): 128 KiB to 8 GiB, loss 1e-8 to 1e-1, repair after 1 and 3 round trips,
//! chunks of 4 and 64 KiB, MDS and XOR (32, 8). Under bursts: whether the submessages of a message can
//! be repaired.

use lacuna_model::{
    Code, CodeKind, Completion, EcConfig, ErasureCoding, Framing, Loss, Path, RepairTiming,
    SelectiveRepeat, StreamedCoding, Transfer,
};

struct Row<'t>(Vec<&'t str>);

impl Row<'_> {
    fn number(&self, column: usize) -> f64 {
        self.0[column].parse().unwrap()
    }

    fn transfer(&self) -> Transfer {
        let path =
            Path { rate_bits_per_s: 400e9, rtt_s: 0.025, loss: Loss::PerChunk(self.number(2)) };
        let chunk_bytes = self.0[0].parse().unwrap();
        let framing = Framing { chunk_bytes, packet_bytes: 4096, overhead_bytes: 0 };
        Transfer::new(&path, &framing, self.0[1].parse().unwrap()).unwrap()
    }

    fn timing(&self) -> RepairTiming {
        RepairTiming { rto_rtts: self.number(3), wire_time: false }
    }

    fn assert(&self, what: &str, actual: f64, column: usize, tolerance: f64) {
        let expected = self.number(column);
        let error = if expected == 0.0 { actual.abs() } else { (actual / expected - 1.0).abs() };
        assert!(error <= tolerance, "{what}: {actual} is not {expected} ({error:e}): {:?}", self.0);
    }
}

fn rows(csv: &str) -> impl Iterator<Item = Row<'_>> {
    csv.lines().skip(1).map(|line| Row(line.split(',').collect()))
}

fn quantiles(row: &Row<'_>, model: &impl Completion, first_column: usize) {
    for (i, probability) in [0.5, 0.99, 0.999].into_iter().enumerate() {
        row.assert("quantile", model.quantile_s(probability), first_column + i, 1e-10);
    }
}

#[test]
fn selective_repeat_is_that_of_the_independent_evaluation() {
    let mut count = 0;
    for row in rows(include_str!("fixtures/sr.csv")) {
        let sr = SelectiveRepeat::new(&row.transfer(), row.timing()).unwrap();
        // The reference replaces steps by lines for long messages, which costs it some 3e-9.
        row.assert("mean", sr.mean_s(), 4, 1e-8);
        quantiles(&row, &sr, 5);
        count += 1;
    }
    assert_eq!(count, 680);
}

#[test]
fn erasure_coding_is_that_of_the_independent_evaluation() {
    let mut count = 0;
    for row in rows(include_str!("fixtures/ec.csv")) {
        let code = if row.0[4] == "mds" { Code::mds(32, 8) } else { Code::xor(32, 8) };
        let transfer = row.transfer();
        let code = code.unwrap().shortened_to(transfer.chunks());
        let config = EcConfig { fallback: row.timing(), ..EcConfig::paper(code) };
        let ec = ErasureCoding::new(&transfer, config).unwrap();
        row.assert("mean", ec.mean_s(), 5, 1e-8);
        quantiles(&row, &ec, 6);
        row.assert("fallback", ec.fallback_probability(), 9, 1e-11);
        row.assert("paper formula", ec.mean_paper_formula_s(), 10, 1e-9);
        count += 1;
    }
    assert_eq!(count, 720);
}

#[test]
fn fallback_under_bursts_is_that_of_the_independent_evaluation() {
    let mut count = 0;
    for row in rows(include_str!("fixtures/bursts.csv")) {
        let kind = if row.0[0] == "mds" { CodeKind::Mds } else { CodeKind::Xor };
        let whole = |column: usize| row.0[column].parse::<u32>().unwrap();
        let code = Code::new(kind, whole(1), whole(2)).unwrap();
        let loss = Loss::bursts(row.number(4), row.number(5)).unwrap();
        let loss = loss.of_chunk(whole(3).into()).unwrap();
        let transfer = Transfer::from_chunks(whole(6).into(), 1e-6, 0.025, loss).unwrap();
        let later = ErasureCoding::new(&transfer, EcConfig::paper(code)).unwrap();
        row.assert("parity later", later.fallback_probability(), 7, 1e-9);
        let at_once = StreamedCoding::new(&transfer, code, RepairTiming::NACK).unwrap();
        row.assert("parity at once", at_once.fallback_probability(), 8, 1e-9);
        count += 1;
    }
    assert_eq!(count, 90);
}
