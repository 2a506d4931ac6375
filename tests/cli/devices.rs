//! `pz devices`

use crate::support::Folder;

#[test]
fn lists_the_processor() {
    let folder = Folder::new();
    let list = folder.pz(&["devices", "--json"]).json();
    let cpu = &list["devices"][0];
    assert_eq!(cpu["device"], "cpu");
    assert!(cpu["cores"].as_u64().unwrap() >= 1);
    assert!(!cpu["name"].as_str().unwrap().is_empty());
    assert!(!cpu["memory_source"].as_str().unwrap().is_empty());
    assert!(!cpu["simd"].as_str().unwrap().is_empty());
    let text = String::from_utf8(folder.pz(&["devices"]).silent()).unwrap();
    assert!(text.starts_with("cpu: "), "{text}");
}

#[test]
fn says_why_others_are_absent() {
    let folder = Folder::new();
    let list = folder.pz(&["devices", "--json"]).json();
    let absent: Vec<&str> =
        list["absent"].as_array().unwrap().iter().map(|a| a["backend"].as_str().unwrap()).collect();
    assert_eq!(absent, ["opencl", "webgpu"]);
    let text = String::from_utf8(folder.pz(&["devices"]).silent()).unwrap();
    assert!(text.contains("opencl: not in this build"), "{text}");
}
