//! The way of a block from its place in a file to its contents, for everything that reads blocks in any order.
//!
//! ```text
//! place ─▶ bytes ─▶ checked header ─▶ own bytes, list, payload ─▶ engine ─▶ contents
//! layout   layout       layout                         restore
//! ```
//!
//! | module | what |
//! |---|---|
//! | `layout` | where the blocks of a file lie, which of them a range is made of; reads neighbouring blocks at once |
//! | `restore` | decodes a block, and puts in what it repeats of others |
//! | `history` | own bytes of blocks that later ones may repeat |

mod history;
mod layout;
mod restore;

pub(crate) use history::{History, Recent, without_slack};
pub(crate) use layout::{BlockId, Layout, Located, Placement, ReadRun};
pub(crate) use restore::{Block, NOT_DECODED, Sources, matches_of, put_together, source_numbers};
