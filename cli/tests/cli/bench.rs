//! `pz bench`: the form of its results. Their values depend on the machine.

use crate::support::{Folder, sample};

#[test]
fn json() {
    let folder = Folder::new();
    folder.write("a", &sample(200_000));
    let rows = folder.pz(&["bench", "--json", "-1", "-T1", "-b", "64K", "a"]).json();
    let row = &rows[0];
    assert_eq!(rows.as_array().unwrap().len(), 1);
    for (key, value) in [
        ("file", "a".into()),
        ("engine", "cpu".into()),
        ("level", 1.into()),
        ("pipeline", "lzh".into()),
        ("threads", 1.into()),
        ("block_size", 65_536.into()),
        ("bytes", 200_000.into()),
    ] {
        let value: serde_json::Value = value;
        assert_eq!(row[key], value, "{key}");
    }
    let packed = folder.pz(&["compress", "-1", "-b", "64K", "-c", "a"]).silent();
    assert_eq!(row["compressed"], packed.len());
    for speed in ["compress_mb_s", "decompress_mb_s"] {
        assert!(row[speed].as_f64().unwrap() > 0.0, "{speed}");
    }
}

#[test]
fn csv_and_text() {
    let folder = Folder::new();
    folder.write("a,b", &sample(50_000));
    let text = folder.pz(&["bench", "--csv", "-1", "-T1,2", "a,b"]).silent();
    let text = String::from_utf8(text).unwrap();
    let lines: Vec<&str> = text.lines().collect();
    assert_eq!(
        lines[0],
        "file,engine,level,pipeline,block_size,threads,bytes,compressed,ratio,compress_mb_s,\
         decompress_mb_s,compress_vs_cpu,decompress_vs_cpu,filter,chain"
    );
    assert!(lines[1].starts_with("\"a,b\",cpu,1,lzh,4194304,1,50000,"), "{}", lines[1]);
    assert!(lines[2].starts_with("\"a,b\",cpu,1,lzh,4194304,2,50000,"), "{}", lines[2]);
    assert_eq!(lines.len(), 3);

    let ran = folder.pz(&["bench", "-1", "none", "a,b"]);
    assert_eq!((ran.code, &*ran.stderr), (Some(1), "pz: none: No such file or directory\n"));
    assert_eq!(ran.text().lines().count(), 2, "{}", ran.text());
}

/// With `--resident` too, one array has all files, levels and directions.
#[test]
fn json_of_a_device_alone() {
    let folder = Folder::new();
    folder.write("a", &sample(100_000));
    folder.write("b", &sample(50_000));
    let args = ["bench", "--resident", "--json", "--device", "opencl", "-1", "-3", "-b", "64K"];
    let rows = folder.pz(&[&args[..], &["a", "b"]].concat()).json();
    let found: Vec<_> = rows
        .as_array()
        .unwrap()
        .iter()
        .map(|row| {
            (
                row["file"].as_str().unwrap(),
                row["level"].as_u64().unwrap(),
                row["bytes"].as_u64().unwrap(),
            )
        })
        .collect();
    let of = |file, level, bytes| [(file, level, bytes); 2];
    let expected =
        [of("a", 1, 100_000), of("a", 3, 100_000), of("b", 1, 50_000), of("b", 3, 50_000)];
    assert_eq!(found, expected.concat());
}

/// With `--load`, the program reads archives into device memory, compares them, and measures them in five ways.
#[test]
fn archives_into_device_memory() {
    let folder = Folder::new();
    folder.write("a b", &sample(300_000));
    folder.pz(&["compress", "-1", "-b", "64K", "a b"]).silent();
    let args = ["bench", "--load", "--json", "--device", "opencl,webgpu", "--in-flight", "8"];
    let rows = folder.pz(&[&args[..], &["--range-size", "1000", "a b.pz"]].concat()).json();
    let rows = rows.as_array().unwrap();
    assert_eq!(rows.len(), 10);
    for row in rows {
        assert!(row["gb_s"].as_f64().unwrap() > 0.0 && row["median_ms"].as_f64().unwrap() > 0.0);
    }
    let of = |at: usize| (rows[at]["what"].as_str().unwrap(), rows[at]["bytes"].as_u64().unwrap());
    assert_eq!((of(1), of(9)), (("whole", 300_000), ("ranges, 8 at a time", 1000)));
    let text =
        folder.pz(&["bench", "--load", "--in-memory", "--device", "opencl", "a b.pz"]).text();
    assert!(text.contains(" decoded by the device"), "{text}");
    let ran = folder.pz(&["bench", "--load", "--device", "opencl", "a b"]);
    assert_eq!(ran.code, Some(2), "{}", ran.stderr);
    let ran = folder.pz(&["bench", "--load", "--device", "cpu", "a b.pz"]);
    assert!(ran.stderr.contains("--load needs a GPU"), "{}", ran.stderr);
}

