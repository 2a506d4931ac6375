//! Every error, each at its place, and no endless wait.

use super::*;
use crate::door::{AskError, DoorError};

#[test]
fn paths_stay_in_the_folder() {
    let folder = Folder::new();
    let outside = Folder::new();
    outside.write("secret", b"secret");
    fs::create_dir(folder.path("inner")).unwrap();
    folder.write("inner/file", b"contents");
    let secret = outside.path("secret").display().to_string();
    let mut cases = vec![
        ("inner/file", FileMode::Plain, Ok(8)),
        ("./inner/./file", FileMode::Plain, Ok(8)),
        ("inner/missing", FileMode::Plain, Err(RequestError::Missing)),
        ("missing/file", FileMode::Plain, Err(RequestError::Missing)),
        ("inner/file/file", FileMode::Plain, Err(RequestError::Missing)),
        ("", FileMode::Plain, Err(RequestError::Refused)),
        (".", FileMode::Plain, Err(RequestError::Refused)),
        ("..", FileMode::Plain, Err(RequestError::Refused)),
        ("inner/../inner/file", FileMode::Plain, Err(RequestError::Refused)),
        ("../secret", FileMode::Plain, Err(RequestError::Refused)),
        (&secret, FileMode::Plain, Err(RequestError::Refused)),
        ("inner", FileMode::Plain, Err(RequestError::Refused)),
        ("inner/fi\0le", FileMode::Plain, Err(RequestError::Refused)),
        ("inner/file", FileMode::Writable, Err(RequestError::Refused)),
        ("inner/new", FileMode::Writable, Err(RequestError::Refused)),
        ("inner/file", FileMode::Contents, Err(RequestError::Failed)),
    ];
    #[cfg(unix)]
    {
        use std::os::unix::fs::symlink;
        symlink("file", folder.path("inner/link")).unwrap();
        symlink(outside.path("secret"), folder.path("out")).unwrap();
        symlink(&outside.0, folder.path("away")).unwrap();
        symlink("nowhere", folder.path("dangling")).unwrap();
        let name = std::ffi::CString::new(folder.path("pipe").to_str().unwrap()).unwrap();
        rustix::fs::mknodat(
            rustix::fs::CWD,
            name.as_c_str(),
            rustix::fs::FileType::Fifo,
            rustix::fs::Mode::RUSR,
            0,
        )
        .unwrap();
        cases.extend([
            ("inner/link", FileMode::Plain, Ok(8)),
            ("out", FileMode::Plain, Err(RequestError::Refused)),
            ("away/secret", FileMode::Plain, Err(RequestError::Refused)),
            ("dangling", FileMode::Plain, Err(RequestError::Missing)),
            ("pipe", FileMode::Plain, Err(RequestError::Refused)),
        ]);
    }
    let long = "x/".repeat(130);
    cases.push((&long, FileMode::Plain, Err(RequestError::Refused)));
    let door = Door::on_host(&folder.options()).unwrap();
    let client = door.client().unwrap();
    for (path, mode, expected) in cases {
        let found = open(&client, path, mode).map(|(_, len)| len);
        assert_eq!(found, expected, "{path:?} {mode:?}");
        if !path.contains('\0') && path.len() < 200 {
            let found = door.open_file(path, mode).map(|file| file.len);
            let found = found.map_err(|error| match error {
                DoorError::File { error, .. } => error,
                error => panic!("{error}"),
            });
            assert_eq!(found, expected, "{path:?} {mode:?}");
        }
    }
    // A file has one number, whatever path leads to it.
    let one = door.open_file("inner/file", FileMode::Plain).unwrap();
    assert_eq!(door.open_file("./inner/file", FileMode::Plain).unwrap(), one);
    let nothing = Door::on_host(&DoorOptions::new()).unwrap();
    let client = nothing.client().unwrap();
    assert_eq!(open(&client, "inner/file", FileMode::Plain), Err(RequestError::Refused));
}

