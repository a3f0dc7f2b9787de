//! A coefficient matrix in an engine's layout: written at set-up or for a new erasure pattern, then only
//! read.

use super::{Engine, Inner, Kernel, ROW_GROUP};

/// A matrix of coefficients, row by row.
pub(crate) struct Matrix<'a> {
    /// `rows * columns` coefficients.
    pub(crate) coefficients: &'a [u8],
    pub(crate) columns: usize,
}

/// A matrix in an engine's layout.
#[derive(Debug, Clone)]
pub(crate) struct Plan {
    engine: Engine,
    words: Vec<u64>,
    rows: usize,
    columns: usize,
}

/// Which part of a matrix to multiply by.
pub(super) struct Task<'p> {
    /// The whole matrix as `Kernel::write_plan` left it.
    pub(super) words: &'p [u64],
    /// Columns of the whole matrix.
    pub(super) columns: usize,
    /// The row of the first output.
    pub(super) first_row: usize,
    /// The column of the first input.
    pub(super) first_column: usize,
}

impl<'a> Matrix<'a> {
    pub(crate) fn rows(&self) -> usize {
        self.coefficients.len() / self.columns
    }

    pub(super) fn row(&self, row: usize) -> &'a [u8] {
        &self.coefficients[row * self.columns..][..self.columns]
    }
}

impl Plan {
    /// An empty plan that can take any matrix of up to this shape without
    /// allocating.
    pub(crate) fn with_capacity(engine: Engine, rows_max: usize, columns_max: usize) -> Self {
        let words = each!(engine, kernel => kernel.plan_words(rows_max, columns_max));
        Self { engine, words: Vec::with_capacity(words), rows: 0, columns: 0 }
    }

    /// Replaces the plan by that of a matrix.
    pub(crate) fn set(&mut self, matrix: &Matrix<'_>) {
        (self.rows, self.columns) = (matrix.rows(), matrix.columns);
        each!(self.engine, kernel => {
            self.words.clear();
            self.words.resize(kernel.plan_words(self.rows, self.columns), 0);
            kernel.write_plan(matrix, &mut self.words);
        });
    }

    /// Bytes that a plan of this shape takes.
    pub(crate) fn bytes(engine: Engine, rows: usize, columns: usize) -> usize {
        each!(engine, kernel => kernel.plan_words(rows, columns)) * size_of::<u64>()
    }

    /// A part of the matrix, with the checks that kernels rely on.
    pub(super) fn task(
        &self,
        engine: Engine,
        first_row: usize,
        first_column: usize,
        rows: usize,
        columns: usize,
    ) -> Task<'_> {
        assert_eq!(engine, self.engine, "a plan is read by the engine that wrote it");
        assert!(first_row.is_multiple_of(ROW_GROUP), "row {first_row} begins no group");
        assert!(first_row <= self.rows && rows <= self.rows - first_row, "rows");
        assert!(first_column <= self.columns && columns <= self.columns - first_column, "columns");
        Task { words: &self.words, columns: self.columns, first_row, first_column }
    }
}
