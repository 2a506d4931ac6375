//! Makes the file system, another program or a signal interfere at a chosen moment. A library that is loaded before the
//! system's does this.

use std::fs;
use std::os::unix::process::ExitStatusExt;
use std::path::PathBuf;
use std::process::Command;

use crate::support::{Folder, Ran, feed, sample, skip};

/// `PLAN` says what the library does. It logs to the file named by `LOG`.
const LIBRARY: &str = r#"
#define _GNU_SOURCE
#include <errno.h>
#include <fcntl.h>
#include <signal.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <time.h>
#include <unistd.h>

static int plan(const char *name) {
    const char *chosen = getenv("PLAN");
    return chosen && strcmp(chosen, name) == 0;
}

static void note(const char *line) {
    const char *name = getenv("LOG");
    int log = name ? open(name, O_WRONLY | O_CREAT | O_APPEND, 0600) : -1;
    if (log >= 0 && write(log, line, strlen(line)) > 0) close(log);
}

static int refuse(void) {
    errno = EPERM;
    return -1;
}

/* Another program writes to "a". */
static void write_to_source(void) {
    int source = open("a", O_WRONLY);
    struct stat before;
    struct timespec now;
    fstat(source, &before);
    /* The clock of files ticks slowly. */
    do clock_gettime(CLOCK_REALTIME_COARSE, &now);
    while (now.tv_sec == before.st_ctim.tv_sec && now.tv_nsec <= before.st_ctim.tv_nsec);
    if (plan("source overwritten, time set back")) {
        struct timespec times[2] = {before.st_atim, before.st_mtim};
        if (pwrite(source, "!", 1, 0) == 1) syscall(SYS_utimensat, source, NULL, times, 0);
    } else if (pwrite(source, "!", 1, before.st_size) != 1) {
        abort();
    }
    close(source);
}

int fsync(int file) {
    static int calls;
    int first = calls++ == 0;
    note("sync\n");
    if (plan("syncing fails")) {
        errno = EIO;
        return -1;
    }
    if (first && getenv("PLAN") && strncmp(getenv("PLAN"), "source ", 7) == 0) write_to_source();
    if (plan("terminated")) kill(getpid(), SIGTERM);
    if (plan("killed")) kill(getpid(), SIGKILL);
    /* Nothing follows until the signal has ended the program. */
    if (plan("terminated")) for (;;) pause();
    return syscall(SYS_fsync, file);
}

int futimens(int file, const struct timespec times[2]) {
    if (plan("refused")) return refuse();
    if (plan("cut") && ftruncate(file, 10)) return -1;
    if (plan("lengthened") && ftruncate(file, 1 << 20)) return -1;
    return syscall(SYS_utimensat, file, NULL, times, 0);
}

int fchmod(int file, mode_t mode) {
    return plan("refused") ? refuse() : syscall(SYS_fchmod, file, mode);
}

int unlink(const char *path) {
    note("remove\n");
    return syscall(SYS_unlinkat, AT_FDCWD, path, 0);
}
"#;

/// A folder of files, and a second folder with the library.
struct Stage {
    folder: Folder,
    library: Folder,
}

impl Stage {
    /// `None` if there is no C compiler.
    fn new() -> Option<Self> {
        let (folder, library) = (Folder::new(), Folder::new());
        let source = library.write("interposed.c", LIBRARY.as_bytes());
        let cc = Command::new("cc")
            .args(["-shared", "-fPIC", "-o"])
            .arg(library.path("interposed.so"))
            .arg(source)
            .output();
        match cc {
            Ok(output) => {
                assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
                Some(Stage { folder, library })
            }
            Err(_) => {
                skip("there is no C compiler");
                None
            }
        }
    }

    fn log(&self) -> PathBuf {
        self.library.path("log")
    }

    fn command(&self, plan: &str, arguments: &[&str]) -> Command {
        let mut command = self.folder.command(arguments);
        command.env("LD_PRELOAD", self.library.path("interposed.so"));
        command.env("PLAN", plan).env("LOG", self.log());
        command
    }

    fn pz(&self, plan: &str, arguments: &[&str]) -> Ran {
        feed(&mut self.command(plan, arguments), b"")
    }

    /// The calls logged since the last call of this function.
    fn steps(&self) -> String {
        let steps = fs::read_to_string(self.log()).unwrap_or_default();
        let _ = fs::remove_file(self.log());
        steps.lines().collect::<Vec<_>>().join(" ")
    }
}

/// The output is a complete copy of the bytes that were read.
#[test]
fn a_source_written_to_during_the_last_sync_stays() {
    let Some(stage) = Stage::new() else { return };
    let contents = sample(100_000);
    for plan in ["source lengthened", "source overwritten, time set back"] {
        stage.folder.write("a", &contents);
        stage
            .pz(plan, &["compress", "--rm", "a"])
            .says(1, &["pz: a: changed after it was read: not removed, and a.pz lacks the change"]);
        assert_eq!(stage.folder.names(), ["a", "a.pz"], "{plan}");
        assert!(stage.folder.read("a") != contents, "{plan}");
        assert!(stage.folder.pz(&["decompress", "-c", "a.pz"]).silent() == contents, "{plan}");
        fs::remove_file(stage.folder.path("a.pz")).unwrap();
    }
}

