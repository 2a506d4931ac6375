//! Checks the README and the guide: each block runs, in order, as it stands; each link has a target; the plot shows the
//! measured figures.
//!
//! The blocks of a page share a new folder, in which the folders of the repository appear, and a home folder. The first
//! word after the fence says what a block is:
//!
//! | word | |
//! |---|---|
//! | `sh` | runs with `sh -eu`, with `pz` in its path |
//! | `python` | runs with the environment that `scripts/test.sh` makes, and passes `mypy --strict` |
//! | `c FILE` | is written to that file, which a later block compiles |
//! | `toml` | stands in the `Cargo.toml` of a package, whose dependencies Cargo resolves |
//! | `rust` | is a documentation test of the library: `src/lib.rs` includes the page |
//!
//! `needs=WORD` marks a block that cannot run everywhere; [`NEEDS`] has the words.

use std::fs;
use std::os::unix::fs::symlink;
use std::path::{Path, PathBuf};
use std::process::Command;

/// What a block may need beyond the repository, and why.
const NEEDS: [(&str, &str); 6] = [
    ("minutes", "builds what the tests have built already, in other folders"),
    ("nvidia", "needs an NVIDIA GPU"),
    ("opencl", "needs a device, or a processor's driver, for OpenCL"),
    ("bucket", "needs an object store"),
    ("torch", "needs torch, which takes gigabytes"),
    ("wasm", "needs the target wasm32-unknown-unknown of Rust"),
];

/// A fenced block.
struct Block {
    /// The line of its fence, from 1.
    line: usize,
    language: String,
    /// The words after the language.
    argument: String,
    text: String,
}

impl Block {
    fn needs(&self) -> Option<&str> {
        self.argument.strip_prefix("needs=")
    }
}

fn root() -> &'static Path {
    Path::new(env!("CARGO_MANIFEST_DIR")).parent().unwrap()
}

/// The fenced blocks of a page.
fn blocks(text: &str) -> Vec<Block> {
    let mut blocks: Vec<Block> = Vec::new();
    let mut is_open = false;
    for (line, text) in (1..).zip(text.lines()) {
        if let Some(fence) = text.strip_prefix("```") {
            is_open = !is_open;
            if is_open {
                let (language, argument) = fence.split_once(' ').unwrap_or((fence, ""));
                let [language, argument] = [language, argument].map(str::to_string);
                blocks.push(Block { line, language, argument, text: String::new() });
            }
        } else if is_open {
            let block = blocks.last_mut().unwrap();
            block.text += text;
            block.text.push('\n');
        }
    }
    assert!(!is_open, "the last block does not end");
    blocks
}

/// The folders in which the blocks of a page run, and the programs that they find there.
struct Scratch {
    page: String,
    /// The copy of the repository.
    here: PathBuf,
    home: PathBuf,
    path: std::ffi::OsString,
    python: PathBuf,
}

impl Scratch {
    fn new(page: &str) -> Self {
        let program = Path::new(env!("CARGO_BIN_EXE_pz"));
        let target = program.parent().unwrap().parent().unwrap();
        let scratch = Path::new(env!("CARGO_TARGET_TMPDIR")).join("docs").join(page);
        let _ = fs::remove_dir_all(&scratch);
        let [here, home, programs] = ["pz", "home", "bin"].map(|name| scratch.join(name));
        for folder in [&here, &home, &programs] {
            fs::create_dir_all(folder).unwrap();
        }
        symlink(program, programs.join("pz")).unwrap();
        for folder in ["capi", "docs", "python", "scripts"] {
            symlink(root().join(folder), here.join(folder)).unwrap();
        }
        // Blocks build in it.
        fs::create_dir(here.join("sdk")).unwrap();
        for entry in fs::read_dir(root().join("sdk")).unwrap().map(Result::unwrap) {
            if entry.file_name() != "target" {
                let copied =
                    Command::new("cp").arg("-r").arg(entry.path()).arg(here.join("sdk")).status();
                assert!(copied.unwrap().success());
            }
        }
        // The results of `scripts/install-capi.sh ~/.local`.
        symlink(target.join("capi"), home.join(".local")).unwrap();
        let path = std::env::join_paths(
            std::iter::once(programs)
                .chain(std::env::split_paths(&std::env::var_os("PATH").unwrap())),
        );
        let python = target.join("python/bin/python");
        Self { page: page.to_string(), here, home, path: path.unwrap(), python }
    }

