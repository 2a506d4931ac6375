//! A panic is a bug of ours: the user gets one line and exit code 3, and no unfinished file.

use std::io::Write;
use std::panic::{self, PanicHookInfo};

use crate::cleanup;
use crate::failure::{Exit, one_line};

/// Makes any panic, on any thread, the end of the program.
pub fn install() {
    panic::set_hook(Box::new(|info| {
        let _ = std::io::stderr().write_all(describe(info).as_bytes());
        cleanup::remove_all();
        std::process::exit(Exit::Bug as i32);
    }));
}

fn describe(info: &PanicHookInfo<'_>) -> String {
    let what = info.payload_as_str().unwrap_or("panic");
    let place =
        info.location().map(|l| format!(" ({}:{})", l.file(), l.line())).unwrap_or_default();
    format!("pz: internal error, please report it: {}{place}\n", one_line(what))
}

#[cfg(test)]
mod tests {
    use std::process::Command;

    /// What the child process of the test below does.
    #[test]
    #[ignore = "ends the process; started by a_panic_is_one_line_and_exit_code_3"]
    fn panicking_child() {
        super::install();
        let _ = std::thread::spawn(|| panic!("two\nlines")).join();
        unreachable!("the hook ends the program");
    }

    #[test]
    fn a_panic_is_one_line_and_exit_code_3() {
        let output = Command::new(std::env::current_exe().unwrap())
            .args(["--ignored", "--exact", "--nocapture", "panics::tests::panicking_child"])
            .output()
            .unwrap();
        assert_eq!(output.status.code(), Some(3));
        let stderr = String::from_utf8(output.stderr).unwrap();
        let place = stderr.strip_prefix("pz: internal error, please report it: two\\nlines (");
        assert!(place.is_some_and(|place| place.ends_with(")\n")), "{stderr}");
        assert_eq!(stderr.lines().count(), 1, "{stderr}");
    }
}
