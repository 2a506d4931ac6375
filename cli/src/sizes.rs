//! Parses and prints sizes and ranges of bytes.

use std::fmt;
use std::str::FromStr;

/// A number of bytes: `4096`, `64K`, `1MiB`, `2G`. As in zstd and xz the suffixes are powers of 1024.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Size(pub u64);

impl FromStr for Size {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let digits = text.find(|c: char| !c.is_ascii_digit()).unwrap_or(text.len());
        let (number, suffix) = text.split_at(digits);
        let shift = match suffix.to_ascii_lowercase().as_str() {
            "" | "b" => 0,
            "k" | "kb" | "kib" => 10,
            "m" | "mb" | "mib" => 20,
            "g" | "gb" | "gib" => 30,
            "t" | "tb" | "tib" => 40,
            _ => return Err(format!("unknown unit '{suffix}': use K, M, G or T")),
        };
        if number.is_empty() {
            return Err("expected a size such as 512K or 4MiB".into());
        }
        // These are only digits, so the parser fails only if the number is too large.
        let bytes = number.parse::<u64>().ok().and_then(|n| n.checked_mul(1 << shift));
        bytes.map(Size).ok_or_else(|| "more than 2^64 bytes".into())
    }
}

/// Parses a size that must not be 0.
pub fn nonzero(text: &str) -> Result<Size, String> {
    match text.parse()? {
        Size(0) => Err("must be more than 0 bytes".into()),
        size => Ok(size),
    }
}

/// A half-open range of bytes, `FROM..TO`; either end may be missing.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ByteRange {
    /// First byte.
    pub from: u64,
    /// One past the last byte; `None` is the end of the contents.
    pub to: Option<u64>,
}

impl ByteRange {
    /// Everything.
    pub const WHOLE: ByteRange = ByteRange { from: 0, to: None };
}

impl FromStr for ByteRange {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let (from, to) = text
            .split_once("..")
            .ok_or("a range is FROM..TO, where either may be missing: 1M..2M, 4096.., ..64K")?;
        let end = |text: &str| match text {
            "" => Ok(None),
            text => text.parse().map(|Size(bytes)| Some(bytes)),
        };
        let (from, to) = (end(from)?.unwrap_or(0), end(to)?);
        if to.is_some_and(|to| to < from) {
            return Err("the range ends before it begins".into());
        }
        Ok(ByteRange { from, to })
    }
}

/// Prints a number of bytes with three or four significant digits: `931 B`, `18.4 KiB`, `78.1 MiB`.
pub struct Human(pub u64);

impl fmt::Display for Human {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let mut value = self.0 as f64;
        let mut unit = "B";
        for larger in ["KiB", "MiB", "GiB", "TiB", "PiB", "EiB"] {
            // Use the next unit for a number that would round to 1024.
            if value < 1023.95 {
                break;
            }
            value /= 1024.0;
            unit = larger;
        }
        let text = match unit {
            "B" => format!("{value:.0} B"),
            _ => format!("{value:.1} {unit}"),
        };
        f.pad(&text)
    }
}

/// Uncompressed bytes divided by compressed bytes; 0 if there are no compressed bytes.
pub fn ratio(uncompressed: u64, compressed: u64) -> f64 {
    if compressed == 0 { 0.0 } else { uncompressed as f64 / compressed as f64 }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn sizes() {
        for (text, bytes) in [
            ("0", Some(0)),
            ("4096", Some(4096)),
            ("1b", Some(1)),
            ("64K", Some(64 << 10)),
            ("64k", Some(64 << 10)),
            ("64KiB", Some(64 << 10)),
            ("3mb", Some(3 << 20)),
            ("2G", Some(2 << 30)),
            ("1TiB", Some(1 << 40)),
            ("18446744073709551615", Some(u64::MAX)),
            ("18446744073709551616", None),
            ("16777216T", None),
            ("", None),
            ("K", None),
            ("-1", None),
            ("1.5M", None),
            ("1 M", None),
            ("1X", None),
        ] {
            assert_eq!(text.parse::<Size>().ok(), bytes.map(Size), "{text:?}");
        }
    }

    #[test]
    fn ranges() {
        for (text, range) in [
            ("..", Some((0, None))),
            ("1K..", Some((1024, None))),
            ("..1K", Some((0, Some(1024)))),
            ("5..5", Some((5, Some(5)))),
            ("1M..2M", Some((1 << 20, Some(2 << 20)))),
            ("5..4", None),
            ("5", None),
            ("a..b", None),
            ("1...2", None),
        ] {
            let expected = range.map(|(from, to)| ByteRange { from, to });
            assert_eq!(text.parse::<ByteRange>().ok(), expected, "{text:?}");
        }
    }

    #[test]
    fn human() {
        for (bytes, text) in [
            (0, "0 B"),
            (1023, "1023 B"),
            (1024, "1.0 KiB"),
            (1024 * 1024 - 1, "1.0 MiB"),
            (81_940_480, "78.1 MiB"),
            (u64::MAX, "16.0 EiB"),
        ] {
            assert_eq!(Human(bytes).to_string(), text);
        }
    }
}
