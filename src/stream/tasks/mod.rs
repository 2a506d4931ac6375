//! Blocks on their way through the scheduler, with the memory that they need.
//!
//! | module | what |
//! |---|---|
//! | `encode` | a block to encode |
//! | `decode` | a block to decode |

mod decode;
mod encode;

use std::io;
use std::sync::Arc;

use rayon::prelude::*;

use super::places::ReadAt;
use crate::clock::Instant;
use crate::pipeline::engine::Engine;
use crate::pipeline::statistics::Statistics;

pub(crate) use decode::DecodeTask;
pub(crate) use encode::{EncodeTask, TakenOut};

/// Where to read the contents of a block to encode, or the payload of a block to decode.
pub(crate) struct Origin {
    pub(crate) input: Arc<dyn ReadAt>,
    pub(crate) offset: u64,
    pub(crate) statistics: Option<Statistics>,
}

impl Origin {
    /// Fills `buffer`, and counts the time that takes.
    fn read(&self, buffer: &mut [u8]) -> io::Result<()> {
        let begun = Instant::now();
        let read = self.input.read_exact_at(buffer, self.offset);
        if let Some(statistics) = &self.statistics {
            statistics.read_since(begun);
        }
        read
    }
}

/// Calls `read` for all tasks, in parallel if several of them are unread and the engine has threads for it.
fn read_all<T: Send>(
    batch: &mut [T],
    engine: &dyn Engine,
    is_unread: fn(&T) -> bool,
    read: fn(&mut T),
) {
    let unread = batch.iter().filter(|task| is_unread(task)).count();
    match if unread > 1 { engine.helpers() } else { None } {
        Some(helpers) => helpers.install(|| batch.par_iter_mut().for_each(read)),
        None => batch.iter_mut().for_each(read),
    }
}
