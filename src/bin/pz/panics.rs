//! A panic is a bug of ours: the user gets one line and exit code 3, and no unfinished file.
//!
//! The library catches panics of its workers and makes errors of them, so that the other files still get their turn;
//! what the panic said is kept for the message. Any other panic ends the program.

use std::io::Write;
use std::panic::{self, AssertUnwindSafe, PanicHookInfo};
use std::sync::{Mutex, PoisonError};

use crate::failure::{Exit, one_line};
use crate::out_of_memory;

/// What the first panic said that nobody has been told of.
static UNTOLD: Mutex<Option<String>> = Mutex::new(None);

/// Runs the program; if anything panics, and even if somebody catches it, the exit code is that of a bug.
pub fn guard(run: impl FnOnce() -> Exit) -> Exit {
    panic::set_hook(Box::new(|info| {
        // The standard library's, of a thread that it has just made: it aborts.
        if info.payload_as_str().is_some_and(|what| what.contains("alternative stack")) {
            out_of_memory::note();
        }
        UNTOLD.lock().unwrap_or_else(PoisonError::into_inner).get_or_insert(describe(info));
    }));
    let exit = panic::catch_unwind(AssertUnwindSafe(run)).unwrap_or(Exit::Bug);
    match take() {
        Some(what) => {
            let line = format!("pz: internal error, please report it: {what}\n");
            let _ = std::io::stderr().write_all(line.as_bytes());
            Exit::Bug
        }
        None => exit,
    }
}

/// What a panic said, for whoever tells the user of it.
pub fn take() -> Option<String> {
    UNTOLD.lock().unwrap_or_else(PoisonError::into_inner).take()
}

fn describe(info: &PanicHookInfo<'_>) -> String {
    let what = one_line(info.payload_as_str().unwrap_or("panic"));
    match info.location() {
        Some(place) => format!("{what} ({}:{})", place.file(), place.line()),
        None => what,
    }
}

#[cfg(test)]
mod tests {
    use std::panic::catch_unwind;
    use std::process::{self, Command, Output};
    use std::thread;

    use super::*;
    use crate::failure::Failure;
    use crate::messages::report;

    /// What the child processes of the test below do.
    #[test]
    #[ignore = "ends the process; started by a_panic_is_one_line_and_exit_code_3"]
    fn on_the_main_thread() {
        process::exit(guard(|| panic!("two\nlines")) as i32);
    }

    #[test]
    #[ignore = "ends the process; started by a_panic_is_one_line_and_exit_code_3"]
    fn on_another_thread() {
        let run = || {
            let _ = thread::spawn(|| panic!("two\nlines")).join();
            Exit::Done
        };
        process::exit(guard(run) as i32);
    }

    #[test]
    #[ignore = "ends the process; started by a_panic_is_one_line_and_exit_code_3"]
    fn made_an_error_by_the_library() {
        let run = || {
            let _ = catch_unwind(|| panic!("two\nlines"));
            report(Some(&"file"), &Failure::bug("a worker panicked"));
            Exit::Bug
        };
        process::exit(guard(run) as i32);
    }

    #[test]
    fn a_panic_is_one_line_and_exit_code_3() {
        for (child, begin) in [
            ("on_the_main_thread", "pz: internal error, please report it: two\\nlines ("),
            ("on_another_thread", "pz: internal error, please report it: two\\nlines ("),
            ("made_an_error_by_the_library", "pz: file: a worker panicked: two\\nlines ("),
        ] {
            let Output { status, stderr, .. } = Command::new(std::env::current_exe().unwrap())
                .args(["--ignored", "--exact", "--nocapture"])
                .arg(format!("panics::tests::{child}"))
                .output()
                .unwrap();
            let stderr = String::from_utf8(stderr).unwrap();
            assert_eq!(status.code(), Some(3), "{child}: {stderr}");
            assert!(stderr.starts_with(begin) && stderr.ends_with(")\n"), "{child}: {stderr}");
            assert_eq!(stderr.lines().count(), 1, "{child}: {stderr}");
        }
    }
}
