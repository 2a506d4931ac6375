//! The program ignores foreign files in its cache folder, and does not hang on them.
#![cfg(all(unix, any(feature = "cuda", feature = "opencl", feature = "webgpu")))]

use std::fs::{self, Permissions};
use std::os::unix::fs::{MetadataExt, PermissionsExt, symlink};
use std::process::{Command, Stdio};

use crate::support::{Folder, Ran, sample, wait_until};

/// A run that reads the processor's rates from the cache and writes them there.
fn run(folder: &Folder) -> Ran {
    let arguments = ["compress", "-f", "-v", "-1", "-b64K", "-T1", "a"];
    let mut command = folder.command(&arguments);
    command.env("XDG_CACHE_HOME", folder.path("cache"));
    let mut child = command.stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().unwrap();
    wait_until("the program ends", || child.try_wait().unwrap().is_some());
    Ran::from(child.wait_with_output().unwrap())
}

fn refusal(ran: &Ran) -> Option<&str> {
    assert_eq!(ran.code, Some(0), "{}", ran.stderr);
    let lines: Vec<_> =
        ran.stderr.lines().filter(|line| line.contains("the cache is not used")).collect();
    assert!(lines.len() <= 1, "{}", ran.stderr);
    lines.first().copied()
}

#[test]
fn a_hostile_folder_does_no_harm() {
    let folder = Folder::new();
    folder.write("a", &sample(600_000));
    let kept = folder.path("cache/pz");
    assert_eq!(refusal(&run(&folder)), None);
    assert_eq!(fs::metadata(&kept).unwrap().mode() & 0o777, 0o700);
    let files: Vec<_> = fs::read_dir(&kept).unwrap().map(|entry| entry.unwrap().path()).collect();
    assert!(!files.is_empty(), "nothing was kept");
    let precious = folder.write("precious", b"contents");

    for plant in ["link", "zero", "pipe", "writable"] {
        for file in &files {
            fs::remove_file(file).unwrap();
            match plant {
                "link" => symlink(&precious, file).unwrap(),
                "zero" => symlink("/dev/zero", file).unwrap(),
                "pipe" => assert!(Command::new("mkfifo").arg(file).status().unwrap().success()),
                _ => {
                    fs::write(file, "pz rates 1\n").unwrap();
                    fs::set_permissions(file, Permissions::from_mode(0o666)).unwrap();
                }
            }
        }
        let ran = run(&folder);
        let said = refusal(&ran).unwrap_or_else(|| panic!("{plant}: {}", ran.stderr));
        assert!(said.contains(kept.to_str().unwrap()), "{said}");
        assert_eq!(folder.read("precious"), b"contents", "{plant}");
        // The program has replaced it with its own file.
        assert_eq!(refusal(&run(&folder)), None, "{plant}");
        assert!(files.iter().all(|file| fs::symlink_metadata(file).unwrap().is_file()));
    }

    fs::set_permissions(&kept, Permissions::from_mode(0o770)).unwrap();
    let said = refusal(&run(&folder)).map(str::to_string).unwrap();
    assert!(said.ends_with("may be written by others"), "{said}");
    fs::set_permissions(&kept, Permissions::from_mode(0o700)).unwrap();
    if !rustix::process::geteuid().is_root() {
        return crate::support::skip("only root can give folders away");
    }
    for path in [&kept, &folder.path("cache")] {
        std::os::unix::fs::chown(path, Some(65534), None).unwrap();
        let said = refusal(&run(&folder)).map(str::to_string).unwrap();
        assert!(said.ends_with("belongs to another user"), "{said}");
        std::os::unix::fs::chown(path, Some(0), None).unwrap();
    }
    assert_eq!(refusal(&run(&folder)), None);
}
