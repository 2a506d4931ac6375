//! Environment variables stand for options, follow the same rules, and yield to them.

use crate::support::{Folder, sample};

fn run(folder: &Folder, variable: (&str, &str), arguments: &[&str]) -> crate::support::Ran {
    let mut command = folder.command(arguments);
    crate::support::feed(command.env(variable.0, variable.1), b"")
}

#[test]
fn level() {
    let folder = Folder::new();
    folder.write("a", &sample(1000));
    for (value, arguments, level) in [
        ("9", vec!["compress", "-f", "a"], 9),
        ("1", vec!["-f", "--no-verify", "a"], 1),
        ("9", vec!["compress", "-f", "-2", "a"], 2),
        ("", vec!["compress", "-f", "a"], 3),
        // The program does not check a variable that it does not use.
        ("11", vec!["compress", "-f", "-2", "a"], 2),
    ] {
        run(&folder, ("PZ_LEVEL", value), &arguments).silent();
        let list = folder.pz(&["list", "--json", "a.pz"]).json();
        assert_eq!(list[0]["frames"][0]["level"], level, "{value} {arguments:?}");
    }
    run(&folder, ("PZ_LEVEL", "nonsense"), &["test", "a.pz"]).silent();
}

#[test]
fn bad_values_are_errors() {
    let folder = Folder::new();
    folder.write("a", b"contents");
    for (name, value, line) in [
        ("PZ_LEVEL", "11", "pz: PZ_LEVEL: invalid value '11': level 11 is not between 1 and 9"),
        ("PZ_LEVEL", "best", "pz: PZ_LEVEL: invalid value 'best': a level is a number from 1 to 9"),
        ("PZ_THREADS", "-1", "pz: PZ_THREADS: invalid value '-1': expected a number of threads"),
        (
            "PZ_DEVICE",
            "metal",
            "pz: PZ_DEVICE: invalid value 'metal': a device is auto, cpu, cuda[:N], opencl[:N] or webgpu[:N]",
        ),
        (
            "PZ_DEVICE",
            "opencl:99",
            "pz: device opencl:99: no such device; 'pz devices' lists the devices",
        ),
        ("PZ_GPU_MEMORY", "0", "pz: PZ_GPU_MEMORY: invalid value '0': must be more than 0 bytes"),
    ] {
        run(&folder, (name, value), &["compress", "a"]).says(1, &[line]);
        assert_eq!(folder.names(), ["a"]);
    }
}

#[test]
fn good_values_are_used() {
    let folder = Folder::new();
    folder.write("a", b"contents");
    for (name, value) in
        [("PZ_THREADS", "0"), ("PZ_THREADS", "2"), ("PZ_DEVICE", "cpu"), ("PZ_GPU_MEMORY", "1GiB")]
    {
        run(&folder, (name, value), &["compress", "-f", "a"]).silent();
        run(&folder, (name, value), &["-t", "a.pz"]).silent();
    }
    let ran = run(&folder, ("PZ_THREADS", "2"), &["-3", "-v", "-f", "a"]);
    assert!(ran.stderr.starts_with("pz: using the CPU, 2 threads\n"), "{}", ran.stderr);
    run(&folder, ("PZ_DEVICE", "opencl"), &["-3", "-f", "--device", "cpu", "a"]).silent();
}
