use std::fs::{self, Permissions};
use std::os::unix::fs::{MetadataExt, PermissionsExt, chown, symlink};
use std::path::PathBuf;

use super::*;

/// The number of another user.
const NOBODY: u32 = 65534;

struct Place(PathBuf);

impl Place {
    fn new(name: &str) -> Self {
        let path = std::env::temp_dir().join(format!("pz-cache-{}-{name}", std::process::id()));
        let _ = fs::remove_dir_all(&path);
        fs::create_dir(&path).unwrap();
        Self(path)
    }

    fn cache(&self) -> (UserCache, PathBuf) {
        let folder = self.0.join("pz");
        (UserCache::in_folder(Some(folder.clone())), folder)
    }
}

impl Drop for Place {
    fn drop(&mut self) {
        let _ = fs::remove_dir_all(&self.0);
    }
}

fn is_root() -> bool {
    let is_root = rustix::process::geteuid().is_root();
    if !is_root {
        eprintln!("SKIPPED: only root can give files away");
    }
    is_root
}

fn set_mode(path: &Path, mode: u32) {
    fs::set_permissions(path, Permissions::from_mode(mode)).unwrap();
}

#[test]
fn files_come_back_and_are_closed_to_others() {
    let place = Place::new("kept");
    let (cache, folder) = place.cache();
    assert_eq!(cache.load("a", 9), None);
    cache.save("a", b"contents");
    cache.save("a", b"others");
    assert_eq!(cache.load("a", 6).as_deref(), Some(&b"others"[..]));
    assert_eq!(cache.load("a", 5), None);
    assert_eq!(fs::metadata(&folder).unwrap().mode() & 0o777, 0o700);
    assert_eq!(fs::metadata(folder.join("a")).unwrap().mode() & 0o777, 0o600);
    assert_eq!(fs::read_dir(&folder).unwrap().count(), 1);
}

#[test]
fn links_are_not_followed() {
    let place = Place::new("links");
    let (cache, folder) = place.cache();
    fs::create_dir(&folder).unwrap();
    set_mode(&folder, 0o700);
    let precious = place.0.join("precious");
    fs::write(&precious, "contents").unwrap();
    symlink(&precious, folder.join("a")).unwrap();
    assert_eq!(cache.load("a", 99), None);
    // The link is replaced; its target stays.
    cache.save("a", b"new");
    assert_eq!(fs::read(&precious).unwrap(), b"contents");
    assert_eq!(cache.load("a", 99).as_deref(), Some(&b"new"[..]));
    // A folder that is a link is not used either.
    let linked = place.0.join("linked");
    symlink(&folder, &linked).unwrap();
    let cache = UserCache::in_folder(Some(linked));
    assert_eq!(cache.load("a", 99), None);
    cache.save("b", b"new");
    assert!(!folder.join("b").exists());
}

/// The cache neither waits for a pipe nor reads an endless file.
#[test]
fn only_regular_files_are_read() {
    let place = Place::new("special");
    let (cache, folder) = place.cache();
    cache.save("a", b"");
    let made = std::process::Command::new("mkfifo").arg(folder.join("pipe")).status();
    assert!(made.unwrap().success());
    assert_eq!(cache.load("pipe", 99), None);
    symlink("/dev/zero", folder.join("zero")).unwrap();
    assert_eq!(cache.load("zero", u64::MAX), None);
    fs::create_dir(folder.join("folder")).unwrap();
    assert_eq!(cache.load("folder", 99), None);
    cache.save("pipe", b"now a file");
    assert_eq!(cache.load("pipe", 99).as_deref(), Some(&b"now a file"[..]));
    assert!(refused_cache().is_some());
}

#[test]
fn files_that_others_may_write_are_not_used() {
    let place = Place::new("modes");
    let (cache, folder) = place.cache();
    cache.save("a", b"contents");
    for mode in [0o770, 0o702, 0o1777] {
        set_mode(&folder, mode);
        assert_eq!(cache.load("a", 99), None, "{mode:o}");
        cache.save("b", b"contents");
        assert!(!folder.join("b").exists(), "{mode:o}");
    }
    // Other users may read it: that does no harm.
    set_mode(&folder, 0o755);
    assert_eq!(cache.load("a", 99).as_deref(), Some(&b"contents"[..]));
    for mode in [0o660, 0o606] {
        set_mode(&folder.join("a"), mode);
        assert_eq!(cache.load("a", 99), None, "{mode:o}");
    }
    cache.save("a", b"safe");
    assert_eq!(cache.load("a", 99).as_deref(), Some(&b"safe"[..]));
    if is_root() {
        chown(folder.join("a"), Some(NOBODY), None).unwrap();
        assert_eq!(cache.load("a", 99), None);
        cache.save("a", b"ours");
        assert_eq!(cache.load("a", 99).as_deref(), Some(&b"ours"[..]));
        chown(&folder, Some(NOBODY), None).unwrap();
        assert_eq!(cache.load("a", 99), None);
        cache.save("b", b"contents");
        assert!(!folder.join("b").exists());
    }
}

/// `sudo` can leave such an environment.
#[test]
fn root_keeps_nothing_in_the_folder_of_another_user() {
    if !is_root() {
        return;
    }
    let place = Place::new("sudo");
    assert!(folder::check_base(&place.0).is_ok());
    chown(&place.0, Some(NOBODY), None).unwrap();
    for base in [place.0.clone(), place.0.join("not/there")] {
        let Err(Unusable::Unsafe(why)) = folder::check_base(&base) else { panic!("{base:?}") };
        assert!(why.ends_with("belongs to another user"), "{why}");
    }
}