#[cfg(unix)]
#[test]
fn nothing_is_made_outside_of_the_folder() {
    use std::os::unix::fs::symlink;
    let (folder, outside) = (Folder::new(), Folder::new());
    symlink(outside.path("new"), folder.path("dangling")).unwrap();
    symlink(&outside.0, folder.path("away")).unwrap();
    let door = Door::on_host(&DoorOptions::new().writable_folder(&folder)).unwrap();
    let client = door.client().unwrap();
    for (path, error) in [
        ("dangling", RequestError::Refused),
        ("away/new", RequestError::Refused),
        ("../new", RequestError::Refused),
        ("no folder/new", RequestError::Missing),
    ] {
        assert_eq!(open(&client, path, FileMode::Writable), Err(error), "{path}");
    }
    assert_eq!(fs::read_dir(&outside).unwrap().count(), 0);
}

#[test]
fn ranges_outside_of_the_contents() {
    let (folder, _door, client, _, files) = with_file(100_000);
    for file in files {
        for (offset, len) in
            [(100_000, 1), (0, 100_001), (u64::MAX, 1), (u64::MAX, u32::MAX), (99_999, 2)]
        {
            assert_eq!(read(&client, file, offset, len), Err(RequestError::Range));
            let stream = client.stream(file, offset, u64::from(len), 10).unwrap();
            assert_eq!(wait(&client, &stream), Status::Error(RequestError::Range));
            client.close(stream);
        }
        for (len, piece) in [(100, 0), (u64::MAX, 1)] {
            let stream = client.stream(file, 0, len, piece).unwrap();
            assert_eq!(wait(&client, &stream), Status::Error(RequestError::Range));
            client.close(stream);
        }
        let write = client.write(file, 0, 10).unwrap();
        assert_eq!(wait(&client, &write), Status::Error(RequestError::Refused));
        client.close(write);
    }
    assert_eq!(read(&client, 99, 0, 1), Err(RequestError::Range));
    assert_eq!(read(&client, u32::MAX, 0, 1), Err(RequestError::Range));
    drop(folder);
}

#[test]
fn a_full_pool_is_told_and_room_is_given_back() {
    let folder = Folder::new();
    let contents = mixture(100_000);
    folder.write("plain", &contents);
    folder.pack("packed", &contents);
    let door = Door::on_host(&folder.options().host_pool(64 << 10)).unwrap();
    let client = door.client().unwrap();
    let (plain, _) = open(&client, "plain", FileMode::Plain).unwrap();
    let (packed, _) = open(&client, "packed", FileMode::Contents).unwrap();
    let handles: Vec<_> = (0..4).map(|i| client.read(plain, i, 16 << 10).unwrap()).collect();
    handles.iter().for_each(|handle| assert_eq!(wait(&client, handle), Status::Ready));
    assert_eq!(door.free_bytes(), 0);
    for file in [plain, packed] {
        assert_eq!(read(&client, file, 0, 1), Err(RequestError::Full));
        let stream = client.stream(file, 0, 1000, 100).unwrap();
        assert_eq!(wait(&client, &stream), Status::Error(RequestError::Full));
        client.close(stream);
    }
    handles.into_iter().for_each(|handle| client.close(handle));
    assert!(read(&client, plain, 0, 64 << 10).unwrap() == contents[..64 << 10]);
    assert_eq!(read(&client, plain, 0, (64 << 10) + 1), Err(RequestError::Full));
    assert!(read(&client, packed, 5, 64 << 10).unwrap() == contents[5..][..64 << 10]);
    // A stream takes as many pieces as there is room for.
    let stream = client.stream(packed, 0, 100_000, 30_000).unwrap();
    assert_eq!(wait(&client, &stream), Status::Ready);
    until("no pieces", || client.pieces(&stream) == 2);
    assert!(client.piece(&stream, 0) == contents[..30_208]);
    client.close(stream);
}

