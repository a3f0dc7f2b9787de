//! The demo's results as a table.

use super::result::ModeResult;
use comfy_table::{CellAlignment, Table, presets};

/// One row per mode. Columns for queue drops, parity, and receives that ended with gaps only if there were
/// any.
pub(super) fn render(results: &[ModeResult]) -> String {
    let has_dropped = results.iter().any(|result| result.queue_dropped_packets > 0);
    let has_parity = results.iter().any(|result| result.parity_packets > 0);
    let has_gaps = results.iter().any(|result| result.missing_bytes > 0);
    let (unit, per_gbit) = match results.iter().any(|result| result.goodput_gbit_per_s >= 0.1) {
        true => ("Gbit/s", 1.0),
        false => ("Mbit/s", 1e3),
    };
    let mut header = vec!["mode", "mean ms", "p99 ms", "x ideal", unit, "lost"];
    header.extend(has_dropped.then_some("dropped in queue"));
    if has_parity {
        header.extend(["chunks repaired", "fell back"]);
    }
    header.extend(["chunks resent", "resent"]);
    if has_gaps {
        header.extend(["bytes lost", "ended by"]);
    }
    header.push("verified");
    let mut table = Table::new();
    table.load_style(presets::UTF8_HORIZONTAL_ONLY);
    table.set_header(header);
    for result in results {
        let mut row = vec![
            result.mode.clone(),
            format!("{:.1}", result.completion_ms.mean),
            format!("{:.1}", result.completion_ms.p99),
            format!("{:.3}", result.completion_ms.mean / result.ideal_ms),
            format!("{:.3}", result.goodput_gbit_per_s * per_gbit),
            result.lost_packets.to_string(),
        ];
        row.extend(has_dropped.then(|| result.queue_dropped_packets.to_string()));
        if has_parity && result.parity_packets > 0 {
            row.extend([result.repaired_chunks, result.fallbacks].map(|count| count.to_string()));
        } else if has_parity {
            row.extend(["-", "-"].map(str::to_owned));
        }
        row.push(result.retransmitted_chunks.to_string());
        row.push(format!("{:.2} %", result.retransmitted_share * 100.0));
        if has_gaps {
            row.extend([result.missing_bytes.to_string(), ended_by(result)]);
        }
        row.push(match (result.verified, result.missing_chunks) {
            (false, _) => "NO".to_owned(),
            (true, 0) => "yes".to_owned(),
            (true, missing) => format!("{missing} missing"),
        });
        table.add_row(row);
    }
    for column in table.column_iter_mut().skip(1) {
        column.set_cell_alignment(CellAlignment::Right);
    }
    table.to_string()
}

/// How many receives ended for which reason.
fn ended_by(result: &ModeResult) -> String {
    let counts: Vec<_> =
        result.ended.iter().map(|(reason, count)| format!("{reason} {count}")).collect();
    counts.join(", ")
}

#[cfg(test)]
mod tests {
    use super::super::result::tests::result;
    use super::*;
    use std::collections::BTreeMap;

    #[test]
    fn drops_in_the_queue_have_a_column_when_there_were_any() {
        let clean = result("sr");
        assert!(!render(std::slice::from_ref(&clean)).contains("dropped in queue"));
        let dropped = ModeResult { queue_dropped_packets: 77, ..result("sr:rto") };
        let table = render(&[clean, dropped]);
        assert!(table.contains("dropped in queue") && table.contains(" 77 "), "{table}");
    }

    #[test]
    fn low_rates_are_told_in_a_smaller_unit() {
        let slow = ModeResult { goodput_gbit_per_s: 0.0004, ..result("sr") };
        let table = render(std::slice::from_ref(&slow));
        assert!(table.contains("Mbit/s") && table.contains(" 0.400 "), "{table}");
        let table = render(&[slow, result("sr:rto")]);
        assert!(table.contains("Gbit/s") && table.contains(" 0.200 "), "{table}");
    }

    #[test]
    fn what_parity_did_has_columns_when_there_was_any() {
        let plain = result("sr");
        assert!(!render(std::slice::from_ref(&plain)).contains("repaired"));
        let coded = ModeResult {
            parity_packets: 9,
            repaired_chunks: 55,
            fallbacks: 66,
            ..result("ec:mds:32:8")
        };
        let table = render(&[plain, coded]);
        assert!(
            table.contains(" 55 ") && table.contains(" 66 ") && table.contains(" - "),
            "{table}"
        );
    }

    #[test]
    fn what_was_lost_and_why_receives_ended_have_columns_when_something_was() {
        assert!(!render(&[result("sr")]).contains("bytes lost"));
        let ended = BTreeMap::from([("accounted", 1), ("whole", 4)]);
        let bounded = ModeResult { missing_bytes: 8192, ended, ..result("bounded") };
        let table = render(&[result("sr"), bounded]);
        assert!(table.contains(" 8192 ") && table.contains(" accounted 1, whole 4 "), "{table}");
    }

    #[test]
    fn chunks_that_never_came_are_counted_where_others_are_verified() {
        let table = render(&[ModeResult { missing_chunks: 12, ..result("raw") }]);
        assert!(table.contains("12 missing"), "{table}");
        let table = render(&[ModeResult { verified: false, missing_chunks: 12, ..result("raw") }]);
        assert!(table.contains("NO") && !table.contains("missing"), "{table}");
    }
}
