//! Kernels get the contents that they ask for.

use super::*;
use crate::door::layout::{self, HANDLES};
use crate::door::{AskError, KERNEL_SOURCE, KERNEL_SOURCE_WGSL};

/// The value of a constant whose line begins with `start`.
fn constant(source: &str, start: &str) -> u32 {
    let mut lines = source.lines().filter_map(|line| line.strip_prefix(start));
    let value = lines.next().unwrap_or_else(|| panic!("{start}"));
    let value = value.trim_end_matches(';').trim_end_matches('u');
    match value.strip_prefix("0x") {
        Some(digits) => u32::from_str_radix(digits, 16).unwrap(),
        None => value.parse().unwrap(),
    }
}

#[test]
fn both_sides_have_one_layout() {
    use std::mem::offset_of;

    use layout::{Answer, HandleState, Request, op};
    let of = |word: usize| word as u32;
    for (name, value) in [
        ("DOOR_VERSION", of(layout::VERSION)),
        ("DOOR_RING", of(layout::RING)),
        ("DOOR_CONSUMED", of(layout::CONSUMED)),
        ("DOOR_HEADER", of(layout::HEADER)),
        ("DOOR_ENTRY", of(layout::ENTRY)),
        ("DOOR_HANDLES", of(HANDLES)),
        ("DOOR_PATH", of(layout::PATH)),
        ("DOOR_R_OP", of(offset_of!(Request, op) / 4)),
        ("DOOR_R_HANDLE", of(offset_of!(Request, handle) / 4)),
        ("DOOR_R_FILE", of(offset_of!(Request, file) / 4)),
        ("DOOR_R_PIECE", of(offset_of!(Request, piece) / 4)),
        ("DOOR_R_OFFSET", of(offset_of!(Request, offset) / 4)),
        ("DOOR_R_LENGTH", of(offset_of!(Request, length) / 4)),
        ("DOOR_R_PATH", of(offset_of!(Request, path) / 4)),
        ("DOOR_R_TURN", of(offset_of!(Request, turn) / 4)),
        ("DOOR_R_TURN", of(layout::LAST)),
        ("DOOR_H_STATUS", of(offset_of!(Answer, status) / 4)),
        ("DOOR_H_ERROR", of(offset_of!(Answer, error) / 4)),
        ("DOOR_H_PLACE", of(offset_of!(Answer, place) / 4)),
        ("DOOR_H_BYTES", of(offset_of!(Answer, bytes) / 4)),
        ("DOOR_H_TOTAL", of(offset_of!(Answer, total) / 4)),
        ("DOOR_H_POOL", of(offset_of!(Answer, pool) / 4)),
        ("DOOR_H_FILE", of(offset_of!(Answer, file) / 4)),
        ("DOOR_H_PIECE", of(offset_of!(Answer, piece) / 4)),
        ("DOOR_H_WINDOW", of(offset_of!(Answer, window) / 4)),
        ("DOOR_H_PIECES", of(offset_of!(Answer, pieces) / 4)),
        ("DOOR_H_PIECES", of(layout::PIECES)),
        ("DOOR_H_CLOSED", of(offset_of!(Answer, closed) / 4)),
        ("DOOR_H_CLOSED", of(layout::LAST)),
        ("DOOR_C_REQUESTS", of(layout::REQUESTS)),
        ("DOOR_C_TAKEN", of(layout::TAKEN)),
        ("DOOR_C_USED", of(layout::USED)),
        ("DOOR_C_GENERATION", of(layout::GENERATION)),
        ("DOOR_OPEN", op::OPEN),
        ("DOOR_READ", op::READ),
        ("DOOR_STREAM", op::STREAM),
        ("DOOR_NEXT", op::NEXT),
        ("DOOR_WRITE", op::WRITE),
        ("DOOR_COMMIT", op::COMMIT),
        ("DOOR_NOTHING", op::NOTHING),
        ("DOOR_PLAIN", FileMode::Plain as u32),
        ("DOOR_CONTENTS", FileMode::Contents as u32),
        ("DOOR_WRITABLE", FileMode::Writable as u32),
        ("DOOR_LOADING", HandleState::Loading as u32),
        ("DOOR_READY", HandleState::Ready as u32),
        ("DOOR_ERROR", HandleState::Error as u32),
        ("DOOR_CLOSED", HandleState::Closed as u32),
        ("DOOR_SHUT", layout::SHUT),
        ("DOOR_FULL", RequestError::Full as u32),
        ("DOOR_REFUSED", RequestError::Refused as u32),
        ("DOOR_MISSING", RequestError::Missing as u32),
        ("DOOR_RANGE", RequestError::Range as u32),
        ("DOOR_CHANGED", RequestError::Changed as u32),
        ("DOOR_FAILED", RequestError::Failed as u32),
    ] {
        assert_eq!(constant(KERNEL_SOURCE, &format!("#define {name} ")), value, "{name}");
        assert_eq!(constant(KERNEL_SOURCE_WGSL, &format!("const {name} = ")), value, "{name}");
    }
    assert_eq!(constant(KERNEL_SOURCE_WGSL, "const DOOR_ZERO = "), of(layout::ZERO));
    let counters = crate::gpu::model::kernel::DOOR_MEASURE.cost().unwrap();
    let bytes = counters.buffer("door_counters").unwrap().eval(0);
    assert_eq!(bytes, Ok(4 * layout::COUNTERS as u64));
}