#[test]
fn so_many_files_are_open_and_no_more() {
    let folder = Folder::new();
    for name in ["a", "b", "c"] {
        folder.write(name, b"contents");
    }
    let door = Door::on_host(&folder.options().files(2)).unwrap();
    let client = door.client().unwrap();
    assert_eq!(open(&client, "a", FileMode::Plain), Ok((0, 8)));
    assert_eq!(open(&client, "b", FileMode::Plain), Ok((1, 8)));
    assert_eq!(open(&client, "c", FileMode::Plain), Err(RequestError::Full));
    assert_eq!(open(&client, "a", FileMode::Plain), Ok((0, 8)));
}

/// Archives that have not been used for a while are opened again.
#[test]
fn few_archives_are_open_at_once() {
    let folder = Folder::new();
    let contents = mixture(150_000);
    (0..5).for_each(|i| folder.pack(&format!("{i}"), &contents[1000 * i..]));
    let door = Door::on_host(&folder.options().archives(2)).unwrap();
    let client = door.client().unwrap();
    for round in 0..3 {
        for i in 0..5 {
            let (file, len) = open(&client, &format!("{i}"), FileMode::Contents).unwrap();
            assert_eq!(len, 150_000 - 1000 * i as u64);
            let at = 7777 * (round + 1);
            let found = read(&client, file, at as u64, 5000).unwrap();
            assert!(found == contents[1000 * i + at..][..5000]);
        }
    }
}

#[test]
fn a_file_that_is_cut_is_no_longer_the_same() {
    let (folder, _door, client, contents, files) = with_file(300_000);
    let stream = client.stream(files[0], 0, 300_000, 10_240).unwrap();
    until("no pieces", || client.pieces(&stream) == 4);
    for name in ["plain", "packed.pz"] {
        let file = fs::OpenOptions::new().write(true).open(folder.path(name)).unwrap();
        file.set_len(file.metadata().unwrap().len() / 2).unwrap();
    }
    for file in files {
        // Reads fail even where bytes remain.
        for (offset, len) in [(0, 10), (0, 100_000), (299_000, 1000), (0, 300_000)] {
            assert_eq!(read(&client, file, offset, len), Err(RequestError::Changed), "{offset}");
        }
    }
    assert!(client.piece(&stream, 3) == contents[3 * 10_240..4 * 10_240]);
    client.next(&stream).unwrap();
    until("the stream goes on", || client.status(&stream) == Status::Error(RequestError::Changed));
    client.close(stream);
}

#[test]
fn a_file_that_is_written_to_is_no_longer_the_same() {
    let (folder, _door, client, contents, files) = with_file(100_000);
    let later = std::time::SystemTime::now() + Duration::from_secs(10);
    for name in ["plain", "packed.pz"] {
        let file = fs::OpenOptions::new().write(true).open(folder.path(name)).unwrap();
        file.set_modified(later).unwrap();
    }
    for file in files {
        assert_eq!(read(&client, file, 3, 10), Err(RequestError::Changed));
    }
    // Opening the file again gives another number, and the file's present contents.
    let (again, _) = open(&client, "plain", FileMode::Plain).unwrap();
    assert_ne!(again, files[0]);
    assert_eq!(read(&client, again, 3, 10).unwrap(), contents[3..13]);
}

/// Open files stay readable; others are gone.
#[test]
fn a_file_that_is_deleted() {
    let (folder, _door, client, contents, files) = with_file(100_000);
    fs::remove_file(folder.path("plain")).unwrap();
    fs::remove_file(folder.path("packed.pz")).unwrap();
    for file in files {
        assert!(read(&client, file, 1000, 90_000).unwrap() == contents[1000..91_000]);
    }
    assert_eq!(open(&client, "plain", FileMode::Plain), Err(RequestError::Missing));
    assert_eq!(open(&client, "packed.pz", FileMode::Contents), Err(RequestError::Missing));
}

