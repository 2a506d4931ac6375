//! Memory of a device that the processor writes and reads over the bus.
//!
//! The processor combines its writes and sends them in any order ("write-combining"). So data is [flushed](flush)
//! before the word that announces it, and the word is flushed too, or it might stay behind. Reads bypass the caches and
//! wait for the bus, so each reads as much as possible.

/// Sends this thread's writes, so that they arrive before its later ones.
pub(super) fn flush() {
    #[cfg(target_arch = "x86_64")]
    // SAFETY: every x86-64 processor has this instruction.
    unsafe {
        std::arch::x86_64::_mm_sfence();
    }
    #[cfg(target_arch = "aarch64")]
    // SAFETY: the barrier has no other effect.
    unsafe {
        std::arch::asm!("dsb st", options(nostack, preserves_flags));
    }
}

/// Copies the bytes from `from` on, as they are after this thread's earlier reads.
///
/// # Safety
/// `to.len()` bytes are readable at `from`, and `to` does not overlap them.
pub(super) unsafe fn read(from: *const u8, to: &mut [u8]) {
    #[cfg(target_arch = "x86_64")]
    if std::arch::is_x86_feature_detected!("sse4.1") {
        // SAFETY: the processor has these instructions, and the caller promises the rest.
        unsafe { read_streaming(from, to) };
        return;
    }
    std::sync::atomic::fence(std::sync::atomic::Ordering::SeqCst);
    // SAFETY: the caller promises it.
    unsafe { std::ptr::copy_nonoverlapping(from, to.as_mut_ptr(), to.len()) };
}

/// [`read`] with streaming loads, which fetch 64 bytes each, several in flight.
///
/// # Safety
/// As for [`read`].
#[cfg(target_arch = "x86_64")]
#[target_feature(enable = "sse4.1")]
unsafe fn read_streaming(from: *const u8, to: &mut [u8]) {
    use std::arch::x86_64::{__m128i, _mm_mfence, _mm_storeu_si128, _mm_stream_load_si128};
    const UNIT: usize = size_of::<__m128i>();
    // Without the fence, a buffer filled by an earlier streaming load could serve stale bytes.
    _mm_mfence();
    let first = from.align_offset(UNIT).min(to.len());
    let (head, rest) = to.split_at_mut(first);
    let units = rest.len() / UNIT;
    let (body, tail) = rest.split_at_mut(units * UNIT);
    // SAFETY: the three parts together are the bytes that the caller promises; the second one begins at a multiple of
    // 16.
    unsafe {
        std::ptr::copy_nonoverlapping(from, head.as_mut_ptr(), head.len());
        let begin = from.add(first);
        for (i, unit) in body.chunks_exact_mut(UNIT).enumerate() {
            let loaded = _mm_stream_load_si128(begin.cast::<__m128i>().add(i));
            _mm_storeu_si128(unit.as_mut_ptr().cast(), loaded);
        }
        std::ptr::copy_nonoverlapping(begin.add(body.len()), tail.as_mut_ptr(), tail.len());
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn any_bytes_are_copied_from_any_place() {
        let bytes: Vec<u8> = (0..300u16).map(|i| i as u8).collect();
        for start in 0..40 {
            for len in [0, 1, 15, 16, 17, 64, 100, 250] {
                let mut to = vec![0; len];
                flush();
                // SAFETY: the bytes are there.
                unsafe { read(bytes[start..][..len].as_ptr(), &mut to) };
                assert!(to == bytes[start..][..len]);
            }
        }
    }
}
