//! Lines up text in columns, and prints text and JSON on standard output.

use std::fmt;
use std::io::{self, Write};
use std::path::Path;

use serde::Serialize;

use crate::failure::{Failure, hex};
use crate::source::Input;
use crate::standard;

/// The widths of columns. They must be known before the first row is printed.
pub struct Columns {
    names: Vec<String>,
    is_text: Vec<bool>,
    widths: Vec<usize>,
}

impl Columns {
    /// Columns as wide as their names. `<` before a name aligns its column to the left and is not printed.
    pub fn new(names: &[&str]) -> Self {
        let is_text = names.iter().map(|name| name.starts_with('<')).collect();
        let clean = |name: &&str| name.strip_prefix('<').unwrap_or(name).to_string();
        let names: Vec<String> = names.iter().map(clean).collect();
        let widths = names.iter().map(|name| name.chars().count()).collect();
        Columns { names, is_text, widths }
    }

    /// Widens the columns to fit these cells.
    pub fn widen(&mut self, cells: &[String]) {
        for (width, cell) in self.widths.iter_mut().zip(cells) {
            *width = (*width).max(cell.chars().count());
        }
    }

    /// The line of column names.
    pub fn head(&self) -> String {
        self.line(&self.names)
    }

    /// A row as a line.
    pub fn line(&self, cells: &[String]) -> String {
        let mut line = String::new();
        for (column, cell) in cells.iter().enumerate() {
            let width = self.widths[column];
            line += if column == 0 { "" } else { "  " };
            line += &match self.is_text[column] {
                true => format!("{cell:<width$}"),
                false => format!("{cell:>width$}"),
            };
        }
        line.truncate(line.trim_end().len());
        line.push('\n');
        line
    }
}

/// Rows of cells.
pub struct Table {
    columns: Columns,
    rows: Vec<Vec<String>>,
}

impl Table {
    /// A table with these columns. `<` before a name aligns its column to the left and is not printed.
    pub fn new(columns: &[&str]) -> Self {
        Table { columns: Columns::new(columns), rows: Vec::new() }
    }

    /// Adds a row.
    pub fn row(&mut self, cells: Vec<String>) {
        self.columns.widen(&cells);
        self.rows.push(cells);
    }

    /// The table as lines of text.
    pub fn to_text(&self) -> String {
        let rows = self.rows.iter().map(|row| self.columns.line(row));
        std::iter::once(self.columns.head()).chain(rows).collect()
    }
}

/// Prints text on standard output.
pub fn print(text: &str) -> Result<(), Failure> {
    standard::check_output()?;
    // The standard library's own handle reports success for a write to a closed descriptor.
    #[cfg(unix)]
    let mut stdout = standard::output()?;
    #[cfg(not(unix))]
    let mut stdout = std::io::stdout().lock();
    stdout.write_all(text.as_bytes())?;
    stdout.flush()?;
    Ok(())
}

/// A file's name in JSON: exact, without the escapes that messages use.
#[derive(Serialize)]
pub struct JsonName {
    /// The name. `\u{fffd}` replaces each part that is not Unicode.
    file: String,
    /// The name's bytes in hexadecimal digits, if it is not Unicode.
    #[serde(skip_serializing_if = "Option::is_none")]
    file_bytes: Option<String>,
}

impl JsonName {
    /// The name of an input that the user named.
    pub fn of(input: &Input) -> Self {
        match input {
            Input::Path(path) => Self::of_path(path),
            Input::Stdin | Input::Uri(_) => Self { file: input.to_string(), file_bytes: None },
        }
    }

    /// The name of a local file.
    pub fn of_path(path: &Path) -> Self {
        let file_bytes = match path.to_str() {
            Some(_) => None,
            None => Some(hex(path.as_os_str().as_encoded_bytes())),
        };
        Self { file: path.to_string_lossy().into_owned(), file_bytes }
    }

    /// The members of the JSON object, for an object that is written member by member.
    pub fn members(&self) -> Result<String, Failure> {
        let text = serde_json::to_string_pretty(self).map_err(not_json)?;
        Ok(text.trim_matches(['{', '}', '\n']).to_string())
    }
}

/// Prints a value as JSON on standard output.
pub fn print_json(value: &impl Serialize) -> Result<(), Failure> {
    let text = serde_json::to_string_pretty(value).map_err(not_json)?;
    print(&(text + "\n"))
}

/// The failure to write JSON.
pub fn not_json(error: serde_json::Error) -> Failure {
    Failure::bug(format!("cannot write JSON: {error}"))
}

/// Gathers text for standard output, and prints it in large pieces.
#[derive(Default)]
pub struct Printer {
    text: String,
    /// The failure of a write. The caller got only an `io::Error` for it.
    failure: Option<Failure>,
}

/// Print when the text has this length.
const PRINTED_AT_ONCE: usize = 1 << 16;

impl Printer {
    /// Adds text. It is printed by the time [`finish`](Self::finish) returns.
    pub fn put(&mut self, text: &str) -> Result<(), Failure> {
        self.text += text;
        self.print_much()
    }

    /// Prints the text if it is long enough.
    fn print_much(&mut self) -> Result<(), Failure> {
        if self.text.len() < PRINTED_AT_ONCE {
            return Ok(());
        }
        let printed = print(&self.text);
        self.text.clear();
        printed
    }

    /// Keeps the failure of a write for [`finish`](Self::finish).
    fn keep_failure(&mut self, outcome: Result<(), Failure>) -> io::Result<()> {
        outcome.map_err(|failure| {
            self.failure = Some(failure);
            io::Error::other("standard output failed")
        })
    }

    /// Prints the rest, or returns the failure that kept an earlier part from being printed.
    pub fn finish(self) -> Result<(), Failure> {
        match self.failure {
            Some(failure) => Err(failure),
            None => print(&self.text),
        }
    }
}

impl Write for Printer {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        let text = str::from_utf8(bytes).map_err(io::Error::other)?;
        let put = self.put(text);
        self.keep_failure(put)?;
        Ok(bytes.len())
    }

    /// Formats straight into the text, so it needs no check for UTF-8.
    fn write_fmt(&mut self, arguments: fmt::Arguments<'_>) -> io::Result<()> {
        fmt::Write::write_fmt(&mut self.text, arguments).map_err(io::Error::other)?;
        let printed = self.print_much();
        self.keep_failure(printed)
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
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
