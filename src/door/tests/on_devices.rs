//! Kernels that ask while they run, on every device that shows them the host's writes.

use super::*;
use crate::door::DoorError;
use crate::door::launch::{Entry, Launch};
use crate::gpu::device::{Api, Device, DeviceError, Kind, Limits};
use crate::gpu::model::kernel::{DOOR_MEASURE, TEST_DOOR};
use crate::gpu::tests::testing::each_static_device;

/// The number of looks after which a kernel gives up. The tests take far fewer.
const LOOKS: u32 = 1 << 30;

/// Calls `test` with a door for each device that can have one.
fn each_door(folder: &Folder, test: impl Fn(&Door)) {
    each_door_with(&folder.options().device_pool(64 << 20), test);
}

fn each_door_with(options: &DoorOptions, test: impl Fn(&Door)) {
    each_static_device(|device| {
        let Limits { api, kind, .. } = *device.limits();
        let device: Arc<dyn Device> = Arc::new(device);
        match Door::of_device(device, options) {
            Ok(door) => {
                test(&door);
                assert_eq!(door.statistics().malformed, 0);
            }
            Err(DoorError::Device(DeviceError::Unsupported(why))) => {
                // CUDA needs an environment variable, and Vulkan memory that the host sees.
                assert!(api != Api::OpenCl && kind != Kind::Software, "{why}");
                println!("{why}");
            }
            Err(error) => panic!("{error}"),
        }
    });
}

/// Runs one of the tests' kernels, with `paths` as its input, and returns `results` words.
fn run(door: &Door, entry: &'static str, paths: &[u8], args: &[u32], results: usize) -> Vec<u32> {
    let launch = Launch::new(door, &TEST_DOOR, 4 * results as u64).unwrap();
    let launch = launch.buffer("results", paths).unwrap().buffer("results", &[]).unwrap();
    let entry =
        Entry { name: entry, args, groups: (results as u32 / 16).div_ceil(64), threads: 64 };
    launch.run(&entry, PATIENCE, || ()).unwrap();
    launch.words(1, results).unwrap()
}

fn sum_of(bytes: &[u8]) -> u32 {
    let terms = bytes.iter().zip(1u32..).map(|(byte, i)| u32::from(*byte).wrapping_mul(i));
    terms.fold(0, u32::wrapping_add)
}

#[test]
fn a_running_kernel_opens_and_reads_a_hundred_files() {
    let folder = Folder::new();
    let contents = mixture(50_000);
    let mut paths = vec![0; 64 * 100];
    for i in 0..100 {
        let name = format!("{i:03}");
        folder.pack(&name, &contents[i..]);
        paths[64 * i..][..3].copy_from_slice(name.as_bytes());
    }
    folder.write("one", b"some bytes");
    each_door(&folder, |door| {
        let args = [100, 3, FileMode::Contents as u32, 7, 3000, LOOKS];
        let found = run(door, "open_and_read", &paths, &args, 1600);
        for (i, found) in found.chunks_exact(16).enumerate() {
            assert_eq!((found[0], found[3]), (2, 50_000 - i as u32), "{found:?}");
            let sum = sum_of(&contents[i + 7..][..3000]);
            assert_eq!((found[8], found[10], found[12]), (2, 3000, sum), "{found:?}");
        }
        // Errors, each in its place.
        for (path, mode, offset, expected) in [
            ("one", 0, 3, [2, 0, 2, 0]),
            ("one", 0, 8, [2, 0, 3, 4]),
            ("two", 0, 0, [3, 3, 0, 0]),
            ("../one", 0, 0, [3, 2, 0, 0]),
            ("one", 1, 0, [3, 6, 0, 0]),
            ("one", 2, 0, [3, 2, 0, 0]),
            ("one", 9, 0, [3, 4, 0, 0]),
        ] {
            let args = [1, path.len() as u32, mode, offset, 7, LOOKS];
            let mut bytes = path.as_bytes().to_vec();
            bytes.resize(64, 0);
            let found = run(door, "open_and_read", &bytes, &args, 16);
            assert_eq!([found[0], found[1], found[8], found[9]], expected, "{path} {mode}");
        }
    });
}

