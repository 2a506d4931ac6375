//! `pz recover`

use std::io::{self, BufWriter, Read, Seek, SeekFrom, Write};
use std::ops::Range;
use std::path::PathBuf;

use pz::{DecodeOptions, Extent, Piece, Recovery};
use tempfile::SpooledTempFile;

use crate::args::Recover;
use crate::claims::Claims;
use crate::failure::{Failure, show};
use crate::inputs;
use crate::output::{self, Output};
use crate::session::Session;
use crate::settings;
use crate::sizes::Human;
use crate::source::{self, Change, Input, Permit, Source};
use crate::standard;
use crate::table::{JsonName, Printer};

/// Saves the undamaged blocks of a damaged file.
pub fn run(args: &Recover, session: &mut Session) -> Result<(), Failure> {
    let settings = settings::decode(&args.decoding, session)?;
    match Input::named(&args.file) {
        Ok(input) => {
            if let Err(failure) = one(&input, args, &settings.options, session) {
                session.fail(&input, failure);
            }
        }
        Err((name, failure)) => session.fail(name, failure),
    }
    Ok(())
}

fn one(
    input: &Input,
    args: &Recover,
    options: &DecodeOptions,
    session: &Session,
) -> Result<(), Failure> {
    let mut source = Source::open(input, Permit::READ)?;
    if !source.is_seekable() {
        return Err(Failure::environment("is not a regular file, and recovery needs to seek"));
    }
    let path = output_path(input, args)?;
    let mut claims = Claims::new([input], &[]);
    let mut output = match &path {
        None => {
            claims.check_standard_output(input)?;
            Output::stdout(false)?
        }
        Some(path) => {
            claims.take(path, input)?;
            let existing = output::existing(args.force, args.output.is_some());
            Output::create(path, existing, source.metadata())?
        }
    };
    if !args.no_sparse {
        output.leave_holes();
    }
    let outcome = save(&mut source, &mut output, args, options);
    let has_changed = source.change() == Change::Contents;
    if has_changed && outcome.is_err() {
        return Err(output.blame(Failure::changed()));
    }
    let report = outcome.map_err(|failure| output.blame(failure))?;
    if let Some(mut output) = output.complete(false)? {
        output.rename()?;
        if let Some(refusal) = output.refusal() {
            session.warn(input, refusal);
        }
    }
    if has_changed {
        let output = path.as_deref().map_or_else(|| "standard output".into(), show);
        session.warn(input, source::changed(&output));
    }

    let verdict = report.verdict();
    let mut printer = Printer::default();
    let written = match (path, args.json) {
        (None, true) => report.write_json(input, &mut io::stderr().lock()),
        (None, false) => report.write_text(input, &mut io::stderr().lock()),
        (Some(_), true) => report.write_json(input, &mut printer),
        (Some(_), false) => report.write_text(input, &mut printer),
    };
    printer.finish()?;
    written?;
    verdict
}

/// The output's name; `None` for standard output.
fn output_path(input: &Input, args: &Recover) -> Result<Option<PathBuf>, Failure> {
    match (&args.output, input) {
        _ if args.stdout => Ok(None),
        (Some(path), _) if standard::is_output(path) => Ok(None),
        (Some(path), _) => Ok(Some(path.clone())),
        (None, Input::Stdin) => Ok(None),
        (None, Input::Path(path)) => inputs::restored_name(path, None).map(Some),
        (None, Input::Uri(uri)) => inputs::restored_name(&inputs::local_name(uri)?, None).map(Some),
    }
}

/// Bytes of small blocks to gather for one write.
const GATHERED: usize = 1 << 16;

fn save(
    source: &mut Source,
    output: &mut Output,
    args: &Recover,
    options: &DecodeOptions,
) -> Result<Report, Failure> {
    let data_from = source.data_from();
    let mut recovery = Recovery::sparse(source, options, data_from)?;
    let limit = args.max_output.map_or(u64::MAX, |size| size.0);
    if args.fill {
        check_extent(recovery.extent()?, args)?;
    }
    let mut writer = BufWriter::with_capacity(GATHERED, output);
    let mut report = Report::new();
    let mut left = limit;
    let mut take = |bytes: u64| match left.checked_sub(bytes) {
        Some(rest) => {
            left = rest;
            Ok(())
        }
        None => Err(Failure::environment(format!(
            "holds more than the {} that --max-output permits",
            Human(limit)
        ))),
    };
    while let Some(piece) = recovery.next_piece()? {
        match piece {
            Piece::Block { contents, .. } => {
                take(contents.len() as u64)?;
                writer.write_all(contents)?;
                report.saved_blocks += 1;
                report.saved_bytes += contents.len() as u64;
            }
            Piece::Lost { source, range, .. } => {
                if !source.is_empty() || range.is_none() {
                    report.damaged.add(source)?;
                }
                if let Some(range) = range {
                    if args.fill {
                        let len = range.end - range.start;
                        take(len)?;
                        writer.flush()?;
                        writer.get_mut().write_hole(len)?;
                    }
                    report.lost.add(range)?;
                }
            }
            // An unknown kind of piece holds nothing that this program can save.
            _ => {}
        }
    }
    writer.flush()?;
    report.end_unknown = recovery.end_unknown();
    Ok(report)
}

