//! Runs the program and inspects the results.

use std::fs;
use std::io::Write;
use std::path::{Path, PathBuf};
use std::process::{Command, Output, Stdio};
use std::thread;
use std::time::{Duration, Instant};

use tempfile::TempDir;

/// The program, in a clean environment.
pub fn pz() -> Command {
    let mut command = Command::new(program());
    for (name, _) in std::env::vars_os() {
        if name.to_string_lossy().starts_with("PZ_") {
            command.env_remove(name);
        }
    }
    // Keep measurements of tests out of the user's cache.
    let cache = Path::new(env!("CARGO_TARGET_TMPDIR"));
    command.env("XDG_CACHE_HOME", cache);
    // All tests share the kernels that software devices have compiled, even tests with a cache of their own. The
    // kernels lie in the folders that the environment names, or else here.
    for (name, folder) in
        [("MESA_SHADER_CACHE_DIR", cache), ("POCL_CACHE_DIR", &cache.join("pocl/kcache"))]
    {
        if std::env::var_os(name).is_none() {
            command.env(name, folder);
        }
    }
    // Trust no modules, whatever the user trusts.
    command.env("XDG_CONFIG_HOME", cache.join("settings"));
    command.stdin(Stdio::null());
    command
}

/// The path of the program.
pub fn program() -> &'static str {
    env!("CARGO_BIN_EXE_pz")
}

/// A test's own folder.
pub struct Folder(TempDir);

impl Folder {
    pub fn new() -> Self {
        Folder(tempfile::Builder::new().prefix("pz-cli-").tempdir().unwrap())
    }

    pub fn path(&self, name: &str) -> PathBuf {
        self.0.path().join(name)
    }

    pub fn write(&self, name: &str, contents: &[u8]) -> PathBuf {
        let path = self.path(name);
        fs::create_dir_all(path.parent().unwrap()).unwrap();
        fs::write(&path, contents).unwrap();
        path
    }

    pub fn read(&self, name: &str) -> Vec<u8> {
        fs::read(self.path(name)).unwrap_or_else(|error| panic!("{name}: {error}"))
    }

    pub fn has(&self, name: &str) -> bool {
        fs::symlink_metadata(self.path(name)).is_ok()
    }

    /// All names in the folder, sorted.
    pub fn names(&self) -> Vec<String> {
        let entries = fs::read_dir(self.0.path()).unwrap();
        let mut names: Vec<String> = entries
            .map(|entry| entry.unwrap().file_name().to_string_lossy().into_owned())
            .collect();
        names.sort();
        names
    }

    /// Names of unfinished outputs.
    pub fn unfinished(&self) -> Vec<String> {
        self.names().into_iter().filter(|name| name.starts_with(".pz-")).collect()
    }

    /// The program, run in this folder.
    pub fn pz(&self, arguments: &[&str]) -> Ran {
        self.pz_with(arguments, b"")
    }

    /// The same, with bytes on standard input.
    pub fn pz_with(&self, arguments: &[&str], stdin: &[u8]) -> Ran {
        feed(pz().args(arguments).current_dir(self.0.path()), stdin)
    }

    /// The program in this folder, not yet started.
    pub fn command(&self, arguments: &[&str]) -> Command {
        let mut command = pz();
        command.args(arguments).current_dir(self.0.path());
        command
    }

    pub fn as_path(&self) -> &Path {
        self.0.path()
    }

    /// Sets the mode of a file in the folder; "." is the folder itself.
    #[cfg(unix)]
    pub fn set_mode(&self, name: &str, mode: u32) {
        use std::os::unix::fs::PermissionsExt;
        fs::set_permissions(self.path(name), fs::Permissions::from_mode(mode)).unwrap();
    }

