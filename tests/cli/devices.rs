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
    let ran = folder.pz(&["devices"]);
    assert_eq!(ran.code, Some(0));
    assert!(ran.text().starts_with("cpu: "), "{}", ran.text());
}

#[test]
fn every_backend_has_devices_or_a_reason_for_having_none() {
    let folder = Folder::new();
    let list = folder.pz(&["devices", "--json"]).json();
    let text = folder.pz(&["devices"]).text();
    for backend in ["opencl", "webgpu"] {
        let devices = list["devices"].as_array().unwrap();
        let devices: Vec<_> = devices
            .iter()
            .filter(|found| found["device"].as_str().unwrap().starts_with(&format!("{backend}:")))
            .collect();
        for (number, found) in devices.iter().enumerate() {
            assert_eq!(found["device"], format!("{backend}:{number}"));
            assert!(found["memory"].as_u64().unwrap() > 0, "{found}");
            assert!(!found["memory_source"].as_str().unwrap().is_empty(), "{found}");
            assert!(!found["name"].as_str().unwrap().is_empty(), "{found}");
            assert!(found["max_workgroup"].as_u64().unwrap() >= 32, "{found}");
        }
        let absent = list["absent"].as_array().unwrap();
        let absent: Vec<_> = absent.iter().filter(|absent| absent["backend"] == backend).collect();
        assert_eq!(absent.len(), usize::from(devices.is_empty()), "{list}");
        for absent in absent {
            assert!(!absent["why"].as_str().unwrap().is_empty());
            assert!(!absent["remedy"].as_str().unwrap().is_empty());
        }
        assert!(text.contains(&format!("{backend}:")), "{text}");
    }
}

/// No library, no driver: that is no failure.
#[test]
#[cfg(all(target_os = "linux", feature = "opencl", feature = "webgpu"))]
fn without_drivers_there_is_a_reason() {
    let folder = Folder::new();
    let run = |variables: &[(&str, &str)]| {
        let mut command = folder.command(&["devices", "--json"]);
        command.envs(variables.iter().copied());
        let output = command.output().unwrap();
        assert_eq!(output.status.code(), Some(0), "{output:?}");
        serde_json::from_slice::<serde_json::Value>(&output.stdout).unwrap()
    };
    let empty = folder.as_path().to_str().unwrap();
    // Neither loader finds a driver.
    let list =
        run(&[("OCL_ICD_VENDORS", empty), ("VK_DRIVER_FILES", empty), ("VK_ICD_FILENAMES", empty)]);
    assert_eq!(list["devices"].as_array().unwrap().len(), 1, "{list}");
    let backends: Vec<_> =
        list["absent"].as_array().unwrap().iter().map(|absent| &absent["backend"]).collect();
    assert_eq!(backends, ["opencl", "webgpu"]);
    for absent in list["absent"].as_array().unwrap() {
        assert!(absent["remedy"].as_str().unwrap().starts_with("install "), "{absent}");
    }
}
