use super::*;
use crate::gpu::device::{BufferId, Device, DeviceError, Kind, Queue};
use crate::gpu::discovery;
use crate::gpu::testing::{Nothing, made_up};
use crate::pipeline::engine::{DecodeJob, EncodeJob, Engine};
use crate::pipeline::job::FIRST_LOOK;
use crate::pipeline::level::Recipe;
use crate::{DecodeOptions, Decoder, Encoder, Level};
use std::io::{Read, Write};
use std::sync::atomic::{AtomicUsize, Ordering};

/// A device in the registry of a test.
#[derive(Clone)]
struct Fake {
    limits: Limits,
    /// What is opened; otherwise it cannot be.
    device: Option<Arc<dyn Device>>,
}

/// A registry that counts how often it is asked, and how often a device is opened.
#[derive(Clone, Default)]
struct Fakes {
    devices: Vec<Fake>,
    asked: Arc<AtomicUsize>,
    opened: Arc<AtomicUsize>,
}

struct Offer(Fake, Arc<AtomicUsize>);

impl Registry for Fakes {
    fn candidates(&self) -> Vec<Box<dyn Candidate>> {
        self.asked.fetch_add(1, Ordering::Relaxed);
        let offer = |fake: &Fake| Box::new(Offer(fake.clone(), self.opened.clone())) as _;
        self.devices.iter().map(offer).collect()
    }
}

impl Candidate for Offer {
    fn limits(&self) -> &Limits {
        &self.0.limits
    }

    fn open(&self) -> Result<Arc<dyn Device>, DeviceError> {
        self.1.fetch_add(1, Ordering::Relaxed);
        self.0.device.clone().ok_or(DeviceError::Lost)
    }
}

fn limits(name: &str, kind: Kind) -> Limits {
    Limits {
        name: name.into(),
        driver: "driver".into(),
        kind,
        memory: 1 << 30,
        max_buffer: 1 << 28,
        local_memory: 32 << 10,
        max_workgroup: 256,
        compute_units: 4,
        ..made_up()
    }
}

fn nothing(name: &str, kind: Kind) -> Fake {
    let limits = limits(name, kind);
    Fake { device: Some(Arc::new(Nothing(limits.clone()))), limits }
}

fn registry(devices: &[Fake]) -> Fakes {
    Fakes { devices: devices.to_vec(), ..Fakes::default() }
}

/// A choice that knows rates: of the CPU, and of devices by name, in bytes a second.
fn auto(fakes: &Fakes, options: &Options, cpu: f64, devices: &[(&str, f64)]) -> Auto {
    let auto = Auto::with(Box::new(fakes.clone()), Store::in_folder(None), None);
    let level = options.level.get();
    let block_size = options.chosen_block_size().unwrap();
    let decoding = Load::decoding_of(options.chosen_pipeline(), level, block_size);
    for load in [Load::encoding(options).unwrap(), decoding] {
        let mut rates = auto.rates(&cpu_subject());
        rates.set(load.name(), cpu);
        auto.keep(&cpu_subject(), rates);
        for (name, rate) in devices {
            let subject = subject(&limits(name, Kind::Discrete));
            let mut rates = auto.rates(&subject);
            rates.set(load.name(), *rate);
            auto.keep(&subject, rates);
        }
    }
    auto
}

fn options() -> Options {
    Options::new().level(Level::MIN).block_size(1 << 16).threads(2)
}

fn contents() -> Vec<u8> {
    (0..1_000_000_u32).map(|i| (i.wrapping_mul(i) >> 18) as u8).collect()
}

/// Compresses as a slice, as a stream of known length and as one of unknown length, and decompresses likewise; all as
/// without a choice. Gives the reasons.
fn check(auto: &Auto, contents: &[u8]) -> Vec<String> {
    let plain = crate::compress(contents, &options()).unwrap();
    let mut reasons = Vec::new();
    let mut counted = || {
        let statistics = Statistics::new();
        reasons.push(statistics.clone());
        statistics
    };
    let chosen = options().auto(auto).statistics(&counted());
    assert!(crate::compress(contents, &chosen).unwrap() == plain);

    let len = contents.len() as u64;
    let sized = options().content_size(len);
    let plain_sized = crate::compress(contents, &sized).unwrap();
    let chosen = sized.auto(auto).statistics(&counted());
    let mut encoder = Encoder::new(Vec::new(), &chosen).unwrap();
    encoder.write_all(contents).unwrap();
    assert!(encoder.finish().unwrap() == plain_sized);

    let mut encoder = Encoder::new(Vec::new(), &options().auto(auto)).unwrap();
    encoder.read_from(&mut &contents[..]).unwrap();
    assert!(encoder.finish().unwrap() == plain);

    let chosen = DecodeOptions::new().threads(2).auto(auto).statistics(&counted());
    assert!(crate::decompress(&plain, &chosen).unwrap() == contents);
    for file in [&plain, &plain_sized] {
        let chosen = DecodeOptions::new().threads(2).auto(auto);
        let mut restored = Vec::new();
        Decoder::new(&file[..], &chosen).unwrap().read_to_end(&mut restored).unwrap();
        assert!(restored == contents);
    }
    reasons.iter().map(|statistics| statistics.choice().unwrap()).collect()
}

