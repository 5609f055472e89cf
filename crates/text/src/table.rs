//! Rows as lines of aligned columns.

/// Rows of equal length as lines: the first `words` columns are aligned left, the others right.
///
/// ```
/// let rows = [["", "bytes"], ["a", "5"], ["long", "1000"]];
/// assert_eq!(tidecast_text::aligned(&rows, 1), ["      bytes", "a         5", "long   1000"]);
/// ```
#[must_use]
pub fn aligned<S: AsRef<str>, R: AsRef<[S]>>(rows: &[R], words: usize) -> Vec<String> {
    let rows: Vec<&[S]> = rows.iter().map(AsRef::as_ref).collect();
    let columns = rows.iter().map(|row| row.len()).max().unwrap_or(0);
    let width = |i: usize| {
        rows.iter().filter_map(|row| row.get(i)).map(|cell| cell.as_ref().chars().count()).max().unwrap_or(0)
    };
    let widths: Vec<usize> = (0..columns).map(width).collect();
    let line = |row: &&[S]| {
        let cells = row.iter().zip(&widths).enumerate().map(|(i, (cell, width))| {
            let cell = cell.as_ref();
            if i < words { format!("{cell:<width$}") } else { format!("{cell:>width$}") }
        });
        cells.collect::<Vec<_>>().join("  ").trim_end().to_owned()
    };
    rows.iter().map(line).collect()
}
