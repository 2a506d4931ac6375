//! Objects of the parent in the child of a fork, while threads of the parent are at work.
#![cfg(unix)]

#[path = "common/mod.rs"]
mod common;
#[cfg(feature = "remote")]
#[path = "common/http_server.rs"]
mod http_server;

use std::io::{Cursor, Read, Write};
use std::panic::{AssertUnwindSafe, catch_unwind};

use common::sample;
use pz::access::{Archive, ArchiveOptions, publish};
use pz::{
    Compressor, DecodeOptions, Decoder, Decompressor, Encoder, Error, Options, SeekableReader,
};

/// Time limit of a child, in seconds.
const PATIENCE: u32 = 60;

/// Forks. The child does `work`, and ends.
fn fork(work: impl FnOnce() -> Result<(), String>) -> libc::pid_t {
    // SAFETY: the child does what the library permits there, and ends without handlers.
    match unsafe { libc::fork() } {
        -1 => panic!("the system refuses a process"),
        0 => {
            // SAFETY: these take no pointers.
            unsafe {
                libc::signal(libc::SIGALRM, libc::SIG_DFL);
                libc::alarm(PATIENCE);
            }
            let outcome = catch_unwind(AssertUnwindSafe(work));
            let code = match outcome {
                Ok(Ok(())) => 0,
                Ok(Err(what)) => {
                    let line = format!("in a child: {what}\n");
                    // SAFETY: the line has this many bytes.
                    unsafe { libc::write(2, line.as_ptr().cast(), line.len()) };
                    1
                }
                Err(_) => 2,
            };
            // SAFETY: it takes no pointer.
            unsafe { libc::_exit(code) }
        }
        child => child,
    }
}

/// Takes a value in a child, which exits without dropping the variable that held it.
fn taken<T>(value: &T) -> T {
    // SAFETY: nobody uses the variable any more, and the parent has its own copy.
    unsafe { std::ptr::read(value) }
}

/// Waits for a child, and tells how it ended if not well.
fn join(child: libc::pid_t) -> Result<(), String> {
    let mut status = -1;
    // SAFETY: there is room for the status.
    assert_eq!(unsafe { libc::waitpid(child, &raw mut status, 0) }, child);
    match status {
        0 => Ok(()),
        status if libc::WIFSIGNALED(status) => {
            Err(format!("signal {}: it waited in vain", libc::WTERMSIG(status)))
        }
        status => Err(format!("exit code {}", libc::WEXITSTATUS(status))),
    }
}

fn check(is_right: bool, what: &str) -> Result<(), String> {
    if is_right { Ok(()) } else { Err(what.into()) }
}

fn in_words(error: impl std::fmt::Display) -> String {
    error.to_string()
}

fn blocks() -> Options {
    Options::new().block_size(1 << 16).threads(4)
}

/// Hundreds of children, forked at any moment, read the right bytes.
#[cfg(feature = "remote")]
#[test]
fn children_read_their_own_answers() {
    use http_server::{Answer, Server};
    use pz::access::{SourceOptions, SourceReader, Uri, open};
    use std::sync::atomic::{AtomicBool, Ordering};

    const FILES: usize = 40;
    /// Files of the same length and form. If connections got mixed up, only the contents would show it.
    fn contents(number: usize) -> Vec<u8> {
        format!("sample {number:03} ").repeat(50).into_bytes()
    }
    fn read(server: &Server, number: usize) -> Result<(), String> {
        let uri = Uri::parse(&server.url(&number.to_string())).map_err(in_words)?;
        let source = open(&uri, &SourceOptions::new()).map_err(in_words)?;
        let decoder = Decoder::new(SourceReader::new(source), &DecodeOptions::new());
        let mut found = Vec::new();
        decoder.map_err(in_words)?.read_to_end(&mut found).map_err(in_words)?;
        check(found == contents(number), &format!("another file's contents for {number}"))
    }

    let large = sample(600_000, 1);
    let packed = pz::compress(&large, &blocks()).unwrap();
    let files: Vec<_> =
        (0..FILES).map(|n| pz::compress(&contents(n), &Options::new()).unwrap()).collect();
    let server = Server::start(move |request| match request.path[1..].parse::<usize>() {
        Ok(number) => Answer::part(&files[number], request),
        Err(_) => Answer::part(&packed, request),
    });
    // Each read takes few bytes from the caches, and so goes to the server.
    let options = ArchiveOptions::new().contents_cache(100_000).payload_cache(0);
    let archive = Archive::open(&server.url("large.pz"), &options).unwrap();
    let read_part = |seed: usize| {
        let start = seed * 7919 % (large.len() - 50_000);
        let mut part = vec![0; 50_000];
        let range = start as u64..start as u64 + 50_000;
        archive.read_into(range, &mut part).map_err(in_words)?;
        check(part == large[start..start + 50_000], "another part of the archive")
    };
    let stop = AtomicBool::new(false);
    let outcome = std::thread::scope(|scope| {
        for thread in 0..4 {
            let (stop, server, read_part) = (&stop, &server, &read_part);
            scope.spawn(move || {
                for turn in (thread..).step_by(4).take_while(|_| !stop.load(Ordering::Relaxed)) {
                    read(server, turn % FILES).unwrap();
                    read_part(turn).unwrap();
                }
            });
        }
        let mut outcome = Ok(());
        for round in 0..40 {
            let children: Vec<_> = (0..5)
                .map(|child| {
                    fork(|| {
                        let first = round * 5 + child;
                        (first..first + 5).try_for_each(|n| read(&server, n % FILES))?;
                        read_part(first)
                    })
                })
                .collect();
            outcome = children.into_iter().map(join).fold(outcome, Result::and);
        }
        stop.store(true, Ordering::Relaxed);
        outcome
    });
    outcome.unwrap();
}

