//! Where outputs go: never over files that the run still needs, and in place if a file cannot be replaced.

use std::fs::{self, File};
use std::os::fd::OwnedFd;
use std::os::unix::fs::{FileExt, MetadataExt, symlink};
use std::os::unix::net::UnixStream;
use std::process::Stdio;

use crate::support::{Folder, Ran, noise, program, sample};

/// Compressed contents, in the format of gzip.
fn gzip(contents: &[u8]) -> Vec<u8> {
    use std::io::Write;
    let mut gzip = flate2::write::GzEncoder::new(Vec::new(), flate2::Compression::fast());
    gzip.write_all(contents).unwrap();
    gzip.finish().unwrap()
}

/// A folder of files that contain their own names: `d/x` and `d/y`, each plain, compressed with gzip, and with pz. `e`
/// is a link to `d`, and `h` is another name of `d/y`.
fn folder() -> Folder {
    let folder = Folder::new();
    for name in ["d/x", "d/y"] {
        folder.write(name, name.as_bytes());
        folder.write(&format!("{name}.gz"), &gzip(format!("{name}.gz").as_bytes()));
        let packed = folder.pz_with(&["-1"], format!("{name}.pz").as_bytes()).silent();
        folder.write(&format!("{name}.pz"), &packed);
    }
    symlink("d", folder.path("e")).unwrap();
    fs::hard_link(folder.path("d/y"), folder.path("h")).unwrap();
    folder
}

/// The contents of a file in the folder, compressed or not.
fn says(folder: &Folder, name: &str) -> String {
    let contents = match name.rsplit_once('.') {
        Some((_, "pz" | "gz")) => folder.pz(&["cat", name]).silent(),
        _ => folder.read(name),
    };
    String::from_utf8(contents).unwrap()
}

#[test]
fn no_output_replaces_an_input_or_another_output() {
    for (arguments, line, unchanged) in [
        (
            &["decompress", "-f", "--rm", "d/x.gz", "./d/x.pz"][..],
            "./d/x.pz: ./d/x: is another output of this run",
            &["d/x.pz"][..],
        ),
        (
            &["decompress", "-f", "--rm", "d/x.gz", "e/x.pz"],
            "e/x.pz: e/x: is another output of this run",
            &["d/x.pz"],
        ),
        (
            &["-d", "-f", "--rm", "-r", "d/x.gz", "e/x.pz"],
            "e/x.pz: e/x: is another output of this run",
            &["d/x.pz"],
        ),
        (&["compress", "-f", "d/x", "d/x.pz"], "d/x: d/x.pz: is another input", &["d/x", "d/x.pz"]),
        (&["compress", "-f", "d/x.pz", "d/x"], "d/x: d/x.pz: is another input", &["d/x", "d/x.pz"]),
        (&["compress", "-f", "e/x", "d/x.pz"], "e/x: e/x.pz: is another input", &["d/x", "d/x.pz"]),
        (&["-9", "-f", "-r", "d", "e/y.pz"], "d/y: d/y.pz: is another input", &["d/y", "d/y.pz"]),
        (&["compress", "-f", "-o", "e/x", "d/x"], "d/x: e/x: is the input file", &["d/x"]),
        (
            &["decompress", "-f", "-o", "d/x.pz", "e/x.pz"],
            "e/x.pz: d/x.pz: is the input file",
            &["d/x.pz"],
        ),
        (&["compress", "-f", "-o", "h", "d/y"], "d/y: h: is the input file", &["d/y", "h"]),
        (
            &["recover", "-f", "-o", "e/x.pz", "d/x.pz"],
            "d/x.pz: e/x.pz: is the input file",
            &["d/x.pz"],
        ),
    ] {
        let folder = folder();
        folder.pz(arguments).says(1, &[&format!("pz: {line}")]);
        for name in unchanged {
            let said = says(&folder, name);
            assert_eq!(said, if *name == "h" { "d/y" } else { name }, "{arguments:?}");
        }
    }
    // The first of two outputs is written.
    let folder = folder();
    folder.pz(&["decompress", "-f", "d/x.gz", "e/x.pz"]).complains(1, "pz: e/x.pz: e/x: ");
    assert_eq!(says(&folder, "d/x"), "d/x.gz");
    // Two outputs may be hard links of one file: after this, each is a file of its own.
    fs::hard_link(folder.path("d/y.gz"), folder.path("d/z.gz")).unwrap();
    folder.pz(&["decompress", "-f", "d/y.gz", "d/z.gz"]).silent();
    assert_eq!((says(&folder, "d/y"), says(&folder, "d/z")), ("d/y.gz".into(), "d/y.gz".into()));
}