/// Refuses to write a huge hole, which a forged file may declare, unless the user permits it.
fn check_extent(extent: Extent, args: &Recover) -> Result<(), Failure> {
    let declared = Human(extent.declared);
    match args.max_output {
        Some(limit) if extent.declared > limit.0 => Err(Failure::environment(format!(
            "declares {declared} of contents ({} bytes), more than --max-output permits",
            extent.declared
        ))),
        None if extent.declared > extent.plausible => Err(Failure::environment(format!(
            "declares {declared} of contents, and a file of this length holds at most {}; \
             --max-output {} permits it",
            Human(extent.plausible),
            extent.declared
        ))),
        _ => Ok(()),
    }
}

/// The report for the user.
struct Report {
    saved_blocks: u64,
    saved_bytes: u64,
    /// Ranges of the contents that are lost.
    lost: Ranges,
    /// Ranges of the file that are damaged.
    damaged: Ranges,
    /// Whether more contents may be lost than the file shows.
    end_unknown: bool,
}

/// A report longer than this goes to a temporary file.
const SPOOLED: usize = 1 << 16;

/// A list of ranges of bytes, which may be longer than memory can hold. Merges adjacent ranges.
struct Ranges {
    spool: BufWriter<SpooledTempFile>,
    last: Option<Range<u64>>,
    /// Number of ranges in the spool.
    spooled: u64,
    bytes: u64,
}

impl Ranges {
    fn new() -> Self {
        let spool = BufWriter::new(SpooledTempFile::new(SPOOLED));
        Ranges { spool, last: None, spooled: 0, bytes: 0 }
    }

    fn is_empty(&self) -> bool {
        self.last.is_none() && self.spooled == 0
    }

    fn add(&mut self, range: Range<u64>) -> io::Result<()> {
        self.bytes = self.bytes.saturating_add(range.end - range.start);
        match &mut self.last {
            Some(last) if last.end == range.start => {
                last.end = range.end;
                Ok(())
            }
            _ => {
                self.spool_last()?;
                self.last = Some(range);
                Ok(())
            }
        }
    }

    fn spool_last(&mut self) -> io::Result<()> {
        let Some(Range { start, end }) = self.last.take() else { return Ok(()) };
        self.spool.write_all(&start.to_le_bytes())?;
        self.spool.write_all(&end.to_le_bytes())?;
        self.spooled += 1;
        Ok(())
    }

    /// Calls `line` with each range.
    fn for_each(mut self, mut line: impl FnMut(Range<u64>) -> io::Result<()>) -> io::Result<()> {
        self.spool_last()?;
        let mut spool = self.spool.into_inner().map_err(io::IntoInnerError::into_error)?;
        spool.seek(SeekFrom::Start(0))?;
        let mut spool = io::BufReader::new(spool);
        for _ in 0..self.spooled {
            let (mut start, mut end) = ([0; 8], [0; 8]);
            spool.read_exact(&mut start)?;
            spool.read_exact(&mut end)?;
            line(u64::from_le_bytes(start)..u64::from_le_bytes(end))?;
        }
        Ok(())
    }

    fn write_json(self, name: &str, writer: &mut impl Write) -> io::Result<()> {
        write!(writer, "  \"{name}\": [")?;
        let after = if self.is_empty() { "" } else { "\n  " };
        let mut before = "";
        self.for_each(|Range { start, end }| {
            write!(writer, "{before}\n    {{ \"start\": {start}, \"end\": {end} }}")?;
            before = ",";
            Ok(())
        })?;
        writeln!(writer, "{after}],")
    }
}

impl Report {
    fn new() -> Self {
        let (lost, damaged) = (Ranges::new(), Ranges::new());
        Report { saved_blocks: 0, saved_bytes: 0, lost, damaged, end_unknown: false }
    }

    fn write_json(self, input: &Input, writer: &mut impl Write) -> Result<(), Failure> {
        writeln!(writer, "{{\n{},", JsonName::of(input).members()?)?;
        writeln!(writer, "  \"saved_blocks\": {},", self.saved_blocks)?;
        writeln!(writer, "  \"saved_bytes\": {},", self.saved_bytes)?;
        self.lost.write_json("lost", writer)?;
        self.damaged.write_json("damaged", writer)?;
        writeln!(writer, "  \"end_unknown\": {}\n}}", self.end_unknown)?;
        Ok(())
    }

    fn write_text(self, input: &Input, writer: &mut impl Write) -> Result<(), Failure> {
        let file = input.to_string();
        self.lost.for_each(|Range { start, end }| {
            writeln!(writer, "{file}: lost: bytes {start}..{end} of the contents")
        })?;
        self.damaged.for_each(|Range { start, end }| match start == end {
            true => {
                writeln!(writer, "{file}: damaged: bytes are missing at byte {start} of the file")
            }
            false => writeln!(writer, "{file}: damaged: bytes {start}..{end} of the file"),
        })?;
        if self.end_unknown {
            writeln!(writer, "{file}: lost: the end, whose length is unknown")?;
        }
        let (blocks, bytes) = (self.saved_blocks, self.saved_bytes);
        writeln!(writer, "{file}: saved: {blocks} blocks, {bytes} bytes")?;
        Ok(())
    }

    /// Returns an error for any damage, even if no contents are lost.
    fn verdict(&self) -> Result<(), Failure> {
        let bytes = self.lost.bytes;
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
