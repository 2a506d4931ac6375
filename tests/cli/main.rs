//! The `pz` program as its users meet it: files, pipes, messages, exit codes, interruptions.

mod bench;
mod cache;
mod cost;
mod damage;
mod devices;
mod environment;
mod faults;
mod files;
mod filter;
mod formats;
mod generate;
mod list;
mod memory;
mod on_devices;
mod range;
mod recover;
mod refusals;
#[cfg(unix)]
mod signals;
mod support;
#[cfg(unix)]
mod terminal;
