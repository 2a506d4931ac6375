//! `pz module`

use std::fs;
use std::io::{self, Write as _};
use std::path::{Path, PathBuf};

use pz::gpu::module::{self as on_device, RunError};
use pz::module::{Entry, Module, Type, Windows};
use serde::Serialize;

use crate::claims::Claims;
use crate::device::Device;
use crate::failure::{Failure, hex, show};
use crate::module_file::read;
use crate::modules::{Action, Check, Modules, Run};
use crate::output::{self, Output};
use crate::session::Session;
use crate::settings;
use crate::sizes::Size;
use crate::source::Input;
use crate::standard;
use crate::table::{self, JsonName};
use crate::trust::{self, List};

/// Checks or runs a module.
pub fn run(args: &Modules, session: &mut Session) -> Result<(), Failure> {
    match &args.action {
        Action::Check(args) => check(args),
        Action::Run(args) => execute(args),
        Action::Trust(args) => trust_one(&args.module),
        Action::Trusted => list_trusted(session),
    }
}

/// The report of `check`.
#[derive(Serialize)]
struct Report {
    #[serde(flatten)]
    file: JsonName,
    bytes: usize,
    sha256: String,
    entries: Vec<EntryReport>,
}

/// The report on an exported function: its figures, or why it is refused.
#[derive(Serialize)]
struct EntryReport {
    name: String,
    #[serde(flatten)]
    figures: Option<Figures>,
    refused: Option<String>,
}

#[derive(Serialize)]
struct Figures {
    parameters: Vec<&'static str>,
    result: Option<&'static str>,
    imports: Vec<String>,
    instructions: u32,
    functions: u32,
    call_depth: u32,
    loops: u32,
    private_bytes: u32,
    opencl_bytes: usize,
    wgsl_bytes: usize,
}

fn name(ty: Type) -> &'static str {
    match ty {
        Type::I32 => "i32",
        Type::I64 => "i64",
    }
}

impl Figures {
    fn of(entry: &Entry) -> Self {
        let (opencl_bytes, wgsl_bytes) = entry.text_bytes();
        Figures {
            parameters: entry.parameters().into_iter().map(name).collect(),
            result: entry.result().map(name),
            imports: entry.intrinsics(),
            instructions: entry.operators(),
            functions: entry.functions(),
            call_depth: entry.call_depth(),
            loops: entry.loops(),
            private_bytes: entry.private_bytes(),
            opencl_bytes,
            wgsl_bytes,
        }
    }
}

impl Report {
    fn of(path: &Path, module: &Module, only: Option<&str>) -> Self {
        let names: Vec<_> = match only {
            Some(name) => vec![name.to_string()],
            None => module.exports().to_vec(),
        };
        let entries = names.into_iter().map(|name| match module.entry(&name) {
            Ok(entry) => EntryReport { name, figures: Some(Figures::of(&entry)), refused: None },
            Err(refusal) => EntryReport { name, figures: None, refused: Some(refusal.to_string()) },
        });
        Report {
            file: JsonName::of_path(path),
            bytes: module.bytes().len(),
            sha256: hex(&module.sha256()),
            entries: entries.collect(),
        }
    }

    fn to_text(&self, path: &Path) -> String {
        let (name, bytes) = (show(path), self.bytes);
        let mut text = format!("{name}: {bytes} bytes\n  SHA-256  {}\n", self.sha256);
        for EntryReport { name, figures, refused } in &self.entries {
            let name = name.escape_debug();
            text += &match figures {
                None => format!("{name}\n  refused  {}\n", refused.as_deref().unwrap_or_default()),
                Some(figures) => figures.to_text(&name.to_string()),
            };
        }
        text
    }
}

impl Figures {
    fn to_text(&self, name: &str) -> String {
        let result = self.result.map(|ty| format!(" -> {ty}")).unwrap_or_default();
        let imports = match self.imports.as_slice() {
            [] => "nothing".into(),
            imports => imports.join(", "),
        };
        let calls = match self.functions {
            1 => String::new(),
            functions => format!(", from {functions} functions, {} deep", self.call_depth),
        };
        format!(
            "{name}({}){result}\n  reaches  {imports}\n  length   {} of 32768 instructions{calls}\n  \
             loops    {}\n  memory   {} of 4096 bytes for each lane\n  \
             kernel   {} bytes of OpenCL C, {} of WGSL\n",
            self.parameters.join(", "),
            self.instructions,
            self.loops,
            self.private_bytes,
            self.opencl_bytes,
            self.wgsl_bytes,
        )
    }
}

