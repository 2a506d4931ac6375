//! Imports point down: a room of the source tree may import only the rooms that are listed for it here.
//!
//! A room is a file or folder directly below `src`, `src/gpu` or `src/access`. Tests may import any room, so they are
//! not checked. The files of `src/access` form no cycles either. `tests/cli/imports.rs` checks the program's own files.

use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::path::{Path, PathBuf};

/// The rooms that each room of the library may import, lowest room first. Leaves out `test_data`, which is only for
/// tests.
const LIBRARY: &[(&str, &[&str])] = &[
    ("bits", &[]),
    ("clock", &[]),
    ("pages", &[]),
    ("process", &[]),
    ("sync", &["process"]),
    ("output", &["process", "sync"]),
    ("user_cache", &["sync"]),
    ("codec", &["bits", "pages"]),
    ("format", &["codec"]),
    ("table", &["codec"]),
    ("error", &["codec", "format"]),
    ("gpu", &["codec", "format", "process", "sync", "user_cache"]),
    (
        "pipeline",
        &["clock", "codec", "error", "format", "gpu", "pages", "process", "sync", "user_cache"],
    ),
    ("stream", &["clock", "codec", "error", "format", "gpu", "pipeline", "process", "sync"]),
    (
        "access",
        &["clock", "codec", "error", "format", "gpu", "pipeline", "process", "stream", "sync"],
    ),
    ("door", &["access", "gpu", "pipeline", "process", "stream", "sync"]),
];

/// The rooms that each room of `src/gpu` may import, lowest room first.
const GPU: &[(&str, &[&str])] = &[
    ("model", &[]),
    ("device", &["model"]),
    ("module", &["device", "model"]),
    ("stages", &["device", "model"]),
    ("coder", &["device", "model", "stages"]),
];

