//! Headers of files with arrays and columns.

use super::{Bytes, Element, Hints, Rows};
use crate::codec::filter::Stage;

/// NumPy's format: a magic number, a version, and a Python dictionary with element type and shape.
pub(super) fn npy(header: Bytes<'_>, hints: &mut Hints) -> Option<()> {
    header.after(b"\x93NUMPY")?;
    let (start, len) = match header.array::<1>(6)? {
        [1] => (10, header.u16(8)?),
        [2 | 3] => (12, header.u32(8)?),
        _ => return None,
    };
    let text = header.at(start)?.0.get(..usize::try_from(len).ok()?)?;
    let text = std::str::from_utf8(text).ok()?;
    let data = start + len;
    let kind = text.split_once("'descr':")?.1.trim_start();
    if let Some(fields) = kind.strip_prefix('[') {
        add_records(width_of_fields(fields.split_once(']')?.0)?, hints);
        return Some(());
    }
    let (order, kind, width) = dtype(kind.strip_prefix('\'')?.split_once('\'')?.0)?;
    let shape = text.split_once("'shape':")?.1.trim_start().strip_prefix('(')?.split_once(')')?.0;
    let shape = shape.split(',').map(str::trim).filter(|len| !len.is_empty());
    let mut shape: Vec<u64> = shape.map(str::parse).collect::<Result<_, _>>().ok()?;
    // From here on, the fastest-varying index comes first.
    if !text.contains("'fortran_order': True") {
        shape.reverse();
    }
    let (is_float, parts) = match kind {
        'i' | 'u' | 'b' | 'm' | 'M' => (false, 1),
        'f' => (true, 1),
        'c' => (true, 2),
        'S' | 'V' => {
            add_records(width, hints);
            return Some(());
        }
        _ => return None,
    };
    let width = u8::try_from(width / parts).ok()?;
    let is_native = order != '>' && width > 0 && data.is_multiple_of(width.into());
    let element = Element { width, is_float, is_native };
    let (pixel, row) = match shape[..] {
        [channels @ 2..=4, columns, _, ..] => (channels, channels.checked_mul(columns)?),
        [columns, _, ..] => (1, columns),
        _ => (1, 0),
    };
    hints.add_rows(Rows { element, pixel: pixel * parts, row: row.checked_mul(parts)? });
    Some(())
}

/// Byte order, kind and width in bytes of `<f4` and the like.
fn dtype(text: &str) -> Option<(char, char, u64)> {
    let mut chars = text.chars();
    let (order, kind) = (chars.next()?, chars.next()?);
    // Types of times have a unit after the width.
    let width = chars.as_str().split('[').next()?.parse().ok()?;
    matches!(order, '<' | '>' | '|' | '=').then_some((order, kind, width))
}

/// The width of records with fields such as `('price', '<f8'), ('count', '<i4')`.
fn width_of_fields(fields: &str) -> Option<u64> {
    let mut width = 0_u64;
    for field in fields.split_inclusive(')') {
        let Some((_, field)) = field.split_once('(') else { continue };
        let mut parts = field.strip_suffix(')')?.split('\'');
        let kind = parts.nth(3)?;
        // A field that is an array has its shape after the type.
        if !parts.next()?.trim().is_empty() {
            return None;
        }
        width = width.checked_add(dtype(kind)?.2)?;
    }
    Some(width)
}

/// Adds chains for records of `width` bytes.
fn add_records(width: u64, hints: &mut Hints) {
    let Ok(width) = u8::try_from(width) else { return };
    let transpose = Stage::Transpose { width };
    hints.add(&[transpose]);
    if width.is_multiple_of(4) {
        let delta = Stage::Delta { width: 4, order: 1, stride: u16::from(width / 4) };
        hints.add(&[delta, transpose]);
    }
    hints.add(&[Stage::Delta { width: 1, order: 1, stride: width.into() }, transpose]);
}

