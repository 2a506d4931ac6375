//! Files that the program and the Python package write: each gets its name only when it is complete.
//!
//! A [`NewFile`] is written under a temporary name in the folder of its final one, and then renamed. Until then a file
//! that it replaces stays as it was. Devices, pipes, open files, and files that cannot be replaced are written in
//! place.
//!
//! | module | what |
//! |---|---|
//! | `attributes` | owner, mode and times |
//! | `descriptor` | paths that lead to open files |
//! | `folder` | the folder that a file lies in |
//! | `identity` | which paths lead to the same file |
//! | `new_file` | where an output goes, and how it gets there |
//! | `stale` | names of unfinished files, and those that a killed process left behind |
//! | `unfinished` | a file under a temporary name |

mod attributes;
pub mod descriptor;
pub mod folder;
mod identity;
mod new_file;
mod stale;
mod unfinished;

pub use attributes::RefusedAttributes;
pub use identity::{FileId, Name};
pub use new_file::{Existing, NewFile, Refusal};
pub use unfinished::{keep_list, remove_all, try_remove_all};