#[test]
fn standard_streams_are_inputs_and_outputs_too() {
    let folder = folder();
    let run = |arguments: &[&str], stdin: Option<File>, stdout: Option<File>| {
        let mut command = folder.command(arguments);
        command.stdin(stdin.map_or_else(Stdio::null, Stdio::from));
        command.stdout(stdout.map_or_else(Stdio::null, Stdio::from));
        Ran::from(command.stderr(Stdio::piped()).output().unwrap())
    };
    let input = || Some(File::open(folder.path("d/x.pz")).unwrap());
    let output = || Some(File::options().append(true).open(folder.path("d/x.pz")).unwrap());
    let line = "pz: d/x: d/x.pz: is another input";
    run(&["compress", "-f", "d/x", "-"], input(), None).says(1, &[line]);
    let line = "pz: standard input: d/x.pz: is the input file";
    run(&["-f", "-o", "d/x.pz"], input(), None).says(1, &[line]);
    let lines = [
        "pz: d/y.pz: standard output is another input",
        "pz: d/x.pz: standard output is the input file",
    ];
    run(&["cat", "d/y.pz", "d/x.pz"], None, output()).says(1, &lines);
    run(&["recover", "-c", "d/x.pz"], None, output()).says(1, &lines[1..]);
    run(&["cat", "d/x.pz"], None, output()).says(1, &lines[1..]);
    assert_eq!(says(&folder, "d/x.pz"), "d/x.pz");
}

/// If the user names a link as the output, pz writes to the file that the link leads to. If pz makes the name itself,
/// the output replaces the link.
#[test]
fn links_to_outputs() {
    let folder = folder();
    symlink("d/x", folder.path("there")).unwrap();
    symlink("d/new", folder.path("nowhere")).unwrap();
    symlink("circle", folder.path("circle")).unwrap();
    for (name, end) in [("there", "d/x"), ("nowhere", "d/new")] {
        let line = format!("pz: d/y.pz: {name}: already exists; -f overwrites it");
        folder.pz(&["decompress", "-o", name, "d/y.pz"]).says(1, &[&line]);
        folder.pz(&["decompress", "-f", "-o", name, "d/y.pz"]).silent();
        assert!(fs::symlink_metadata(folder.path(name)).unwrap().is_symlink(), "{name}");
        assert_eq!(says(&folder, end), "d/y.pz");
    }
    folder.pz(&["decompress", "-f", "-o", "circle", "d/y.pz"]).complains(1, "pz: d/y.pz: circle: ");
    symlink("d/y", folder.path("x")).unwrap();
    fs::rename(folder.path("d/x.pz"), folder.path("x.pz")).unwrap();
    folder.pz(&["decompress", "-f", "x.pz"]).silent();
    assert!(fs::symlink_metadata(folder.path("x")).unwrap().is_file());
    assert_eq!((says(&folder, "x"), says(&folder, "d/y")), ("d/x.pz".into(), "d/y".into()));
}

/// A replaced file keeps its mode, unless the output takes the mode of the input.
#[test]
fn modes_of_replaced_files_are_kept() {
    let folder = Folder::new();
    folder.write("private", b"");
    folder.set_mode("private", 0o600);
    let mode = || fs::metadata(folder.path("private")).unwrap().mode() & 0o7777;
    folder.pz_with(&["-f", "-o", "private"], b"contents").silent();
    assert_eq!((mode(), folder.pz(&["cat", "private"]).silent()), (0o600, b"contents".into()));
    folder.write("a", b"contents");
    folder.set_mode("a", 0o640);
    folder.pz(&["compress", "-f", "-o", "private", "a"]).silent();
    assert_eq!(mode(), 0o640);
}

/// The user may not write to the folder, but to a file in it.
#[test]
fn files_in_read_only_folders() {
    let folder = Folder::new();
    let run = folder.restricted_pz();
    let contents = sample(300_000);
    folder.write("a", &contents);
    let packed = folder.pz_with(&["-1", "-b", "64K"], &contents).silent();
    folder.write("d/out", &noise(400_000));
    folder.write("d/closed", b"stays");
    for (name, mode) in [("a", 0o644), ("d/out", 0o666), ("d/closed", 0o444), ("d", 0o555)] {
        folder.set_mode(name, mode);
    }
    let line = "pz: a: d/out: already exists; -f overwrites it";
    run(&["compress", "-o", "d/out", "a"]).says(1, &[line]);
    assert!(folder.read("d/out") == noise(400_000));
    // The old contents stay until there is something to write.
    run(&["decompress", "-f", "-o", "d/out", "a"]).says(2, &["pz: a: not in pz format"]);
    assert!(folder.read("d/out") == noise(400_000));
    let inode = fs::metadata(folder.path("d/out")).unwrap().ino();
    run(&["compress", "-f", "-1", "-b64K", "--verify", "--sync", "-o", "d/out", "a"]).silent();
    assert!(folder.pz(&["cat", "d/out"]).silent() == contents);
    let metadata = fs::metadata(folder.path("d/out")).unwrap();
    assert_eq!((metadata.ino(), metadata.mode() & 0o777), (inode, 0o666));
    // A later error says what it leaves behind.
    folder.write("half.pz", &packed[..packed.len() - 40]);
    folder.set_mode("half.pz", 0o644);
    let line = run(&["decompress", "-f", "-o", "d/out", "half.pz"]).complains(2, "pz: half.pz: ");
    assert!(line.ends_with("; d/out is incomplete now\n"), "{line}");
    let line = "pz: a: d/closed: Permission denied";
    run(&["compress", "-f", "-o", "d/closed", "a"]).says(1, &[line]);
    assert_eq!(folder.read("d/closed"), b"stays");
    // An empty output also replaces the old contents.
    folder.write("empty.pz", &folder.pz_with(&["-1"], b"").silent());
    folder.set_mode("empty.pz", 0o644);
    run(&["decompress", "-f", "-o", "d/out", "empty.pz"]).silent();
    assert_eq!(folder.read("d/out"), b"");
    folder.set_mode("d", 0o755);
    assert_eq!(fs::read_dir(folder.path("d")).unwrap().count(), 2);
}

