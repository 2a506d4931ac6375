//! The `pz` program as its users meet it: files, pipes, messages, exit codes, interruptions.

mod bench;
mod cost;
mod damage;
mod devices;
mod environment;
mod faults;
mod files;
mod filter;
mod formats;
mod generate;
mod imports;
mod list;
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
