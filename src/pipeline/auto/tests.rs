use super::*;
use crate::codec::Recipe;
use crate::gpu::device::discovery;
use crate::gpu::device::{Api, Device, DeviceError, Kind, Limits};
use crate::gpu::tests::testing::{Nothing, WithLimits, made_up};
use crate::pipeline::auto_session::FIRST_LOOK;
use crate::pipeline::engine::{DecodeJob, EncodeJob, Engine};
use crate::pipeline::knowledge::cpu as cpu_subject;
use crate::pipeline::statistics::Statistics;
use crate::{DecodeOptions, Decoder, Encoder, FrameKind, Level, Options, Pipeline};
use std::io::{Read, Write};
use std::sync::atomic::{AtomicUsize, Ordering};

/// A device in a test's registry.
#[derive(Clone)]
struct Fake {
    limits: Limits,
    /// The device to open; `None` if opening fails.
    device: Option<Arc<dyn Device>>,
}

/// A registry that counts how often it is asked for devices, and how often a device is opened.
#[derive(Clone, Default)]
struct Fakes {
    devices: Vec<Fake>,
    asked: Arc<AtomicUsize>,
    opened: Arc<AtomicUsize>,
}

struct FakeCandidate(Fake, Arc<AtomicUsize>);

impl Registry for Fakes {
    fn candidates(&self) -> Vec<Box<dyn Candidate>> {
        self.asked.fetch_add(1, Ordering::Relaxed);
        let candidate =
            |fake: &Fake| Box::new(FakeCandidate(fake.clone(), self.opened.clone())) as _;
        self.devices.iter().map(candidate).collect()
    }
}