/// The format of weights: the length of a JSON object, and the object, which names the type of each tensor.
pub(super) fn safetensors(header: Bytes<'_>, hints: &mut Hints) -> Option<()> {
    // The format permits 100 MB.
    let len = u64::from_le_bytes(header.array(0)?);
    let text = header.at(8)?;
    if len > 100_000_000 || text.after(b"{\"").is_none() {
        return None;
    }
    let data = 8 + len;
    let text = text.0.get(..len.min(text.0.len() as u64) as usize)?;
    let key = b"\"dtype\":\"";
    let mut types = text.windows(key.len()).enumerate().filter(|(_, window)| window == key);
    // The types that occur, each once.
    let mut seen: Vec<&[u8]> = Vec::new();
    while let Some((at, _)) = types.next()
        && seen.len() < 4
    {
        let name = &text[at + key.len()..];
        let Some(end) = name.iter().position(|&byte| byte == b'"') else { break };
        if !seen.contains(&&name[..end]) {
            seen.push(&name[..end]);
        }
    }
    for name in &seen {
        let (width, is_float) = match *name {
            b"BF16" | b"F16" => (2, true),
            b"F32" | b"C64" => (4, true),
            b"F64" => (8, true),
            b"I16" | b"U16" => (2, false),
            b"I32" | b"U32" => (4, false),
            b"I64" | b"U64" => (8, false),
            _ => continue,
        };
        let transpose = Stage::Transpose { width };
        if !data.is_multiple_of(width.into()) {
            hints.add(&[transpose]);
        } else if is_float {
            hints.add(&[Stage::Rotate { width, bits: 1 }, transpose]);
        } else {
            let delta = Stage::Delta { width, order: 1, stride: 1 };
            hints.add(&[delta, Stage::Zigzag { width }, transpose]);
        }
    }
    (!seen.is_empty()).then_some(())
}

/// Columns. The file's metadata stands at its end; its beginning is the first page of a column, with the number and
/// size of its values in Thrift's compact protocol.
pub(super) fn parquet(header: Bytes<'_>, hints: &mut Hints) -> Option<()> {
    let mut page = Thrift { bytes: header.after(b"PAR1")? };
    let (mut sizes, mut values) = ([None; 2], None);
    let mut id = 0;
    while let Some(kind) = page.field(&mut id)? {
        match (id, kind) {
            (2 | 3, Thrift::I32) => sizes[id as usize - 2] = Some(page.number()?),
            (1 | 4, Thrift::I32) => drop(page.number()?),
            // A page's header begins with numbers: the number of values, in newer data pages also those of nulls and
            // rows, and the encoding.
            (5 | 7 | 8, Thrift::STRUCT) => {
                let mut numbers = [0; 4];
                let count = if id == 8 { 4 } else { 2 };
                for (i, number) in numbers[..count].iter_mut().enumerate() {
                    let mut id = i as u8;
                    page.field(&mut id)?
                        .filter(|&kind| (id, kind) == (i as u8 + 1, Thrift::I32))?;
                    *number = page.number()?;
                }
                values = Some(numbers[0]);
                // Plain values, of a dictionary or a data page.
                if !matches!(numbers[count - 1], 0 | 2) {
                    return None;
                }
                break;
            }
            _ => return None,
        }
    }
    let ([Some(size), Some(packed)], Some(values @ 1..)) = (sizes, values) else { return None };
    // Filters cannot help compressed pages.
    if size != packed {
        return None;
    }
    // Before the values, a mask of missing ones may stand, of at most a bit each.
    let width = [8, 4].into_iter().find(|width| {
        let least = values * width;
        (least..=least + values / 8 + 64).contains(&size)
    })?;
    // Pages begin anywhere, so numbers are not aligned.
    for width in [width, 12 - width] {
        let element = Element { width: width as u8, is_float: false, is_native: false };
        hints.add_rows(Rows { element, pixel: 1, row: 0 });
    }
    Some(())
}

/// Thrift's compact protocol.
struct Thrift<'a> {
    bytes: &'a [u8],
}

impl Thrift<'_> {
    const I32: u8 = 5;
    const STRUCT: u8 = 12;

    fn byte(&mut self) -> Option<u8> {
        let (&byte, rest) = self.bytes.split_first()?;
        self.bytes = rest;
        Some(byte)
    }

    /// The type of the next field; `id` gets its id, which is stored as a difference. `Some(None)` at the end of a
    /// structure.
    fn field(&mut self, id: &mut u8) -> Option<Option<u8>> {
        let byte = self.byte()?;
        if byte == 0 {
            return Some(None);
        }
        let step = byte >> 4;
        // Ids more than 15 apart have another form, which does not occur here.
        *id = id.checked_add(step).filter(|_| step > 0)?;
        Some(Some(byte & 15))
    }

    /// A number that is not negative.
    fn number(&mut self) -> Option<u64> {
        let mut number = 0;
        for shift in (0..35).step_by(7) {
            let byte = self.byte()?;
            number |= u64::from(byte & 127) << shift;
            if byte < 128 {
                let is_positive = number & 1 == 0;
                return is_positive.then_some(number >> 1);
            }
        }
        None
    }
}