#[test]
fn small_inputs_stay_on_the_cpu_and_nobody_is_asked() {
    let fakes = registry(&[nothing("fast", Kind::Discrete)]);
    // Two blocks for two threads, whatever the rates.
    let slow_cpu = auto(&fakes, &options(), 1.0, &[("fast", 1e12)]);
    for reason in check(&slow_cpu, &contents()[..1 << 17]) {
        assert_eq!(reason, "the CPU: there is a thread for each block");
    }
    // Fast enough.
    let fast_cpu = auto(&fakes, &options(), 1e9, &[("fast", 1e12)]);
    for reason in check(&fast_cpu, &contents()) {
        assert!(reason.contains("less than it takes to open a device"), "{reason}");
    }
    assert_eq!(fakes.asked.load(Ordering::Relaxed), 0);
}

#[test]
fn the_rate_of_the_cpu_is_measured_once() {
    let fakes = registry(&[]);
    let auto = Auto::with(Box::new(fakes.clone()), Store::in_folder(None), None);
    check(&auto, &contents());
    let rates = auto.rates(&cpu_subject());
    let load = Load::encoding(&options()).unwrap();
    assert!(rates.get(&load.name()).unwrap() > 1e5, "{rates:?}");
    assert_eq!(fakes.asked.load(Ordering::Relaxed), 0);
}

#[test]
fn a_fast_device_is_opened_and_the_bytes_are_the_same() {
    let fakes = registry(&[nothing("slow", Kind::Discrete), nothing("fast", Kind::Discrete)]);
    let auto = auto(&fakes, &options(), 1e5, &[("slow", 1e4), ("fast", 1e9)]);
    for reason in check(&auto, &contents()) {
        assert!(reason.starts_with("fast: "), "{reason}");
    }
    // One device, once.
    assert_eq!(fakes.opened.load(Ordering::Relaxed), 1);
}

#[test]
fn slow_devices_are_not_even_looked_for_again() {
    let fakes = registry(&[nothing("slow", Kind::Discrete)]);
    let auto = auto(&fakes, &options(), 1e5, &[("slow", 1e3)]);
    for reason in check(&auto, &contents()) {
        assert!(reason.contains("not clearly less with a device"), "{reason}");
    }
    assert_eq!(fakes.asked.load(Ordering::Relaxed), 1);
    assert_eq!(fakes.opened.load(Ordering::Relaxed), 0);
}

#[test]
fn software_devices_are_never_chosen() {
    let fakes = registry(&[nothing("program", Kind::Software)]);
    let auto = auto(&fakes, &options(), 1e4, &[("program", 1e12)]);
    check(&auto, &contents());
    assert!(fakes.asked.load(Ordering::Relaxed) > 0);
    assert_eq!(fakes.opened.load(Ordering::Relaxed), 0);
}

#[test]
fn a_device_that_cannot_be_opened_or_measured_is_passed_over() {
    let closed = Fake { limits: limits("closed", Kind::Discrete), device: None };
    let fakes = registry(&[closed, nothing("unknown", Kind::Integrated)]);
    // So slow that it would pay to measure.
    let auto = auto(&fakes, &options(), 1e4, &[("closed", 1e12)]);
    let reasons = check(&auto, &contents());
    // It is opened while the work is done without it.
    assert!(reasons[0].starts_with("closed: "), "{reasons:?}");
    auto.state().opened.iter().for_each(|(_, gpu)| drop(gpu.device()));
    for reason in check(&auto, &contents()) {
        assert!(reason.contains("not clearly less with a device"), "{reason}");
    }
    assert_eq!(fakes.opened.load(Ordering::Relaxed), 2);
}