#[test]
fn ranges_of_files_and_archives() {
    let (_folder, door, client, contents, files) = with_file(700_000);
    let whole = contents.len() as u64;
    for file in files {
        for (offset, len) in [
            (0, 1),
            (0, 0),
            (whole, 0),
            (whole - 1, 1),
            (0, 65_536),
            (65_535, 2),
            (3, 300_001),
            (0, whole as u32),
            (123_457, 65_537),
        ] {
            let expected = &contents[offset as usize..][..len as usize];
            assert!(read(&client, file, offset, len).unwrap() == expected, "{offset} {len}");
        }
    }
    let statistics = door.statistics();
    assert_eq!((statistics.requests, statistics.failed, statistics.malformed), (18, 0, 0));
    assert!(statistics.bytes_read > 2 * whole);
}

#[test]
fn a_hundred_files_at_once() {
    let folder = Folder::new();
    let name = |i: usize| format!("file {i}");
    let contents: Vec<_> = (0..100).map(|i| mixture(20_000 + 3_000 * i)[i..].to_vec()).collect();
    for (i, contents) in contents.iter().enumerate() {
        match i % 2 {
            0 => folder.write(&name(i), contents),
            _ => folder.pack(&name(i), contents),
        }
    }
    let door = Door::on_host(&folder.options().host_pool(64 << 20)).unwrap();
    let client = door.client().unwrap();
    let mode = |i| if i % 2 == 0 { FileMode::Plain } else { FileMode::Contents };
    let opened: Vec<_> = (0..100).map(|i| client.open(&name(i), mode(i)).unwrap()).collect();
    let read: Vec<_> = opened
        .iter()
        .zip(&contents)
        .map(|(handle, contents)| {
            assert_eq!(wait(&client, handle), Status::Ready);
            assert_eq!(client.total(handle), contents.len() as u64);
            client.read(client.file(handle), 0, contents.len() as u32).unwrap()
        })
        .collect();
    for (handle, contents) in read.iter().zip(&contents) {
        assert_eq!(wait(&client, handle), Status::Ready);
        assert!(client.contents(handle) == *contents);
    }
    opened.into_iter().chain(read).for_each(|handle| client.close(handle));
    assert_eq!(door.statistics().failed, 0);
}

#[test]
fn all_handles_at_once_and_not_one_more() {
    let (_folder, door, client, contents, [plain, packed]) = with_file(300_000);
    let range = |i: usize| (i * 283, 100 + i % 7);
    let handles: Vec<_> = (0..HANDLES)
        .map(|i| {
            let (offset, len) = range(i);
            let file = if i % 8 == 0 { packed } else { plain };
            client.read(file, offset as u64, len as u32).unwrap()
        })
        .collect();
    assert_eq!(client.read(plain, 0, 1), Err(AskError::TableFull));
    assert_eq!(client.open("plain", FileMode::Plain), Err(AskError::TableFull));
    for (i, handle) in handles.iter().enumerate() {
        let (offset, len) = range(i);
        assert_eq!(wait(&client, handle), Status::Ready);
        assert!(client.contents(handle) == contents[offset..offset + len], "{i}");
    }
    handles.into_iter().for_each(|handle| client.close(handle));
    assert_eq!(read(&client, plain, 7, 5).unwrap(), contents[7..12]);
    assert_eq!(door.statistics().requests, 1025);
}

