//! `pz list`
//!
//! A file may have any number of frames and blocks, so the program prints them as it reads them. But the totals of the
//! whole file come first. So it reads each file once for the totals. If the user asked for frames and blocks, it then
//! reads the file again to print them.

use std::cell::RefCell;

use pz::{BlockInfo, DecodeOptions, FrameInfo, Listing, ModuleInfo, Pipeline};
use serde::ser::SerializeSeq;
use serde::{Serialize, Serializer};

use crate::args::List;
use crate::failure::{Failure, hex};
use crate::formats::Format;
use crate::inputs::{self, Select};
use crate::session::Session;
use crate::sizes::{self, Human, Size};
use crate::source::{Input, Permit, Source};
use crate::table::{self, Columns, JsonName, Printer, Table, not_json};
use crate::trust;

/// The checksum of headers, payloads, contents and index in every frame.
const CHECK: &str = "CRC-32C";

/// The most modules of a file that the summary counts.
const MAX_MODULES: usize = 99;

/// Lists each file.
pub fn run(args: &List, session: &mut Session) -> Result<(), Failure> {
    let mut options = DecodeOptions::new();
    if let Some(Size(bytes)) = args.memory {
        options = options.max_memory(bytes);
    }
    if args.json {
        return print_json(args, &options, session);
    }
    let mut sums = Vec::new();
    for_each(args, &options, session, |mut file| {
        if args.verbose {
            print_details(&mut file)
        } else {
            sums.push(file.sums);
            Ok(Ok(()))
        }
    })?;
    if sums.is_empty() { Ok(()) } else { table::print(&summary(&sums)) }
}

/// Calls `work` with each file that can be listed and reports the others. An outer error of `work` concerns the output
/// and ends the run; an inner one concerns the file.
fn for_each(
    args: &List,
    options: &DecodeOptions,
    session: &mut Session,
    mut work: impl FnMut(File) -> Result<Result<(), Failure>, Failure>,
) -> Result<(), Failure> {
    for input in inputs::expand(&args.files, &args.selection, Select::Pz) {
        match input {
            Ok(input) => {
                let outcome = match File::open(&input, options, args.verbose) {
                    Ok(file) => work(file)?,
                    Err(failure) => Err(failure),
                };
                if let Err(failure) = outcome {
                    session.fail(&input, failure);
                }
            }
            Err((name, failure)) => session.fail(name, failure),
        }
    }
    Ok(())
}

/// A file whose frames have been checked, and its blocks too if the user asked for them.
struct File {
    listing: Listing<Source>,
    sums: Sums,
    /// Columns that fit every block.
    columns: Columns,
}

/// The sums of a whole file.
struct Sums {
    input: Input,
    frames: u64,
    blocks: u64,
    pipelines: Vec<Pipeline>,
    /// Sizes in bytes.
    compressed_size: u64,
    content_size: u64,
    /// Bytes of memory to decode one block at a time.
    decode_memory: u64,
    /// The different hashes of its modules, and whether the user trusts them.
    modules: Vec<([u8; 32], bool)>,
}

impl File {
    fn open(input: &Input, options: &DecodeOptions, blocks: bool) -> Result<Self, Failure> {
        let mut source = Source::open(input, Permit::READ)?;
        if !source.is_seekable() {
            return Err(Failure::environment("is not a regular file, and listing needs to seek"));
        }
        let format = Format::detect(&mut source)?;
        if let Some(refusal) = format.refusal() {
            return Err(refusal);
        }
        if format != Format::Pz {
            let name = format.name();
            return Err(Failure::input(format!("is a {name} file; only pz files can be listed")));
        }
        let mut listing = Listing::new(source, options)?.with_read_ahead(Source::read_ahead);
        let mut columns = Columns::new(&[
            "Block",
            "<Method",
            "<Filter",
            "Offset",
            "Compressed",
            "Contents from",
            "Contents",
            "Own",
            "Ratio",
            "<Payload check",
            "<Contents check",
        ]);
        let mut sums = Sums::new(input);
        while let Some(frame) = listing.next_frame()? {
            sums.add(&frame);
            while blocks && let Some(block) = listing.next_block()? {
                columns.widen(&cells(&block));
            }
        }
        listing.rewind();
        Ok(File { listing, sums, columns })
    }
}

