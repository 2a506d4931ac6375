//! The `pz` program: arguments, progress and exit codes around the library's public interface.

mod args;
mod cleanup;
mod commands;
mod device;
mod device_probe;
mod failure;
mod formats;
mod inputs;
mod levels;
#[cfg(target_os = "linux")]
mod mapped;
mod output;
mod panics;
mod progress;
mod session;
mod settings;
mod sizes;
mod source;
mod summary;
mod table;
mod transfer;
mod usage;

use std::process::ExitCode;

use failure::Exit;

fn main() -> ExitCode {
    // A layer that Mesa puts before Vulkan's drivers looks for a desktop, and complains on standard error where there
    // is none. It would only change the order of devices.
    // SAFETY: no other thread runs yet.
    #[cfg(all(target_os = "linux", feature = "webgpu"))]
    unsafe {
        std::env::set_var("NODEVICE_SELECT", "1");
    }
    let exit = panics::guard(run) as u8;
    #[cfg(unix)]
    if device::is_in_use() {
        session::end_at_once(exit);
    }
    ExitCode::from(exit)
}

fn run() -> Exit {
    let outcome = match usage::parse(std::env::args_os()) {
        Ok(Some(cli)) => commands::run(cli),
        Ok(None) => Ok(Exit::Done),
        Err(failure) => Err(failure),
    };
    outcome.unwrap_or_else(|failure| {
        session::report(None, &failure);
        failure.exit
    })
}