#[test]
fn a_damaged_archive() {
    let folder = Folder::new();
    let contents = mixture(300_000);
    folder.pack("packed", &contents);
    let mut bytes = fs::read(folder.path("packed")).unwrap();
    // Damages the first block.
    bytes[200] ^= 1;
    folder.write("packed", &bytes);
    let door = Door::on_host(&folder.options()).unwrap();
    let client = door.client().unwrap();
    let (file, _) = open(&client, "packed", FileMode::Contents).unwrap();
    assert_eq!(read(&client, file, 0, 10), Err(RequestError::Failed));
    assert!(read(&client, file, 65_536, 1000).unwrap() == contents[65_536..66_536]);
    // Of several offsets read together, the others are right.
    let offsets = [70_000, 10, 140_000, 200_000];
    let handles = offsets.map(|offset| client.read(file, offset, 100).unwrap());
    for (offset, handle) in offsets.into_iter().zip(handles) {
        let expected = match offset {
            10 => Status::Error(RequestError::Failed),
            _ => Status::Ready,
        };
        assert_eq!(wait(&client, &handle), expected);
        client.close(handle);
    }
}

/// A kernel that ends in the middle of making a request holds up later ones, but not for ever.
#[test]
fn a_request_that_is_never_made_is_given_up() {
    let (_folder, door, client, contents, [plain, _]) = with_file(10_000);
    assert!(client.number().is_some() && client.number().is_some());
    let handle = client.read(plain, 10, 20).unwrap();
    assert_eq!(wait(&client, &handle), Status::Ready);
    assert_eq!(client.contents(&handle), contents[10..30]);
    assert_eq!(door.statistics().abandoned, 2);
    client.close(handle);
    assert!(client.number().is_some());
    assert_eq!(read(&client, plain, 1, 2).unwrap(), contents[1..3]);
}

/// Handles that a kernel leaves open stay until the door is dropped.
#[test]
fn a_kernel_that_closes_nothing() {
    let (_folder, door, client, _, files) = with_file(10_000);
    for _ in 0..500 {
        let _left = client.read(files[0], 0, 100).unwrap();
        let _left = client.stream(files[1], 0, 10_000, 1000).unwrap();
    }
    assert_eq!(client.read(files[0], 0, 100).map(|_| ()), Ok(()));
    drop(door);
}

#[test]
fn a_door_that_is_shut() {
    let (_folder, door, client, _, [plain, _]) = with_file(10_000);
    let done = client.read(plain, 0, 100).unwrap();
    assert_eq!(wait(&client, &done), Status::Ready);
    drop(door);
    assert_eq!(client.status(&done), Status::Error(RequestError::Failed));
    let late = client.read(plain, 0, 100).unwrap();
    assert_eq!(client.status(&late), Status::Error(RequestError::Failed));
    assert_eq!(client.contents(&late), b"");
    // No thread takes requests, so the ring fills up.
    let asked = (0..10_000).find_map(|_| match client.read(plain, 0, 1) {
        Ok(handle) => {
            client.close(handle);
            None
        }
        Err(error) => Some(error),
    });
    assert_eq!(asked, Some(AskError::RingFull));
}

#[test]
fn options_out_of_range() {
    let folder = Folder::new();
    let options = || folder.options();
    for wrong in [
        options().ring(64),
        options().ring(1000),
        options().ring(1 << 17),
        options().workers(0),
        options().workers(9),
        options().host_pool(100),
        options().archives(0),
    ] {
        let refused = Door::on_host(&wrong);
        assert!(matches!(refused, Err(DoorError::Options(_))), "{refused:?}");
    }
    for wrong in ["missing", "file"] {
        folder.write("file", b"");
        let refused = Door::on_host(&DoorOptions::new().folder(folder.path(wrong)));
        assert!(matches!(refused, Err(DoorError::Folder { .. })), "{refused:?}");
    }
}