/// Adds a module, by its file or its hash, to the list of trusted modules.
fn trust_one(module: &Path) -> Result<(), Failure> {
    let text = module.to_string_lossy();
    let (hash, name) = match trust::parse(&text) {
        Some(hash) => (hash, String::new()),
        None => (read(module)?.sha256(), show(module)),
    };
    let is_new = trust::add(hash, &name)?;
    let list = show(&trust::path()?);
    table::print(&match is_new {
        true => format!("{} added to {list}\n", hex(&hash)),
        false => format!("{} is in {list} already\n", hex(&hash)),
    })
}

/// Prints the trusted modules, and the numbers of lines in the list that hold no hash.
fn list_trusted(session: &mut Session) -> Result<(), Failure> {
    let List { trusted, wrong } = trust::read()?;
    let lines = trusted.into_iter();
    let lines: String = lines
        .map(|(hash, name)| format!("{} {name}", hex(&hash)).trim_end().to_string() + "\n")
        .collect();
    table::print(&lines)?;
    for number in wrong {
        let why = format!("line {number} is no SHA-256, and nothing is trusted for it");
        session.fail(show(&trust::path()?), Failure::environment(why));
    }
    Ok(())
}

/// Prints what a module costs and may do.
fn check(args: &Check) -> Result<(), Failure> {
    let module = read(&args.file)?;
    let report = Report::of(&args.file, &module, args.entry.as_deref());
    match args.json {
        true => table::print_json(&report)?,
        false => table::print(&report.to_text(&args.file))?,
    }
    let refused = report.entries.iter().filter(|entry| entry.refused.is_some());
    match refused.count() {
        0 => Ok(()),
        count => {
            let what = format!("{count} of {} functions are refused", report.entries.len());
            Err(Failure::input(what).at(&args.file))
        }
    }
}

/// Opens the output and the picture before anything runs.
fn open_outputs(args: &Run) -> Result<[Option<Output>; 2], Failure> {
    let input = Input::Path(args.file.clone());
    let mut claims = Claims::new([&input], args.input.as_slice());
    let mut open = |path: &Option<PathBuf>| {
        let Some(path) = path else { return Ok(None) };
        if standard::is_output(path) {
            claims.check_standard_output(&input)?;
            return Output::stdout(false).map(Some);
        }
        claims.take(path, &input)?;
        Output::create(path, output::existing(args.force, true), None).map(Some)
    };
    Ok([open(&args.output)?, open(&args.picture)?])
}

/// Prints to standard error, because a file goes to standard output.
fn print_aside(text: &str) -> Result<(), Failure> {
    Ok(io::stderr().write_all(text.as_bytes())?)
}

/// Writes an output and gives it its name.
fn write(mut output: Output, bytes: &[u8]) -> Result<(), Failure> {
    output.write_all(bytes).map_err(|error| output.blame(error.into()))?;
    output.complete(false)?.map_or(Ok(()), |mut output| output.rename())
}

/// Encodes the words of a picture as a PNG file.
fn png(pixels: &[u32], (width, height): (u32, u32)) -> Result<Vec<u8>, Failure> {
    let mut bytes = Vec::new();
    let mut encoder = png::Encoder::new(&mut bytes, width, height);
    encoder.set_color(png::ColorType::Rgba);
    encoder.set_depth(png::BitDepth::Eight);
    let contents: Vec<u8> = pixels.iter().flat_map(|pixel| pixel.to_le_bytes()).collect();
    let written = encoder.write_header().and_then(|mut png| {
        png.write_image_data(&contents)?;
        png.finish()
    });
    written.map_err(Failure::bug)?;
    Ok(bytes)
}

/// The results of a run of a module.
struct Ran {
    results: Vec<u64>,
    output: Vec<u8>,
    state: Vec<u32>,
    pixels: Vec<u32>,
}