    /// A command that runs here, as for a user without settings.
    fn command(&self, program: impl AsRef<std::ffi::OsStr>) -> Command {
        let mut command = Command::new(program);
        command.current_dir(&self.here).env("PATH", &self.path).env("HOME", &self.home);
        for name in [
            "PZ_LEVEL",
            "PZ_THREADS",
            "PZ_DEVICE",
            "PZ_GPU_MEMORY",
            "XDG_CONFIG_HOME",
            "CARGO_TARGET_DIR",
        ] {
            command.env_remove(name);
        }
        // Unless variables say otherwise, Rust's own folders are below the real home folder.
        let home = std::env::home_dir().unwrap();
        for (name, folder) in [("CARGO_HOME", ".cargo"), ("RUSTUP_HOME", ".rustup")] {
            if std::env::var_os(name).is_none() && home.join(folder).exists() {
                command.env(name, home.join(folder));
            }
        }
        command
    }

    /// Whether this machine has what a block needs.
    fn has(&self, need: &str) -> bool {
        assert!(NEEDS.iter().any(|(known, _)| *known == need), "{}: needs={need}", self.page);
        let works =
            |mut command: Command| command.output().is_ok_and(|output| output.status.success());
        let command = |program: &Path, arguments: &[&str]| {
            let mut command = self.command(program);
            command.args(arguments);
            command
        };
        let must_run = std::env::var_os("PZ_TEST_NO_SKIP").is_some();
        match need {
            "nvidia" => Path::new("/dev/nvidia0").exists(),
            "opencl" => must_run || works(command(Path::new("pz"), &["devices", "opencl"])),
            "torch" => works(command(&self.python, &["-c", "import torch"])),
            "wasm" => {
                let mut rustc = self.command("rustc");
                rustc.args(["--print", "target-libdir", "--target", "wasm32-unknown-unknown"]);
                let said = rustc.output().map(|output| output.stdout).unwrap_or_default();
                let is_there = Path::new(String::from_utf8_lossy(&said).trim()).exists();
                is_there || (must_run && std::env::var_os("PZ_TEST_NO_WASM").is_none())
            }
            _ => false,
        }
    }

    fn run(&self, line: usize, mut command: Command) {
        let output =
            command.output().unwrap_or_else(|error| panic!("{}:{line}: {error}", self.page));
        let [out, err] =
            [&output.stdout, &output.stderr].map(|bytes| String::from_utf8_lossy(bytes));
        assert!(output.status.success(), "{}:{line}: {}\n{out}{err}", self.page, output.status);
    }

    fn run_block(&self, block: &Block) {
        let line = block.line;
        match &*block.language {
            "sh" => {
                let mut shell = self.command("sh");
                shell.args(["-euc", &block.text]);
                self.run(line, shell);
            }
            "python" => {
                let file = format!("line_{line}.py");
                fs::write(self.here.join(&file), &block.text).unwrap();
                let mut python = self.command(&self.python);
                python.arg(file);
                self.run(line, python);
            }
            "c" => fs::write(self.here.join(&block.argument), &block.text).unwrap(),
            "toml" => self.resolve(block),
            "rust" => {
                let included = format!("#[doc = include_str!(\"../{}\")]", self.page);
                let library = fs::read_to_string(root().join("src/lib.rs")).unwrap();
                assert!(library.contains(&included), "src/lib.rs has no {included}");
            }
            other => panic!("{}:{line}: blocks of '{other}' do not run", self.page),
        }
    }

    /// Checks a block of `Cargo.toml` that names a neighbour `pz` of the package: it and its features exist.
    fn resolve(&self, block: &Block) {
        let package = self.here.join("package");
        fs::create_dir_all(package.join("src")).unwrap();
        fs::write(package.join("src/lib.rs"), "").unwrap();
        fs::copy(root().join("Cargo.lock"), package.join("Cargo.lock")).unwrap();
        let manifest = format!(
            "[package]\nname = \"package\"\nedition = \"2024\"\n\n[workspace]\n\n{}",
            block.text
        );
        fs::write(package.join("Cargo.toml"), manifest).unwrap();
        let neighbour = self.here.join("pz");
        if !neighbour.exists() {
            symlink(root(), neighbour).unwrap();
        }
        let mut cargo = self.command(env!("CARGO"));
        cargo
            .args(["metadata", "--quiet", "--offline", "--format-version", "1"])
            .current_dir(package);
        self.run(block.line, cargo);
    }

    /// Checks the types of all blocks in Python.
    fn check_types(&self) {
        let mut files: Vec<_> = fs::read_dir(&self.here)
            .unwrap()
            .map(|entry| entry.unwrap().file_name().into_string().unwrap())
            .filter(|name| name.starts_with("line_") && name.ends_with(".py"))
            .collect();
        files.sort();
        if files.is_empty() {
            return;
        }
        let cache = self.python.ancestors().nth(3).unwrap().join("mypy");
        let mut mypy = self.command(&self.python);
        mypy.args(["-m", "mypy", "--config-file", "python/pyproject.toml", "--cache-dir"])
            .arg(cache)
            .args(files);
        self.run(0, mypy);
    }
}

