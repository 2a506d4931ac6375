//! From each input to its output: what compression and decompression have in common.

use std::path::{Path, PathBuf};
use std::time::Instant;

use pz::Statistics;

use crate::args::Placement;
use crate::failure::Failure;
use crate::inputs::{self, Select};
use crate::output::Output;
use crate::progress::Progress;
use crate::session::Session;
use crate::sizes::{self, Human};
use crate::source::{Input, Permit, Source};
use crate::summary;

/// Which way the bytes go.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Direction {
    /// Outputs are compressed.
    Compress,
    /// Inputs are compressed.
    Decompress,
}

impl Direction {
    fn output_name(self, path: &Path) -> Result<PathBuf, Failure> {
        match self {
            Direction::Compress => inputs::compressed_name(path),
            Direction::Decompress => inputs::restored_name(path),
        }
    }
}

/// Where one output goes.
enum Target {
    Stdout,
    File(PathBuf),
}

/// Does `work` for each file: reads the source to its end and writes the output, whose name, safety and tidying up are
/// taken care of here, and counts what it does if it is given something to count in. A file that fails is reported, and the others still get their turn.
pub fn each(
    session: &mut Session,
    files: &[PathBuf],
    placement: &Placement,
    direction: Direction,
    mut work: impl FnMut(&mut Source, &mut Output, Option<&Statistics>) -> Result<(), Failure>,
) -> Result<(), Failure> {
    let select = match direction {
        Direction::Compress => Select::Uncompressed,
        Direction::Decompress => Select::Compressed,
    };
    let inputs = inputs::expand(files, placement.recursive, select);
    if placement.output.is_some() && inputs.len() > 1 {
        return Err(Failure::environment("-o names one output, but there are several inputs"));
    }
    for input in inputs {
        match input {
            Ok(input) => {
                if let Err(failure) = one(session, &input, placement, direction, &mut work) {
                    session.fail(&input, failure);
                }
            }
            Err((name, failure)) => session.fail(name, failure),
        }
    }
    Ok(())
}

fn one(
    session: &Session,
    input: &Input,
    placement: &Placement,
    direction: Direction,
    work: &mut impl FnMut(&mut Source, &mut Output, Option<&Statistics>) -> Result<(), Failure>,
) -> Result<(), Failure> {
    let begun = Instant::now();
    let target = target(input, placement, direction)?;
    let to_stdout = matches!(target, Target::Stdout);
    let permit = Permit {
        links: placement.force || to_stdout,
        special: to_stdout || placement.output.is_some(),
        terminal: direction == Direction::Compress || placement.force,
    };
    let mut source = Source::open(input, permit)?;
    session.await_device_for(source.len(), direction);
    let mut output = match &target {
        Target::Stdout => {
            let binary = direction == Direction::Compress && !placement.force;
            Output::stdout(&source, binary)?
        }
        Target::File(path) => Output::create(path, placement.force, &source)?,
    };
    if placement.rm && !(output.is_named() && source.is_seekable()) {
        return Err(Failure::environment(
            "--rm needs an input and an output that are regular files",
        ));
    }
    let progress = if session.shows_progress() {
        Progress::new(&input.to_string(), source.len(), direction == Direction::Decompress)
    } else {
        Progress::silent()
    };
    source.set_progress(progress.clone());
    output.set_progress(progress.clone());

    let statistics = session.statistics();
    let outcome = work(&mut source, &mut output, statistics.as_ref());
    progress.finish();
    // Whatever else went wrong, went wrong because of that.
    if source.changed() {
        return Err(Failure::changed());
    }
    outcome.map_err(|failure| output.blame(failure))?;

    session.await_device_after_work();
    let (read, written) = (source.bytes_read(), output.bytes_written());
    output.commit(source.metadata())?;
    if placement.rm {
        source.remove()?;
    }
    session.learn(begun.elapsed());
    say_done(session, input, &target, direction, (read, written), begun);
    let lines = |counted: &Statistics| summary::lines(counted, direction);
    session.say_what_was_done(input, statistics.as_ref(), lines);
    Ok(())
}

/// Where the output of an input goes: as the user says, or beside it.
fn target(input: &Input, placement: &Placement, direction: Direction) -> Result<Target, Failure> {
    match (&placement.output, input) {
        _ if placement.stdout => Ok(Target::Stdout),
        (Some(path), _) if path.as_os_str() == "-" => Ok(Target::Stdout),
        (Some(path), _) => Ok(Target::File(path.clone())),
        (None, Input::Stdin) => Ok(Target::Stdout),
        (None, Input::Path(path)) => direction.output_name(path).map(Target::File),
    }
}

fn say_done(
    session: &Session,
    input: &Input,
    target: &Target,
    direction: Direction,
    (read, written): (u64, u64),
    begun: Instant,
) {
    let output = match target {
        Target::Stdout => "standard output".to_string(),
        Target::File(path) => crate::failure::show(path),
    };
    let (large, small) = match direction {
        Direction::Compress => (read, written),
        Direction::Decompress => (written, read),
    };
    let seconds = begun.elapsed().as_secs_f64();
    let rate = large as f64 / seconds.max(1e-9) / 1e6;
    session.say(format_args!(
        "{input}: {} to {} in {output}, ratio {:.3}, {seconds:.2} s, {rate:.0} MB/s",
        Human(read),
        Human(written),
        sizes::ratio(large, small),
    ));
}
