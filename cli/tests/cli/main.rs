//! Tests the whole `pz` program: files, pipes, messages, exit codes, interruptions.

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
#[cfg(feature = "remote")]
#[path = "../../../tests/common/http_server.rs"]
mod http_server;
mod imports;
#[cfg(target_os = "linux")]
mod interposed;
mod list;
mod long;
mod memory;
mod module;
mod on_devices;
#[cfg(unix)]
mod outputs;
mod range;
mod recover;
mod refusals;
#[cfg(feature = "remote")]
mod remote;
mod search;
mod selection;
#[cfg(feature = "remote")]
mod serve;
#[cfg(unix)]
mod signals;
mod support;
#[cfg(unix)]
mod terminal;
mod valid_streams;
