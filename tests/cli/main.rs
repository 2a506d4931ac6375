//! The `pz` program as its users meet it: files, pipes, messages, exit codes, interruptions.

mod bench;
mod cache;
mod cost;
mod damage;
#[cfg(target_os = "linux")]
mod descriptors;
mod devices;
mod environment;
mod faults;
mod files;
mod filter;
mod formats;
mod generate;
mod imports;
#[cfg(target_os = "linux")]
mod interposed;
mod list;
mod memory;
mod on_devices;
mod range;
mod recover;
mod refusals;
mod selection;
#[cfg(unix)]
mod signals;
mod support;
#[cfg(unix)]
mod terminal;