#[test]
fn a_full_ring_is_told_and_nothing_is_lost() {
    let folder = Folder::new();
    folder.write("plain", &mixture(10_000));
    let contents = mixture(10_000);
    let (server, client) = unattended(&folder.options().ring(128));
    let (file, _) = server.files.open("plain".as_ref(), FileMode::Plain).unwrap();
    let handles: Vec<_> = (0..128).map(|i| client.read(file.number, i, 9).unwrap()).collect();
    assert_eq!(client.read(file.number, 0, 1), Err(AskError::RingFull));
    assert_eq!(client.open("plain", FileMode::Plain), Err(AskError::RingFull));
    thread::scope(|scope| {
        scope.spawn(|| server.watch(0));
        scope.spawn(|| server.work(None));
        for (i, handle) in handles.into_iter().enumerate() {
            assert_eq!(wait(&client, &handle), Status::Ready);
            assert_eq!(client.contents(&handle), contents[i..i + 9]);
            client.close(handle);
        }
        for i in 0..1000 {
            assert_eq!(read(&client, file.number, i, 3).unwrap(), contents[i as usize..][..3]);
        }
        server.stop();
    });
    assert_eq!(server.statistics().requests, 1128);
}

#[test]
fn streams_of_any_pieces() {
    let (folder, _door, client, contents, files) = with_file(500_123);
    for file in files {
        for (offset, len, piece) in [
            (0, 500_123, 65_536),
            (77, 400_000, 5_000),
            (0, 100, 1_000_000),
            (5, 0, 1),
            (9, 999, 1),
        ] {
            let handle = client.stream(file, offset, len, piece).unwrap();
            assert_eq!(wait(&client, &handle), Status::Ready);
            let mut found = Vec::new();
            for number in 0.. {
                if found.len() as u64 == len {
                    assert!(client.piece(&handle, number).is_empty());
                    break;
                }
                until("no piece", || client.pieces(&handle) > number);
                found.extend(client.piece(&handle, number));
                client.next(&handle).unwrap();
            }
            assert!(found == contents[offset as usize..][..len as usize], "{offset} {len} {piece}");
            assert_eq!(client.total(&handle), len);
            client.close(handle);
        }
    }
    drop(folder);
}

/// A stream loads no further than there is room, and each piece is given up once.
#[test]
fn a_stream_waits_for_the_kernel() {
    let (_folder, door, client, contents, [plain, _]) = with_file(100_000);
    let handle = client.stream(plain, 0, 100_000, 10_240).unwrap();
    until("no pieces", || client.pieces(&handle) == 4);
    for _ in 0..4 {
        client.next(&handle).unwrap();
    }
    until("no more pieces", || client.pieces(&handle) == 8);
    assert!(client.piece(&handle, 3).is_empty() && client.piece(&handle, 8).is_empty());
    assert!(client.piece(&handle, 7) == contents[7 * 10_240..8 * 10_240]);
    // Piece 9 is not given up, even if all of these calls come late enough to count.
    for _ in 0..5 {
        client.next(&handle).unwrap();
    }
    until("not all pieces", || client.pieces(&handle) == 10);
    assert!(client.piece(&handle, 9) == contents[9 * 10_240..]);
    for _ in 0..4 {
        client.next(&handle).unwrap();
    }
    until("not taken", || door.statistics().requests == 14);
    // Some calls gave up pieces that were not loaded.
    assert!(door.statistics().malformed >= 2);
    client.close(handle);
}

