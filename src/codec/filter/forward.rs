//! Applies a chain of filters.

use super::bit_planes::transpose_all_bits;
use super::dictionary::Values;
use super::transpose::transpose;
use super::words::Word;
use super::{ApplyFault, Context, FilterChain, Stage, decimal};
use crate::codec::{OutOfMemory, reserve};

/// Writes the filtered `contents` to `filtered`. Returns false if the chain does not fit these contents: they have
/// floats whose bits [`Stage::Decimal`] uses for integers, or too many values for [`Stage::Dictionary`].
pub(crate) fn apply(
    chain: &FilterChain,
    contents: &[u8],
    filtered: &mut Vec<u8>,
    scratch: &mut Vec<u8>,
    context: Context<'_>,
) -> Result<bool, ApplyFault> {
    reserve(filtered, contents.len())?;
    reserve(scratch, FilterChain::scratch_len(contents.len()))?;
    filtered.clear();
    filtered.extend_from_slice(contents);
    let mut values = Values::default();
    for (i, unit) in filtered.chunks_mut(chain.unit_len()).enumerate() {
        for stage in chain.stages() {
            if let Stage::Module(call) = stage {
                context.apply(call, i * chain.unit_len(), unit, scratch)?;
            } else if !apply_stage(stage, unit, scratch, &mut values)? {
                return Ok(false);
            }
        }
    }
    Ok(true)
}

/// Like [`apply`], for a chain without modules.
pub(super) fn apply_built_in(
    chain: &FilterChain,
    contents: &[u8],
    filtered: &mut Vec<u8>,
    scratch: &mut Vec<u8>,
) -> Result<bool, OutOfMemory> {
    match apply(chain, contents, filtered, scratch, Context::default()) {
        Ok(fits) => Ok(fits),
        Err(ApplyFault::OutOfMemory(refused)) => Err(refused),
        Err(ApplyFault::Module { .. }) => Ok(false),
    }
}

/// Applies a stage to a unit. Returns false if it does not fit.
fn apply_stage(
    stage: Stage,
    unit: &mut [u8],
    scratch: &mut Vec<u8>,
    values: &mut Values,
) -> Result<bool, OutOfMemory> {
    match (stage, stage.width()) {
        (Stage::BitTranspose { .. }, width) => {
            let whole = unit.len() / (8 * width) * (8 * width);
            let before = copy(unit, scratch);
            transpose_all_bits(&before[..whole], &mut unit[..whole], width);
        }
        (Stage::Decimal { width: 4, digits }, _) => {
            let codes = |bits| decimal::of_f32(bits, digits);
            return Ok(each_decimal(u32::elements_mut(unit), codes));
        }
        (Stage::Decimal { digits, .. }, _) => {
            let codes = |bits| decimal::of_f64(bits, digits);
            return Ok(each_decimal(u64::elements_mut(unit), codes));
        }
        (Stage::NearDecimal { digits }, _) => {
            let codes = |bits| decimal::of_near(bits, digits);
            return Ok(each_decimal(u64::elements_mut(unit), codes));
        }
        (Stage::Dictionary { index, digits, .. }, width) => {
            return match width {
                4 => values.apply::<u32>(unit, (index, digits)),
                _ => values.apply::<u64>(unit, (index, digits)),
            };
        }
        (Stage::Calls { machine }, _) => machine.apply(unit),
        _ => {
            #[cfg(all(feature = "simd", target_arch = "x86_64"))]
            if crate::codec::lanes::avx2::is_available() {
                // SAFETY: the features are present.
                unsafe { apply_with_avx2(stage, unit, scratch) };
                return Ok(true);
            }
            apply_inline(stage, unit, scratch);
        }
    }
    Ok(true)
}

/// [`apply_inline`], compiled for AVX2.
#[cfg(all(feature = "simd", target_arch = "x86_64"))]
#[target_feature(enable = "avx2,bmi1,bmi2,lzcnt,popcnt")]
fn apply_with_avx2(stage: Stage, unit: &mut [u8], scratch: &mut Vec<u8>) {
    apply_inline(stage, unit, scratch);
}

/// Applies a stage that always fits, compiled for the processor that the caller is compiled for.
#[inline(always)]
fn apply_inline(stage: Stage, unit: &mut [u8], scratch: &mut Vec<u8>) {
    match (stage, stage.width()) {
        (Stage::Transpose { .. }, width) => {
            let whole = unit.len() / width * width;
            let before = copy(unit, scratch);
            transpose(&before[..whole], &mut unit[..whole], width);
        }
        (_, 1) => apply_to::<u8>(stage, unit, scratch),
        (_, 2) => apply_to::<u16>(stage, unit, scratch),
        (_, 4) => apply_to::<u32>(stage, unit, scratch),
        _ => apply_to::<u64>(stage, unit, scratch),
    }
}

fn copy<'s>(unit: &[u8], scratch: &'s mut Vec<u8>) -> &'s [u8] {
    scratch.clear();
    scratch.extend_from_slice(unit);
    scratch
}

/// Applies a stage that has elements of type `W` and leaves them in their places.
#[inline(always)]
fn apply_to<W: Word>(stage: Stage, unit: &mut [u8], scratch: &mut Vec<u8>) {
    match stage {
        Stage::Delta { order, stride, .. } | Stage::ZigzagDelta { order, stride, .. } => {
            for _ in 0..order {
                subtract::<W>(unit, scratch, stride, W::sub);
            }
            if matches!(stage, Stage::ZigzagDelta { .. }) {
                each(W::elements_mut(unit), W::zigzag);
            }
        }
        Stage::Xor { stride, .. } => subtract::<W>(unit, scratch, stride, W::xor),
        Stage::Zigzag { .. } => each(W::elements_mut(unit), W::zigzag),
        Stage::Rotate { bits, .. } => each(W::elements_mut(unit), |word: W| word.rotate(bits)),
        Stage::Transpose { .. }
        | Stage::BitTranspose { .. }
        | Stage::Decimal { .. }
        | Stage::NearDecimal { .. }
        | Stage::Dictionary { .. }
        | Stage::Calls { .. }
        | Stage::Module(_) => {}
    }
}

/// Replaces each element by its difference to the one `stride` before, as `sub` defines it.
#[inline(always)]
fn subtract<W: Word>(unit: &mut [u8], scratch: &mut Vec<u8>, stride: u16, sub: impl Fn(W, W) -> W) {
    let before = W::elements(copy(unit, scratch));
    let elements = W::elements_mut(unit);
    if let Some(elements) = elements.get_mut(stride.into()..) {
        for (element, before) in elements.iter_mut().zip(before) {
            *element = sub(W::load(*element), W::load(*before)).store();
        }
    }
}

#[inline(always)]
fn each<W: Word>(elements: &mut [W::Bytes], act: impl Fn(W) -> W) {
    for element in elements {
        *element = act(W::load(*element)).store();
    }
}

/// Replaces each element by its code. Returns false if one has none.
fn each_decimal<W: Word>(elements: &mut [W::Bytes], code: impl Fn(W) -> Option<W>) -> bool {
    elements.iter_mut().all(|element| match code(W::load(*element)) {
        Some(code) => {
            *element = code.store();
            true
        }
        None => false,
    })
}
