//! The published package.

use std::path::Path;
use std::process::Command;

/// `cargo package` gives no warnings, and all files that the README links to are in the package.
#[test]
fn the_package_is_complete() {
    let root = Path::new(env!("CARGO_MANIFEST_DIR"));
    let output = Command::new(env!("CARGO"))
        .args(["package", "--locked", "--offline", "--allow-dirty", "--list", "--package", "libpz"])
        .current_dir(root)
        .output()
        .unwrap();
    let said = String::from_utf8(output.stderr).unwrap();
    assert!(output.status.success() && !said.contains("warning"), "{said}");
    let files = String::from_utf8(output.stdout).unwrap();
    let files: Vec<&str> = files.lines().collect();
    let readme = std::fs::read_to_string(root.join("README.md")).unwrap();
    let links = readme.split("](").skip(1).filter_map(|rest| rest.split(')').next());
    let links: Vec<&str> = links.filter(|link| !link.contains("://")).collect();
    assert!(links.len() > 3, "{links:?}");
    for link in links {
        let file = link.split('#').next().unwrap();
        assert!(file.is_empty() || files.contains(&file), "{link} is not in the package");
    }
    for file in files {
        assert!(!file.starts_with("scripts/") && !file.starts_with("target/"), "{file}");
    }
}