#[test]
fn a_running_kernel_streams() {
    let folder = Folder::new();
    let contents = mixture(300_000);
    folder.write("plain", &contents);
    folder.pack("packed", &contents);
    each_door(&folder, |door| {
        for (name, mode) in [("plain", FileMode::Plain), ("packed", FileMode::Contents)] {
            let file = door.open_file(name, mode).unwrap().number;
            for piece in [512, 16_384, 1_000_000] {
                let found = run(door, "stream", &[], &[file, 100_001, piece, LOOKS], 16);
                let pieces = contents[..100_001].chunks(piece as usize).zip(1u32..);
                let terms = pieces.map(|(bytes, i)| sum_of(bytes).wrapping_mul(i));
                let sum = terms.fold(0, u32::wrapping_add);
                let count = 100_001u32.div_ceil(piece);
                assert_eq!(found[..3], [2, count, sum], "{name} {piece}");
            }
        }
    });
}

#[test]
fn a_running_kernel_writes() {
    let folder = Folder::new();
    folder.write("read only", b"");
    let other = Folder::new();
    let expected: Vec<u8> = (0..5000u32).map(|i| (i * 7 + 3) as u8).collect();
    each_static_device(|device| {
        let options = folder.options().writable_folder(&other);
        let Ok(door) = Door::of_device(Arc::new(device), &options) else { return };
        let file = door.open_file("new", FileMode::Writable).unwrap().number;
        for offset in [0, 3, 1234] {
            let found = run(&door, "write", &[], &[file, offset, 5000, LOOKS], 16);
            assert_eq!(found[..4], [2, 0, 0, 5000]);
            let written = fs::read(other.path("new")).unwrap();
            assert!(written[offset as usize..] == expected);
        }
        let file = door.open_file("read only", FileMode::Plain).unwrap().number;
        let found = run(&door, "write", &[], &[file, 0, 5000, LOOKS], 16);
        assert_eq!(found[0], 3);
        fs::remove_file(other.path("new")).unwrap();
    });
}

/// Kernels that end without looking, closing, or ending a request.
#[test]
fn kernels_that_die() {
    let folder = Folder::new();
    let contents = mixture(100_000);
    folder.write("plain", &contents);
    each_door(&folder, |door| {
        let file = door.open_file("plain", FileMode::Plain).unwrap().number;
        for broken in [0, 1] {
            let found = run(door, "die", &[], &[file, 400, 10, broken], 16);
            assert_eq!(found[0], 400);
        }
        // The next request waits until the broken one is given up.
        assert_eq!(run(door, "die", &[], &[file, 10, 10, 0], 16)[0], 10);
        until("the request is not given up", || door.statistics().abandoned == 1);
        let found = run(door, "stream", &[], &[file, 100_000, 1 << 20, LOOKS], 16);
        assert_eq!(found[..3], [2, 1, sum_of(&contents)]);
        // Not all of these find a handle.
        assert_eq!(run(door, "die", &[], &[file, 400, 10, 0], 16)[0], 214);
    });
}

/// The share of request `number` in the sum of `kernels/door/measure`, for pieces of `size` bytes in random order.
fn measured_sum(contents: &[u8], size: usize, number: u32) -> u32 {
    let pieces = (contents.len() / size) as u64;
    let at = ((u64::from(number.wrapping_mul(2_654_435_761)) * pieces) >> 32) as usize * size;
    let words = contents[at..at + size].chunks_exact(4).zip(0u32..);
    let terms = words.map(|(word, i)| {
        let word = u32::from_le_bytes(word.try_into().unwrap());
        word.wrapping_mul(2 * i + 2 * number + 1)
    });
    terms.fold(0, u32::wrapping_add)
}

/// One kernel has all handles at once.
#[test]
fn a_running_kernel_has_all_handles_at_once() {
    let folder = Folder::new();
    let contents = mixture(2_000_000);
    folder.write("plain", &contents);
    folder.pack("packed", &contents);
    each_door(&folder, |door| {
        for (name, mode) in [("plain", FileMode::Plain), ("packed", FileMode::Contents)] {
            let file = door.open_file(name, mode).unwrap().number;
            let count = 1500;
            let launch = Launch::new(door, &DOOR_MEASURE, 4 * count).unwrap();
            let launch = launch.buffer("door_times", &[]).unwrap();
            let launch = launch.buffer("door_results", &[]).unwrap();
            let args = [file, 2_000_000 / 1024, 1024, count as u32, LOOKS, 1024, 1];
            let entry = Entry { name: "many", args: &args, groups: 1, threads: 64 };
            launch.run(&entry, PATIENCE, || ()).unwrap();
            let found = launch.words(1, 3).unwrap();
            let sums = (0..count as u32).map(|number| measured_sum(&contents, 1024, number));
            let expected = sums.fold(0, u32::wrapping_add);
            assert_eq!(found, [expected, count as u32, 0], "{name}");
        }
    });
}