    /// Runs the program in this folder as a user whom modes restrict. Root may write everywhere, so root runs it as
    /// another user. That user can reach only a copy of the program, which this puts into the folder.
    #[cfg(unix)]
    pub fn restricted_pz(&self) -> impl Fn(&[&str]) -> Ran {
        use std::os::unix::process::CommandExt;
        fs::copy(program(), self.path("pz")).unwrap();
        self.set_mode(".", 0o755);
        move |arguments| {
            let mut command = Command::new(self.path("pz"));
            if rustix::process::geteuid().is_root() {
                command.uid(65_534).gid(65_534);
            }
            Ran::from(command.args(arguments).current_dir(self.as_path()).output().unwrap())
        }
    }

    /// Runs a shell script in a namespace of its own, where nothing else sees what it mounts. Skips the test, and
    /// returns `None`, if nothing can be mounted here: then the script must exit with 77.
    #[cfg(unix)]
    pub fn run_with_mounts(&self, script: &str) -> Option<Ran> {
        if std::env::var_os("PZ_TEST_NO_MOUNT").is_some() {
            eprintln!("SKIPPED: PZ_TEST_NO_MOUNT says that nothing can be mounted");
            return None;
        }
        let mut command = Command::new("unshare");
        command.args(["-rm", "bash", "-c", script]).current_dir(self.as_path());
        let Ok(output) = command.output() else {
            skip("there is no unshare");
            return None;
        };
        // `unshare` itself exits with 1.
        let code = output.status.code();
        if code == Some(77) || code == Some(1) && output.stdout.is_empty() {
            skip(&format!("nothing can be mounted here: {output:?}"));
            return None;
        }
        Some(Ran::from(output))
    }
}

/// Runs the program in a folder. Returns its exit code and its peak of resident memory in bytes. Its output lies in the
/// files `stdout` and `stderr` of the folder.
///
/// Another process starts the program: Linux counts the parent's memory as the new program's, and the tests hold more
/// memory than the program may use.
#[cfg(target_os = "linux")]
#[track_caller]
pub fn peak_memory(folder: &Folder, arguments: &[&str]) -> (i32, u64) {
    let status = Command::new(std::env::current_exe().unwrap())
        .args(["--exact", "support::run_measured"])
        .env("MEASURED_ARGUMENTS", arguments.join("\n"))
        .current_dir(folder.as_path())
        .stdout(Stdio::null())
        .status();
    assert!(status.unwrap().success(), "the program was not measured");
    let measured = String::from_utf8(folder.read("measured")).unwrap();
    let (code, kilobytes) = measured.split_once(' ').unwrap();
    (code.parse().unwrap(), kilobytes.parse::<u64>().unwrap() << 10)
}

/// Not a test: this is the process that starts the program.
#[cfg(target_os = "linux")]
#[test]
fn run_measured() {
    let Ok(arguments) = std::env::var("MEASURED_ARGUMENTS") else { return };
    let mut command = pz();
    command.args(arguments.lines()).env_remove("MEASURED_ARGUMENTS");
    command.stdout(fs::File::create("stdout").unwrap()).stderr(fs::File::create("stderr").unwrap());
    let code = command.status().unwrap().code().unwrap();
    let mut usage = std::mem::MaybeUninit::<libc::rusage>::zeroed();
    // SAFETY: the call fills the whole `rusage`, for which all zeros are valid too.
    let usage = unsafe {
        assert_eq!(libc::getrusage(libc::RUSAGE_CHILDREN, usage.as_mut_ptr()), 0);
        usage.assume_init()
    };
    fs::write("measured", format!("{code} {}", usage.ru_maxrss)).unwrap();
}

/// Runs a command to its end with bytes on its standard input.
pub fn feed(command: &mut Command, stdin: &[u8]) -> Ran {
    command.stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::piped());
    let mut child = command.spawn().unwrap();
    let mut pipe = child.stdin.take().unwrap();
    thread::scope(|scope| {
        // The program need not read its input to the end.
        scope.spawn(move || drop(pipe.write_all(stdin)));
        Ran::from(child.wait_with_output().unwrap())
    })
}

