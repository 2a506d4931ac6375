//! One run of the program: what it prints about each file, and its exit code.

use std::cell::Cell;
use std::fmt::{Arguments, Display};
use std::io::{self, IsTerminal};
use std::time::Duration;

use pz::{Auto, DeviceStatistics, Gpu, Statistics};

use crate::device::Device;
use crate::device_probe::DeviceProbe;
use crate::direction::Direction;
use crate::failure::{Exit, Failure, one_line};
use crate::messages::{report, say};
use crate::verbosity::Verbosity;

/// For an input of at least this many bytes, the work begins before the device has been found.
const LARGE: u64 = 64 << 20;

/// One run of the program: several files, one exit code.
pub struct Session {
    verbosity: Verbosity,
    worst: Exit,
    /// The device that the user named.
    gpu: Option<(Device, Gpu)>,
    /// The search for this device in another process.
    probe: DeviceProbe,
    threads: usize,
    /// Whether `-v` has named the engines: `[0]` for the CPU alone, `[1]` for the CPU and the device.
    is_engine_said: Cell<[bool; 2]>,
    /// Records the timings of each run.
    auto: Option<Auto>,
}

impl Session {
    /// A run without failures so far.
    pub fn new(verbosity: Verbosity) -> Self {
        let (probe, is_engine_said) = Default::default();
        Session {
            verbosity,
            worst: Exit::Done,
            gpu: None,
            probe,
            threads: 1,
            is_engine_said,
            auto: None,
        }
    }

    /// Sets the number of CPU threads, and the device, for which the search may still be running.
    pub fn use_device(&mut self, device: Device, gpu: Option<&Gpu>, threads: usize) {
        self.gpu = gpu.map(|gpu| (device, gpu.clone()));
        self.threads = threads;
        if gpu.is_none() {
            self.say_engine(None);
        }
    }

    /// Sets the object that records the timings of each run.
    pub fn learn_with(&mut self, auto: &Auto) {
        self.auto = Some(auto.clone());
    }

    /// Records how long one file took, from opening it to naming its output.
    pub fn learn(&self, time: Duration) {
        if let Some(auto) = &self.auto {
            auto.run_took(time);
        }
    }

    /// With `-v`, names the engines: once with a device, and once without.
    fn say_engine(&self, device: Option<&DeviceStatistics>) {
        let mut said = self.is_engine_said.get();
        if std::mem::replace(&mut said[usize::from(device.is_some())], true) {
            return;
        }
        self.is_engine_said.set(said);
        let plural = if self.threads == 1 { "" } else { "s" };
        let cpu = format!("the CPU, {} thread{plural}", self.threads);
        match device {
            None => self.say(format_args!("using {cpu}")),
            Some(device) => {
                self.say(format_args!("using {} through {}, and {cpu}", device.name, device.api));
            }
        }
    }

    /// Waits until the device that the user named has been found. If it is missing, the search ends the program
    /// with its own message.
    pub fn await_device(&self) {
        // A device that exists but cannot be opened is no error here.
        let _ = self.gpu.as_ref().map(|(_, gpu)| gpu.found());
    }

    /// Waits for the device before the work on an input of `len` bytes. If an earlier run has found it, or if the input
    /// is large, returns at once, and [`Self::await_device_after_work`] must follow. Decompression may never search for
    /// the device itself, so another process does.
    pub fn await_device_for(&self, len: Option<u64>, direction: Direction) {
        let Some((device, _)) = &self.gpu else { return };
        if self.probe.was_seen(*device) {
            return;
        }
        if len.is_none_or(|len| len < LARGE) {
            self.await_device();
        } else if direction == Direction::Decompress {
            self.probe.ask(*device);
        }
    }

    /// Waits for the device after the work.
    pub fn await_device_after_work(&self) {
        let is_unsought = self.gpu.as_ref().is_some_and(|(_, gpu)| gpu.is_unsought());
        if !(is_unsought && self.probe.is_there()) {
            self.await_device();
        }
    }

    /// Reports that a file failed; the run goes on.
    pub fn fail(&mut self, name: impl Display, failure: Failure) {
        self.await_device();
        self.worst = self.worst.max(failure.exit);
        report(Some(&name), &failure);
    }

    /// Warns that a result differs from what the user asked for, without being a failure.
    pub fn warn(&self, name: impl Display, what: impl Display) {
        if !self.verbosity.quiet {
            say(format_args!("{name}: {what}"));
        }
    }

    /// Whether the user asked for `-v`.
    pub fn is_verbose(&self) -> bool {
        self.verbosity.verbose
    }

    /// Prints a line with `-v`.
    pub fn say(&self, text: Arguments<'_>) {
        if self.verbosity.verbose {
            say(text);
        }
    }

    /// The counters of a run, if any of them may be printed.
    pub fn statistics(&self) -> Option<Statistics> {
        (self.verbosity.verbose || self.gpu.is_some()).then(Statistics::new)
    }

    /// With `-v`, prints the lines that `verbose` returns. Without `-v`, prints only why a device that the user named
    /// took no part.
    pub fn say_what_was_done(
        &self,
        name: impl Display,
        statistics: Option<&Statistics>,
        verbose: impl FnOnce(&Statistics) -> Vec<String>,
    ) {
        let Some(statistics) = statistics else { return };
        if self.verbosity.verbose {
            if self.gpu.is_some() {
                let device = statistics.device();
                self.say_engine(device.as_ref().filter(|device| device.done.blocks > 0));
            }
            verbose(statistics).iter().for_each(|line| say(format_args!("{name}: {line}")));
        } else if !self.verbosity.quiet && statistics.device().is_none() {
            statistics.idle_device().iter().for_each(|line| say(format_args!("{name}: {line}")));
        }
    }

    /// Whether to show progress: on a terminal, unless the user asked for quiet.
    pub fn shows_progress(&self) -> bool {
        !self.verbosity.quiet && !self.verbosity.no_progress && io::stderr().is_terminal()
    }

    /// Returns the exit code of the worst failure.
    pub fn finish(self) -> Exit {
        if let Some(why) = pz::refused_cache() {
            self.say(format_args!("the cache is not used: {}", one_line(&why)));
        }
        self.worst
    }
}