/// Places of `pattern` in `contents`.
fn places(contents: &[u8], pattern: &[u8]) -> Vec<u64> {
    let windows = contents.windows(pattern.len()).zip(0u64..);
    windows.filter(|(window, _)| *window == pattern).map(|(_, at)| at).collect()
}

#[test]
fn a_running_kernel_searches_a_folder() {
    let folder = Folder::new();
    let mut contents = mixture(1_500_000);
    // Across the bounds of units and blocks, at the ends, and overlapping.
    for at in [0, 65_530, 262_140, 262_150, 524_280, 1_499_992] {
        contents[at..at + 8].copy_from_slice(b"NeedleNe");
    }
    let files: Vec<(&[u8], FileMode)> = vec![
        (&contents[..], FileMode::Plain),
        (&contents[..700_000], FileMode::Contents),
        (b"", FileMode::Plain),
        (b"Ne", FileMode::Plain),
        (&contents[1..], FileMode::Contents),
    ];
    for (i, (contents, mode)) in files.iter().enumerate() {
        match mode {
            FileMode::Contents => folder.pack(&format!("{i}"), contents),
            _ => folder.write(&format!("{i}"), contents),
        }
    }
    let check = |door: &Door| {
        let opened: Vec<_> = files
            .iter()
            .enumerate()
            .map(|(i, (_, mode))| door.open_file(format!("{i}"), *mode).unwrap())
            .collect();
        for pattern in [&b"NeedleNe"[..], b"Ne", b"\n", b"not in any of these files"] {
            let found = door.search(&opened, pattern).unwrap();
            let expected: Vec<_> = files
                .iter()
                .enumerate()
                .flat_map(|(file, (contents, _))| {
                    places(contents, pattern).into_iter().map(move |offset| (file, offset))
                })
                .collect();
            let places: Vec<_> =
                found.places.iter().map(|place| (place.file, place.offset)).collect();
            assert_eq!((found.failed, found.first_error), (0, None));
            assert!(places == expected, "{} places of {}", places.len(), expected.len());
        }
        for wrong in [&b""[..], &[b'x'; 257]] {
            assert!(matches!(door.search(&opened, wrong), Err(DoorError::Options(_))));
        }
    };
    check(&Door::on_host(&folder.options()).unwrap());
    each_door(&folder, check);
}

/// All workgroups ask for two units at a time, and there is room for one.
#[test]
fn a_search_with_little_room_ends() {
    let folder = Folder::new();
    let mut contents = mixture(1_000_000);
    contents[999_990..].copy_from_slice(b"NeedleNeed");
    folder.write("plain", &contents);
    folder.pack("packed", &contents);
    let options = folder.options().host_pool(400 << 10).device_pool(400 << 10);
    let check = |door: &Door| {
        let plain = door.open_file("plain", FileMode::Plain).unwrap();
        let packed = door.open_file("packed", FileMode::Contents).unwrap();
        let found = door.search(&[plain, packed], b"NeedleNe").unwrap();
        assert_eq!((found.failed, found.first_error), (0, None));
        let places: Vec<_> = found.places.iter().map(|place| (place.file, place.offset)).collect();
        assert_eq!(places, [(0, 999_990), (1, 999_990)]);
    };
    each_door_with(&options, check);
}

#[test]
fn a_file_that_changes_while_a_kernel_searches() {
    let folder = Folder::new();
    folder.write("one", &mixture(600_000));
    folder.write("two", &mixture(600_000));
    let check = |door: &Door| {
        folder.write("two", &mixture(600_000));
        let names = ["one", "two"];
        let opened = names.map(|name| door.open_file(name, FileMode::Plain).unwrap());
        folder.write("two", b"short");
        let found = door.search(&opened, b"let").unwrap();
        assert_eq!(found.failed, 3);
        assert_eq!(found.first_error, Some((1, RequestError::Changed)));
        assert!(found.places.iter().all(|place| place.file == 0) && !found.places.is_empty());
    };
    check(&Door::on_host(&folder.options()).unwrap());
    each_door(&folder, check);
}
