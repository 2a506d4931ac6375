//! `pz recover`

use std::fmt::Write as _;
use std::io::{self, Write as _};
use std::ops::Range;
use std::path::PathBuf;

use pz::RecoveryReport;
use serde::Serialize;

use crate::args::Recover;
use crate::failure::Failure;
use crate::inputs;
use crate::output::Output;
use crate::session::Session;
use crate::settings;
use crate::source::{Input, Permit, Source};
use crate::table;

/// Saves what a damaged file holds.
pub fn run(args: &Recover, session: &mut Session) -> Result<(), Failure> {
    let settings = settings::decode(&args.machine, session)?;
    let input = Input::named(args.file.clone());
    if let Err(failure) = one(&input, args, &settings.options) {
        session.fail(&input, failure);
    }
    Ok(())
}

fn one(input: &Input, args: &Recover, options: &pz::DecodeOptions) -> Result<(), Failure> {
    let mut source = Source::open(input, Permit::READ)?;
    if !source.is_seekable() {
        return Err(Failure::environment(
            "is not a regular file, and recovery reads back and forth",
        ));
    }
    let path = output_path(input, args)?;
    let mut output = match &path {
        None => Output::stdout(&source, false)?,
        Some(path) => Output::create(path, args.force, &source)?,
    };
    let outcome = pz::recover(&mut source, &mut output, args.fill, options);
    if source.changed() {
        return Err(Failure::changed());
    }
    let report = outcome.map_err(|error| output.blame(error.into()))?;
    output.commit(source.metadata())?;

    let report = Report::new(input, report);
    let text = if args.json { report.to_json()? } else { report.to_text() };
    match path {
        None => io::stderr().write_all(text.as_bytes())?,
        Some(_) => table::print(&text)?,
    }
    report.verdict()
}

/// The output's name; `None` is standard output.
fn output_path(input: &Input, args: &Recover) -> Result<Option<PathBuf>, Failure> {
    match (&args.output, input) {
        _ if args.stdout => Ok(None),
        (Some(path), _) if path.as_os_str() == "-" => Ok(None),
        (Some(path), _) => Ok(Some(path.clone())),
        (None, Input::Stdin) => Ok(None),
        (None, Input::Path(path)) => inputs::restored_name(path, None).map(Some),
    }
}

/// What the user learns; all numbers are of bytes but that of blocks.
#[derive(Serialize)]
struct Report {
    file: String,
    saved_blocks: u64,
    saved_bytes: u64,
    /// Ranges of the contents that are lost.
    lost: Vec<Range<u64>>,
    /// Ranges of the file that are damaged.
    damaged: Vec<Range<u64>>,
    /// Whether more may be lost than is known.
    end_unknown: bool,
}

impl Report {
    fn new(input: &Input, report: RecoveryReport) -> Self {
        Report {
            file: input.to_string(),
            saved_blocks: report.blocks,
            saved_bytes: report.bytes,
            lost: report.lost,
            damaged: report.damaged,
            end_unknown: report.end_unknown,
        }
    }

    fn to_json(&self) -> Result<String, Failure> {
        let text = serde_json::to_string_pretty(self);
        text.map(|text| text + "\n").map_err(|error| Failure::bug(format!("no JSON: {error}")))
    }

    fn to_text(&self) -> String {
        let mut text = String::new();
        let mut line = |what: std::fmt::Arguments<'_>| {
            // Writing to a string cannot fail.
            let _ = writeln!(text, "{}: {what}", self.file);
        };
        for lost in &self.lost {
            line(format_args!("lost: bytes {}..{} of the contents", lost.start, lost.end));
        }
        for damaged in &self.damaged {
            line(format_args!("damaged: bytes {}..{} of the file", damaged.start, damaged.end));
        }
        if self.end_unknown {
            line(format_args!("lost: the end, of unknown length"));
        }
        line(format_args!("saved: {} blocks, {} bytes", self.saved_blocks, self.saved_bytes));
        text
    }

    /// A file that is not whole is an error, even if all that can be saved was.
    fn verdict(&self) -> Result<(), Failure> {
        let bytes: u64 = self.lost.iter().map(|lost| lost.end.saturating_sub(lost.start)).sum();
        match (self.lost.is_empty() && !self.end_unknown, self.damaged.is_empty()) {
            (true, true) => Ok(()),
            (true, false) => Err(Failure::input("damaged, but no contents are lost")),
            (false, _) if self.end_unknown => {
                Err(Failure::input(format!("damaged: at least {bytes} bytes of contents are lost")))
            }
            (false, _) => {
                Err(Failure::input(format!("damaged: {bytes} bytes of contents are lost")))
            }
        }
    }
}
