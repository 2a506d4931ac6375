//! Columns of text, and standard output for what people and programs read.

use std::io::Write;

use serde::Serialize;

use crate::failure::Failure;
use crate::standard;

/// Rows of cells, the first of which is the head.
pub struct Table {
    rows: Vec<Vec<String>>,
}

impl Table {
    /// A table with these columns. A name that begins with `<` is that of a column of text, set to the left.
    pub fn new(columns: &[&str]) -> Self {
        Table { rows: vec![columns.iter().map(|name| name.to_string()).collect()] }
    }

    /// Adds a row.
    pub fn row(&mut self, cells: Vec<String>) {
        self.rows.push(cells);
    }

    /// The table as lines of text.
    pub fn to_text(&self) -> String {
        let head = &self.rows[0];
        let is_text: Vec<bool> = head.iter().map(|name| name.starts_with('<')).collect();
        let clean = |cell: &String| cell.strip_prefix('<').unwrap_or(cell).to_string();
        let width = |column: usize| {
            let cells = self.rows.iter().filter_map(|row| row.get(column));
            cells.map(|cell| clean(cell).chars().count()).max().unwrap_or(0)
        };
        let widths: Vec<usize> = (0..head.len()).map(width).collect();
        let mut text = String::new();
        for row in &self.rows {
            let mut line = String::new();
            for (column, cell) in row.iter().enumerate() {
                let (cell, width) = (clean(cell), widths[column]);
                let cell = if is_text[column] {
                    format!("{cell:<width$}")
                } else {
                    format!("{cell:>width$}")
                };
                line += if column == 0 { "" } else { "  " };
                line += &cell;
            }
            text += line.trim_end();
            text.push('\n');
        }
        text
    }
}

/// Prints text on standard output.
pub fn print(text: &str) -> Result<(), Failure> {
    standard::check_output()?;
    // The standard library's own handle takes writing to a descriptor that cannot be written to for a success.
    #[cfg(unix)]
    let mut stdout = standard::output()?;
    #[cfg(not(unix))]
    let mut stdout = std::io::stdout().lock();
    stdout.write_all(text.as_bytes())?;
    stdout.flush()?;
    Ok(())
}

/// Prints a value as JSON on standard output.
pub fn print_json(value: &impl Serialize) -> Result<(), Failure> {
    let text = serde_json::to_string_pretty(value);
    let text = text.map_err(|error| Failure::bug(format!("cannot write JSON: {error}")))?;
    print(&(text + "\n"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn columns_line_up() {
        let mut table = Table::new(&["size", "<name", "n"]);
        table.row(vec!["1".into(), "größer".into(), "10".into()]);
        table.row(vec!["12345".into(), "b".into(), "9".into()]);
        assert_eq!(table.to_text(), " size  name     n\n    1  größer  10\n12345  b        9\n");
    }
}
