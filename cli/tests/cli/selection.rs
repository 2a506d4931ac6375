//! The files that a command takes, and the names and folders of their outputs.

use crate::support::{Folder, sample};

#[test]
fn outputs_in_a_folder() {
    let folder = Folder::new();
    folder.write("d/a", b"first");
    folder.write("d/sub/b", b"second");
    folder.write("c", b"third");
    // The files of a directory keep their subfolders; a file that the user named does not keep its folder.
    folder.pz(&["compress", "-r", "--output-dir", "out/packed", "d", "c"]).silent();
    folder.pz(&["compress", "--output-dir", "flat", "d/sub/b", "./c"]).silent();
    assert!(!folder.has("c.pz") && !folder.has("d/a.pz"));
    for name in
        ["out/packed/d/a.pz", "out/packed/d/sub/b.pz", "out/packed/c.pz", "flat/b.pz", "flat/c.pz"]
    {
        assert!(folder.has(name), "{name}");
    }
    folder.pz(&["decompress", "-r", "--output-dir", "back", "out/packed"]).silent();
    assert_eq!(folder.read("back/packed/d/sub/b"), b"second");
    folder.pz(&["-d", "--rm", "--output-dir", "back", "flat/b.pz"]).silent();
    assert_eq!(folder.read("back/b"), b"second");
    assert!(!folder.has("flat/b.pz"));
}

#[test]
fn outputs_of_one_run_do_not_overwrite_each_other() {
    let folder = Folder::new();
    folder.write("x/a", b"first");
    folder.write("y/a", b"second");
    let ran = folder.pz(&["compress", "-f", "--output-dir", "out", "x/a", "y/a"]);
    ran.says(1, &["pz: y/a: out/a.pz: is another output of this run"]);
    assert_eq!(folder.pz(&["cat", "out/a.pz"]).silent(), b"first");
    folder
        .pz_with(&["compress", "--output-dir", "out"], b"text")
        .says(1, &["pz: standard input: has no name for an output in --output-dir; -o names it"]);
    folder.write("file", b"");
    folder.pz(&["compress", "--output-dir", "file/x", "x/a"]).complains(1, "pz: x/a: file/x: ");
}

#[test]
fn another_suffix() {
    let folder = Folder::new();
    folder.write("d/a", b"first");
    folder.write("d/b", b"second");
    folder.pz(&["compress", "--rm", "-r", "--suffix", ".packed", "d"]).silent();
    assert!(folder.has("d/a.packed") && folder.has("d/b.packed") && !folder.has("d/a"));
    // With this option, files with that suffix are the compressed ones.
    folder.pz(&["compress", "-r", "--suffix", ".packed", "d"]).silent();
    assert!(!folder.has("d/a.packed.packed"));
    folder.pz(&["test", "-r", "--suffix", ".packed", "d"]).silent();
    let list = folder.pz(&["list", "--json", "-r", "--suffix", ".packed", "d"]).json();
    assert_eq!(list.as_array().unwrap().len(), 2);
    folder
        .pz(&["decompress", "d/a.packed"])
        .says(1, &["pz: d/a.packed: has no known suffix; -o names the output"]);
    folder.pz(&["-d", "--rm", "--suffix=.packed", "d/a.packed"]).silent();
    assert_eq!(folder.read("d/a"), b"first");
    folder.pz(&["compress", "--suffix", "x/y", "d/a"]).complains(1, "pz: invalid value 'x/y' for ");
    folder.pz(&["compress", "--suffix", "", "d/a"]).complains(1, "pz: ");
    assert_eq!(folder.read("d/a"), b"first");
}

#[test]
fn excluded_files() {
    let folder = Folder::new();
    for name in ["d/a.o", "d/a.c", "d/tmp/b.c", "d/e/tmp.c", "d/e/f/g.c"] {
        folder.write(name, b"contents");
    }
    let exclude = ["--exclude", "*.o", "--exclude", "tmp", "--exclude", "e/f/*"];
    folder.pz(&[&["compress", "-r"], &exclude[..], &["d"]].concat()).silent();
    assert!(folder.has("d/a.c.pz") && folder.has("d/e/tmp.c.pz"));
    for name in ["d/a.o.pz", "d/tmp/b.c.pz", "d/e/f/g.c.pz"] {
        assert!(!folder.has(name), "{name}");
    }
    folder.write("d/e/bad.pz", b"damaged");
    folder.pz(&["test", "-r", "--exclude", "bad*", "d"]).silent();
    let list = folder.pz(&["list", "--json", "-r", "--exclude", "e", "d"]).json();
    assert_eq!(list.as_array().unwrap().len(), 1);
    for arguments in
        [&["compress", "--exclude", "*.o", "d"][..], &["compress", "-r", "--exclude", "[", "d"]]
    {
        folder.pz(arguments).complains(1, "pz: ");
    }
}

#[test]
fn contents_of_several_files() {
    let folder = Folder::new();
    let (a, b) = (sample(300_000), sample(1000));
    folder.write("a", &a);
    folder.write("b", &b);
    folder.pz(&["compress", "-b", "64K", "--rm", "a"]).silent();
    folder.pz(&["compress", "-o", "any name", "b"]).silent();
    let both = folder.pz(&["cat", "a.pz", "any name"]).silent();
    assert!(both == [&a[..], &b[..]].concat());
    let parts = folder.pz(&["cat", "--range", "500..510", "a.pz", "any name"]).silent();
    assert_eq!(parts, [&a[500..510], &b[500..510]].concat());
    let packed = folder.read("a.pz");
    assert!(folder.pz_with(&["cat"], &packed).silent() == a);
    folder.pz(&["cat", "none", "any name"]).says(1, &["pz: none: No such file or directory"]);
    assert_eq!(folder.names(), ["a.pz", "any name", "b"]);
}
