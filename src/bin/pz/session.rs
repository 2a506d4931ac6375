//! One run of the program: what it tells of each file, and the exit code that it ends with.

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

/// Bytes of an input from which on the work begins while a device is still looked for.
const LARGE: u64 = 64 << 20;

/// One run of the program: several files, one exit code.
pub struct Session {
    verbosity: Verbosity,
    worst: Exit,
    /// The device that the user has asked for.
    gpu: Option<(Device, Gpu)>,
    /// Whether it is there, as another process says.
    probe: DeviceProbe,
    threads: usize,
    /// Whether the user has been told on what the work is done: with that device, or without.
    is_engine_said: Cell<[bool; 2]>,
    /// What learns from each run.
    auto: Option<Auto>,
}

impl Session {
    /// A run in which nothing has gone wrong yet.
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

    /// Takes note of a device that may still be looked for, and of the number of the CPU's threads.
    pub fn use_device(&mut self, device: Device, gpu: Option<&Gpu>, threads: usize) {
        self.gpu = gpu.map(|gpu| (device, gpu.clone()));
        self.threads = threads;
        if gpu.is_none() {
            self.say_engine(None);
        }
    }

    /// Takes note of what learns from each run.
    pub fn learn_with(&mut self, auto: &Auto) {
        self.auto = Some(auto.clone());
    }

    /// Says how long the work on one file took, from opening it to naming its output.
    pub fn learn(&self, time: Duration) {
        if let Some(auto) = &self.auto {
            auto.run_took(time);
        }
    }

    /// Tells the user, if asked to, on what the work is done: once with a device, and once without.
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

    /// Waits until the device that the user has asked for is known to be there. If it is not, that is all there is to say, and
    /// the program ends.
    pub fn await_device(&self) {
        // A device that is there and cannot be opened is not missed.
        let _ = self.gpu.as_ref().map(|(_, gpu)| gpu.found());
    }

    /// The same before the work on an input of so many bytes begins; if that takes long, the work begins without knowing, and
    /// [`Self::await_device_after_work`] is to follow. Decoding may end without anybody having looked for the device.
    pub fn await_device_for(&self, len: Option<u64>, direction: Direction) {
        if len.is_none_or(|len| len < LARGE) {
            self.await_device();
        } else if let Some((device, _)) = &self.gpu
            && direction == Direction::Decompress
        {
            self.probe.ask(*device);
        }
    }

    /// The same after the work.
    pub fn await_device_after_work(&self) {
        let is_unsought = self.gpu.as_ref().is_some_and(|(_, gpu)| gpu.is_unsought());
        if !(is_unsought && self.probe.is_there()) {
            self.await_device();
        }
    }

    /// Reports that a file could not be done; the run goes on.
    pub fn fail(&mut self, name: impl Display, failure: Failure) {
        self.await_device();
        self.worst = self.worst.max(failure.exit);
        report(Some(&name), &failure);
    }

    /// Tells the user of something that went otherwise than asked and is no failure.
    pub fn warn(&self, name: impl Display, what: impl Display) {
        if !self.verbosity.quiet {
            say(format_args!("{name}: {what}"));
        }
    }

    /// Tells the user, if asked to, what was done.
    pub fn say(&self, text: Arguments<'_>) {
        if self.verbosity.verbose {
            say(text);
        }
    }

    /// Counts of what is done, if any of it is to be told.
    pub fn statistics(&self) -> Option<Statistics> {
        (self.verbosity.verbose || self.gpu.is_some()).then(Statistics::new)
    }

    /// Tells the user what was done with `name`, in lines that `verbose` makes of it if that was asked for. That a device which the
    /// user named had no part in it is told in any case.
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

    /// Whether progress may be shown: on a terminal, and nobody asked for silence.
    pub fn shows_progress(&self) -> bool {
        !self.verbosity.quiet && !self.verbosity.no_progress && io::stderr().is_terminal()
    }

    /// The exit code: that of the worst failure.
    pub fn finish(self) -> Exit {
        if let Some(why) = pz::refused_cache() {
            self.say(format_args!("the cache is not used: {}", one_line(&why)));
        }
        self.worst
    }
}
