//! `pz test`

use std::io;
use std::time::Instant;

use pz::Statistics;

use crate::args::Test;
use crate::direction::Direction;
use crate::failure::Failure;
use crate::formats::{self, Format};
use crate::inputs::{self, Select};
use crate::progress::Progress;
use crate::session::Session;
use crate::settings::{self, DecodeSettings};
use crate::sizes::{ByteRange, Human};
use crate::source::{Change, Input, Permit, Source};
use crate::summary;

/// Decodes and checks each file.
pub fn run(args: &Test, session: &mut Session) -> Result<(), Failure> {
    let settings = settings::decode(&args.decoding, session)?;
    for input in inputs::expand(&args.files, &args.selection, Select::Compressed) {
        match input {
            Ok(input) => {
                if let Err(failure) = one(&input, &settings, session) {
                    session.fail(&input, failure);
                }
            }
            Err((name, failure)) => session.fail(name, failure),
        }
    }
    Ok(())
}

fn one(input: &Input, settings: &DecodeSettings, session: &Session) -> Result<(), Failure> {
    let begun = Instant::now();
    let mut source = Source::open(input, Permit::READ)?;
    session.await_device_for(source.len(), Direction::Decompress);
    let progress = match session.shows_progress() {
        true => Progress::new(&input.to_string(), source.len(), true),
        false => Progress::silent(),
    };
    source.set_progress(progress.clone());
    let statistics = session.statistics();
    let settings = settings.of_input(&mut source, statistics.as_ref());
    let outcome = check(&mut source, &settings);
    progress.finish();
    if source.change() == Change::Contents {
        return Err(Failure::changed());
    }
    let bytes = outcome?;
    session.await_device_after_work();
    let seconds = begun.elapsed().as_secs_f64();
    session.say(format_args!("{input}: sound, {} of contents, {seconds:.2} s", Human(bytes)));
    if let Some(traffic) = source.traffic() {
        session.say(format_args!("{input}: {}", summary::traffic(&traffic)));
    }
    let lines = |counted: &Statistics| summary::lines(counted, Direction::Decompress);
    session.say_what_was_done(input, statistics.as_ref(), lines);
    Ok(())
}

fn check(source: &mut Source, settings: &DecodeSettings) -> Result<u64, Failure> {
    match Format::detect(source)? {
        Format::Pz => Ok(formats::decoder(source, &settings.options)?.verify()?),
        format => formats::decode(format, source, &mut io::sink(), ByteRange::WHOLE, settings),
    }
}