/// Runs an entry, prints its results, and writes its files.
fn execute(args: &Run) -> Result<(), Failure> {
    let module = read(&args.file)?;
    let refuse = |what: String| Failure::input(what).at(&args.file);
    let entry = module.entry(&args.entry).map_err(|refusal| refuse(refusal.to_string()))?;
    let wanted = entry.parameters().len();
    if wanted != args.arguments.len() {
        let given = args.arguments.len();
        let what = format!("{} takes {wanted} arguments, and {given} were given", args.entry);
        return Err(Failure::environment(what));
    }
    let to_stdout = |path: &Option<PathBuf>| path.as_deref().is_some_and(standard::is_output);
    let print = match [&args.output, &args.picture].map(to_stdout) {
        [false, false] => table::print,
        [true, true] => {
            let what = "both -o and --picture go to standard output";
            return Err(Failure::environment(what));
        }
        _ => print_aside,
    };
    let [output, picture] = open_outputs(args)?;
    let (width, height) = args.size.unwrap_or((0, 0));
    let lanes = args.lanes.unwrap_or_else(|| (width * height).max(1));
    let ran = run_lanes(args, &entry, lanes)?;
    if let Some(ty) = entry.result() {
        print(&results(&ran.results, ty))?;
    }
    if !ran.state.is_empty() {
        let words: Vec<_> = ran.state.iter().map(u32::to_string).collect();
        print(&format!("state: {}\n", words.join(" ")))?;
    }
    if let Some(output) = output {
        write(output, &ran.output)?;
    }
    if let Some(picture) = picture {
        write(picture, &png(&ran.pixels, (width, height))?)?;
    }
    Ok(())
}

/// Runs the lanes on the CPU or on the device that the user named.
fn run_lanes(args: &Run, entry: &Entry, lanes: u32) -> Result<Ran, Failure> {
    let input = match &args.input {
        Some(path) => fs::read(path).map_err(|error| Failure::from(error).at(path))?,
        None => Vec::new(),
    };
    let output_len = args.output_size.map_or(input.len() as u64, |Size(bytes)| bytes);
    let too_long = || Failure::environment("windows must be shorter than 4 GiB");
    let output_len = u32::try_from(output_len).map_err(|_| too_long())?;
    u32::try_from(input.len()).map_err(|_| too_long())?;
    let (width, height) = args.size.unwrap_or((0, 0));
    let mut ran = Ran {
        results: Vec::new(),
        output: vec![0; output_len as usize],
        state: vec![0; args.state as usize],
        pixels: vec![0; width as usize * height as usize],
    };
    let mut windows = Windows {
        input: &input,
        output: &mut ran.output,
        state: &mut ran.state,
        pixels: &mut ran.pixels,
        width,
        time: args.time,
    };
    let device = settings::device(args.device)?;
    let memory = settings::gpu_memory(args.gpu_memory)?;
    let outcome = match device.open(memory)? {
        Some(gpu) => {
            let device = gpu.device().map_err(Failure::environment)?;
            on_device::run(&**device, entry, &mut windows, lanes, &args.arguments, args.fuel)
        }
        None => {
            let mut results = Vec::new();
            let take = |result| results.push(result);
            let ended = entry.run(&mut windows, lanes, &args.arguments, args.fuel, take);
            ended.map(|()| results).map_err(|(lane, trap)| RunError::Trapped(lane, trap))
        }
    };
    match outcome {
        Ok(results) => Ok(Ran { results, ..ran }),
        Err(error @ RunError::Trapped(..)) => Err(Failure::input(error).at(&args.file)),
        Err(error) => Err(on(device, error)),
    }
}

/// A failure of the device.
fn on(device: Device, error: RunError) -> Failure {
    Failure::environment(format!("device {device}: {error}; --device cpu runs it too"))
}

/// The results, one per line. If there are several, each line begins with the lane's number.
fn results(results: &[u64], ty: Type) -> String {
    let value = |value: u64| match ty {
        Type::I32 => (value as i32).to_string(),
        Type::I64 => (value as i64).to_string(),
    };
    match results {
        [only] => value(*only) + "\n",
        several => {
            let lines = several.iter().enumerate();
            lines.map(|(lane, result)| format!("{lane} {}\n", value(*result))).collect()
        }
    }
}
