//! `pz list`

use pz::{BlockInfo, FrameInfo};
use serde::Serialize;

use crate::args::List;
use crate::failure::Failure;
use crate::formats::Format;
use crate::inputs::{self, Select};
use crate::session::Session;
use crate::sizes::{self, Human};
use crate::source::{Input, Permit, Source};
use crate::table::{self, Table};

/// The check that every frame carries: of headers, payloads, contents and index.
const CHECK: &str = "CRC-32C";

/// Lists each file.
pub fn run(args: &List, session: &mut Session) -> Result<(), Failure> {
    let mut files = Vec::new();
    for input in inputs::expand(&args.files, &args.selection, Select::Pz) {
        match input {
            Ok(input) => match one(&input, args.verbose) {
                Ok(file) => files.push(file),
                Err(failure) => session.fail(&input, failure),
            },
            Err((name, failure)) => session.fail(name, failure),
        }
    }
    if args.json {
        table::print_json(&files)
    } else if args.verbose {
        files.iter().try_for_each(|file| table::print(&details(file)))
    } else if files.is_empty() {
        Ok(())
    } else {
        table::print(&summary(&files))
    }
}

/// What is known of one file.
#[derive(Serialize)]
struct File {
    file: String,
    frames: Vec<Frame>,
    blocks: u64,
    /// Sizes in bytes.
    compressed_size: u64,
    content_size: u64,
    /// Contents over compressed bytes.
    ratio: f64,
    check: &'static str,
    /// Bytes that decoding one block at a time takes.
    decode_memory: u64,
}

/// What is known of one frame.
#[derive(Serialize)]
struct Frame {
    number: u64,
    offset: u64,
    version: u8,
    pipeline: String,
    level: Option<u8>,
    block_size: u64,
    block_count: u64,
    compressed_size: u64,
    content_size: u64,
    size_in_header: bool,
    decode_memory: u64,
    #[serde(skip_serializing_if = "Vec::is_empty")]
    blocks: Vec<Block>,
}

/// What is known of one block.
#[derive(Serialize)]
struct Block {
    number: u64,
    method: &'static str,
    offset: u64,
    compressed_size: u64,
    content_offset: u64,
    content_size: u64,
    payload_checksum: String,
    content_checksum: String,
}

fn one(input: &Input, blocks: bool) -> Result<File, Failure> {
    let mut source = Source::open(input, Permit::READ)?;
    if !source.is_seekable() {
        return Err(Failure::environment("is not a regular file: its index cannot be reached"));
    }
    match Format::detect(&mut source)? {
        Format::Pz => {}
        other => {
            let name = other.name();
            return Err(Failure::input(format!("is a {name} file; only pz files can be listed")));
        }
    }
    let frames = pz::list(&mut source, blocks)?;
    let sum = |size: fn(&FrameInfo) -> u64| frames.iter().map(size).fold(0, u64::saturating_add);
    let compressed_size = sum(|frame| frame.compressed_size);
    let content_size = sum(|frame| frame.content_size);
    Ok(File {
        file: input.to_string(),
        blocks: sum(|frame| frame.block_count),
        compressed_size,
        content_size,
        ratio: sizes::ratio(content_size, compressed_size),
        check: CHECK,
        decode_memory: frames.iter().map(|frame| frame.decode_memory).max().unwrap_or(0),
        frames: frames.iter().map(Frame::from).collect(),
    })
}

impl From<&FrameInfo> for Frame {
    fn from(frame: &FrameInfo) -> Self {
        Frame {
            number: frame.number,
            offset: frame.offset,
            version: frame.version,
            pipeline: frame.pipeline.to_string(),
            level: frame.level.map(|level| level.get()),
            block_size: frame.block_size,
            block_count: frame.block_count,
            compressed_size: frame.compressed_size,
            content_size: frame.content_size,
            size_in_header: frame.size_in_header,
            decode_memory: frame.decode_memory,
            blocks: frame.blocks.iter().map(Block::from).collect(),
        }
    }
}

impl From<&BlockInfo> for Block {
    fn from(block: &BlockInfo) -> Self {
        Block {
            number: block.number,
            method: block.method.name(),
            offset: block.offset,
            compressed_size: block.compressed_size,
            content_offset: block.content_offset,
            content_size: block.content_size,
            payload_checksum: format!("{:08x}", block.payload_checksum),
            content_checksum: format!("{:08x}", block.content_checksum),
        }
    }
}

impl File {
    /// The pipelines of its frames, each once.
    fn pipelines(&self) -> String {
        let mut names: Vec<&str> = Vec::new();
        for frame in &self.frames {
            if !names.contains(&frame.pipeline.as_str()) {
                names.push(&frame.pipeline);
            }
        }
        names.join("+")
    }
}

/// One line a file, and one for all of them if there are several.
fn summary(files: &[File]) -> String {
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
        table.row(vec![
            file.frames.len().to_string(),
            file.blocks.to_string(),
            file.pipelines(),
            Human(file.compressed_size).to_string(),
            Human(file.content_size).to_string(),
            format!("{:.3}", file.ratio),
            file.check.to_string(),
            Human(file.decode_memory).to_string(),
            file.file.clone(),
        ]);
    }
    if files.len() > 1 {
        let sum = |size: fn(&File) -> u64| files.iter().map(size).fold(0, u64::saturating_add);
        let (compressed, contents) = (sum(|f| f.compressed_size), sum(|f| f.content_size));
        table.row(vec![
            sum(|file| file.frames.len() as u64).to_string(),
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

/// A file, its frames, and one line a block.
fn details(file: &File) -> String {
    let mut text = format!(
        "{}: {} bytes of contents in {} bytes, ratio {:.3}, {}\n",
        file.file, file.content_size, file.compressed_size, file.ratio, file.check,
    );
    for frame in &file.frames {
        let level = frame.level.map(|level| format!(" level {level}")).unwrap_or_default();
        text += &format!(
            "frame {} at byte {}: format {}, {}{level}, {} x {}, {} to decode\n",
            frame.number,
            frame.offset,
            frame.version,
            frame.pipeline,
            frame.block_count,
            Human(frame.block_size),
            Human(frame.decode_memory),
        );
        let mut table = Table::new(&[
            "Block",
            "<Method",
            "Offset",
            "Compressed",
            "Contents from",
            "Contents",
            "Ratio",
            "<Payload check",
            "<Contents check",
        ]);
        for block in &frame.blocks {
            table.row(vec![
                block.number.to_string(),
                block.method.to_string(),
                block.offset.to_string(),
                block.compressed_size.to_string(),
                block.content_offset.to_string(),
                block.content_size.to_string(),
                format!("{:.3}", sizes::ratio(block.content_size, block.compressed_size)),
                block.payload_checksum.clone(),
                block.content_checksum.clone(),
            ]);
        }
        text += &table.to_text();
    }
    text
}