impl Sums {
    fn new(input: &Input) -> Self {
        Sums {
            input: input.clone(),
            frames: 0,
            blocks: 0,
            pipelines: Vec::new(),
            compressed_size: 0,
            content_size: 0,
            decode_memory: 0,
            modules: Vec::new(),
        }
    }

    fn add(&mut self, frame: &FrameInfo) {
        self.frames += 1;
        self.blocks = self.blocks.saturating_add(frame.block_count);
        self.compressed_size = self.compressed_size.saturating_add(frame.compressed_size);
        self.content_size = self.content_size.saturating_add(frame.content_size);
        self.decode_memory = self.decode_memory.max(frame.decode_memory);
        for module in &frame.modules {
            // A hostile file may have a different one in each frame.
            let is_known = self.modules.iter().any(|(hash, _)| *hash == module.sha256);
            if !is_known && self.modules.len() < MAX_MODULES {
                self.modules.push((module.sha256, trust::is_trusted(&module.sha256)));
            }
        }
        if !self.pipelines.contains(&frame.pipeline) {
            self.pipelines.push(frame.pipeline);
        }
    }

    /// The file's name, and whether its modules are trusted.
    fn name(&self) -> String {
        let count = match self.modules.len() {
            0 => return self.input.to_string(),
            1 => "a module".to_string(),
            MAX_MODULES => format!("{MAX_MODULES} modules or more"),
            count => format!("{count} modules"),
        };
        let are_trusted = self.modules.iter().all(|(_, is_trusted)| *is_trusted);
        let trusted = if are_trusted { "trusted" } else { "not trusted" };
        format!("{} (needs {count}, {trusted})", self.input)
    }

    fn ratio(&self) -> f64 {
        sizes::ratio(self.content_size, self.compressed_size)
    }
}

/// Prints an array with an object for each file.
fn print_json(args: &List, options: &DecodeOptions, session: &mut Session) -> Result<(), Failure> {
    let mut printer = Printer::default();
    let mut serializer = serde_json::Serializer::pretty(&mut printer);
    let written = (|| {
        let mut array = serializer.serialize_seq(None).map_err(not_json)?;
        for_each(args, options, session, |file| {
            let json = JsonFile::new(file, args.verbose);
            let written = array.serialize_element(&json);
            // A program cannot read JSON with a broken object, so a failure here ends the run.
            match json.frames.0.failure.into_inner() {
                Some(failure) => Err(failure),
                None => written.map(Ok).map_err(not_json),
            }
        })?;
        array.end().map_err(not_json)
    })();
    // Report the failure of the output first: it may have caused the other.
    let ended = written.and_then(|()| printer.put("\n"));
    printer.finish().and(ended)
}

/// The JSON of one file.
#[derive(Serialize)]
struct JsonFile {
    #[serde(flatten)]
    name: JsonName,
    frames: JsonFrames,
    blocks: u64,
    /// Sizes in bytes.
    compressed_size: u64,
    content_size: u64,
    /// Contents divided by compressed bytes.
    ratio: f64,
    check: &'static str,
    decode_memory: u64,
}

/// A file's frames, read while they are printed.
struct JsonFrames(Reading);

struct Reading {
    listing: RefCell<Listing<Source>>,
    /// The failure that stopped reading.
    failure: RefCell<Option<Failure>>,
    with_blocks: bool,
}

/// The JSON of one frame.
#[derive(Serialize)]
struct JsonFrame<'a> {
    number: u64,
    offset: u64,
    version: u8,
    pipeline: &'static str,
    level: Option<u8>,
    block_size: u64,
    block_count: u64,
    compressed_size: u64,
    content_size: u64,
    size_in_header: bool,
    decode_memory: u64,
    #[serde(skip_serializing_if = "Vec::is_empty")]
    modules: Vec<JsonModule>,
    #[serde(skip_serializing_if = "Option::is_none")]
    blocks: Option<JsonBlocks<'a>>,
}