/// Real devices that play GPUs: they are measured, chosen, used for streams of any kind, and learned from.
#[test]
fn real_devices_are_measured_and_used() {
    let all = [Api::OpenCl, Api::WebGpu].into_iter().filter_map(|api| discovery::devices(api).ok());
    for found in all.flatten() {
        let limits = Limits { kind: Kind::Discrete, ..found.limits().clone() };
        println!("on {}: {}", limits.api, limits.name);
        let device: Arc<dyn Device> = found.open().unwrap();
        let device: Arc<dyn Device> = Arc::new(Renamed(device, limits.clone()));
        // On a busy machine a program that plays a GPU may take longer to compile than any batch may take.
        let gpu = Gpu::new(device.clone());
        let load = Load::encoding(&options()).unwrap();
        for _ in 0..5 {
            if load.measure_device(&gpu).is_some() {
                break;
            }
        }
        let fakes = registry(&[Fake { limits: limits.clone(), device: Some(device) }]);
        let auto = auto(&fakes, &options(), 1e4, &[]);
        for reason in check(&auto, &contents()) {
            assert!(reason.starts_with(&limits.name), "{reason}");
        }
        let rates = auto.rates(&subject(&limits));
        assert!(rates.get(&load.name()).unwrap() > 1e4, "{rates:?}");

        // What has been measured, and what has not.
        let level = |n| options().level(Level::new(n).unwrap());
        let rate = |n| auto.encode_rate(&limits, &level(n)).unwrap();
        assert!(rate(1).unwrap().is_measured && !rate(2).unwrap().is_measured);

        // A long stream begins on the CPU, and goes on with the device.
        let long = contents().repeat(18);
        let statistics = Statistics::new();
        let chosen = options().auto(&auto).statistics(&statistics);
        let mut encoder = Encoder::new(Vec::new(), &chosen).unwrap();
        encoder.write_all(&long).unwrap();
        let packed = encoder.finish().unwrap();
        assert!(packed == crate::compress(&long, &options()).unwrap());
        let device = statistics.device().unwrap();
        assert!(statistics.cpu().bytes >= FIRST_LOOK, "{statistics:?}");
        assert!(device.done.blocks + statistics.cpu().blocks == 275, "{statistics:?}");

        let statistics = Statistics::new();
        let chosen = DecodeOptions::new().threads(2).auto(&auto).statistics(&statistics);
        let mut restored = Vec::new();
        Decoder::new(&packed[..], &chosen).unwrap().read_to_end(&mut restored).unwrap();
        assert!(restored == long && statistics.device().is_some());
    }
}

/// A device that says something else of itself.
struct Renamed(Arc<dyn Device>, Limits);

impl Device for Renamed {
    fn limits(&self) -> &Limits {
        &self.1
    }

    fn allocate(&self, bytes: u64) -> Result<BufferId, DeviceError> {
        self.0.allocate(bytes)
    }

    fn free(&self, buffer: BufferId) {
        self.0.free(buffer);
    }

    fn queue(&self) -> Result<Box<dyn Queue + '_>, DeviceError> {
        self.0.queue()
    }
}

#[test]
fn predictions_add_up() {
    let fakes = registry(&[]);
    let auto = auto(&fakes, &options(), 1e6, &[("fast", 8e6)]);
    let gpu = Gpu::new(nothing("fast", Kind::Discrete).device.unwrap());
    auto.opened(&gpu, std::time::Duration::from_millis(500));
    let prediction = auto.predict(Some(&gpu), &options(), 100_000_000).unwrap();
    assert!((prediction.cpu_rate - 2e6).abs() < 1.0);
    assert!((prediction.cpu_seconds - 50.0).abs() < 0.1, "{prediction:?}");
    assert!((prediction.seconds - 10.4).abs() < 0.1, "{prediction:?}");
    assert_eq!(prediction.device_rate, Some(8e6));
    // What whole runs took counts more than what threads could do.
    let load = Load::encoding(&options()).unwrap();
    let counted = Statistics::without_stages();
    let engine = super::super::statistics::Counted::new(Arc::new(Slow), Some(&counted), true);
    let mut payload = Vec::new();
    let bytes = contents();
    let mut job = EncodeJob::new(&bytes, &mut payload);
    engine.encode(&Recipe::Store, std::slice::from_mut(&mut job));
    auto.learn(&load, &counted, 2, std::time::Duration::from_secs(2));
    let learned = auto.predict(None, &options(), 100_000_000).unwrap();
    assert!((learned.seconds - 200.0).abs() < 0.1, "{learned:?}");
    let one_block = auto.predict(None, &options(), 1000).unwrap();
    assert!(one_block.seconds < 0.01, "{one_block:?}");
}

/// An engine that takes its time.
struct Slow;

impl Engine for Slow {
    fn encode(&self, _: &Recipe, _: &mut [EncodeJob<'_>]) {
        std::thread::sleep(std::time::Duration::from_millis(250));
    }

    fn decode(&self, _: &mut [DecodeJob<'_>]) {}

    fn release(&self) {}

    fn encode_memory(&self, _: &Recipe, _: usize) -> u64 {
        0
    }

    fn decode_memory(&self, _: Pipeline, _: usize) -> u64 {
        0
    }
}
