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
    for backend in ["cuda", "opencl", "webgpu"] {
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

/// A missing library or driver is no failure.
#[test]
#[cfg(all(target_os = "linux", feature = "cuda", feature = "opencl", feature = "webgpu"))]
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
    // Neither loader finds a driver. CUDA has no loader that could be redirected, but a machine without a GPU lacks
    // CUDA's libraries or devices.
    let list = run(&[
        ("OCL_ICD_VENDORS", empty),
        ("VK_DRIVER_FILES", empty),
        ("VK_ICD_FILENAMES", empty),
        ("CUDA_VISIBLE_DEVICES", ""),
    ]);
    assert_eq!(list["devices"].as_array().unwrap().len(), 1, "{list}");
    let backends: Vec<_> =
        list["absent"].as_array().unwrap().iter().map(|absent| &absent["backend"]).collect();
    assert_eq!(backends, ["cuda", "opencl", "webgpu"]);
    for absent in list["absent"].as_array().unwrap() {
        assert!(absent["remedy"].as_str().unwrap().starts_with("install "), "{absent}");
    }
}

/// A fake CUDA driver with a device, with only the functions that a list of devices calls.
#[cfg(all(target_os = "linux", feature = "cuda"))]
const CUDA: &str = r#"
#include <stddef.h>
#include <stdlib.h>
#include <string.h>
#define NOTHING(name) int name(void) { return 999; }
NOTHING(cuDevicePrimaryCtxRetain) NOTHING(cuDevicePrimaryCtxRelease_v2) NOTHING(cuCtxPushCurrent_v2)
NOTHING(cuCtxPopCurrent_v2) NOTHING(cuCtxGetCurrent) NOTHING(cuCtxSetCurrent)
NOTHING(cuMemGetInfo_v2) NOTHING(cuMemAlloc_v2) NOTHING(cuMemFree_v2) NOTHING(cuMemHostAlloc)
NOTHING(cuMemHostGetDevicePointer_v2) NOTHING(cuEventSynchronize)
NOTHING(cuMemFreeHost) NOTHING(cuMemcpyHtoDAsync_v2) NOTHING(cuMemcpyDtoHAsync_v2) NOTHING(cuMemsetD32Async)
NOTHING(cuMemcpyDtoDAsync_v2)
NOTHING(cuPointerGetAttribute) NOTHING(cuStreamCreate) NOTHING(cuStreamDestroy_v2) NOTHING(cuEventCreate)
NOTHING(cuEventRecord) NOTHING(cuEventQuery) NOTHING(cuEventElapsedTime) NOTHING(cuEventDestroy_v2)
NOTHING(cuModuleLoadData) NOTHING(cuModuleUnload) NOTHING(cuModuleGetFunction) NOTHING(cuFuncGetAttribute)
NOTHING(cuLaunchKernel)
int cuInit(unsigned flags) { return getenv("CODE") ? atoi(getenv("CODE")) : 0; }
int cuDriverGetVersion(int *version) { *version = 12080; return 0; }
int cuGetErrorName(int code, const char **name) { *name = "CUDA_ERROR_OF_A_TEST"; return 0; }
int cuDeviceGetCount(int *count) { *count = 1; return 0; }
int cuDeviceGet(int *device, int ordinal) { *device = ordinal; return 0; }
int cuDeviceGetName(char *name, int len, int device) { strcpy(name, "A GPU"); return 0; }
int cuDeviceTotalMem_v2(size_t *bytes, int device) { *bytes = (size_t)8 << 30; return 0; }
int cuDeviceGetAttribute(int *value, int what, int device) {
    *value = what == 20 ? 0 : what == 75 ? 9 : what == 76 ? 0 : 1024;
    return 0;
}
"#;