/// The JSON of a module.
#[derive(Serialize)]
struct JsonModule {
    sha256: String,
    size: u64,
    fuel: u32,
    lane_bytes: u32,
    name: Option<String>,
    is_trusted: bool,
}

impl JsonModule {
    fn of(module: &ModuleInfo) -> Self {
        JsonModule {
            sha256: hex(&module.sha256),
            size: module.size,
            fuel: module.fuel,
            lane_bytes: module.lane_bytes,
            name: module.name.clone(),
            is_trusted: trust::is_trusted(&module.sha256),
        }
    }
}

/// A frame's blocks, read while they are printed.
struct JsonBlocks<'a>(&'a Reading);

/// The JSON of one block.
#[derive(Serialize)]
struct JsonBlock {
    number: u64,
    method: &'static str,
    /// The chain of filters; null if there is none.
    filter: Option<String>,
    offset: u64,
    compressed_size: u64,
    content_offset: u64,
    content_size: u64,
    /// Length of the block's own bytes; null if the block repeats nothing.
    own_size: Option<u64>,
    payload_checksum: String,
    content_checksum: String,
}

impl JsonFile {
    fn new(File { listing, sums, .. }: File, with_blocks: bool) -> Self {
        let (listing, failure) = (RefCell::new(listing), RefCell::default());
        JsonFile {
            ratio: sums.ratio(),
            name: JsonName::of(&sums.input),
            frames: JsonFrames(Reading { listing, failure, with_blocks }),
            blocks: sums.blocks,
            compressed_size: sums.compressed_size,
            content_size: sums.content_size,
            check: CHECK,
            decode_memory: sums.decode_memory,
        }
    }
}

impl Reading {
    /// Keeps the failure for later, since the serializer returns its own kind of error.
    fn fail<E: serde::ser::Error>(&self, error: pz::Error) -> E {
        let failure = Failure::from(error);
        let custom = E::custom(&failure.what);
        self.failure.replace(Some(failure));
        custom
    }
}

impl Serialize for JsonFrames {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        let reading = &self.0;
        let mut array = serializer.serialize_seq(None)?;
        loop {
            let next = reading.listing.borrow_mut().next_frame();
            let Some(frame) = next.map_err(|error| reading.fail::<S::Error>(error))? else { break };
            let has_blocks = reading.with_blocks && frame.block_count > 0;
            array.serialize_element(&JsonFrame {
                number: frame.number,
                offset: frame.offset,
                version: frame.version,
                pipeline: frame.pipeline.name(),
                level: frame.level.map(|level| level.get()),
                block_size: frame.block_size,
                block_count: frame.block_count,
                compressed_size: frame.compressed_size,
                content_size: frame.content_size,
                size_in_header: frame.size_in_header,
                decode_memory: frame.decode_memory,
                modules: frame.modules.iter().map(JsonModule::of).collect(),
                blocks: has_blocks.then_some(JsonBlocks(reading)),
            })?;
        }
        array.end()
    }
}

impl Serialize for JsonBlocks<'_> {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        let JsonBlocks(reading) = self;
        let mut array = serializer.serialize_seq(None)?;
        loop {
            let next = reading.listing.borrow_mut().next_block();
            let Some(block) = next.map_err(|error| reading.fail::<S::Error>(error))? else { break };
            array.serialize_element(&JsonBlock {
                number: block.number,
                method: block.method.name(),
                filter: block.filters.map(|chain| chain.to_string()),
                offset: block.offset,
                compressed_size: block.compressed_size,
                content_offset: block.content_offset,
                content_size: block.content_size,
                own_size: block.own_size,
                payload_checksum: format!("{:08x}", block.payload_checksum),
                content_checksum: format!("{:08x}", block.content_checksum),
            })?;
        }
        array.end()
    }
}

