//! Handles panics, which are bugs of ours. The user gets one line and exit code 3, and no unfinished file stays.
//!
//! The library catches panics of its workers and turns them into errors, so that the program goes on with the next
//! file. The panic's message is kept for the report. Any other panic ends the program.

use std::io::Write;
use std::panic::{self, AssertUnwindSafe, PanicHookInfo};
use std::sync::{Mutex, PoisonError};

use crate::failure::{Exit, one_line};
use crate::out_of_memory;

/// The message of the first panic that has not been reported.
static UNREPORTED: Mutex<Option<String>> = Mutex::new(None);

/// Runs the program. If anything panics, even where the library catches it, the exit code is that of a bug.
pub fn guard(run: impl FnOnce() -> Exit) -> Exit {
    panic::set_hook(Box::new(|info| {
        // The standard library panics with this message when a new thread gets no memory for its signal stack, and then
        // aborts.
        if text(info).is_some_and(|what| what.contains("alternative stack")) {
            out_of_memory::note();
        }
        UNREPORTED.lock().unwrap_or_else(PoisonError::into_inner).get_or_insert(describe(info));
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

/// Takes the message of a panic, to report it.
pub fn take() -> Option<String> {
    UNREPORTED.lock().unwrap_or_else(PoisonError::into_inner).take()
}

/// The message, if it is text.
fn text<'i>(info: &'i PanicHookInfo<'_>) -> Option<&'i str> {
    let payload = info.payload();
    let owned = || payload.downcast_ref::<String>().map(String::as_str);
    payload.downcast_ref::<&str>().copied().or_else(owned)
}

fn describe(info: &PanicHookInfo<'_>) -> String {
    let what = one_line(text(info).unwrap_or("panic"));
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

    /// The last test runs this test and the next two in child processes.
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
