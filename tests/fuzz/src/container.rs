//! Whole files: all decoders restore the same contents from the same bytes, or refuse them.

use std::io::{Cursor, Read, Seek, SeekFrom};

use pz::access::{Archive, ArchiveError, ArchiveOptions, publish, withdraw};
use pz::{DecodeOptions, Decoder, Error, ErrorClass, Modules, Piece, Recovery, SeekableReader};

use crate::reseal::reseal;

/// The limit of contents for targets' decoders, in bytes.
const MAX_OUTPUT: u64 = 1 << 22;
/// The most memory that a decoder may take.
const MAX_MEMORY: u64 = 128 << 20;

fn options() -> DecodeOptions {
    let options = DecodeOptions::new().threads(1).modules(Modules::Allow);
    options.max_output(MAX_OUTPUT).max_memory(MAX_MEMORY)
}

/// Runs `test` on the bytes, and again with corrected checksums.
fn both(data: &[u8], test: impl Fn(&[u8])) {
    test(data);
    let mut sealed = data.to_vec();
    reseal(&mut sealed);
    if sealed != data {
        test(&sealed);
    }
}

/// Returns the decoded contents. If decoding failed, checks that the input or a limit was the reason.
fn blame_the_input<T>(result: Result<T, Error>) -> Option<T> {
    let is_limit =
        |error: &Error| matches!(error, Error::LimitMemory { .. } | Error::LimitOutput { .. });
    result.map_err(|e| assert!(e.class() == ErrorClass::Input || is_limit(&e), "{e}")).ok()
}

fn contents(data: &[u8]) -> Option<Vec<u8>> {
    blame_the_input(pz::decompress(data, &options()))
}

/// Compares decompression in one call, on one thread and on two.
pub fn one_shot(data: &[u8]) {
    both(data, |data| {
        let one = contents(data);
        let two = blame_the_input(pz::decompress(data, &options().threads(2)));
        assert!(one == two, "threads change the verdict or the contents");
        assert!(one.is_none_or(|out| out.len() as u64 <= MAX_OUTPUT), "a limit was passed");
    });
}

/// Compares the streaming decoder, read in small uneven parts, with decompression in one call.
pub fn stream(data: &[u8]) {
    both(data, |data| {
        let streamed = Decoder::new(data, &options()).ok().and_then(|mut decoder| {
            let mut out = Vec::new();
            let mut part = [0; 4099];
            loop {
                match decoder.read(&mut part) {
                    Ok(0) => return Some(out),
                    Ok(n) => out.extend_from_slice(&part[..n]),
                    Err(_) => return None,
                }
            }
        });
        assert!(streamed == contents(data), "the stream differs");
    });
}

/// Compares random access with reading from the beginning. It sees less of the file, so it may accept more.
pub fn seekable(data: &[u8]) {
    both(data, |data| {
        let whole = contents(data);
        let _ = pz::list(&mut Cursor::new(data), true);
        let Some(mut reader) = blame_the_input(SeekableReader::new(Cursor::new(data), &options()))
        else {
            assert!(whole.is_none(), "random access refuses a sound file");
            return;
        };
        let len = reader.len();
        for (from, n) in [(0, 10), (len / 2, 70_000), (len.saturating_sub(3), 10), (len, 1)] {
            let mut part = Vec::new();
            let read = reader
                .seek(SeekFrom::Start(from))
                .and_then(|_| (&mut reader).take(n).read_to_end(&mut part));
            let Some(whole) = &whole else { continue };
            read.expect("a sound file");
            let end = (from + n).min(len);
            assert!(part == whole[from as usize..end as usize], "{from}, {n} bytes");
        }
    });
}

/// Compares an archive with reading from the beginning. Like random access, it may accept more.
pub fn archive(data: &[u8]) {
    both(data, |data| {
        let whole = contents(data);
        let limits = ArchiveOptions::new().decode(&options()).contents_cache(1 << 16);
        // Tests run side by side, so each needs a name of its own.
        let name = format!("fuzz-{:?}", std::thread::current().id());
        publish(name.as_str(), data);
        let opened = Archive::open(&format!("memio://{name}"), &limits);
        withdraw(&name);
        let archive = match opened {
            Ok(archive) => archive,
            Err(ArchiveError::Format { error, .. }) => {
                assert!(error.class() != ErrorClass::Bug, "{error}");
                assert!(whole.is_none(), "an archive refuses a sound file");
                return;
            }
            Err(error) => panic!("{error}"),
        };
        let len = archive.len();
        for (from, n) in [(0, 10), (len / 2, 70_000), (len.saturating_sub(3), 10), (0, len)] {
            let end = (from + n).min(len);
            let mut part = vec![0; (end - from) as usize];
            let read = archive.read_into(from..end, &mut part);
            let Some(whole) = &whole else { continue };
            read.expect("a sound file");
            assert!(part == whole[from as usize..end as usize], "{from}, {n} bytes");
        }
    });
}

/// Checks that recovery ends, saves all of a sound file, and only refers to bytes within the file.
pub fn recover(data: &[u8]) {
    both(data, |data| {
        let whole = contents(data);
        let Ok(mut recovery) = Recovery::new(Cursor::new(data), &options()) else {
            assert!(whole.is_none(), "recovery refuses a sound file");
            return;
        };
        let mut saved = Vec::new();
        while let Ok(Some(piece)) = recovery.next_piece() {
            match piece {
                Piece::Block { source, contents, .. } => {
                    assert!(source.end <= data.len() as u64);
                    if saved.len() as u64 <= MAX_OUTPUT {
                        saved.extend_from_slice(contents);
                    }
                }
                Piece::Lost { source, .. } => assert!(source.end <= data.len() as u64),
                _ => {}
            }
        }
        if let Some(whole) = whole {
            assert!(saved == whole, "recovery loses what is sound");
        }
    });
}