#[test]
fn what_is_written_is_in_the_file() {
    let folder = Folder::new();
    folder.write("old", b"0123456789");
    let options = DoorOptions::new().writable_folder(&folder).workers(3);
    let door = Door::on_host(&options).unwrap();
    let client = door.client().unwrap();
    let write = |file, offset, bytes: &[u8]| {
        let handle = client.write(file, offset, bytes.len() as u32).unwrap();
        assert_eq!(wait(&client, &handle), Status::Ready);
        assert_eq!(client.bytes(&handle), bytes.len() as u64);
        let (first, second) = bytes.split_at(bytes.len() / 2);
        assert!(client.fill(&handle, 0, first) && client.fill(&handle, first.len(), second));
        assert!(!client.fill(&handle, 1, bytes) || bytes.is_empty());
        client.commit(&handle).unwrap();
        handle
    };
    let (old, len) = open(&client, "old", FileMode::Writable).unwrap();
    assert_eq!(len, 10);
    let handle = write(old, 8, b"abcd");
    assert_eq!(wait(&client, &handle), Status::Ready);
    assert_eq!((client.bytes(&handle), client.contents(&handle)), (0, vec![]));
    client.close(handle);
    assert_eq!(fs::read(folder.path("old")).unwrap(), b"01234567abcd");
    assert_eq!(read(&client, old, 6, 6).unwrap(), b"67abcd");
    // New files are created, and writes are completed even if their handles are closed at once.
    let (new, len) = open(&client, "new", FileMode::Writable).unwrap();
    assert_eq!(len, 0);
    for i in 0..200 {
        let handle = write(new, 1000 * i, &[i as u8; 1000]);
        client.close(handle);
    }
    until("not all is written", || door.statistics().bytes_written == 200_004);
    let expected: Vec<u8> = (0..200_000).map(|i| (i / 1000) as u8).collect();
    assert!(fs::read(folder.path("new")).unwrap() == expected);
    assert!(read(&client, new, 0, 200_000).unwrap() == expected);
    until("room is not given back", || door.free_bytes() == 64 << 20);
}

#[test]
fn many_threads_and_nothing_is_lost() {
    let (_folder, door, client, contents, files) = with_file(400_000);
    thread::scope(|scope| {
        for seed in 0..8 {
            let (client, contents) = (client.clone(), &contents);
            scope.spawn(move || {
                for (i, pick) in crate::test_data::noise(seed, 3 * 300, 256).chunks(3).enumerate() {
                    let offset = usize::from(pick[0]) * 1500 + usize::from(pick[1]);
                    let len = 1 + usize::from(pick[2]) * 40;
                    let file = files[usize::from(i % 10 == 0)];
                    let found = read(&client, file, offset as u64, len as u32).unwrap();
                    assert!(found == contents[offset..offset + len]);
                }
            });
        }
    });
    let statistics = door.statistics();
    assert_eq!((statistics.requests, statistics.failed, statistics.malformed), (2400, 0, 0));
    assert_eq!(statistics.abandoned, 0);
}

/// Handles are used again and again, and an answer to an earlier use is never taken for a later one.
#[test]
fn handles_that_are_closed_early_are_used_again() {
    let (_folder, door, client, contents, [plain, packed]) = with_file(200_000);
    for i in 0..3000u64 {
        let gone = client.read(packed, i * 60, 70).unwrap();
        let stream = client.stream(packed, i, 100_000, 1000);
        client.close(gone);
        let handle = client.read(plain, i, 33).unwrap();
        stream.into_iter().for_each(|stream| client.close(stream));
        assert_eq!(wait(&client, &handle), Status::Ready);
        assert_eq!(client.contents(&handle), contents[i as usize..][..33]);
        client.close(handle);
        // Slower workers would find no room for closed reads, and count that as a failure.
        until("room is not given back", || door.free_bytes() > 4 << 20);
    }
    until("room is not given back", || door.free_bytes() == 8 << 20);
    assert_eq!(door.statistics().failed, 0);
}

/// Requests are counted in 32 bits, and the uses of a handle in 22.
#[test]
fn counts_wrap_around() {
    let folder = Folder::new();
    let contents = mixture(10_000);
    folder.write("plain", &contents);
    let (server, client) = unattended(&folder.options().ring(128));
    let (file, _) = server.files.open("plain".as_ref(), FileMode::Plain).unwrap();
    let first = u32::MAX - 1000;
    for word in [
        client.counter(layout::REQUESTS),
        client.counter(layout::TAKEN),
        client.word(layout::CONSUMED),
    ] {
        word.store(first, Ordering::Relaxed);
    }
    for number in 0..HANDLES {
        client.counter(layout::GENERATION + number).store(0xffff_fff0, Ordering::Relaxed);
    }
    thread::scope(|scope| {
        scope.spawn(|| server.watch(first));
        scope.spawn(|| server.work(None));
        for round in 0..50u64 {
            let ask = |i| client.read(file.number, round * 50 + i, 9).unwrap();
            let handles: Vec<_> = (0..50).map(ask).collect();
            for (handle, at) in handles.into_iter().zip(round as usize * 50..) {
                assert_eq!(wait(&client, &handle), Status::Ready);
                assert_eq!(client.contents(&handle), contents[at..at + 9]);
                client.close(handle);
            }
        }
        server.stop();
    });
    assert_eq!((server.statistics().requests, server.statistics().malformed), (2500, 0));
}