/// One line per file, and a line of totals if there are several.
fn summary(files: &[Sums]) -> String {
    let mut table = Table::new(&[
        "Frames",
        "Blocks",
        "<Pipeline",
        "Compressed",
        "Contents",
        "Ratio",
        "<Check",
        "Memory",
        "<File",
    ]);
    for file in files {
        let pipelines: Vec<&str> = file.pipelines.iter().map(|pipeline| pipeline.name()).collect();
        table.row(vec![
            file.frames.to_string(),
            file.blocks.to_string(),
            pipelines.join("+"),
            Human(file.compressed_size).to_string(),
            Human(file.content_size).to_string(),
            format!("{:.3}", file.ratio()),
            CHECK.to_string(),
            Human(file.decode_memory).to_string(),
            file.name(),
        ]);
    }
    if files.len() > 1 {
        let sum = |size: fn(&Sums) -> u64| files.iter().map(size).fold(0, u64::saturating_add);
        let (compressed, contents) = (sum(|f| f.compressed_size), sum(|f| f.content_size));
        table.row(vec![
            sum(|file| file.frames).to_string(),
            sum(|file| file.blocks).to_string(),
            String::new(),
            Human(compressed).to_string(),
            Human(contents).to_string(),
            format!("{:.3}", sizes::ratio(contents, compressed)),
            String::new(),
            Human(files.iter().map(|file| file.decode_memory).max().unwrap_or(0)).to_string(),
            format!("{} files", files.len()),
        ]);
    }
    table.to_text()
}

/// Prints a file, its frames, and one line per block.
fn print_details(file: &mut File) -> Result<Result<(), Failure>, Failure> {
    let File { listing, sums, columns } = file;
    let mut printer = Printer::default();
    printer.put(&format!(
        "{}: {} bytes of contents in {} bytes, ratio {:.3}, {CHECK}\n",
        sums.input,
        sums.content_size,
        sums.compressed_size,
        sums.ratio(),
    ))?;
    let read = loop {
        let frame = match listing.next_frame() {
            Ok(Some(frame)) => frame,
            Ok(None) => break Ok(()),
            Err(error) => break Err(error.into()),
        };
        let level = frame.level.map(|level| format!(" level {level}")).unwrap_or_default();
        printer.put(&format!(
            "frame {} at byte {}: format {}, {}{level}, {} x {}, {} to decode\n",
            frame.number,
            frame.offset,
            frame.version,
            frame.pipeline,
            frame.block_count,
            Human(frame.block_size),
            Human(frame.decode_memory),
        ))?;
        for (number, module) in frame.modules.iter().enumerate() {
            printer.put(&module_line(number, module))?;
        }
        printer.put(&columns.head())?;
        if let Err(failure) = print_blocks(listing, columns, &mut printer)? {
            break Err(failure);
        }
    };
    printer.finish().map(|()| read)
}

fn print_blocks(
    listing: &mut Listing<Source>,
    columns: &Columns,
    printer: &mut Printer,
) -> Result<Result<(), Failure>, Failure> {
    loop {
        match listing.next_block() {
            Ok(Some(block)) => printer.put(&columns.line(&cells(&block)))?,
            Ok(None) => return Ok(Ok(())),
            Err(error) => return Ok(Err(error.into())),
        }
    }
}

/// A module of a frame as a line.
fn module_line(number: usize, module: &ModuleInfo) -> String {
    let ModuleInfo { sha256, size, fuel, lane_bytes, name, .. } = module;
    let name = name.as_deref().map(|name| format!(" {:?},", name)).unwrap_or_default();
    let trusted = if trust::is_trusted(sha256) { "trusted" } else { "not trusted" };
    format!(
        "module{number} {}:{name} {size} bytes, {lane_bytes} bytes a lane, fuel {fuel}, {trusted}\n",
        hex(sha256),
    )
}

/// A block as a row.
fn cells(block: &BlockInfo) -> [String; 11] {
    [
        block.number.to_string(),
        block.method.name().to_string(),
        block.filters.map_or_else(|| "-".to_string(), |chain| chain.to_string()),
        block.offset.to_string(),
        block.compressed_size.to_string(),
        block.content_offset.to_string(),
        block.content_size.to_string(),
        block.own_size.map_or_else(|| "-".to_string(), |size| size.to_string()),
        format!("{:.3}", sizes::ratio(block.content_size, block.compressed_size)),
        format!("{:08x}", block.payload_checksum),
        format!("{:08x}", block.content_checksum),
    ]
}
