//! Imports point down: a room of the source tree may only open the rooms listed for it here.
//!
//! A room is a file or folder directly below `src` or below `src/gpu`. Tests may open any room, so they are not
//! checked. `cli/tests/cli/imports.rs` checks the program's own files.

use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::path::{Path, PathBuf};

/// The rooms that each room of the library may open, lowest room first. `test_data`, which is for tests only, is left
/// out.
const LIBRARY: &[(&str, &[&str])] = &[
    ("bits", &[]),
    ("clock", &[]),
    ("pages", &[]),
    ("sync", &[]),
    ("user_cache", &[]),
    ("codec", &["bits", "pages"]),
    ("format", &["codec"]),
    ("error", &["codec", "format"]),
    ("module", &[]),
    ("gpu", &["codec", "format", "module", "user_cache"]),
    ("pipeline", &["clock", "codec", "error", "format", "gpu", "module", "pages", "user_cache"]),
    ("resident", &["clock", "error", "format", "gpu", "pipeline"]),
    ("stream", &["clock", "codec", "error", "format", "gpu", "pipeline"]),
    ("access", &["clock", "codec", "error", "format", "gpu", "pipeline", "stream"]),
    ("door", &["access", "gpu", "pipeline"]),
];

/// The rooms that each room of `src/gpu` may open, lowest room first.
const GPU: &[(&str, &[&str])] = &[
    ("model", &[]),
    ("device", &["model"]),
    ("module", &["device", "model"]),
    ("stages", &["device", "model"]),
    ("coder", &["device", "model", "stages"]),
];

/// Every Rust file below `folder`.
fn files_below(folder: &Path) -> Vec<PathBuf> {
    let mut files = Vec::new();
    for entry in fs::read_dir(folder).unwrap() {
        let path = entry.unwrap().path();
        if path.is_dir() {
            files.extend(files_below(&path));
        } else if path.extension().is_some_and(|extension| extension == "rs") {
            files.push(path);
        }
    }
    files.sort();
    files
}

/// The name of the room that `file` lies in: its first component below `folder`.
fn room(folder: &Path, file: &Path) -> String {
    let below = file.strip_prefix(folder).unwrap();
    let first = below.components().next().unwrap().as_os_str().to_str().unwrap();
    first.trim_end_matches(".rs").to_string()
}

/// Whether a file only holds tests.
fn is_test(file: &Path) -> bool {
    file.components().any(|part| {
        let name = part.as_os_str().to_str().unwrap().trim_end_matches(".rs");
        name == "tests" || name == "oracle" || name.ends_with("_tests") || name == "test_data"
    })
}

/// The text of a file, without comments and without everything from its first inline test module on.
fn code_of(file: &Path) -> String {
    let text = fs::read_to_string(file).unwrap();
    let tests = ["#[cfg(test)]\nmod tests {", "#[cfg(test)]\npub(crate) mod tests {"];
    let end = tests.iter().filter_map(|start| text.find(start)).min().unwrap_or(text.len());
    let mut code = String::new();
    let mut is_for_tests = false;
    for line in text[..end].lines() {
        // Leave out the item that `#[cfg(test)]` applies to. It ends with a `;` or `,`, or with a `}` on a line of its
        // own.
        if line.trim() == "#[cfg(test)]" {
            is_for_tests = true;
        } else if is_for_tests {
            let is_end = line.ends_with(';') || line.trim() == "}" || line.ends_with(',');
            is_for_tests = !is_end;
        } else if !line.trim_start().starts_with("//") {
            code += line;
            code.push('\n');
        }
    }
    code
}

/// The names that follow `prefix` in `code`: those of `prefix::name`, and of `prefix::{name, other::…}`.
fn names_after(code: &str, prefix: &str) -> BTreeSet<String> {
    let is_word = |c: char| c.is_alphanumeric() || c == '_';
    let mut names = BTreeSet::new();
    for (at, _) in code.match_indices(prefix) {
        if code[..at].ends_with(is_word) || code[..at].ends_with("::") {
            continue;
        }
        let rest = &code[at + prefix.len()..];
        if let Some(list) = rest.strip_prefix('{') {
            let (mut depth, mut starts) = (1, true);
            for (i, c) in list.char_indices() {
                match c {
                    '{' => depth += 1,
                    '}' => depth -= 1,
                    ',' if depth == 1 => starts = true,
                    c if depth == 1 && starts && is_word(c) => {
                        names.insert(list[i..].chars().take_while(|&c| is_word(c)).collect());
                        starts = false;
                    }
                    _ => {}
                }
                if depth == 0 {
                    break;
                }
            }
        } else {
            names.insert(rest.chars().take_while(|&c| is_word(c)).collect());
        }
    }
    names
}

/// Checks that the rooms of `folder`, which paths name after `prefix`, open exactly what `allowed` lists.
fn check(folder: &str, prefix: &str, allowed: &[(&str, &[&str])]) {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join(folder);
    let mut arrows: BTreeMap<String, BTreeSet<String>> = BTreeMap::new();
    for file in files_below(&folder) {
        let room = room(&folder, &file);
        if is_test(&file) || ["lib", "mod", "bin"].contains(&room.as_str()) {
            continue;
        }
        let code = code_of(&file);
        let mut opened = names_after(&code, prefix);
        // Paths of the room's own root name the same rooms.
        let depth = file.strip_prefix(&folder).unwrap().components().count();
        let is_root = file.ends_with("mod.rs");
        opened.extend(names_after(&code, &"super::".repeat(depth - usize::from(is_root))));
        let arrows = arrows.entry(room.clone()).or_default();
        for name in opened.into_iter().filter(|name| *name != room) {
            if let Some((_, may)) = allowed.iter().find(|(known, _)| *known == room) {
                let is_room = allowed.iter().any(|(known, _)| *known == name);
                assert!(
                    !is_room || may.contains(&name.as_str()),
                    "{} opens {name}",
                    file.display()
                );
                if is_room {
                    arrows.insert(name);
                }
            }
        }
    }
    let rooms: Vec<_> = arrows.keys().map(String::as_str).collect();
    let mut known: Vec<_> = allowed.iter().map(|(room, _)| *room).collect();
    known.sort_unstable();
    assert_eq!(rooms, known, "the rooms below {}", folder.display());
    for (room, may) in allowed {
        let unused: Vec<_> = may.iter().filter(|name| !arrows[*room].contains(**name)).collect();
        assert!(unused.is_empty(), "{room} opens {unused:?} no more: take them off the list");
    }
}

#[test]
fn rooms_of_the_library_open_only_lower_ones() {
    check("src", "crate::", LIBRARY);
}

#[test]
fn rooms_of_gpu_open_only_lower_ones() {
    check("src/gpu", "crate::gpu::", GPU);
}
