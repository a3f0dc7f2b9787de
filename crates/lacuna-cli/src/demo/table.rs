//! The demo's results as a table.

use super::ModeResult;
use comfy_table::{CellAlignment, Table, presets};

/// One row per mode.
pub(super) fn render(results: &[ModeResult]) -> String {
    let mut table = Table::new();
    table.load_style(presets::UTF8_HORIZONTAL_ONLY);
    table.set_header([
        "mode",
        "mean ms",
        "p99 ms",
        "x ideal",
        "Gbit/s",
        "lost",
        "chunks resent",
        "resent",
        "verified",
    ]);
    for result in results {
        table.add_row([
            result.mode.clone(),
            format!("{:.1}", result.completion_ms.mean),
            format!("{:.1}", result.completion_ms.p99),
            format!("{:.3}", result.completion_ms.mean / result.ideal_ms),
            format!("{:.3}", result.goodput_gbit_per_s),
            result.lost_packets.to_string(),
            result.retransmitted_chunks.to_string(),
            format!("{:.2} %", result.retransmitted_share * 100.0),
            match (result.verified, result.missing_chunks) {
                (false, _) => "NO".to_owned(),
                (true, 0) => "yes".to_owned(),
                (true, missing) => format!("{missing} missing"),
            },
        ]);
    }
    for column in table.column_iter_mut().skip(1) {
        column.set_cell_alignment(CellAlignment::Right);
    }
    table.to_string()
}
