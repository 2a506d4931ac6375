//! `pz cost`

use crate::support::Folder;

#[test]
fn shows_every_kernel() {
    let folder = Folder::new();
    let costs = folder.pz(&["cost", "--device", "cpu", "--block-size", "64K", "--json"]).json();
    assert_eq!(costs["block"], 65536);
    assert_eq!(costs["devices"].as_array().unwrap().len(), 0);
    let kernels = costs["kernels"].as_array().unwrap();
    assert_eq!(kernels.len(), pz::gpu::kernel::ALL.len());
    for (stated, kernel) in kernels.iter().zip(pz::gpu::kernel::ALL) {
        assert_eq!(stated["kernel"], kernel.stem);
        assert_eq!(stated["memory"], kernel.cost().unwrap().memory_bytes(65536).unwrap());
    }
    let text = String::from_utf8(folder.pz(&["cost", "--device", "cpu"]).silent()).unwrap();
    assert!(text.starts_with("For a block of 1.0 MiB:\n\nkernel"), "{text}");
    assert_eq!(text.lines().count(), 3 + kernels.len(), "{text}");
}

#[test]
fn shows_what_each_device_is_given() {
    let folder = Folder::new();
    let list = folder.pz(&["devices", "--json"]).json();
    for found in &list["devices"].as_array().unwrap()[1..] {
        let device = found["device"].as_str().unwrap();
        let arguments = ["cost", "--json", "-b", "256K", "--gpu-memory", "64M", "--device", device];
        let costs = folder.pz(&arguments).json();
        let given = &costs["devices"][0];
        assert_eq!(given["device"], device);
        let budget = given["budget"].as_u64().unwrap();
        assert!(budget <= 64 << 20);
        for pipeline in given["pipelines"].as_array().unwrap() {
            if pipeline["declined"].is_null() {
                let figure = |name: &str| pipeline[name].as_u64().unwrap();
                assert_eq!(figure("total"), figure("memory") * figure("slots") * figure("batch"));
                assert!((1..=budget).contains(&figure("total")), "{pipeline}");
                assert!((1..=3).contains(&figure("slots")), "{pipeline}");
            }
        }
        assert!(folder.pz(&arguments).text().contains(device));
    }
}

#[test]
fn refuses_what_makes_no_sense() {
    let folder = Folder::new();
    let complaint =
        folder.pz(&["cost", "-b", "4G"]).complains(1, "pz: a block has less than 4 GiB");
    assert!(complaint.ends_with("GiB\n"));
    let line = folder.pz(&["cost", "--device", "opencl:99"]);
    assert_eq!(line.code, Some(1), "{}", line.stderr);
    assert!(line.stderr.contains("pz: device opencl:99: "), "{}", line.stderr);
}
