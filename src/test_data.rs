//! Test data for several modules: the same bytes each time.

/// Bytes of a fixed pseudo-random sequence, each below `symbols` (Marsaglia's xorshift32).
pub(crate) fn noise(seed: u32, len: usize, symbols: u32) -> Vec<u8> {
    let mut x = 0x9e37_79b9u32 ^ seed;
    let mut next = || {
        x ^= x << 13;
        x ^= x >> 17;
        x ^= x << 5;
        (x % symbols) as u8
    };
    (0..len).map(|_| next()).collect()
}

/// Bytes with many call instructions, some of which overlap.
pub(crate) fn calls(seed: u32, len: usize) -> Vec<u8> {
    let byte = |x: u8| [0xe8, 0xe9, 0, 0xff, 0x94, 0x97, 7, 0xe7][usize::from(x) % 8];
    noise(seed, len, 256).into_iter().map(byte).collect()
}

/// Text with repetitions at many distances, and some noise.
pub(crate) fn mixture(len: usize) -> Vec<u8> {
    let text = include_bytes!("codec/lz77/stream/decode.rs");
    let picks = noise(1, len / 8 + 8, 256);
    let mut out = Vec::new();
    for pick in picks.chunks_exact(4) {
        let from = usize::from(pick[0]) * 29 % (text.len() - 300);
        out.extend_from_slice(&text[from..from + usize::from(pick[1])]);
        out.extend_from_slice(&pick[..usize::from(pick[2] % 5)]);
        out.resize(out.len() + usize::from(pick[3] / 8), pick[3]);
        if out.len() >= len {
            break;
        }
    }
    out.truncate(len);
    out
}

/// A text of a few phrases, then another, then the first again. So its end has a long repetition far away and many
/// short ones nearby. Only the far one has the eight random bytes that occur now and then.
pub(crate) fn far_and_near(len: usize) -> Vec<u8> {
    let source = include_bytes!("codec/lz77/stream/decode.rs");
    let phrases = |seed, len| -> Vec<u8> {
        let picks = noise(seed, len / 16 + 1, 8).into_iter().map(usize::from);
        picks.flat_map(|pick| &source[64 * pick..][..16 + pick]).copied().take(len).collect()
    };
    let mut text = phrases(1, len * 2 / 5);
    let other = phrases(2, len - 2 * text.len());
    for (part, mark) in text.chunks_exact_mut(12_000).zip(noise(3, len, 256).as_chunks::<8>().0) {
        part[700..708].copy_from_slice(mark);
    }
    [&text[..], &other, &text].concat()
}
