//! `--long`

use crate::support::{Folder, sample};

#[test]
fn far_repetitions_are_found_and_restored() {
    let folder = Folder::new();
    let part = sample(300_000);
    let contents = [&part[..], &part[10_000..], &part].concat();
    folder.write("a", &contents);
    folder.pz(&["compress", "-b", "64K", "-o", "near.pz", "a"]).silent();
    folder.pz(&["compress", "-b", "64K", "--long", "-o", "far.pz", "a"]).silent();
    folder.pz(&["compress", "-b", "64K", "--long=64K", "-o", "short.pz", "a"]).silent();
    let [near, far, short] = ["near.pz", "far.pz", "short.pz"].map(|name| folder.read(name));
    assert!(2 * far.len() < near.len() && short.len() > near.len() * 9 / 10);
    let folder_contents = |name| folder.pz(&["decompress", "-c", name]).silent();
    assert!(folder_contents("far.pz") == contents && folder_contents("short.pz") == contents);
    // From a pipe to a pipe, on any number of threads, and a range.
    let piped = folder.pz_with(&["--long", "-b", "64K", "-T", "3"], &contents).silent();
    assert!(folder.pz_with(&["-d"], &piped).silent() == contents);
    let range = folder.pz(&["cat", "--range", "400000..500001", "far.pz"]).silent();
    assert!(range == contents[400_000..500_001]);
    folder.pz(&["test", "far.pz"]).silent();
    folder.pz(&["recover", "-o", "b", "far.pz"]);
    assert!(folder.read("b") == contents);
}

#[test]
fn level_9_finds_repetitions_by_itself() {
    let folder = Folder::new();
    let part = sample(300_000);
    folder.write("a", &part.repeat(3));
    let compressed = |options: &[&str]| {
        let arguments = [&["compress", "-9", "-b", "128K", "-c"], options, &["a"]].concat();
        folder.pz(&arguments).silent()
    };
    let (own, without) = (compressed(&[]), compressed(&["--long=0"]));
    assert!(2 * own.len() < without.len());
    // Four blocks: level 9 looks back as far without the option.
    assert!(compressed(&["--long=512K"]).len().abs_diff(own.len()) < 100);
    assert!(folder.pz_with(&["-d"], &own).silent() == folder.read("a"));
    // With a filter, it looks at no earlier blocks.
    assert!(compressed(&["--filter", "delta1"]) == compressed(&["--filter", "delta1", "--long=0"]));
}

#[test]
fn a_list_tells_own_bytes_and_memory() {
    let folder = Folder::new();
    let part = sample(150_000);
    folder.write("a", &part.repeat(2));
    folder.pz(&["compress", "-b", "64K", "--long=1G", "a"]).silent();
    let list = folder.pz(&["list", "-v", "--json", "a.pz"]).json();
    let blocks = list[0]["frames"][0]["blocks"].as_array().unwrap();
    assert!(blocks[0]["own_size"].is_null());
    assert!(blocks[4]["own_size"].as_u64().unwrap() < 5000);
    let far = list[0]["decode_memory"].as_u64().unwrap();
    assert!(folder.pz(&["list", "-v", "a.pz"]).text().contains(" Own "));
    folder.pz(&["compress", "-f", "-b", "64K", "a"]).silent();
    let list = folder.pz(&["list", "--json", "a.pz"]).json();
    let near = list[0]["decode_memory"].as_u64().unwrap();
    // The last block, the four before it, and three more.
    assert_eq!(far - near, 7 << 16);
}

#[test]
fn sizes_and_conflicts() {
    let folder = Folder::new();
    folder.write("a", &sample(1000));
    for wrong in ["--long=-1", "--long=x", "--long="] {
        folder.pz(&["compress", wrong, "a"]).complains(1, "pz: ");
    }
    // The next argument is a file.
    folder.pz(&["compress", "--long", "a"]).silent();
    assert!(folder.pz(&["-d", "-c", "a.pz"]).silent() == folder.read("a"));
    folder.pz(&["-d", "--long", "a.pz"]).complains(1, "pz: ");
    // If the source's length is known, the program takes no more memory than the source needs.
    folder.pz(&["compress", "--long=1G", "-M", "64M", "-c", "a"]).silent();
    folder.pz_with(&["--long=1G", "-M", "64M"], b"a").complains(1, "pz: ");
    folder.pz(&["bench", "--resident", "--device", "opencl", "--long", "a"]).complains(1, "pz: ");
}
