//! `pz cost`

use crate::support::Folder;

#[test]
fn shows_every_kernel() {
    let folder = Folder::new();
    let costs = folder.pz(&["cost", "--device", "cpu", "--block-size", "64K", "--json"]).json();
    assert_eq!(costs["block"], 65536);
    assert_eq!(costs["devices"].as_array().unwrap().len(), 0);
    let kernels = costs["kernels"].as_array().unwrap();
    assert_eq!(kernels.len(), pz::internal::KERNELS.len());
    for (stated, kernel) in kernels.iter().zip(pz::internal::KERNELS) {
        assert_eq!(stated["kernel"], kernel.stem);
        assert_eq!(stated["memory"], kernel.cost().unwrap().memory_bytes(65536).unwrap());
    }
    let text = String::from_utf8(folder.pz(&["cost", "--device", "cpu"]).silent()).unwrap();
    assert!(text.starts_with("For a block of 1.0 MiB:\n\nkernel"), "{text}");
    assert_eq!(text.lines().count(), 3 + kernels.len(), "{text}");
}

#[test]
fn shows_the_batches_of_each_device() {
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
                assert!((1..=6).contains(&figure("slots")), "{pipeline}");
            }
        }
        assert!(folder.pz(&arguments).text().contains(device));
    }
}

#[test]
fn impossible_requests_are_refused() {
    let folder = Folder::new();
    let complaint =
        folder.pz(&["cost", "-b", "4G"]).complains(1, "pz: a block must be smaller than 4 GiB");
    assert!(complaint.ends_with("GiB\n"));
    let line = folder.pz(&["cost", "--device", "opencl:99"]);
    assert_eq!(line.code, Some(1), "{}", line.stderr);
    assert!(line.stderr.contains("pz: device opencl:99: "), "{}", line.stderr);
}

#[test]
fn predicts_how_long_a_file_takes() {
    let folder = Folder::new();
    let contents = crate::support::sample(3 << 20);
    folder.write("a", &contents);
    folder.pz(&["compress", "-1", "-b", "256K", "a"]).silent();
    // The test has its own folder for rates.
    let run = |arguments: &[&str]| {
        let mut command = folder.command(arguments);
        command.env("XDG_CACHE_HOME", folder.path("cache"));
        crate::support::feed(&mut command, b"")
    };
    let ways = ["compress", "decompress"];
    let cost = run(&["cost", "--device", "cpu", "-T1", "-1", "--json", "a"]).json();
    let forecast = &cost["forecast"];
    assert_eq!((&forecast["bytes"], &forecast["threads"]), (&(3 << 20).into(), &1.into()));
    for (work, direction) in forecast["work"].as_array().unwrap().iter().zip(ways) {
        assert_eq!((&work["direction"], &work["level"]), (&direction.into(), &1.into()));
        let [cpu] = &work["engines"].as_array().unwrap()[..] else { panic!("{work}") };
        let figure = |name: &str| cpu[name].as_f64().unwrap();
        let expected = f64::from(3 << 20) / figure("bytes_per_second");
        assert!((figure("seconds") / expected - 1.0).abs() < 1e-6, "{work}");
    }
    let cost = run(&["cost", "--device", "cpu", "-T1", "--json", "a.pz"]).json();
    let [work] = &cost["forecast"]["work"].as_array().unwrap()[..] else { panic!("{cost}") };
    assert_eq!((&work["direction"], &work["block"]), (&"decompress".into(), &(256 << 10).into()));
    // The program does not keep the measurements of a file's blocks, since the next file differs. It measures synthetic
    // blocks once, and keeps the results.
    assert!(!folder.has("cache/pz"));
    run(&["cost", "--device", "cpu", "-T1", "--size", "1M"]).text();
    // A build without devices keeps no rates between runs.
    assert_eq!(
        folder.has("cache/pz"),
        cfg!(any(feature = "cuda", feature = "opencl", feature = "webgpu"))
    );

    let list = folder.pz(&["devices", "--json"]).json();
    for found in &list["devices"].as_array().unwrap()[1..] {
        let device = found["device"].as_str().unwrap();
        let arguments =
            ["cost", "--size", "10M", "-1", "-b", "64K", "--gpu-memory", "64M", "--device", device];
        let cost = run(&[&arguments[..], &["--json"]].concat()).json();
        for (work, direction) in cost["forecast"]["work"].as_array().unwrap().iter().zip(ways) {
            assert_eq!(work["direction"], direction);
            let engine = &work["engines"][1];
            assert_eq!(engine["device"], device);
            let figure = |name: &str| engine[name].as_f64().unwrap();
            assert!(figure("bytes_per_second") > 0.0, "{work}");
            // The CPU begins while the device is being opened, and may finish first.
            let alone = work["engines"][0]["seconds"].as_f64().unwrap();
            assert!(figure("seconds") <= alone && figure("opening") > 0.0, "{work}");
            assert!(!engine["stages"].as_array().unwrap().is_empty(), "{work}");
        }
        // The second run has all measurements from the first.
        let text = run(&arguments).text();
        assert!(text.contains(&format!("  {device}, with the CPU ")), "{text}");
        // The prediction for all blocks uses measurements; the rest is computed from the kernels' costs.
        let text = run(&["cost", "-b", "64K", "--device", device]).text();
        let line = |what: &str| text.lines().find(|line| line.starts_with(what)).unwrap();
        assert!(
            !line("compress -1 ").contains('~') && line("compress -2 ").contains('~'),
            "{text}"
        );
    }
    // The forecast comes first, and the kernels only if the user asked for them.
    let text = run(&["cost", "--device", "cpu", "-1", "a"]).text();
    let head = "a of 3.0 MiB (3145728 bytes):\n\ncompress -1 (lzh), blocks of ";
    assert!(text.starts_with(head) && !text.contains("\nkernel"), "{text}");
    assert!(
        text.lines()
            .nth(3)
            .unwrap()
            .split_whitespace()
            .eq(["on", "seconds", "MB/s", "memory", "to", "open", "it", "MB/s", "alone"])
    );
    let with_kernels = run(&["cost", "--device", "cpu", "-1", "--kernels", "a"]).text();
    assert!(with_kernels.starts_with(head) && with_kernels.contains("\nkernel"), "{with_kernels}");

    let line = run(&["cost", "--device", "cpu", "none"]);
    assert_eq!((line.code, &*line.stderr), (Some(1), "pz: none: No such file or directory\n"));
    assert_eq!(run(&["cost", "--size", "1G", "a"]).code, Some(1));
}