/// Objects that keep no state between calls also work in a child, with new threads.
#[test]
fn children_use_what_their_parent_made() {
    let contents = sample(600_000, 2);
    let statistics = pz::Statistics::new();
    let mut compressor = Compressor::new(&blocks().statistics(&statistics)).unwrap();
    let mut decompressor = Decompressor::new(&DecodeOptions::new().threads(4));
    let packed = compressor.compress(&contents).unwrap();
    assert!(decompressor.decompress(&packed).unwrap() == contents);
    let options = DecodeOptions::new().threads(4);
    let mut reader = SeekableReader::new(Cursor::new(packed.clone()), &options).unwrap();
    reader.copy_range(0..300_000, &mut Vec::new()).unwrap();
    publish("before-a-fork", packed.clone());
    let archive = Archive::open("memio://before-a-fork", &ArchiveOptions::new()).unwrap();
    archive.read_into(0..10, &mut [0; 10]).unwrap();
    for _ in 0..10 {
        join(fork(|| {
            check(compressor.compress(&contents).map_err(in_words)? == packed, "compress")?;
            let decompressed = decompressor.decompress(&packed).map_err(in_words)?;
            check(decompressed == contents, "decompress")?;
            let mut part = Vec::new();
            reader.copy_range(5..500_000, &mut part).map_err(in_words)?;
            check(part == contents[5..500_000], "a range")?;
            let mut part = vec![0; 300_000];
            archive.read_into(7..300_007, &mut part).map_err(in_words)?;
            check(part == contents[7..300_007], "an archive of the parent's")?;
            let own = Archive::open("memio://before-a-fork", &ArchiveOptions::new());
            own.map_err(in_words)?.read_into(7..300_007, &mut part).map_err(in_words)?;
            check(part == contents[7..300_007], "an archive of its own")?;
            check(statistics.cpu().blocks > 0, "statistics")?;
            drop((taken(&compressor), taken(&decompressor), taken(&reader), taken(&archive)));
            Ok(())
        }))
        .unwrap();
        assert!(compressor.compress(&contents).unwrap() == packed);
    }
}

/// A child can continue neither an encoder nor a decoder: their threads do not exist there, and the file belongs to the
/// parent.
#[test]
fn streams_stay_with_the_parent() {
    let contents = sample(600_000, 3);
    let packed = pz::compress(&contents, &blocks()).unwrap();
    let is_forked = |error: std::io::Error| matches!(Error::from(error), Error::Forked);
    for _ in 0..10 {
        let mut encoder = Encoder::new(Vec::new(), &blocks()).unwrap();
        encoder.write_all(&contents).unwrap();
        let mut closing = Encoder::new(Vec::new(), &blocks()).unwrap();
        closing.write_all(&contents).unwrap();
        let closing = closing.auto_finish();
        let mut decoder = Decoder::new(&packed[..], &DecodeOptions::new().threads(4)).unwrap();
        decoder.read_exact(&mut [0; 1 << 16]).unwrap();
        join(fork(|| {
            check(encoder.write(b"x").is_err_and(is_forked), "it writes")?;
            check(encoder.flush().is_err_and(is_forked), "it flushes")?;
            check(matches!(taken(&encoder).finish(), Err(Error::Forked)), "it finishes")?;
            drop(taken(&closing));
            check(decoder.read_to_end(&mut Vec::new()).is_err_and(is_forked), "it decodes")?;
            drop(taken(&decoder));
            Ok(())
        }))
        .unwrap();
        let mut rest = Vec::new();
        decoder.read_to_end(&mut rest).unwrap();
        assert!(rest == contents[1 << 16..]);
        assert!(encoder.finish().unwrap() == closing.finish().unwrap());
    }
}
