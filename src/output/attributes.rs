//! Mode, times and owner of an output.
//!
//! Some file systems (FAT, CIFS, FUSE) refuse some of these. The contents are complete anyway, so the user gets a
//! warning and not an error.

use std::fs::{File, FileTimes, Metadata};
use std::io;

/// What the file system did not let us set, and why.
#[derive(Debug, Default)]
pub struct RefusedAttributes(Vec<(&'static str, io::Error)>);

impl RefusedAttributes {
    fn note(&mut self, what: &'static str, outcome: io::Result<()>) {
        if let Err(error) = outcome {
            self.0.push((what, error));
        }
    }

    /// The mode, for this reason.
    pub fn of_mode(error: io::Error) -> Self {
        Self(vec![("mode", error)])
    }

    /// Names what was refused, such as "mode and times", and gives the first reason. `None` if nothing was.
    pub fn first(&self) -> Option<(String, &io::Error)> {
        let names: Vec<&str> = self.0.iter().map(|(what, _)| *what).collect();
        self.0.first().map(|(_, error)| (names.join(" and "), error))
    }
}

/// Copies owner, mode and times of `like` to `file`.
pub fn imitate(file: &File, like: &Metadata) -> RefusedAttributes {
    let mut refused = imitate_owner_and_mode(file, like);
    refused.note("times", set_times(file, like));
    refused
}

/// Copies owner and mode of `like` to `file`.
pub fn imitate_owner_and_mode(file: &File, like: &Metadata) -> RefusedAttributes {
    let mut refused = RefusedAttributes::default();
    #[cfg(unix)]
    {
        use std::fs::Permissions;
        use std::os::unix::fs::{MetadataExt, PermissionsExt, fchown};

        // Only root may change the owner. Any other user's output stays that user's.
        let is_root = rustix::process::geteuid().is_root();
        let own = match file.metadata() {
            Ok(own) => own,
            Err(error) => {
                refused.note("owner and mode", Err(error));
                return refused;
            }
        };
        let mut mode = like.mode() & 0o777;
        if own.uid() != like.uid() {
            let given = fchown(file, Some(like.uid()), None);
            refused.note("owner", given.or_else(|error| if is_root { Err(error) } else { Ok(()) }));
        }
        if own.gid() != like.gid()
            && let Err(error) = fchown(file, None, Some(like.gid()))
        {
            // The mode's group bits were meant for another group: give this group no more than everybody gets.
            mode &= 0o707 | (mode & 0o007) << 3;
            if is_root {
                refused.note("group", Err(error));
            }
        }
        refused.note("mode", file.set_permissions(Permissions::from_mode(mode)));
    }
    #[cfg(not(unix))]
    let _ = (file, like, &mut refused);
    refused
}

fn set_times(file: &File, like: &Metadata) -> io::Result<()> {
    let mut times = FileTimes::new();
    if let Ok(accessed) = like.accessed() {
        times = times.set_accessed(accessed);
    }
    if let Ok(modified) = like.modified() {
        times = times.set_modified(modified);
    }
    file.set_times(times)
}
