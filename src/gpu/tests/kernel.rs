//! The kernel files match the registry, and both languages state the same cost.

use std::collections::{BTreeMap, BTreeSet};
use std::path::Path;

use crate::gpu::device::Api;
use crate::gpu::model::cost::{Formula, KernelCost};
use crate::gpu::model::kernel::{
    ALL, COMMON, DOOR_MEASURE, DOOR_RING, DOOR_SEARCH, TEST_DEVICE, TEST_DOOR, with_cost_of,
};
use crate::gpu::model::plan::Shape;

/// The stems of the files with this extension in a folder under `kernels`.
fn on_disk(folder: &str, extension: &str) -> BTreeSet<String> {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("kernels").join(folder);
    let paths = std::fs::read_dir(folder).unwrap().map(|entry| entry.unwrap().path());
    paths
        .filter(|path| path.extension().is_some_and(|other| other == extension))
        .map(|path| path.file_stem().unwrap().to_str().unwrap().to_string())
        .collect()
}

#[test]
fn files_and_registry_are_the_same_set() {
    let stems: BTreeSet<_> = ALL.iter().map(|kernel| kernel.stem).collect();
    let common: BTreeSet<_> = COMMON.iter().map(|common| common.name.to_string()).collect();
    assert_eq!((stems.len(), common.len()), (ALL.len(), COMMON.len()), "a stem is repeated");
    for (api, extension) in [(Api::OpenCl, "cl"), (Api::WebGpu, "wgsl")] {
        let registered: BTreeSet<_> = ALL.iter().map(|kernel| kernel.file(api)).collect();
        let kernels: BTreeSet<_> = ["batch", "bwt", "filter", "lz77"]
            .iter()
            .flat_map(|folder| {
                let stems = on_disk(folder, extension).into_iter();
                stems.map(move |stem| format!("{folder}/{stem}.{extension}"))
            })
            .collect();
        assert_eq!(kernels, registered);
        assert_eq!(on_disk("common", extension), common, "kernels/common/*.{extension}");
    }
    for (extension, stems) in
        [("cl", &["measure", "ring", "search"][..]), ("wgsl", &["measure", "search"])]
    {
        assert!(on_disk("door", extension).iter().eq(stems), "kernels/door/*.{extension}");
    }
    let top = Path::new(env!("CARGO_MANIFEST_DIR")).join("kernels");
    let entries = std::fs::read_dir(&top).unwrap().map(|entry| entry.unwrap().file_name());
    let folders: BTreeSet<_> = entries.map(|name| name.into_string().unwrap()).collect();
    assert_eq!(
        folders,
        ["batch", "bwt", "common", "dialects", "door", "filter", "lz77", "test"]
            .map(String::from)
            .into()
    );
    for folder in folders {
        for entry in std::fs::read_dir(top.join(folder)).unwrap() {
            let path = entry.unwrap().path();
            let extension = path.extension().and_then(|extension| extension.to_str());
            let is_dialect = path.parent().is_some_and(|parent| parent.ends_with("dialects"));
            let expected: &[_] = if is_dialect { &["h"] } else { &["cl", "wgsl"] };
            assert!(extension.is_some_and(|found| expected.contains(&found)), "{path:?}");
        }
    }
}

/// The variants of a file are the cost blocks that have a name.
#[test]
fn every_variant_is_registered() {
    let top = Path::new(env!("CARGO_MANIFEST_DIR")).join("kernels");
    for api in [Api::OpenCl, Api::WebGpu] {
        let mut files: BTreeMap<String, BTreeSet<&str>> = BTreeMap::new();
        for kernel in ALL {
            let variant = kernel.stem.split_once(':').map(|(_, variant)| variant);
            files.entry(kernel.file(api)).or_default().extend(variant);
        }
        for (file, variants) in files {
            let text = std::fs::read_to_string(top.join(&file)).unwrap();
            let heads = text.lines().filter_map(|line| line.strip_prefix("// @pz_cost "));
            let names = heads.filter_map(|head| head.strip_suffix('{').map(str::trim));
            let named: BTreeSet<_> = names.filter(|name| !name.is_empty()).collect();
            assert_eq!(named, variants, "{file}");
        }
    }
}