impl Candidate for FakeCandidate {
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

/// The work of [`check`] with `options`.
fn workloads(options: &Options) -> [Workload; 2] {
    let decoding = Workload::decoding_of(FrameKind {
        pipeline: options.chosen_pipeline(),
        level: Some(options.level),
        block_size: options.chosen_block_size().unwrap(),
    });
    [Workload::encoding(options).unwrap(), decoding]
}

/// Makes `auto` forget what it has learned of the CPU, and believe that a worker does `rate` bytes a second.
fn set_cpu_rate(auto: &Auto, rate: f64) {
    auto.knowledge().forget(&cpu_subject());
    for workload in workloads(&options()) {
        auto.knowledge().set(&cpu_subject(), workload.name(), rate);
    }
}

/// An `Auto` that knows the rates of the CPU and of devices by name, in bytes a second.
fn auto(fakes: &Fakes, options: &Options, cpu: f64, devices: &[(&str, f64)]) -> Auto {
    let auto = Auto::with(Box::new(fakes.clone()), Store::in_folder(None), None);
    for workload in workloads(options) {
        auto.knowledge().set(&cpu_subject(), workload.name(), cpu);
        for (name, rate) in devices {
            let subject = subject(&limits(name, Kind::Discrete));
            auto.knowledge().set(&subject, workload.name(), *rate);
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

/// Compresses a slice, a stream of known length and one of unknown length, and decompresses each. The output must be
/// the same as without `auto`. Returns the reasons that `auto` gave.
fn check(auto: &Auto, contents: &[u8]) -> Vec<String> {
    check_each(auto, contents, || {})
}

/// The same. Calls `before` before each run: on a slow machine, each teaches how slow the CPU really is.
fn check_each(auto: &Auto, contents: &[u8], before: impl Fn()) -> Vec<String> {
    let plain = crate::compress(contents, &options()).unwrap();
    let mut reasons = Vec::new();
    let mut counted = || {
        let statistics = Statistics::new();
        reasons.push(statistics.clone());
        statistics
    };
    before();
    let chosen = options().auto(auto).statistics(&counted());
    assert!(crate::compress(contents, &chosen).unwrap() == plain);

    let len = contents.len() as u64;
    let sized = options().content_size(len);
    let plain_sized = crate::compress(contents, &sized).unwrap();
    before();
    let chosen = sized.auto(auto).statistics(&counted());
    let mut encoder = Encoder::new(Vec::new(), &chosen).unwrap();
    encoder.write_all(contents).unwrap();
    assert!(encoder.finish().unwrap() == plain_sized);

    before();
    let mut encoder = Encoder::new(Vec::new(), &options().auto(auto)).unwrap();
    encoder.read_from(&mut &contents[..]).unwrap();
    assert!(encoder.finish().unwrap() == plain);

    before();
    let chosen = DecodeOptions::new().threads(2).auto(auto).statistics(&counted());
    assert!(crate::decompress(&plain, &chosen).unwrap() == contents);
    for file in [&plain, &plain_sized] {
        before();
        let chosen = DecodeOptions::new().threads(2).auto(auto);
        let mut restored = Vec::new();
        Decoder::new(&file[..], &chosen).unwrap().read_to_end(&mut restored).unwrap();
        assert!(restored == contents);
    }
    reasons.iter().map(|statistics| statistics.choice().unwrap()).collect()
}

#[test]
fn small_inputs_stay_on_the_cpu_and_ask_no_driver() {
    let fakes = registry(&[nothing("fast", Kind::Discrete)]);
    // Two blocks go to two threads, whatever the rates.
    let slow_cpu = auto(&fakes, &options(), 1.0, &[("fast", 1e12)]);
    for reason in check(&slow_cpu, &contents()[..1 << 17]) {
        assert_eq!(reason, "the CPU: there is a thread for each block");
    }
    // The CPU is fast enough.
    let fast_cpu = auto(&fakes, &options(), 1e9, &[("fast", 1e12)]);
    for reason in check_each(&fast_cpu, &contents(), || set_cpu_rate(&fast_cpu, 1e9)) {
        assert!(reason.contains("less than it takes to open a device"), "{reason}");
    }
    assert_eq!(fakes.asked.load(Ordering::Relaxed), 0);
}

#[test]
fn the_rate_of_the_cpu_is_measured_once() {
    let fakes = registry(&[]);
    let auto = Auto::with(Box::new(fakes.clone()), Store::in_folder(None), None);
    check(&auto, &contents());
    let workload = Workload::encoding(&options()).unwrap();
    let rate = auto.knowledge().get(&cpu_subject(), &workload.name()).unwrap();
    assert!(rate > 1e5, "{rate}");
    assert_eq!(fakes.asked.load(Ordering::Relaxed), 0);
}

#[test]
fn a_fast_device_is_opened_and_the_bytes_are_the_same() {
    let fakes = registry(&[nothing("slow", Kind::Discrete), nothing("fast", Kind::Discrete)]);
    let auto = auto(&fakes, &options(), 1e5, &[("slow", 1e4), ("fast", 1e9)]);
    for reason in check_each(&auto, &contents(), || set_cpu_rate(&auto, 1e5)) {
        assert!(reason.starts_with("fast: "), "{reason}");
    }
    // Only the fast device is opened, and only once.
    assert_eq!(fakes.opened.load(Ordering::Relaxed), 1);
}

#[test]
fn slow_devices_are_not_even_looked_for_again() {
    let fakes = registry(&[nothing("slow", Kind::Discrete)]);
    let auto = auto(&fakes, &options(), 1e5, &[("slow", 1e3)]);
    for reason in check_each(&auto, &contents(), || set_cpu_rate(&auto, 1e5)) {
        assert!(reason.contains("not clearly less with a device"), "{reason}");
    }
    assert_eq!(fakes.asked.load(Ordering::Relaxed), 1);
    assert_eq!(fakes.opened.load(Ordering::Relaxed), 0);
}

#[test]
fn software_devices_are_never_chosen() {
    let fakes = registry(&[nothing("program", Kind::Software)]);
    let auto = auto(&fakes, &options(), 1e4, &[("program", 1e12)]);
    check_each(&auto, &contents(), || set_cpu_rate(&auto, 1e4));
    assert!(fakes.asked.load(Ordering::Relaxed) > 0);
    assert_eq!(fakes.opened.load(Ordering::Relaxed), 0);
}

#[test]
fn auto_passes_over_devices_it_cannot_open_or_measure() {
    let closed = Fake { limits: limits("closed", Kind::Discrete), device: None };
    let fakes = registry(&[closed, nothing("unknown", Kind::Integrated)]);
    // The CPU is so slow that an unknown device would be worth measuring.
    let auto = auto(&fakes, &options(), 1e4, &[("closed", 1e12)]);
    let slow_cpu = || set_cpu_rate(&auto, 1e4);
    let reasons = check_each(&auto, &contents(), slow_cpu);
    // The device opens while the CPU does the work.
    assert!(reasons[0].starts_with("closed: "), "{reasons:?}");
    auto.shared.opened.lock().iter().for_each(|(_, gpu)| drop(gpu.device()));
    for reason in check_each(&auto, &contents(), slow_cpu) {
        assert!(reason.contains("not clearly less with a device"), "{reason}");
    }
    assert_eq!(fakes.opened.load(Ordering::Relaxed), 2);
}

/// Auto measures real devices that claim to be GPUs, chooses them, uses them for all kinds of streams, and learns from
/// them.
#[test]
fn real_devices_are_measured_and_used() {
    let all = Api::ALL.into_iter().filter_map(|api| discovery::devices(api).ok());
    for found in all.flatten() {
        let limits = Limits { kind: Kind::Discrete, ..found.limits().clone() };
        println!("on {}: {}", limits.api, limits.name);
        let device: Arc<dyn Device> = found.open().unwrap();
        let device: Arc<dyn Device> = Arc::new(WithLimits(device, limits.clone()));
        // On a busy machine a software device may take longer to compile than the deadline of a batch.
        let gpu = Gpu::new(device.clone());
        let workload = Workload::encoding(&options()).unwrap();
        for _ in 0..5 {
            if workload.measure_device(&gpu, None).is_ok() {
                break;
            }
        }
        let fakes = registry(&[Fake { limits: limits.clone(), device: Some(device) }]);
        // However busy the machine, the device is faster than a CPU that takes a quarter of an hour.
        let auto = auto(&fakes, &options(), 500.0, &[]);
        let slow_cpu = || set_cpu_rate(&auto, 500.0);
        let begun = Instant::now();
        for reason in check_each(&auto, &contents(), slow_cpu) {
            assert!(reason.starts_with(&limits.name), "{reason}");
        }
        let rate = auto.knowledge().get(&subject(&limits), &workload.name()).unwrap();
        // It has done at least a block in that time.
        assert!(rate > 65_536.0 / begun.elapsed().as_secs_f64(), "{rate}");

        // Level 1 has been measured, level 2 has not.
        let level = |n| options().level(Level::new(n).unwrap());
        let rate = |n| auto.encode_rate(&limits, &level(n)).unwrap();
        assert!(rate(1).unwrap().is_measured && !rate(2).unwrap().is_measured);

        // A long stream begins on the CPU and continues with the device.
        let long = contents().repeat(18);
        slow_cpu();
        let statistics = Statistics::new();
        let chosen = options().auto(&auto).statistics(&statistics);
        let mut encoder = Encoder::new(Vec::new(), &chosen).unwrap();
        encoder.write_all(&long).unwrap();
        let packed = encoder.finish().unwrap();
        assert!(packed == crate::compress(&long, &options()).unwrap());
        let device = statistics.device().unwrap();
        assert!(statistics.cpu().bytes >= FIRST_LOOK, "{statistics:?}");
        assert!(device.done.blocks + statistics.cpu().blocks == 275, "{statistics:?}");

        slow_cpu();
        let statistics = Statistics::new();
        let chosen = DecodeOptions::new().threads(2).auto(&auto).statistics(&statistics);
        let mut restored = Vec::new();
        Decoder::new(&packed[..], &chosen).unwrap().read_to_end(&mut restored).unwrap();
        assert!(restored == long && statistics.device().is_some());
    }
}

/// A device of that name, as a user would name it.
fn gpu_named(name: &str) -> Gpu {
    Gpu::new(nothing(name, Kind::Discrete).device.unwrap())
}

/// The statistics of a run of 50 blocks on two threads, which were busy for half a second each. A device joins after 25
/// blocks if `device` is given.
fn counted(device: Option<&Limits>) -> Statistics {
    let counted = Statistics::without_stages();
    let slow = Arc::new(Slow(Duration::from_millis(20)));
    let engine = super::super::statistics::Counted::new(slow, Some(&counted), true);
    let (mut payload, block) = (Vec::new(), vec![0; 1 << 16]);
    for number in 0..50 {
        if let Some(limits) = device.filter(|_| number == 25) {
            counted.device_joins(limits, 0);
            counted.on_device(|device| device.opening = Duration::from_millis(300));
            counted.device_begins();
        }
        let mut job = EncodeJob::new(&block, 0, &mut payload);
        engine.encode(&Recipe::default(), std::slice::from_mut(&mut job));
    }
    if device.is_some() {
        counted.device_batch(Instant::now(), 100, 100 << 16, 0);
    }
    counted
}

#[test]
fn predictions_follow_whole_runs() {
    let auto = auto(&registry(&[]), &options(), 1e6, &[("fast", 8e6)]);
    let predict = |gpu: Option<&Gpu>, bytes| auto.predict(gpu, &options(), bytes, None).unwrap();
    let near =
        |found: f64, expected: f64| assert!((found / expected - 1.0).abs() < 0.02, "{found}");
    let gpu = gpu_named("fast");
    auto.opened(&gpu, Duration::from_millis(500));
    // Only rates are known: 50 s on the CPU, and a device that takes 0.7 s to open and close. A block takes 0.0655 s.
    let before = predict(Some(&gpu), 100_000_000);
    near(before.cpu_rate, 2e6);
    near(before.cpu_seconds, 50.0);
    // In a run it does half of its 8 MB a second, beside workers that do 2.
    near(before.seconds, 0.7655 + 49.4345 / 3.0);
    assert!(before.takes_part && before.device_rate == Some(Ok(8e6)), "{before:?}");

    // The threads were busy for a second in all, and the run took 0.7 s instead of half a second.
    let run = |statistics, begun: Instant, wall| {
        let (workload, workers) = (Workload::encoding(&options()).unwrap(), 2);
        auto.learn(Run { workload, statistics, workers, begun, opened_device: false, wall });
    };
    let statistics = counted(None);
    let busy = statistics.cpu().busy.as_secs_f64();
    let wall = busy / 2.0 + 0.2;
    run(statistics, Instant::now(), Duration::from_secs_f64(wall));
    near(predict(None, 50 << 16).seconds, wall);
    near(predict(None, 5000 << 16).seconds, 100.0 * wall);
    // One block takes as long on two threads as on one, but has a fiftieth of the overhead.
    near(predict(None, 1 << 16).seconds, busy / 50.0 + 0.2 / 50.0);

    // Half of the CPU's blocks were done when the device began; then CPU and device did 125 blocks in half a second.
    let begun = Instant::now();
    let statistics = counted(gpu.limits());
    let joined = statistics.device().unwrap().begun().unwrap() - begun;
    run(statistics, begun, joined + Duration::from_millis(500));
    let after = predict(Some(&gpu), 5000 << 16);
    // The opening time moves half of the way from the old one to the new one.
    let (opening, waiting) = (0.4, joined.as_secs_f64() - 0.3);
    near(after.opening, opening + waiting);
    let left = 5000.0 - after.opening * 50.0 / wall;
    near(after.seconds, after.opening + left / 250.0 + 0.4 * opening);

    // Auto leaves a device closed that is as slow as the CPU.
    let slow = Statistics::without_stages();
    slow.device_joins(gpu.limits().unwrap(), 0);
    slow.device_begins();
    slow.device_batch(Instant::now(), 1, 1 << 16, 0);
    for _ in 0..20 {
        run(slow.clone(), Instant::now(), Duration::from_secs(1));
    }
    let closed = predict(Some(&gpu), 5000 << 16);
    assert!(!closed.takes_part && closed.seconds == closed.cpu_seconds, "{closed:?}");
}

#[test]
fn short_runs_teach_nothing() {
    let auto = auto(&registry(&[]), &options(), 1e6, &[]);
    let statistics = counted(None);
    let workload = Workload::encoding(&options()).unwrap();
    let run = Run {
        workload,
        statistics,
        workers: 2,
        begun: Instant::now(),
        opened_device: false,
        wall: Duration::ZERO,
    };
    auto.learn(run.clone());
    // A run without a wall time from the caller teaches nothing either.
    let timed = auto.clone().timed_by_caller();
    timed.learn(run);
    assert_eq!(auto.predict(None, &options(), 2_000_000, None).unwrap().cpu_rate, 2e6);
    timed.run_took(Duration::from_secs(10));
    assert!(auto.predict(None, &options(), 50 << 16, None).unwrap().seconds > 9.0);
}

/// An engine that sleeps for a given time.
struct Slow(Duration);

impl Engine for Slow {
    fn encode(&self, _: &Recipe, _: &mut [EncodeJob<'_>]) {
        std::thread::sleep(self.0);
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