/// The results of a finished run.
#[derive(Debug)]
pub struct Ran {
    pub code: Option<i32>,
    pub stdout: Vec<u8>,
    pub stderr: String,
}

impl From<Output> for Ran {
    fn from(output: Output) -> Self {
        Ran {
            code: output.status.code(),
            stdout: output.stdout,
            stderr: String::from_utf8(output.stderr).unwrap(),
        }
    }
}

impl Ran {
    /// Checks that the run succeeded without a message.
    #[track_caller]
    pub fn silent(self) -> Vec<u8> {
        assert_eq!((self.code, self.stderr.as_str()), (Some(0), ""));
        self.stdout
    }

    /// Checks for this exit code and exactly these lines on standard error.
    #[track_caller]
    pub fn says(self, code: i32, lines: &[&str]) -> Vec<u8> {
        let expected: String = lines.iter().map(|line| format!("{line}\n")).collect();
        assert_eq!((self.code, self.stderr), (Some(code), expected));
        self.stdout
    }

    /// Checks for this exit code and one line on standard error that begins like this.
    #[track_caller]
    pub fn complains(self, code: i32, begin: &str) -> String {
        let Ran { stderr, .. } = self;
        assert_eq!(self.code, Some(code), "{stderr}");
        assert!(stderr.starts_with(begin), "{stderr:?} does not begin with {begin:?}");
        assert!(stderr.ends_with('\n') && stderr.lines().count() == 1, "not one line: {stderr:?}");
        stderr
    }

    /// Standard output as text.
    pub fn text(&self) -> String {
        String::from_utf8(self.stdout.clone()).unwrap()
    }

    /// Standard output, line by line.
    pub fn stdout_lines(&self) -> impl Iterator<Item = &str> {
        str::from_utf8(&self.stdout).unwrap().lines()
    }

    /// Standard output as JSON.
    #[track_caller]
    pub fn json(&self) -> serde_json::Value {
        assert_eq!((self.code, self.stderr.as_str()), (Some(0), ""));
        serde_json::from_slice(&self.stdout).unwrap()
    }
}

/// Text-like bytes that compress, without a period that could coincide with a block's length.
pub fn sample(len: usize) -> Vec<u8> {
    const WORDS: [&str; 16] = [
        "block ",
        "frame ",
        "lane ",
        "sequence ",
        "literal ",
        "offset ",
        "length ",
        "the ",
        "of ",
        "and ",
        "a ",
        "rank\n",
        "index ",
        "0x1f, ",
        "checksum ",
        "{ return; }\n",
    ];
    let mut bytes = Vec::with_capacity(len + 16);
    let mut state = 0x9e37_79b9_7f4a_7c15u64;
    while bytes.len() < len {
        state =
            state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        bytes.extend_from_slice(WORDS[(state >> 60) as usize].as_bytes());
        if state >> 40 & 7 == 0 {
            bytes.extend_from_slice((state >> 33).to_string().as_bytes());
        }
    }
    bytes.truncate(len);
    bytes
}

/// Bytes that do not compress.
pub fn noise(len: usize) -> Vec<u8> {
    let mut state = 0x2545_f491_4f6c_dd1du64;
    let next = || {
        state ^= state << 13;
        state ^= state >> 7;
        state ^= state << 17;
        (state >> 32) as u8
    };
    std::iter::repeat_with(next).take(len).collect()
}

/// Waits until `happened` returns true, and fails after a limit.
#[track_caller]
pub fn wait_until(what: &str, mut happened: impl FnMut() -> bool) {
    let begun = Instant::now();
    while !happened() {
        assert!(begun.elapsed() < Duration::from_secs(60), "in vain: {what}");
        thread::sleep(Duration::from_millis(2));
    }
}

/// Says loudly that a test could not be run. With `PZ_TEST_NO_SKIP` set, as in CI, that is a failure.
pub fn skip(why: &str) {
    eprintln!("SKIPPED: {why}");
    assert!(std::env::var_os("PZ_TEST_NO_SKIP").is_none(), "skipped: {why}");
}