#[test]
fn nothing_is_synced_without_need_and_sources_go_last() {
    let Some(stage) = Stage::new() else { return };
    for name in ["a", "b", "c", "d/e"] {
        stage.folder.write(name, &sample(5000));
    }
    for (arguments, steps) in [
        (&["compress", "-f", "a", "b"][..], ""),
        (&["compress", "-f", "--sync", "--no-sync", "a"], ""),
        (&["compress", "-f", "--sync", "a"], "sync sync"),
        // Both files, then their folder.
        (&["compress", "-f", "--no-sync", "--sync", "a", "b"], "sync sync sync"),
        (&["compress", "-f", "--rm", "--no-sync", "a"], "remove"),
        // Three files, two folders.
        (
            &["compress", "-f", "--rm", "b", "c", "d/e"],
            "sync sync sync sync sync remove remove remove",
        ),
        (&["decompress", "--rm", "b.pz"], "sync sync remove"),
    ] {
        stage.pz("", arguments).silent();
        assert_eq!(stage.steps(), steps, "{arguments:?}");
    }
}

#[test]
fn sources_stay_if_syncing_fails() {
    let Some(stage) = Stage::new() else { return };
    for name in ["a", "b"] {
        stage.folder.write(name, &sample(5000));
    }
    let lines = ["pz: a: a.pz: Input/output error", "pz: b: b.pz: Input/output error"];
    for option in ["--rm", "--sync"] {
        stage.pz("syncing fails", &["compress", option, "a", "b"]).says(1, &lines);
        assert_eq!(stage.folder.names(), ["a", "b"]);
    }
    stage.pz("syncing fails", &["compress", "a", "b"]).silent();
}

#[test]
fn sources_stay_if_a_batch_is_interrupted() {
    let Some(stage) = Stage::new() else { return };
    let names = ["a", "b", "c"];
    for (plan, signal) in [("terminated", 15), ("killed", 9)] {
        for name in names {
            stage.folder.write(name, &sample(5000));
        }
        // The program ignores the signals that its parent ignores, so make sure that it ignores none.
        let mut command = Command::new("env");
        let arguments = [&["compress", "--rm"], &names[..]].concat();
        let plain = stage.command(plan, &arguments);
        command.arg("--default-signal=TERM").arg(plain.get_program()).args(plain.get_args());
        command.current_dir(stage.folder.as_path());
        for (name, value) in plain.get_envs() {
            match value {
                Some(value) => command.env(name, value),
                None => command.env_remove(name),
            };
        }
        let status = command.status().unwrap();
        assert_eq!(status.signal(), Some(signal), "{plan}");
        let left = stage.folder.names();
        let left: Vec<_> = left.iter().filter(|name| !name.starts_with(".pz-")).collect();
        assert_eq!(left, names, "{plan}");
        assert_eq!(stage.folder.unfinished().is_empty(), plan == "terminated");
    }
    // The next run that writes to the folder removes what the killed one left.
    stage.folder.pz(&["compress", "a"]).silent();
    assert_eq!(stage.folder.names(), ["a", "a.pz", "b", "c"]);
}

/// FAT, CIFS and FUSE refuse some attributes.
#[test]
fn refused_modes_and_times_are_only_warnings() {
    let Some(stage) = Stage::new() else { return };
    let contents = sample(5000);
    stage.folder.write("a", &contents);
    let line = |of: &str, name: &str, what: &str| {
        format!(
            "pz: {of}: {name}: written, but its {what} could not be set: Operation not permitted"
        )
    };
    let ran = stage.pz("refused", &["compress", "--rm", "a"]);
    ran.says(0, &[&line("a", "a.pz", "mode and times")]);
    assert_eq!(stage.folder.names(), ["a.pz"]);
    stage.pz("refused", &["decompress", "-q", "a.pz"]).silent();
    assert!(stage.folder.read("a") == contents);
    let ran = feed(&mut stage.command("refused", &["-o", "in.pz"]), &contents);
    ran.says(0, &[&line("standard input", "in.pz", "mode")]);
    let ran = stage.pz("refused", &["recover", "-q", "-f", "a.pz"]);
    assert_eq!((ran.code, ran.stderr.as_str()), (Some(0), ""));
}

#[test]
fn an_output_that_another_program_changes_gets_no_name() {
    let Some(stage) = Stage::new() else { return };
    stage.folder.write("a", &sample(5000));
    for plan in ["cut", "lengthened"] {
        let ran = stage.pz(plan, &["compress", "--rm", "a"]);
        ran.complains(1, "pz: a: a.pz: another program changed it: pz wrote ");
        assert_eq!(stage.folder.names(), ["a"], "{plan}");
    }
    // Also test tmpfs, where threads write to mappings that may be longer than the contents.
    let Ok(memory) = tempfile::tempdir_in("/dev/shm") else { return };
    stage.folder.pz(&["compress", "a"]).silent();
    let output = memory.path().join("a");
    let output = output.to_str().unwrap();
    for plan in ["cut", "lengthened"] {
        let ran = stage.pz(plan, &["decompress", "-o", output, "a.pz"]);
        let begin =
            format!("pz: a.pz: {output}: another program changed it: pz wrote 5000 bytes, ");
        ran.complains(1, &begin);
        assert_eq!(fs::read_dir(memory.path()).unwrap().count(), 0, "{plan}");
    }
}