/// Runs the blocks of a page.
fn page(name: &str) {
    let text = fs::read_to_string(root().join(name)).unwrap();
    let scratch = Scratch::new(name);
    for block in blocks(&text) {
        if let Some(need) = block.needs().filter(|need| !scratch.has(need)) {
            eprintln!("NOT TESTED: {name}:{} needs {need}", block.line);
        } else {
            scratch.run_block(&block);
        }
    }
    scratch.check_types();
}

/// A test for each page, and the list of all.
macro_rules! pages {
    ($($(#[$attribute:meta])* $test:ident $name:literal)*) => {
        const PAGES: &[&str] = &[$($name),*];
        $(#[test] $(#[$attribute])* fn $test() {
            page($name);
        })*
    };
}

pages! {
    #[ignore = "needs the packages for Python and C: scripts/test.sh makes them and runs this"]
    readme "README.md"
    #[ignore = "needs the package for C: scripts/test.sh makes it and runs this"]
    c "docs/c.md"
    files "docs/files.md"
    gpu "docs/gpu.md"
    levels "docs/levels.md"
    memory "docs/memory.md"
    modules "docs/modules.md"
    #[ignore = "needs the package for Python: scripts/test.sh makes it and runs this"]
    python "docs/python.md"
    #[ignore = "needs the package for Python: scripts/test.sh makes it and runs this"]
    python_readme "python/README.md"
    rust "docs/rust.md"
    servers "docs/servers.md"
    typed "docs/typed.md"
}

#[test]
fn every_page_of_the_guide_has_a_test_and_stands_in_the_readme() {
    let readme = fs::read_to_string(root().join("README.md")).unwrap();
    for entry in fs::read_dir(root().join("docs")).unwrap() {
        let name = format!("docs/{}", entry.unwrap().file_name().to_str().unwrap());
        if name.ends_with(".md") {
            assert!(PAGES.contains(&&*name), "{name} has no test");
            assert!(readme.contains(&format!("]({name})")), "README.md has no link to {name}");
        }
    }
}

/// The anchor that GitHub gives a heading.
fn anchor(heading: &str) -> String {
    let kept = heading.trim().to_lowercase();
    let kept = kept.chars().filter(|&c| c.is_alphanumeric() || " -_".contains(c));
    kept.map(|c| if c == ' ' { '-' } else { c }).collect()
}

#[test]
fn links_lead_somewhere() {
    let other = [
        "ARCHITECTURE.md",
        "BENCHMARKS.md",
        "CHANGELOG.md",
        "CONTRIBUTING.md",
        "src/format/FORMAT.md",
    ];
    for page in PAGES.iter().chain(&other) {
        let text = fs::read_to_string(root().join(page)).unwrap();
        let links = text.split("](").skip(1).filter_map(|rest| rest.split(')').next());
        for link in links.filter(|link| !link.contains("://")) {
            let (file, heading) = link.split_once('#').unwrap_or((link, ""));
            let page_itself = root().join(page);
            let file = match file {
                "" => page_itself,
                _ => page_itself.parent().unwrap().join(file),
            };
            assert!(file.exists(), "{page} links to {link}");
            if !heading.is_empty() {
                let target = fs::read_to_string(&file).unwrap();
                let mut headings = target.lines().filter(|line| line.starts_with('#'));
                let is_there = headings.any(|line| anchor(line.trim_start_matches('#')) == heading);
                assert!(is_there, "{page} links to {link}");
            }
        }
    }
}

/// Readers can follow both to the end.
#[test]
fn the_readme_and_the_figures_are_short() {
    for (name, limit) in [("README.md", 1400), ("BENCHMARKS.md", 2000)] {
        let words = fs::read_to_string(root().join(name)).unwrap().split_whitespace().count();
        assert!(words <= limit, "{name} has {words} words");
    }
}

#[test]
fn the_plot_shows_its_figures() {
    let drawn = Command::new("python3").arg(root().join("scripts/plot.py")).output().unwrap();
    let said = String::from_utf8_lossy(&drawn.stderr);
    assert!(drawn.status.success(), "{said}");
    let plot = fs::read(root().join("docs/silesia7.svg")).unwrap();
    assert!(drawn.stdout == plot, "docs/silesia7.svg is not what scripts/plot.py draws");
}
