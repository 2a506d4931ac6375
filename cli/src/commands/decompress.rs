//! `pz decompress`

use std::io::Write;

use pz::{DecodeOptions, SeekableReader, Statistics};

use crate::args::Decompress;
use crate::direction::Direction;
use crate::failure::Failure;
use crate::formats::{self, Format};
use crate::output::Output;
use crate::session::Session;
use crate::settings::{self, DecodeSettings};
use crate::sizes::ByteRange;
use crate::source::Source;
use crate::transfer;

/// Restores each file.
pub fn run(args: &Decompress, session: &mut Session) -> Result<(), Failure> {
    let settings = settings::decode(&args.decoding, session)?;
    let placement = &args.placement;
    if args.range.is_some() && placement.output.is_none() && !placement.stdout {
        // The default name would make a part of the contents look like the whole.
        let only_stdin = args.files.iter().all(|file| file.as_os_str() == "-");
        if !only_stdin {
            return Err(Failure::environment("--range needs -o or -c"));
        }
    }
    let work = |source: &mut Source, output: &mut Output, statistics: Option<&Statistics>| {
        let settings = settings.of_input(source, statistics);
        let may_pass = placement.force && !output.is_regular();
        if may_pass && !Format::recognise(source)?.is_compressed() {
            // Like `gzip -dcf`, which `zcat -f` runs.
            formats::pass(source, output, args.range.unwrap_or(ByteRange::WHOLE))?;
            return Ok(());
        }
        if !placement.no_sparse {
            output.leave_holes();
        }
        let format = Format::detect(source)?;
        match args.range {
            None => whole(format, source, output, &settings)?,
            Some(range) if format == Format::Pz && source.is_seekable() => {
                indexed(range, source, output, &settings.options)?
            }
            // There is no index, or we cannot seek to it: decode everything before the range as well.
            Some(range) => formats::decode(format, source, output, range, &settings)?,
        };
        Ok(())
    };
    transfer::each(session, &args.files, &[], placement, Direction::Decompress, work)
}

/// Decodes all of the contents.
fn whole(
    format: Format,
    source: &mut Source,
    output: &mut Output,
    settings: &DecodeSettings,
) -> Result<u64, Failure> {
    if format != Format::Pz {
        return formats::decode(format, source, output, ByteRange::WHOLE, settings);
    }
    let mut decoder = formats::decoder(source, &settings.options)?;
    match output.places(decoder.content_size()) {
        Some(places) => Ok(decoder.copy_to_places(&places, |bytes| output.count(bytes))?),
        None => Ok(decoder.copy_to(output)?),
    }
}

/// Decodes a range of the contents, and only the blocks that hold it.
fn indexed(
    range: ByteRange,
    source: &mut Source,
    output: &mut dyn Write,
    options: &DecodeOptions,
) -> Result<u64, Failure> {
    let mut reader = SeekableReader::new(source, options)?;
    let len = reader.len();
    if range.from > len {
        return Err(formats::past_the_end(len));
    }
    let to = range.to.unwrap_or(len).min(len);
    reader.copy_range(range.from..to, output)?;
    Ok(to - range.from)
}
