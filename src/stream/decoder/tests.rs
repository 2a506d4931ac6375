use std::io::Cursor;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::atomic::{AtomicUsize, Ordering};

use super::*;
use crate::Pipeline;
use crate::codec::Recipe;
use crate::pipeline::buffer::Pool;
use crate::pipeline::engine::{DecodeJob, EncodeJob, Engine};
use crate::pipeline::scheduler::Task;
use crate::stream::ReadAt;
use crate::stream::tasks::Origin;
use crate::test_data::{mixture, noise};
use crate::{Options, Statistics, compress};

/// An input that counts how often it is read, and fails beyond `end`.
struct Input {
    bytes: Vec<u8>,
    end: usize,
    reads: AtomicUsize,
}

impl Input {
    fn new(bytes: &[u8], end: usize) -> Arc<Self> {
        Arc::new(Self { bytes: bytes.to_vec(), end, reads: AtomicUsize::new(0) })
    }
}

impl ReadAt for Input {
    fn len(&self) -> u64 {
        self.bytes.len() as u64
    }

    fn read_exact_at(&self, buffer: &mut [u8], offset: u64) -> io::Result<()> {
        self.reads.fetch_add(1, Ordering::Relaxed);
        if offset as usize + buffer.len() > self.end {
            return Err(io::Error::other("this part is unreadable"));
        }
        self.bytes.read_exact_at(buffer, offset)
    }
}

/// The contents up to the first error, and that error.
fn decoded<R: Read>(decoder: Result<Decoder<R>, Error>) -> (Vec<u8>, Option<String>) {
    let mut contents = Vec::new();
    let copied = decoder.and_then(|mut decoder| decoder.copy_to(&mut contents));
    (contents, copied.err().map(|error| error.to_string()))
}

/// Decodes `file` in order and by places, and compares the results.
fn compare(file: &[u8], options: &DecodeOptions, what: &str) -> (Vec<u8>, Option<String>) {
    let expected = decoded(Decoder::new(file, options));
    // The input has other bytes before the file.
    let before = noise(3, 99, 256);
    let input: Arc<dyn ReadAt> = Arc::new([&before, file].concat());
    let by_places = Decoder::new(Cursor::new(file), options).map(|mut decoder| {
        decoder.read_from_places(&input, before.len() as u64);
        decoder
    });
    assert!(decoded(by_places) == expected, "{what}");
    expected
}

fn parts() -> Vec<(&'static str, Vec<u8>)> {
    let blocks = Options::new().block_size(1 << 16);
    let far = [&mixture(90_000)[..], &noise(1, 200_000, 256), &mixture(90_000)].concat();
    let mut parts = vec![
        ("blocks", compress(&mixture(200_000), &blocks).unwrap()),
        ("one block", compress(&mixture(3_000), &blocks).unwrap()),
        ("stored blocks", compress(&noise(1, 140_000, 256), &blocks).unwrap()),
        ("one stored block", compress(&noise(2, 900, 256), &blocks).unwrap()),
        ("one byte, repeated", compress(&[7; 200_000], &blocks).unwrap()),
        ("nothing", compress(&[], &blocks).unwrap()),
        ("distant matches", compress(&far, &blocks.clone().long_distance(1 << 20)).unwrap()),
    ];
    let listed = crate::list(&mut Cursor::new(&parts[6].1), true).unwrap();
    assert!(listed[0].blocks.iter().any(|block| block.own_size.is_some()));
    let frames: Vec<u8> = parts.iter().flat_map(|(_, part)| part).copied().collect();
    parts.push(("all of these", frames));
    parts
}

