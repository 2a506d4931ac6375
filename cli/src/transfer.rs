//! Takes each input to its output: the common part of compression and decompression.

use std::fs;
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use pz::Statistics;
use pz::access::Traffic;

use crate::args::Placement;
use crate::batch::{SyncBatch, Waiting};
use crate::claims::Claims;
use crate::direction::Direction;
use crate::failure::Failure;
use crate::formats::Format;
use crate::inputs::{self, Select};
use crate::output::{self, Complete, Output};
use crate::progress::Progress;
use crate::session::Session;
use crate::sizes::{self, Human};
use crate::source;
use crate::source::{Change, Input, Permit, Source};
use crate::standard;
use crate::summary;

/// Where one output goes.
enum Target {
    Stdout,
    File(PathBuf),
}

impl Target {
    fn path(&self) -> Option<&Path> {
        match self {
            Target::Stdout => None,
            Target::File(path) => Some(path),
        }
    }
}

/// Does `work` for each file. `work` reads the source to its end, writes the output, and counts in the statistics. This
/// function names, syncs and cleans up the output. If a file fails, it reports that and goes on with the next. No
/// output replaces an input, or one of the files in `also`, which the run reads as well.
pub fn each(
    session: &mut Session,
    files: &[PathBuf],
    also: &[PathBuf],
    placement: &Placement,
    direction: Direction,
    mut work: impl FnMut(&mut Source, &mut Output, Option<&Statistics>) -> Result<(), Failure>,
) -> Result<(), Failure> {
    let select = match direction {
        Direction::Compress => Select::Uncompressed,
        Direction::Decompress => Select::Compressed,
    };
    let inputs = inputs::expand(files, &placement.selection, select);
    if placement.output.is_some() && inputs.len() > 1 {
        return Err(Failure::environment("-o names one output, but there are several inputs"));
    }
    let mut batch = SyncBatch::new();
    let mut claims = Claims::new(inputs.iter().flatten(), also);
    for input in inputs {
        match input {
            Ok(input) => {
                let target = target(&input, files, placement, direction);
                let paths = [input.path(), target.as_ref().ok().and_then(Target::path)];
                if paths.into_iter().flatten().any(|path| batch.concerns(path)) {
                    finish(&mut batch, session);
                }
                let claims = &mut claims;
                let mut job = Job { session, input: &input, files, placement, direction, claims };
                let outcome = target.and_then(|target| job.run(target, &mut batch, &mut work));
                outcome.unwrap_or_else(|failure| session.fail(&input, failure));
            }
            Err((name, failure)) => session.fail(name, failure),
        }
        if batch.is_full() {
            finish(&mut batch, session);
        }
    }
    finish(&mut batch, session);
    Ok(())
}

/// Syncs the waiting outputs, removes their sources, and reports each file.
fn finish(batch: &mut SyncBatch<Done>, session: &mut Session) {
    for (input, outcome) in batch.finish() {
        match outcome {
            Ok(done) => done.say(session, &input),
            Err(failure) => session.fail(&input, failure),
        }
    }
}

/// One input, and what to do with it.
struct Job<'j> {
    session: &'j Session,
    input: &'j Input,
    /// The files and directories that the user named.
    files: &'j [PathBuf],
    placement: &'j Placement,
    direction: Direction,
    /// The files that the output must not replace.
    claims: &'j mut Claims,
}

impl Job<'_> {
    /// Processes the input. If the output must be on disk, leaves it in `batch` for [`finish`].
    fn run(
        &mut self,
        target: Target,
        batch: &mut SyncBatch<Done>,
        work: &mut impl FnMut(&mut Source, &mut Output, Option<&Statistics>) -> Result<(), Failure>,
    ) -> Result<(), Failure> {
        let Job { session, input, placement, direction, .. } = *self;
        let begun = Instant::now();
        let Some((mut source, mut output)) = self.open(&target)? else { return Ok(()) };
        let progress = if session.shows_progress() {
            let expands = direction == Direction::Decompress;
            Progress::new(&input.to_string(), source.len(), expands)
        } else {
            Progress::silent()
        };
        source.set_progress(progress.clone());
        output.set_progress(progress.clone());

        let statistics = session.statistics();
        let outcome = work(&mut source, &mut output, statistics.as_ref());
        progress.finish();
        let change = source.change();
        let is_lost = change != Change::None && placement.rm;
        // If the source changed, blame this for any other failure.
        if is_lost || (change == Change::Contents && outcome.is_err()) {
            return Err(output.blame(Failure::changed()));
        }
        outcome.map_err(|failure| output.blame(failure))?;

        let waiting = Instant::now();
        session.await_device_after_work();
        let waited = waiting.elapsed();
        let (read, written) = (source.bytes_read(), output.bytes_written());
        let traffic = source.traffic();
        let output = output.complete(placement.syncs())?;
        let refusal = output.as_ref().and_then(Complete::refusal);
        let time = begun.elapsed();
        // Tell later runs that the device exists.
        session.learn(time - waited);
        let has_changed = change == Change::Contents;
        let done = Done {
            target,
            direction,
            has_changed,
            read,
            written,
            traffic,
            time,
            statistics,
            refusal,
        };
        let source = placement.rm.then_some(source);
        match output {
            None => done.say(session, input),
            Some(output) if placement.syncs() => {
                batch.add(Waiting { input: input.clone(), output, source, note: done });
            }
            Some(mut output) => {
                output.rename()?;
                if let Some(source) = source {
                    source.remove(output.path())?;
                }
                done.say(session, input);
            }
        }
        Ok(())
    }

    /// Opens source and output. `None` if there is nothing to do: the file is already compressed, and the user did not
    /// name it, but a directory that holds it.
    fn open(&mut self, target: &Target) -> Result<Option<(Source, Output)>, Failure> {
        let Job { session, input, files, placement, direction, .. } = *self;
        let is_claimed = match target {
            Target::Stdout => self.claims.check_standard_output(input).map(|()| true)?,
            Target::File(path) => self.claims.take(path, input)?,
        };
        let to_stdout = matches!(target, Target::Stdout);
        let permit = Permit {
            links: placement.force || to_stdout,
            special: to_stdout || placement.output.is_some(),
            terminal: direction == Direction::Compress || placement.force,
        };
        let mut source = Source::open(input, permit)?;
        if direction == Direction::Compress
            && !placement.force
            && let Some(format) = compressed_already(input, &mut source)?
        {
            let what = format!("is compressed already ({format}); -f compresses it again");
            return match input {
                Input::Path(_) if !files.iter().any(|file| is_named(file, input)) => {
                    session.say(format_args!("{input}: {what}"));
                    Ok(None)
                }
                _ => Err(Failure::environment(what)),
            };
        }
        if placement.rm && !placement.force && source.names() > 1 {
            let names = source.names();
            return Err(Failure::environment(format!(
                "has {names} hard links, and --rm would remove only this one; -f removes it"
            )));
        }
        session.await_device_for(source.len(), direction);
        let output = match target {
            Target::Stdout => {
                let binary = direction == Direction::Compress && !placement.force;
                Output::stdout(binary)?
            }
            Target::File(path) => {
                if let (false, Some(_), Some(folder)) =
                    (is_claimed, &placement.output_dir, path.parent())
                {
                    fs::create_dir_all(folder).map_err(|error| Failure::from(error).at(folder))?;
                    self.claims.take(path, input)?;
                }
                let existing = output::existing(placement.force, placement.output.is_some());
                Output::create(path, existing, source.metadata())?
            }
        };
        let is_local = input.path().is_some();
        if placement.rm && !(output.is_regular() && is_local && source.is_seekable()) {
            return Err(Failure::environment(
                "--rm needs an input and an output that are regular files",
            ));
        }
        Ok(Some((source, output)))
    }
}