/// A file on which another is mounted, as in containers, cannot be replaced by renaming.
#[test]
fn mounted_files() {
    let folder = Folder::new();
    folder.write("a", &sample(100_000));
    folder.write("outside", b"longer than nothing");
    folder.write("d/out", b"");
    let script = format!(
        "mount --bind outside d/out || exit 77
         '{0}' compress -f --rm -o d/out a && ls d && '{0}' cat outside >a",
        program()
    );
    let Some(ran) = folder.run_with_mounts(&script) else { return };
    assert_eq!(ran.silent(), b"out\n");
    assert!(folder.read("a") == sample(100_000) && folder.read("d/out") == b"");
}

/// A socket cannot be opened by its name in `/dev/fd`; neither can a pipe of another user.
#[test]
fn open_sockets_are_written_to_directly() {
    use std::io::Read;
    let folder = Folder::new();
    let contents = sample(1000);
    folder.write("a", &contents);
    let (mut ours, theirs) = UnixStream::pair().unwrap();
    let mut command = folder.command(&["compress", "-o", "/dev/stderr", "a"]);
    command.stderr(Stdio::from(OwnedFd::from(theirs)));
    assert_eq!(command.status().unwrap().code(), Some(0));
    drop(command);
    let mut packed = Vec::new();
    ours.read_to_end(&mut packed).unwrap();
    assert!(folder.pz_with(&["-d"], &packed).silent() == contents);
}

/// Long runs of zeros become holes in new files, and are written everywhere else.
#[test]
fn zeros_are_holes_in_restored_files() {
    const LEN: u64 = 48 << 20;
    let disk = Folder::new();
    let memory = tempfile::tempdir_in("/dev/shm").ok();
    let image = File::create(disk.path("image")).unwrap();
    image.set_len(LEN).unwrap();
    for at in [1_000_000, 1_020_000, 30_000_000] {
        image.write_all_at(b"boot", at).unwrap();
    }
    let contents = disk.read("image");
    disk.pz(&["compress", "image"]).silent();
    disk.write("image.gz", &gzip(&contents));
    let folders = [Some(disk.as_path()), memory.as_ref().map(|memory| memory.path())];
    for folder in folders.into_iter().flatten() {
        let out = folder.join("out").to_str().unwrap().to_string();
        let restore = |arguments: &[&str], is_sparse: bool| {
            disk.pz(&[arguments, &["-o", &out]].concat()).silent();
            assert!(fs::read(&out).unwrap() == contents, "{arguments:?}");
            let taken = fs::metadata(&out).unwrap().blocks() * 512;
            match is_sparse {
                true => assert!(taken < 256 << 10, "{arguments:?}: {taken} bytes of {LEN}"),
                false => assert!(taken >= LEN, "{arguments:?}: {taken} bytes of {LEN}"),
            }
            fs::remove_file(&out).unwrap();
        };
        for threads in ["-T1", "-T2"] {
            restore(&["decompress", threads, "image.pz"], true);
        }
        restore(&["decompress", "image.gz"], true);
        restore(&["-d", "--range", "0..", "image.pz"], true);
        restore(&["decompress", "--no-sparse", "image.pz"], false);
        restore(&["-d", "--no-sparse", "image.gz"], false);
        restore(&["recover", "image.pz"], true);
    }
    let out = File::create(disk.path("out")).unwrap();
    let status = disk.command(&["cat", "image.pz"]).stdout(out).status();
    assert_eq!(status.unwrap().code(), Some(0));
    assert!(disk.read("out") == contents);
    assert!(fs::metadata(disk.path("out")).unwrap().blocks() * 512 >= LEN);
}
