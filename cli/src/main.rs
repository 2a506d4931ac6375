//! The `pz` program: arguments, progress and exit codes around the library's public interface.

mod args;
mod batch;
mod claims;
mod cleanup;
mod commands;
mod device;
mod device_probe;
mod direction;
mod environment;
mod failure;
mod filtering;
mod filters;
mod formats;
mod inputs;
mod levels;
#[cfg(target_os = "linux")]
mod mapped;
mod measure;
mod memory;
mod messages;
mod module_file;
mod modules;
mod out_of_memory;
mod output;
mod panics;
mod paper;
mod progress;
mod remote;
mod selection;
mod server;
mod session;
mod settings;
mod sizes;
mod source;
mod sparse;
mod standard;
mod summary;
mod table;
mod transfer;
mod trust;
mod usage;
mod verbosity;

use std::process::ExitCode;

use failure::Exit;

#[global_allocator]
static ALLOCATOR: out_of_memory::Allocator = out_of_memory::Allocator;

fn main() -> ExitCode {
    out_of_memory::watch();
    tell_drivers();
    let exit = panics::guard(run) as u8;
    #[cfg(unix)]
    if device::is_in_use() {
        messages::end_at_once(exit);
    }
    ExitCode::from(exit)
}

/// Sets variables of the environment that GPU drivers read.
fn tell_drivers() {
    // Mesa's device-selection layer for Vulkan complains on standard error on a machine without a desktop. All it
    // would do is reorder the devices, so turn it off.
    #[cfg(all(target_os = "linux", feature = "webgpu"))]
    // SAFETY: there is no other thread yet.
    unsafe {
        std::env::set_var("NODEVICE_SELECT", "1");
    }
    // By default CUDA spreads the streams of a process over 8 queues of the card. Streams that share a queue wait for
    // each other.
    #[cfg(feature = "cuda")]
    if std::env::var_os("CUDA_DEVICE_MAX_CONNECTIONS").is_none() {
        // SAFETY: there is no other thread yet.
        unsafe { std::env::set_var("CUDA_DEVICE_MAX_CONNECTIONS", "32") };
    }
}

fn run() -> Exit {
    let outcome = match usage::parse(std::env::args_os()) {
        Ok(Some(cli)) => commands::run(cli),
        Ok(None) => Ok(Exit::Done),
        Err(failure) => Err(failure),
    };
    outcome.unwrap_or_else(|failure| {
        messages::report(None, &failure);
        failure.exit
    })
}
