//! The program's modules form no cycle of imports.

use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::path::Path;

type Arrows = BTreeMap<String, BTreeSet<String>>;

/// Adds the imports of a folder's files. A folder and the module file beside it count as one module.
fn read(folder: &Path, module: Option<&str>, arrows: &mut Arrows) {
    for entry in fs::read_dir(folder).unwrap() {
        let path = entry.unwrap().path();
        let stem = path.file_stem().unwrap().to_str().unwrap();
        let from = module.unwrap_or(stem);
        if path.is_dir() {
            read(&path, Some(from), arrows);
        } else if path.extension().is_some_and(|extension| extension == "rs") && from != "main" {
            let text = fs::read_to_string(&path).unwrap();
            // Tests may import from above.
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
fn imports_form_no_cycle() {
    let mut arrows = Arrows::new();
    read(&Path::new(env!("CARGO_MANIFEST_DIR")).join("src"), None, &mut arrows);
    assert!(arrows["commands"].contains("args"), "{arrows:?}");
    // Repeatedly remove modules that import none of the remaining ones. The modules that stay contain a cycle.
    while let Some(lowest) = arrows.iter().find(|(_, needs)| needs.is_empty()) {
        let lowest = lowest.0.clone();
        arrows.remove(&lowest);
        arrows.values_mut().for_each(|needs| needs.retain(|name| *name != lowest));
        let known: BTreeSet<String> = arrows.keys().cloned().collect();
        arrows.values_mut().for_each(|needs| needs.retain(|name| known.contains(name)));
    }
    assert!(arrows.is_empty(), "modules that need themselves through others: {arrows:#?}");
}