#[test]
fn a_variant_has_its_own_cost_in_its_own_lines() {
    let head = "// Two in one.\n//\n";
    let one = "// @pz_cost one {\n//   passes: 1\n// }\n";
    let two = "// @pz_cost two {\n//   passes: 2\n// }\n";
    let text = format!("{head}{one}//\n{two}code();\n");
    assert_eq!(
        with_cost_of("one", &text),
        "// Two in one.\n//\n// @pz_cost {\n//   passes: 1\n// }\n//\n//\n//\n//\ncode();\n"
    );
    let error = KernelCost::parse("f.cl", &with_cost_of("two", &text)).unwrap_err();
    assert_eq!(error.to_string(), "f.cl:7:4: key 'threads' is missing");
    let error = KernelCost::parse("f.cl", &with_cost_of("three", &text)).unwrap_err();
    assert_eq!(error.to_string(), "f.cl:10:1: there is no cost block");
}

#[test]
fn both_languages_state_the_same_cost() {
    let others = [&TEST_DEVICE, &TEST_DOOR, &DOOR_MEASURE, &DOOR_SEARCH, &DOOR_RING];
    for kernel in ALL.iter().copied().chain(others) {
        if let Err(error) = kernel.cost() {
            panic!("{error}");
        }
    }
}

#[test]
fn files_that_state_other_costs_are_found() {
    let wgsl = "// @pz_cost {\n// threads: 1\n// passes: 1\n// buffers: a=N\n// local_mem: 0\n// }";
    let cost = |opencl: &'static str| {
        let text = |api| if api == Api::OpenCl { opencl.into() } else { wgsl.into() };
        TEST_DEVICE.parse(text).map(|_| ())
    };
    assert_eq!(cost(wgsl), Ok(()));
    let other =
        "// @pz_cost {\n// threads: 1\n// passes: 1\n// buffers: a=N+1\n// local_mem: 0\n// }";
    let error = cost(other).unwrap_err().to_string();
    assert_eq!(error, "test/device: its files in OpenCL C and in WGSL differ in 'buffers'");
    let error = cost("// no cost").unwrap_err().to_string();
    assert_eq!(error, "kernels/test/device.cl:1:1: there is no cost block");
}

/// A name means one buffer everywhere: every kernel file that uses it states the same formula.
#[test]
fn a_name_has_one_formula() {
    let mut all: Vec<(&str, &Formula, &str)> = Vec::new();
    for kernel in ALL {
        for (name, formula) in &kernel.cost().unwrap().buffers {
            match all.iter().find(|(other, ..)| other == name) {
                Some((_, other, stem)) => {
                    assert_eq!(*other, formula, "{name} in {stem} and in {}", kernel.stem);
                }
                None => all.push((name, formula, kernel.stem)),
            }
        }
    }
}

#[test]
fn imports_and_conditions_are_resolved() {
    for kernel in ALL {
        for api in [Api::OpenCl, Api::WebGpu] {
            let text = kernel.text(api);
            for line in text.lines().filter(|line| line.contains("@pz_import")) {
                let name = line.strip_prefix("// @pz_import ").expect("an import stands alone");
                assert!(COMMON.iter().any(|common| common.name == name), "{line}");
            }
            let count = |what: &str| text.lines().filter(|line| line.starts_with(what)).count();
            assert_eq!(count("// @pz_if "), count("// @pz_end"), "{}", kernel.stem);
        }
    }
}

#[test]
fn batches_that_cannot_be_counted_are_refused() {
    let text = "// @pz_cost {\n// threads: 1\n// passes: 1\n// buffers: \
                a=N*4294967296+18446744069414584320\n// local_mem: 0\n// }";
    let cost = KernelCost::parse("f", text).unwrap();
    assert!(Shape { blocks: 1, slot: 0 }.bytes(&cost, "a").is_ok());
    assert!(Shape { blocks: 1, slot: 256 }.bytes(&cost, "a").is_err());
    assert!(Shape { blocks: 2, slot: 0 }.bytes(&cost, "a").is_err());
    assert_eq!(Shape::new(1, 0).slot, 256);
    assert_eq!(Shape::new(1, 256).slot, 256);
    assert_eq!(Shape::new(1, 257).slot, 512);
}
