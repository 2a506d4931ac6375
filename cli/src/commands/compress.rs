//! `pz compress`

use std::io::{Read, Write};

use pz::{Compressor, DecodeOptions, Decoder, Encoder, Options, Statistics};

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
    let filter = args.filtering.load()?;
    let filter = filter.as_ref();
    let options = settings::encode(&args.encoding, filter, &args.machine, session)?;
    let mut check = args.verify.then(|| settings::decode_quietly(&args.machine)).transpose()?;
    if let (Some(check), Some(filter)) = (&mut check, filter) {
        check.options = check.options.clone().modules(filter.trusted());
    }
    let mut small = SmallFiles::default();
    let work = |source: &mut Source, output: &mut Output, statistics: Option<&Statistics>| {
        let encoded = match (statistics, source.len()) {
            (None, Some(len)) if len <= SmallFiles::MAX_LEN => {
                small.encode(source, len, output, &options)
            }
            (None, _) => encode(source, output, options.clone()),
            (Some(statistics), _) => encode(source, output, options.clone().statistics(statistics)),
        };
        encoded.map_err(|failure| match filter {
            Some(filter) => filter.name_modules(failure),
            None => failure,
        })?;
        match &check {
            Some(check) => verify(source.bytes_read(), output, &check.options),
            None => Ok(()),
        }
    };
    let modules = args.filtering.files();
    transfer::each(session, &args.files, modules, &args.placement, Direction::Compress, work)
}

/// Compresses small files, and keeps its tables and buffers from one file to the next.
#[derive(Default)]
struct SmallFiles {
    compressor: Option<Compressor>,
    contents: Vec<u8>,
    compressed: Vec<u8>,
}

impl SmallFiles {
    /// Files longer than this take so long to compress that setting up tables does not matter. Every block size is at
    /// least this, so a small file is one block.
    const MAX_LEN: u64 = 1 << 16;

    /// Compresses a file of `len` bytes.
    fn encode(
        &mut self,
        source: &mut Source,
        len: u64,
        output: &mut Output,
        options: &Options,
    ) -> Result<(), Failure> {
        let compressor = match &mut self.compressor {
            Some(compressor) => compressor,
            None => self.compressor.insert(Compressor::new(options)?),
        };
        self.contents.clear();
        self.contents.reserve(len as usize);
        source.take(len).read_to_end(&mut self.contents)?;
        let seen = self.contents.len() as u64;
        if seen != len {
            return Err(pz::Error::Changed { declared: len, seen }.into());
        }
        self.compressed.clear();
        compressor.compress_into(&self.contents, &mut self.compressed)?;
        Ok(output.write_all(&self.compressed)?)
    }
}

fn encode(source: &mut Source, output: &mut Output, options: Options) -> Result<(), Failure> {
    let len = source.len();
    let options = match len {
        Some(len) => options.content_size(len),
        None => options,
    };
    let mut encoder = Encoder::new(output, &options).map_err(|error| match error {
        error @ pz::Error::LimitMemory { .. } => Failure::environment(format!(
            "{error}; smaller blocks (-b) or a lower level need less, and -M raises the limit"
        )),
        error => error.into(),
    })?;
    match source.places(false) {
        Some((places, len)) => encoder.read_range(&places, 0..len)?,
        None => {
            // If the file grows meanwhile, ignore what is added.
            encoder.read_from(&mut source.take(len.unwrap_or(u64::MAX)))?;
        }
    }
    encoder.finish()?;
    Ok(())
}

/// Decodes the output and checks each block's contents against the checksum taken from the input.
fn verify(len: u64, output: &Output, options: &DecodeOptions) -> Result<(), Failure> {
    if !output.is_regular() {
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