#[test]
fn places_give_the_same_contents_and_errors() {
    for (name, file) in parts() {
        for threads in [1, 3, 6] {
            let options = DecodeOptions::new().threads(threads);
            let (_, error) = compare(&file, &options, name);
            assert_eq!(error, None, "{name}");
            let trailing = [&file[..], b"trailing bytes that are no frame"].concat();
            assert!(compare(&trailing, &options, name).1.is_some());
            // Several steps of different lengths hit headers, payloads, indices and footers.
            for at in (0..file.len()).step_by(1 + file.len() / (60 / threads)) {
                let what = format!("{name} at {at} of {}, {threads} threads", file.len());
                let (_, error) = compare(&file[..at], &options, &format!("{what}: cut"));
                assert!(error.is_some() || name == "all of these", "{what}: cut");
                let mut damaged = file.clone();
                damaged[at] ^= 1 << (at % 8);
                let (_, error) = compare(&damaged, &options, &format!("{what}: damaged"));
                assert!(error.is_some(), "{what}: damaged");
            }
        }
    }
}

#[test]
fn limits_hold_for_places() {
    let (_, file) = parts().pop().unwrap();
    for limit in [0, 150_000, 200_000, 203_001, 500_000] {
        let options = DecodeOptions::new().threads(3).max_output(limit);
        assert!(compare(&file, &options, "output").1.is_some(), "{limit}");
    }
    for limit in [1, 200_000, 1 << 20, 16 << 20] {
        compare(&file, &DecodeOptions::new().threads(3).max_memory(limit), "memory");
    }
}

#[test]
fn an_error_of_reading_comes_after_the_blocks_before_it() {
    let contents = mixture(700_000);
    let file = compress(&contents, &Options::new().block_size(1 << 16)).unwrap();
    for threads in [1, 3, 6] {
        let options = DecodeOptions::new().threads(threads);
        let input = Input::new(&file, file.len() / 2);
        let places: Arc<dyn ReadAt> = input;
        let mut decoder = Decoder::new(Cursor::new(&file), &options).unwrap();
        decoder.read_from_places(&places, 0);
        let (before, error) = decoded(Ok(decoder));
        assert_eq!(error.as_deref(), Some("this part is unreadable"));
        assert!(before.len() > 100_000 && before.len() % (1 << 16) == 0);
        assert!(contents.starts_with(&before));

        // The file is cut after its headers have been read.
        let places: Arc<dyn ReadAt> = Arc::new(file[..file.len() / 2].to_vec());
        let mut decoder = Decoder::new(Cursor::new(&file), &options).unwrap();
        decoder.read_from_places(&places, 0);
        let (again, error) = decoded(Ok(decoder));
        assert_eq!(again, before);
        assert_eq!(error, decoded(Decoder::new(&file[..file.len() / 2], &options)).1);
    }
}

#[test]
fn each_payload_is_read_once_and_counted() {
    let contents = noise(5, 600_000, 30);
    let file = compress(&contents, &Options::new().block_size(1 << 16)).unwrap();
    let (input, statistics) = (Input::new(&file, file.len()), Statistics::new());
    let options = DecodeOptions::new().threads(2).statistics(&statistics);
    let places: Arc<dyn ReadAt> = input.clone();
    let mut decoder = Decoder::new(Cursor::new(&file), &options).unwrap();
    decoder.read_from_places(&places, 0);
    assert_eq!(decoder.verify().unwrap(), contents.len() as u64);
    assert_eq!(decoder.bytes_in(), file.len() as u64);
    assert_eq!(input.reads.load(Ordering::Relaxed), contents.len().div_ceil(1 << 16));
    assert!(!statistics.reading().is_zero());
}

/// An engine of a device that has failed.
struct Idle;

