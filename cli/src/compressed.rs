//! Recognises files that are already compressed, and would not get smaller.

use crate::formats::Format;

/// Number of first bytes that [`name`] needs.
pub const HEAD: usize = 8;

/// Names the compressed format of a file that begins with `head`. `None`: the file may be worth compressing.
///
/// The list leaves out zip archives, pictures and the like: parts of them may be uncompressed.
pub fn name(head: &[u8]) -> Option<&'static str> {
    match (Format::of(head), head) {
        (Format::Pz, [0x89, b'P', b'Z', b'F', 0x0d, 0x0a, 0x1a, 0x0a, ..]) => Some("pz"),
        (Format::Pz, [0x1f, 0x9d, ..]) => Some("compress (.Z)"),
        (Format::Pz, [b'L', b'Z', b'I', b'P', 1, ..]) => Some("lzip"),
        (Format::Pz, [0x89, b'L', b'Z', b'O', 0, 0x0d, 0x0a, 0x1a, ..]) => Some("lzop"),
        (Format::Pz, [b'7', b'z', 0xbc, 0xaf, 0x27, 0x1c, ..]) => Some("7z"),
        (Format::Pz, [b'R', b'a', b'r', b'!', 0x1a, 0x07, ..]) => Some("rar"),
        (Format::Pz, _) => None,
        (format, _) => Some(format.name()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn first_bytes() {
        for (head, format) in [
            (&b"\x89PZF\r\n\x1a\n"[..], Some("pz")),
            (b"\x1f\x8b\x08\x00\x00\x00\x00\x00", Some("gzip")),
            (b"\x28\xb5\x2f\xfd\x04\x00\x00\x00", Some("zstd")),
            (b"\xfd7zXZ\x00\x00\x04", Some("xz")),
            (b"BZh91AY&", Some("bzip2")),
            (b"\x04\x22\x4d\x18\x64\x40\xa7\x00", Some("lz4")),
            (b"\x1f\x9d\x90", Some("compress (.Z)")),
            (b"LZIP\x01\x0c", Some("lzip")),
            (b"\x89LZO\x00\r\n\x1a", Some("lzop")),
            (b"7z\xbc\xaf\x27\x1c\x00\x04", Some("7z")),
            (b"Rar!\x1a\x07\x01\x00", Some("rar")),
            (b"PK\x03\x04\x14\x00\x00\x00", None),
            (b"\x89PNG\r\n\x1a\n", None),
            (b"LZIPPER ", None),
            (b"text", None),
            (b"", None),
        ] {
            assert_eq!(name(head), format, "{head:x?}");
        }
    }
}