/// With `--door`, a kernel or a thread asks for parts of the files, and the program compares what it saw.
#[test]
fn kernels_that_ask_for_files() {
    let folder = Folder::new();
    folder.write("a b", &sample(3_000_000));
    folder.pz(&["compress", "-1", "-b", "64K", "a b"]).silent();
    let args = ["bench", "--door", "--json", "--device", "cpu,opencl", "--range-size", "64K"];
    let rows = folder.pz(&[&args[..], &["a b", "a b.pz"]].concat()).json();
    let rows = rows.as_array().unwrap();
    assert_eq!(rows.len(), 2 * (6 + 2));
    let of = |what: &str, key: &str| {
        let rows = rows.iter().filter(|row| row["what"].as_str() == Some(what));
        rows.filter_map(|row| row[key].as_f64()).collect::<Vec<_>>()
    };
    assert!(of("1024 handles", "requests_s").iter().all(|rate| *rate > 0.0));
    assert_eq!(of("1024 handles", "requests"), [200_000.0; 2]);
    assert_eq!(
        (of("2 handles", "requests"), of("32 handles", "bytes")),
        (vec![2.0; 2], vec![65_536.0; 2])
    );
    // Only a thread has a clock.
    assert_eq!(
        (of("one at a time, from idle", "median_us").len(), of("nothing asked", "core").len()),
        (1, 1)
    );
    let text = folder.pz(&["bench", "--door", "--device", "cpu", "a b.pz"]).text();
    assert!(text.contains("a b.pz on cpu: 3000000 bytes"), "{text}");
    let ran = folder.pz(&["bench", "--door", "--device", "webgpu", "a b"]);
    assert!(ran.stderr.contains("the driver ends a kernel's loops"), "{}", ran.stderr);
    folder
        .pz(&["bench", "--door", "--device", "cpu", "c"])
        .says(1, &["pz: c: there is no such file"]);
}

/// One run measures several devices and compares each with the CPU.
#[test]
fn devices_beside_the_cpu() {
    let folder = Folder::new();
    folder.write("a", &sample(200_000));
    let list = folder.pz(&["devices", "--json"]).json();
    let devices = list["devices"].as_array().unwrap();
    let devices: Vec<&str> =
        devices.iter().map(|found| found["device"].as_str().unwrap()).collect();
    let all = devices.join(",");
    let ran = folder.pz(&["bench", "--json", "-1", "-T1", "-b", "64K", "--device", &all, "a"]);
    assert_eq!(ran.code, Some(0), "{}", ran.stderr);
    // With so little data the CPU may finish before a device has begun; then the program says so.
    for line in ran.stderr.lines() {
        assert!(line.contains(" did none of the blocks; "), "{}", ran.stderr);
    }
    let rows: serde_json::Value = serde_json::from_slice(&ran.stdout).unwrap();
    let rows = rows.as_array().unwrap();
    let measured: Vec<_> = rows.iter().map(|row| row["engine"].as_str().unwrap()).collect();
    assert_eq!(measured, devices);
    assert!(rows[0]["compress_vs_cpu"].is_null());
    for row in &rows[1..] {
        // Only the speed in the output tells which engine did the work.
        assert_eq!(row["compressed"], rows[0]["compressed"]);
        for direction in ["compress", "decompress"] {
            let figure = |row: &serde_json::Value, of: &str| {
                row[format!("{direction}_{of}")].as_f64().unwrap()
            };
            let expected = figure(row, "mb_s") / figure(&rows[0], "mb_s");
            assert!((figure(row, "vs_cpu") / expected - 1.0).abs() < 1e-6, "{row}");
        }
    }
    // `all` leaves out software devices.
    let text = folder.pz(&["bench", "-1", "-T1", "--device", "all", "a"]).text();
    assert!(text.lines().nth(1).unwrap().contains(" cpu "), "{text}");
}

/// One table compares filters, at the default level if none is given.
#[test]
fn filters() {
    let folder = Folder::new();
    let wave = |i: u32| ((f64::from(i) / 40.0).sin() * 9000.0) as i16;
    let samples: Vec<u8> = (0..100_000).flat_map(|i| wave(i).to_le_bytes()).collect();
    folder.write("a", &samples);
    let args = ["--filter", "none", "--filter", "i16", "--filter", "auto"];
    let rows = folder.pz(&[&["bench", "--json"], &args[..], &["a"]].concat()).json();
    let rows = rows.as_array().unwrap();
    assert_eq!(rows.len(), 3);
    for (row, name) in rows.iter().zip(["none", "i16", "auto"]) {
        assert_eq!((&row["filter"], &row["level"]), (&name.into(), &3.into()));
        let packed = folder.pz(&["compress", "--filter", name, "-c", "a"]).silent();
        assert_eq!(row["compressed"], packed.len());
    }
    assert!(rows[0]["chain"].is_null());
    assert_eq!(rows[1]["chain"], "delta2,zigzag2,transpose2");
    assert!(rows[1]["ratio"].as_f64().unwrap() > 1.5 * rows[0]["ratio"].as_f64().unwrap());
    assert!(rows[2]["chain"].is_string(), "{}", rows[2]);

    let text = folder.pz(&["bench", "-1", "--filter", "bf16", "a"]).text();
    let lines: Vec<&str> = text.lines().collect();
    assert!(lines[0].ends_with("  file  filter"), "{text}");
    assert!(lines[1].ends_with("  a  bf16: rotate2,transpose2"), "{text}");
    let ran = folder.pz(&["bench", "--filter", "i24", "a"]);
    assert!(ran.stderr.contains("there is no filter \"i24\""), "{}", ran.stderr);
}