/// The rooms that each room of `src/access` may import, lowest room first.
const ACCESS: &[(&str, &[&str])] = &[
    ("cache", &[]),
    ("sources", &[]),
    ("device", &["cache", "sources"]),
    ("archive", &["cache", "device", "sources"]),
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

/// Whether a file holds only tests.
fn is_test(file: &Path) -> bool {
    file.components().any(|part| {
        let name = part.as_os_str().to_str().unwrap().trim_end_matches(".rs");
        name == "tests" || name == "oracle" || name == "test_data"
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

/// Checks that the rooms of `folder`, which paths name after `prefix`, import exactly what `allowed` lists.
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

/// If a thread holds a lock when the process forks, the lock stays locked in the child. So each process makes its own
/// statics that have locks: see `src/process`. The program never forks.
#[test]
fn statics_belong_to_one_process() {
    const LOCKS: &[&str] = &["Lock<", "Mutex<", "Once", "Lazy"];
    let top = Path::new(env!("CARGO_MANIFEST_DIR"));
    let folders = ["src", "module/src", "python/src", "capi/src"]
        .map(|folder| files_below(&top.join(folder)));
    for file in folders.into_iter().flatten() {
        if is_test(&file) {
            continue;
        }
        for line in code_of(&file).lines().map(str::trim) {
            let item = line.trim_start_matches("pub").trim_start_matches("(crate)").trim_start();
            let kind = item.strip_prefix("static ").and_then(|item| item.split_once(": "));
            let Some((_, kind)) = kind else { continue };
            let is_own = ["Lock<", "PerProcess<"].iter().any(|own| kind.starts_with(own));
            let locks = LOCKS.iter().any(|lock| kind.contains(lock));
            assert!(is_own || !locks, "{}: {line}", file.display());
        }
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

#[test]
fn rooms_of_access_open_only_lower_ones() {
    check("src/access", "crate::access::", ACCESS);
}

/// A path of names, such as that of a module.
type Names = Vec<String>;

/// The paths in a tree of `use` after `prefix`.
fn expand(prefix: &[String], tree: &str, paths: &mut Vec<Names>) {
    let names = |text: &str| {
        text.split("::")
            .map(str::trim)
            .filter(|name| !name.is_empty())
            .map(String::from)
            .collect::<Names>()
    };
    let Some((before, list)) = tree.split_once('{') else {
        let path = tree.split(" as ").next().unwrap();
        paths.push([prefix, &names(path)].concat());
        return;
    };
    let prefix = [prefix, &names(before)].concat();
    let (mut depth, mut start) = (0, 0);
    let list = list.trim_end().strip_suffix('}').unwrap();
    for (at, c) in list.char_indices().chain([(list.len(), ',')]) {
        depth += i32::from(c == '{') - i32::from(c == '}');
        if c == ',' && depth == 0 {
            if !list[start..at].trim().is_empty() {
                expand(&prefix, &list[start..at], paths);
            }
            start = at + 1;
        }
    }
}

/// A file as a module, with the paths that it imports.
#[derive(Default)]
struct Opened {
    /// The paths that it uses.
    used: BTreeSet<Names>,
    /// Imported names, and their paths.
    names: BTreeMap<String, Names>,
}

impl Opened {
    /// `modules` are all modules; `code` is the code of this one.
    fn by(module: &Names, code: &str, modules: &BTreeSet<Names>) -> Self {
        let absolute = |path: &[String]| -> Option<Names> {
            let up =
                path.iter().take_while(|name| ["self", "super"].contains(&name.as_str())).count();
            let above = path[..up].iter().filter(|name| *name == "super").count();
            let base = &module[..module.len().saturating_sub(above)];
            match path.first()?.as_str() {
                "crate" => Some(path[1..].to_vec()),
                "self" | "super" => Some([base, &path[up..]].concat()),
                first => {
                    let child = [module, &[first.to_string()][..]].concat();
                    modules.contains(&child).then(|| [module, path].concat())
                }
            }
        };
        let mut opened = Self::default();
        let mut rest = String::new();
        let mut of_use = Vec::new();
        for item in code.split_inclusive(';') {
            let begin = item
                .rfind("\nuse ")
                .or_else(|| item.rfind("\npub use "))
                .or_else(|| item.rfind("pub(").filter(|at| item[*at..].contains(") use ")));
            let Some(begin) = begin else {
                rest.push_str(item);
                continue;
            };
            rest.push_str(&item[..begin]);
            let item = item[begin..].trim();
            let tree = item.split_once("use ").unwrap().1.trim_end_matches(';').replace('\n', " ");
            let mut paths = Vec::new();
            expand(&[], &tree, &mut paths);
            of_use.extend(paths.into_iter().map(|path| (item.starts_with("pub"), path)));
        }
        let is_word = |c: char| c.is_alphanumeric() || c == '_';
        let words: BTreeSet<&str> = rest.split(|c| !is_word(c)).collect();
        for (is_public, path) in of_use {
            let Some(found) = absolute(&path) else { continue };
            let name = path.last().unwrap().clone();
            // Names that this module only re-exports are not used here.
            if !is_public || words.contains(name.as_str()) {
                opened.used.insert(found.clone());
            }
            opened.names.insert(name, found);
        }
        for start in ["crate::", "super::", "self::"] {
            for (at, _) in rest.match_indices(start).filter(|(at, _)| {
                !rest[..*at].ends_with([':', '_']) && !rest[..*at].ends_with("(in ")
            }) {
                let path = rest[at..].split(|c| !is_word(c) && c != ':').next().unwrap();
                let path: Names =
                    path.trim_end_matches(':').split("::").map(String::from).collect();
                opened.used.extend(absolute(&path));
            }
        }
        opened
    }
}

/// Checks that the files below `folder`, in the crate with the root `src`, form no import cycles.
fn check_circles(folder: &str) {
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("src");
    let files: BTreeMap<Names, PathBuf> = files_below(&root.join(folder))
        .into_iter()
        .filter(|file| !is_test(file))
        .map(|file| {
            let below = file.strip_prefix(&root).unwrap().with_extension("");
            let names =
                below.components().map(|name| name.as_os_str().to_str().unwrap().to_string());
            (names.filter(|name| name != "mod").collect(), file)
        })
        .collect();
    let modules: BTreeSet<Names> = files.keys().cloned().collect();
    let opened: BTreeMap<&Names, Opened> = files
        .iter()
        .map(|(module, file)| {
            (module, Opened::by(module, &format!("\n{}", code_of(file)), &modules))
        })
        .collect();
    // The module that defines the item of a path, even if another re-exports it.
    let home = |path: &Names| {
        let mut path = path.clone();
        loop {
            let len = (1..=path.len()).rev().find(|len| modules.contains(&path[..*len]))?;
            let module = path[..len].to_vec();
            let passed_on = path.get(len).and_then(|name| opened[&module].names.get(name));
            match passed_on {
                Some(next) if *next != path => path = next.clone(),
                _ => return Some(module),
            }
        }
    };
    let mut arrows: BTreeMap<&Names, BTreeSet<Names>> = BTreeMap::new();
    for (module, opened) in &opened {
        let homes = opened.used.iter().filter_map(home).filter(|home| home != *module);
        arrows.insert(module, homes.collect());
    }
    assert!(arrows.values().map(BTreeSet::len).sum::<usize>() > files.len(), "{folder}: no arrows");
    // A module that imports no remaining module is in no cycle.
    while let Some(free) = arrows
        .iter()
        .find(|(_, to)| !to.iter().any(|to| arrows.contains_key(to)))
        .map(|(module, _)| (*module).clone())
    {
        arrows.remove(&free);
    }
    let circles: Vec<_> = arrows
        .iter()
        .map(|(module, to)| {
            let to = to.iter().filter(|to| arrows.contains_key(to)).map(|to| to.join("/"));
            format!("{} opens {}", module.join("/"), to.collect::<Vec<_>>().join(", "))
        })
        .collect();
    assert!(circles.is_empty(), "circles of files:\n{}", circles.join("\n"));
}

#[test]
fn files_of_access_form_no_cycles() {
    check_circles("access");
}
