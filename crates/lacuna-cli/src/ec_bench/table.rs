//! The results as a table, each with its ratio to ISA-L where that was measured.

use super::{CodeName, Row};
use comfy_table::{CellAlignment, Table, presets};

/// One line per row.
pub(super) fn render(rows: &[Row]) -> String {
    let mut table = Table::new();
    table.load_style(presets::UTF8_HORIZONTAL_ONLY);
    table.set_header(["op", "threads", "code", "engine", "GB/s", "min", "max", "Gbit/s", "x isal"]);
    for row in rows {
        let isal = rows.iter().find(|other| {
            (other.code, other.op, other.threads) == (CodeName::Isal, row.op, row.threads)
        });
        table.add_row([
            match row.lost {
                0 => row.op.name().to_owned(),
                lost => format!("{} {lost}", row.op.name()),
            },
            row.threads.to_string(),
            row.code.name().to_owned(),
            row.engine.clone(),
            format!("{:.2}", row.gbyte_per_s),
            format!("{:.2}", row.slowest),
            format!("{:.2}", row.fastest),
            format!("{:.0}", row.gbyte_per_s * 8.0),
            isal.map_or_else(String::new, |isal| {
                format!("{:.2}", row.gbyte_per_s / isal.gbyte_per_s)
            }),
        ]);
    }
    for column in [1, 4, 5, 6, 7, 8] {
        if let Some(column) = table.column_mut(column) {
            column.set_cell_alignment(CellAlignment::Right);
        }
    }
    table.to_string()
}
