//! The program's modules import each other in one direction: none of them needs, through others, itself.

use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::path::Path;

type Arrows = BTreeMap<String, BTreeSet<String>>;

/// Adds what the files of a folder import. A folder counts as one module, the one that its files belong to.
fn read(folder: &Path, module: Option<&str>, arrows: &mut Arrows) {
    for entry in fs::read_dir(folder).unwrap() {
        let path = entry.unwrap().path();
        let stem = path.file_stem().unwrap().to_str().unwrap();
        let from = module.unwrap_or(stem);
        if path.is_dir() {
            read(&path, Some(from), arrows);
        } else if path.extension().is_some_and(|extension| extension == "rs") && from != "main" {
            let text = fs::read_to_string(&path).unwrap();
            // Tests may look up.
            let code = text.split("#[cfg(test)]\nmod tests").next().unwrap();
            let names = code.split("crate::").skip(1).map(|rest| {
                rest.split(|c: char| !c.is_ascii_alphanumeric() && c != '_').next().unwrap()
            });
            let names = names.filter(|name| *name != from).map(String::from);
            arrows.entry(from.into()).or_default().extend(names);
        }
    }
}

#[test]
fn no_module_needs_itself() {
    let mut arrows = Arrows::new();
    read(&Path::new(env!("CARGO_MANIFEST_DIR")).join("src/bin/pz"), None, &mut arrows);
    assert!(arrows["commands"].contains("args"), "{arrows:?}");
    // Modules that import nothing that is left go, until all are gone or what is left goes round in circles.
    while let Some(lowest) = arrows.iter().find(|(_, needs)| needs.is_empty()) {
        let lowest = lowest.0.clone();
        arrows.remove(&lowest);
        arrows.values_mut().for_each(|needs| needs.retain(|name| *name != lowest));
        let known: BTreeSet<String> = arrows.keys().cloned().collect();
        arrows.values_mut().for_each(|needs| needs.retain(|name| known.contains(name)));
    }
    assert!(arrows.is_empty(), "modules that need themselves through others: {arrows:#?}");
}