impl Engine for Idle {
    fn encode(&self, _: &Recipe, _: &mut [EncodeJob<'_>]) {}

    fn decode(&self, _: &mut [DecodeJob<'_>]) {}

    fn release(&self) {}

    fn encode_memory(&self, _: &Recipe, _: usize) -> u64 {
        0
    }

    fn decode_memory(&self, _: Pipeline, _: usize) -> u64 {
        0
    }
}

/// The blocks of a file, to be read from `input`.
fn unread_blocks(file: &[u8], input: &Arc<dyn ReadAt>) -> Vec<DecodeTask> {
    let mut frames = FrameReader::new(Cursor::new(file));
    let mut tasks = Vec::new();
    loop {
        match frames.next().unwrap() {
            Event::Block(header, place) => {
                let (offset, statistics) = (frames.position(), None);
                frames.skip_payload(&header, place).unwrap();
                let mut task = DecodeTask::new(&Pool::default());
                let origin = Origin { input: input.clone(), offset, statistics };
                task.set_unread_block(header, place, origin);
                tasks.push(task);
            }
            Event::End => return tasks,
            Event::Frame(_) | Event::FrameEnd => {}
        }
    }
}

#[test]
fn a_payload_that_a_device_has_read_serves_the_cpu() {
    let contents = [noise(5, 1 << 16, 30), noise(6, 1 << 16, 256)].concat();
    let file = compress(&contents, &Options::new().block_size(1 << 16)).unwrap();
    let input = Input::new(&file, file.len());
    let places: Arc<dyn ReadAt> = input.clone();
    let mut tasks = unread_blocks(&file, &places);
    DecodeTask::run(&mut tasks, &Idle);
    assert!(tasks.iter().all(|task| !task.is_done()));
    DecodeTask::run(&mut tasks, &CpuEngine::new());
    assert!(tasks.iter().all(DecodeTask::is_done));
    assert_eq!(input.reads.load(Ordering::Relaxed), 2);
    let restored: Vec<u8> = tasks.iter().flat_map(|task| task.contents.to_vec()).collect();
    assert!(restored == contents);
}

/// An input whose first read fails, and whose later ones panic.
#[derive(Default)]
struct Faulty(AtomicUsize);

impl ReadAt for Faulty {
    fn len(&self) -> u64 {
        u64::MAX
    }

    fn read_exact_at(&self, _: &mut [u8], _: u64) -> io::Result<()> {
        match self.0.fetch_add(1, Ordering::Relaxed) {
            0 => Err(io::Error::other("this part is unreadable")),
            _ => panic!("the input has a bug"),
        }
    }
}

#[test]
fn a_panic_leaves_the_errors_of_reading() {
    let file = compress(&noise(5, 2 << 16, 30), &Options::new().block_size(1 << 16)).unwrap();
    let input: Arc<dyn ReadAt> = Arc::new(Faulty::default());
    let mut tasks = unread_blocks(&file, &input);
    let run = || DecodeTask::run(&mut tasks, &CpuEngine::new());
    assert!(catch_unwind(AssertUnwindSafe(run)).is_err());
    tasks.iter_mut().for_each(DecodeTask::set_panicked);
    assert!(tasks.iter().map(DecodeTask::is_done).eq([true, false]));

    for threads in [1, 3] {
        let input: Arc<dyn ReadAt> = Arc::new(Faulty(AtomicUsize::new(1)));
        let mut decoder =
            Decoder::new(Cursor::new(&file), &DecodeOptions::new().threads(threads)).unwrap();
        decoder.read_from_places(&input, 0);
        let error = decoded(Ok(decoder)).1;
        assert_eq!(error.as_deref(), Some("internal error: a block could not be decoded"));
    }
}

/// The first part is read in order, before threads are asked to read.
#[test]
fn places_may_come_late() {
    let contents = mixture(900_000);
    let file = compress(&contents, &Options::new().block_size(1 << 16)).unwrap();
    let options = DecodeOptions::new().threads(3);
    let mut decoder = Decoder::new(Cursor::new(&file), &options).unwrap();
    let mut restored = vec![0; 100_000];
    decoder.read_exact(&mut restored).unwrap();
    let places: Arc<dyn ReadAt> = Arc::new(file.clone());
    decoder.read_from_places(&places, 0);
    decoder.copy_to(&mut restored).unwrap();
    assert!(restored == contents);
}