/// Whether the user named the input itself, and not a directory that holds it.
fn is_named(name: &Path, input: &Input) -> bool {
    Input::named(name).is_ok_and(|named| named == *input)
}

/// The compressed format of a named file, if it has one. Standard input is not checked: a filter cannot know what
/// its data is for.
fn compressed_already(input: &Input, source: &mut Source) -> Result<Option<&'static str>, Failure> {
    match input {
        Input::Stdin => Ok(None),
        Input::Path(_) | Input::Uri(_) => {
            let format = Format::recognise(source)?;
            Ok(format.is_compressed().then(|| format.name()))
        }
    }
}

fn output_name(
    path: &Path,
    suffix: Option<&str>,
    direction: Direction,
) -> Result<PathBuf, Failure> {
    match direction {
        Direction::Compress => Ok(inputs::compressed_name(path, suffix)),
        Direction::Decompress => inputs::restored_name(path, suffix),
    }
}

/// Where the output of an input goes: where the user asked, or else beside it.
fn target(
    input: &Input,
    files: &[PathBuf],
    placement: &Placement,
    direction: Direction,
) -> Result<Target, Failure> {
    let suffix = placement.selection.suffix.as_deref();
    match (&placement.output, input) {
        _ if placement.stdout => Ok(Target::Stdout),
        (Some(path), _) if standard::is_output(path) => Ok(Target::Stdout),
        (Some(path), _) => Ok(Target::File(path.clone())),
        (None, Input::Stdin) if placement.output_dir.is_some() => {
            Err(Failure::environment("has no name for an output in --output-dir; -o names it"))
        }
        (None, Input::Stdin) => Ok(Target::Stdout),
        (None, Input::Path(path)) => {
            let output = output_name(path, suffix, direction)?;
            Ok(Target::File(match &placement.output_dir {
                Some(folder) => inputs::in_folder(folder, &output, files),
                None => output,
            }))
        }
        (None, Input::Uri(uri)) => {
            let output = output_name(&inputs::local_name(uri)?, suffix, direction)?;
            Ok(Target::File(match &placement.output_dir {
                Some(folder) => folder.join(output),
                None => output,
            }))
        }
    }
}

/// What was done with one input.
struct Done {
    target: Target,
    direction: Direction,
    /// Whether the source has changed since it was opened.
    has_changed: bool,
    read: u64,
    written: u64,
    traffic: Option<Traffic>,
    time: Duration,
    statistics: Option<Statistics>,
    refusal: Option<String>,
}

impl Done {
    fn say(&self, session: &Session, input: &Input) {
        if let Some(refusal) = &self.refusal {
            session.warn(input, refusal);
        }
        let output = match &self.target {
            Target::Stdout => "standard output".to_string(),
            Target::File(path) => crate::failure::show(path),
        };
        if self.has_changed {
            session.warn(input, source::changed(&output));
        }
        let (large, small) = match self.direction {
            Direction::Compress => (self.read, self.written),
            Direction::Decompress => (self.written, self.read),
        };
        let seconds = self.time.as_secs_f64();
        let rate = large as f64 / seconds.max(1e-9) / 1e6;
        session.say(format_args!(
            "{input}: {} to {} in {output}, ratio {:.3}, {seconds:.2} s, {rate:.0} MB/s",
            Human(self.read),
            Human(self.written),
            sizes::ratio(large, small),
        ));
        if let Some(traffic) = &self.traffic {
            session.say(format_args!("{input}: {}", summary::traffic(traffic)));
        }
        let lines = |counted: &Statistics| summary::lines(counted, self.direction);
        session.say_what_was_done(input, self.statistics.as_ref(), lines);
    }
}