/// If a run was long enough, its time outside the workers enters the next prediction for the CPU, and only that one.
#[test]
fn every_run_improves_predictions() {
    let folder = Folder::new();
    folder.write("short", &crate::support::sample(10_000));
    folder.write("long", &crate::support::sample(24 << 20));
    let run = |arguments: &[&str]| {
        let mut command = folder.command(arguments);
        command.env("XDG_CACHE_HOME", folder.path("cache"));
        crate::support::feed(&mut command, b"")
    };
    let learned = || {
        let files = std::fs::read_dir(folder.path("cache/pz")).into_iter().flatten();
        let texts = files.map(|file| std::fs::read_to_string(file.unwrap().path()).unwrap());
        texts.collect::<String>()
    };
    run(&["compress", "--device", "cpu", "-T1", "-q", "short"]).silent();
    assert_eq!(learned(), "");
    let is_kept = cfg!(any(feature = "cuda", feature = "opencl", feature = "webgpu"));
    run(&["compress", "--device", "cpu", "-T1", "-5", "-q", "long"]).silent();
    assert_eq!(learned().contains("encode lzh -5 -b 4194304 -T1 overhead\n"), is_kept);
    run(&["decompress", "--device", "cpu", "-T1", "-q", "-c", "long.pz"]);
    let cost = run(&["cost", "--device", "cpu", "-T1", "-5", "--json", "long"]).json();
    let cpu = &cost["forecast"]["work"][0]["engines"][0];
    let alone = f64::from(24 << 20) / cpu["bytes_per_second"].as_f64().unwrap();
    assert!(!is_kept || cpu["seconds"].as_f64().unwrap() > alone, "{cost}");
}

/// A device that cannot do some work says why.
#[test]
fn missing_predictions_have_a_reason() {
    let folder = Folder::new();
    folder.write("a", &crate::support::sample(1 << 20));
    let list = folder.pz(&["devices", "--json"]).json();
    for found in &list["devices"].as_array().unwrap()[1..] {
        let device = found["device"].as_str().unwrap();
        let arguments = ["cost", "-1", "--gpu-memory", "1M", "--device", device, "a"];
        let text = folder.pz(&arguments).text();
        assert!(text.contains(" cannot do this: a block takes "), "{text}");
    }
}