/// `pz devices` says what CUDA lacks, and how to get it.
#[test]
#[cfg(all(target_os = "linux", feature = "cuda"))]
fn missing_parts_of_cuda_are_named() {
    let folder = Folder::new();
    let source = folder.write("cuda.c", CUDA.as_bytes());
    let library = folder.path("libcuda.so.1");
    let made = std::process::Command::new("cc")
        .args(["-shared", "-fPIC", "-o"])
        .args([&library, &source])
        .status();
    if !made.is_ok_and(|status| status.success()) {
        return crate::support::skip("there is no C compiler");
    }
    let cuda = |variables: &[(&str, &str)]| {
        let mut command = folder.command(&["devices", "--json"]);
        command.env("LD_LIBRARY_PATH", folder.as_path()).envs(variables.iter().copied());
        let output = command.output().unwrap();
        assert_eq!(output.status.code(), Some(0), "{output:?}");
        let list: serde_json::Value = serde_json::from_slice(&output.stdout).unwrap();
        let absent = list["absent"].as_array().unwrap();
        let absent = absent.iter().find(|absent| absent["backend"] == "cuda");
        absent.map(|absent| ["why", "remedy"].map(|key| absent[key].as_str().unwrap().to_string()))
    };
    const DRIVER: &str = "install the driver of your NVIDIA GPU";
    let [why, remedy] = cuda(&[("CODE", "100")]).unwrap();
    assert_eq!((why.as_str(), remedy.as_str()), ("CUDA has no device", DRIVER));
    let [why, remedy] = cuda(&[("CODE", "803")]).unwrap();
    assert_eq!((why.as_str(), remedy.as_str()), ("cuInit: CUDA_ERROR_OF_A_TEST (803)", DRIVER));
    let [why, remedy] = cuda(&[("PZ_NVRTC", "/nowhere/libnvrtc.so.12")]).unwrap();
    assert_eq!(why, "/nowhere/libnvrtc.so.12, which PZ_NVRTC names, is not there");
    assert!(remedy.contains("nvidia-cuda-nvrtc-cu12") && remedy.contains("PZ_NVRTC"), "{remedy}");
    // A library that is not the compiler.
    let [why, _] = cuda(&[("PZ_NVRTC", library.to_str().unwrap())]).unwrap();
    assert!(why.ends_with("libcuda.so.1: lacks nvrtcVersion"), "{why}");
    std::fs::write(&library, "no library").unwrap();
    let [why, remedy] = cuda(&[]).unwrap();
    assert!(why.starts_with("the library of NVIDIA's driver (libcuda.so.1) is not there"), "{why}");
    assert_eq!(remedy, DRIVER);
}

/// Lists one device by its name, with the same lines as in the list of all.
#[test]
fn lists_a_single_device() {
    let folder = Folder::new();
    let list = folder.pz(&["devices", "--json"]).json();
    assert_eq!(folder.pz(&["devices", "--json", "auto"]).json()["absent"], list["absent"]);
    for found in list["devices"].as_array().unwrap() {
        let device = found["device"].as_str().unwrap();
        let one = folder.pz(&["devices", "--json", device]).json();
        assert_eq!(one["devices"].as_array().unwrap().len(), 1, "{one}");
        assert_eq!(one["devices"][0]["name"], found["name"]);
        assert_eq!(one["absent"].as_array().unwrap().len(), 0, "{one}");
    }
}

/// `-v` reports engines, memory and stages of a run on each device, software ones included.
#[test]
fn verbose_says_what_each_device_did() {
    let folder = Folder::new();
    let contents = crate::support::sample(3 << 20);
    folder.write("a", &contents);
    let list = folder.pz(&["devices", "--json"]).json();
    for found in &list["devices"].as_array().unwrap()[1..] {
        let device = found["device"].as_str().unwrap();
        let name = found["name"].as_str().unwrap();
        for arguments in
            [&["compress", "-f", "-1", "-b", "256K", "a"][..], &["decompress", "-f", "a.pz"]]
        {
            // A single thread leaves some blocks for a software device.
            let machine = ["-v", "-T1", "--gpu-memory", "256M", "--device", device];
            let ran = folder.pz(&[arguments, &machine].concat());
            assert_eq!(ran.code, Some(0), "{}", ran.stderr);
            let line = |with: &str| {
                let found = ran.stderr.lines().find(|line| line.contains(with));
                found.unwrap_or_else(|| panic!("no '{with}' in {}", ran.stderr))
            };
            let blocks = line(" blocks: ");
            assert!(blocks.contains(": 12 blocks: "), "{blocks}");
            // A device that opens too late does no blocks.
            if blocks.contains(&format!(" on {name} (")) {
                let memory = line("device memory: ");
                let peak = memory.rsplit_once('(').unwrap().1.trim_end_matches(" bytes)");
                let peak: u64 = peak.parse().unwrap();
                assert!(peak <= 256 << 20, "{memory}");
            } else {
                assert!(blocks.ends_with("all on the CPU"), "{blocks}");
            }
            assert!(line(" time: ").contains("writing "), "{}", ran.stderr);
        }
        assert!(folder.read("a") == contents);
    }
}

/// If the program does not open a device that the user named, it says so.
#[test]
fn says_when_a_named_device_takes_no_part() {
    let folder = Folder::new();
    folder.write("a", &crate::support::sample(100_000));
    let list = folder.pz(&["devices", "--json"]).json();
    for found in list["devices"].as_array().unwrap() {
        let device = found["device"].as_str().unwrap();
        let is_gpu = device != "cpu";
        for arguments in [
            &["compress", "-f", "-1", "-b", "64K", "a"][..],
            &["decompress", "-f", "a.pz"],
            &["test", "a.pz"],
        ] {
            let ran = folder.pz(&[arguments, &["--device", device]].concat());
            assert_eq!(ran.code, Some(0), "{}", ran.stderr);
            assert_eq!(ran.stderr.lines().count(), usize::from(is_gpu), "{}", ran.stderr);
            assert_eq!(ran.stderr.contains(" takes no part: "), is_gpu, "{}", ran.stderr);
            let quiet = folder.pz(&[arguments, &["-q", "--device", device]].concat());
            assert_eq!((quiet.code, quiet.stderr.as_str()), (Some(0), ""));
        }
    }
}
