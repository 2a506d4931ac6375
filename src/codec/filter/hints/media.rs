//! Headers of sound and pictures.

use super::{Bytes, Element, Hints, LOOKED_AT, Rows};
use crate::codec::filter::Stage;

/// Sound: one of its chunks gives the width of samples and the number of channels.
pub(super) fn wav(header: Bytes<'_>, hints: &mut Hints) -> Option<()> {
    let magic: [u8; 4] = header.array(0)?;
    if !matches!(&magic, b"RIFF" | b"RF64") || header.array(8)? != *b"WAVE" {
        return None;
    }
    let (mut at, mut format) = (12, None);
    let data = loop {
        let (id, len) = (header.array::<4>(at)?, header.u32(at + 4)?);
        at += 8;
        match &id {
            b"data" => break at,
            b"fmt " => format = Some(at),
            _ => {}
        }
        at += len + len % 2;
    };
    let format = header.at(format?)?;
    let tag = match format.u16(0)? {
        0xfffe => format.u16(24)?,
        tag => tag,
    };
    let (channels, frame) = (format.u16(2)?, format.u16(12)?);
    if !matches!(tag, 1 | 3) || channels == 0 || !frame.is_multiple_of(channels) {
        return None;
    }
    let width = u8::try_from(frame / channels).ok().filter(|width| matches!(width, 1..=8))?;
    let is_native = data.is_multiple_of(width.into());
    let element = Element { width, is_float: tag == 3, is_native };
    hints.add_rows(Rows { element, pixel: channels, row: 0 });
    if !element.is_float
        && element.is_in_words()
        && let Ok(stride) = u16::try_from(channels)
    {
        let (delta, zigzag) = (Stage::Delta { width, order: 1, stride }, Stage::Zigzag { width });
        hints.add(&[delta, zigzag, Stage::BitTranspose { width }]);
        hints.add(&[Stage::Delta { width, order: 2, stride }, zigzag, Stage::Transpose { width }]);
        hints.add(&[
            Stage::Delta { width, order: 2, stride },
            zigzag,
            Stage::BitTranspose { width },
        ]);
    }
    Some(())
}

/// Pictures of Windows: rows of pixels, each padded to 4 bytes.
pub(super) fn bmp(header: Bytes<'_>, hints: &mut Hints) -> Option<()> {
    header.after(b"BM")?;
    let (data, len) = (header.u32(10)?, header.u32(14)?);
    let (columns, planes) = (header.u32(18)?, header.u16(26)?);
    let (bits, method) = (header.u16(28)?, header.u32(30)?);
    let is_plain = (40..=124).contains(&len) && data >= 14 + len && planes == 1;
    if !is_plain || !matches!(method, 0 | 3) || !matches!(bits, 8 | 16 | 24 | 32) || columns == 0 {
        return None;
    }
    let row = (columns * bits).div_ceil(32) * 4;
    let element = Element { width: 1, is_float: false, is_native: true };
    hints.add_rows(Rows { element, pixel: bits / 8, row });
    Some(())
}

/// Pictures: numbered fields. The header gives their byte order and place.
pub(super) fn tiff(header: Bytes<'_>, hints: &mut Hints) -> Option<()> {
    let magic: [u8; 4] = header.array(0)?;
    let is_big = match &magic {
        b"II*\0" | b"II+\0" => false,
        b"MM\0*" | b"MM\0+" => true,
        _ => return None,
    };
    let number = |at: u64, len: u64| {
        let bytes = header.at(at)?.0.get(..len as usize)?.iter();
        let push = |number: u64, &byte: &u8| number << 8 | u64::from(byte);
        Some(if is_big { bytes.fold(0, push) } else { bytes.rev().fold(0, push) })
    };
    // The newer format has longer numbers.
    let is_long = magic.contains(&b'+');
    let [word, count_len, field_len, fields] =
        if is_long { [8, 8, 20, number(8, 8)?] } else { [4, 2, 12, number(4, 4)?] };
    if fields > LOOKED_AT as u64 {
        return None;
    }
    let count = number(fields, count_len)?;
    let field = |wanted: u64| {
        let places = (0..count.min(100)).map(|i| fields + count_len + i * field_len);
        let at = places.take_while(|&at| number(at, 2).is_some_and(|tag| tag <= wanted)).last()?;
        if number(at, 2)? != wanted {
            return None;
        }
        let width = match number(at + 2, 2)? {
            3 => 2,
            4 => 4,
            16 => 8,
            _ => return None,
        };
        let (values, place) = (number(at + 4, word)?, at + 4 + word);
        // Longer values stand elsewhere. Only the first counts.
        let place = if values.checked_mul(width)? <= word { place } else { number(place, word)? };
        number(place, width)
    };
    let bits = field(258)?;
    let (method, kind) = (field(259).unwrap_or(1), field(339).unwrap_or(1));
    let samples = if field(284) == Some(2) { 1 } else { field(277).unwrap_or(1) };
    let columns = field(322).or_else(|| field(256))?;
    if method != 1 || !matches!(bits, 8 | 16 | 32 | 64) || samples == 0 || columns == 0 {
        return None;
    }
    let width = bits as u8 / 8;
    let data = field(324).or_else(|| field(273));
    let is_native = (!is_big && data?.is_multiple_of(width.into())) || width == 1;
    let element = Element { width, is_float: kind == 3, is_native };
    hints.add_rows(Rows { element, pixel: samples, row: columns.checked_mul(samples)? });
    Some(())
}
