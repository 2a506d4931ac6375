//! `pz compress`

use pz::{DecodeOptions, Decoder, Encoder, Options, Statistics};

use crate::args::Compress;
use crate::direction::Direction;
use crate::failure::Failure;
use crate::output::Output;
use crate::session::Session;
use crate::settings;
use crate::source::Source;
use crate::transfer;

/// Compresses each file.
pub fn run(args: &Compress, session: &mut Session) -> Result<(), Failure> {
    let options = settings::encode(&args.encoding, &args.machine, session)?;
    let check = args.verify.then(|| settings::decode_quietly(&args.machine)).transpose()?;
    let work = |source: &mut Source, output: &mut Output, statistics: Option<&Statistics>| {
        let mut options = options.clone();
        if let Some(statistics) = statistics {
            options = options.statistics(statistics);
        }
        encode(source, output, options)?;
        match &check {
            Some(check) => verify(source.bytes_read(), output, &check.options),
            None => Ok(()),
        }
    };
    transfer::each(session, &args.files, &args.placement, Direction::Compress, work)
}

fn encode(source: &mut Source, output: &mut Output, options: Options) -> Result<(), Failure> {
    let options = match source.len() {
        Some(len) => options.content_size(len),
        None => options,
    };
    let mut encoder = Encoder::new(output, &options)?;
    match source.places() {
        Some((places, len)) => {
            encoder.read_range(&places, 0..len)?;
            source.count(len);
        }
        None => {
            encoder.read_from(source)?;
        }
    }
    encoder.finish()?;
    Ok(())
}

/// Decodes what was written: every block's contents must have the checksum that was taken of the input.
fn verify(len: u64, output: &Output, options: &DecodeOptions) -> Result<(), Failure> {
    if !output.is_named() {
        return Err(Failure::environment("--verify needs an output that is a regular file"));
    }
    let decoded = Decoder::new(output.reopen()?, options).and_then(|mut decoder| decoder.verify());
    match decoded {
        Ok(decoded) if decoded == len => Ok(()),
        Ok(decoded) => {
            Err(Failure::bug(format!("the output decodes to {decoded} bytes instead of {len}")))
        }
        Err(error @ (pz::Error::Io(_) | pz::Error::LimitMemory { .. })) => Err(error.into()),
        Err(error) => Err(Failure::bug(format!("the output does not decode: {error}"))),
    }
}
