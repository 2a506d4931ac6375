//! Sources on this machine.

use pz::access::{SourceErrorKind, SourceOptions};

use crate::{open_at, read_at};

#[test]
fn local_sources() {
    let file = tempfile_with(b"some bytes");
    let uri = format!("file://{}", file.display());
    let source = open_at(&uri, &SourceOptions::new()).unwrap();
    assert_eq!((source.uri(), source.len()), (uri.as_str(), 10));
    assert_eq!(read_at(&*source, 5, 5).unwrap(), b"bytes");
    std::fs::write(&file, b"some").unwrap();
    assert_eq!(read_at(&*source, 5, 5).unwrap_err().kind(), SourceErrorKind::Changed);
    std::fs::remove_file(&file).unwrap();
    let error = open_at(&uri, &SourceOptions::new()).err().unwrap();
    assert_eq!(error.kind(), SourceErrorKind::NotFound);

    #[cfg(unix)]
    for path in ["/dev/null", "/dev"] {
        let error = open_at(&format!("file:{path}"), &SourceOptions::new()).err().unwrap();
        assert_eq!(error.kind(), SourceErrorKind::Unsupported);
    }

    pz::access::publish("a test's", *b"some bytes");
    let open_memory = || open_at("memio://a%20test's", &SourceOptions::new());
    assert_eq!(open_memory().err().unwrap().kind(), SourceErrorKind::NotFound);
    pz::access::publish("a-test", *b"some bytes");
    let source = open_at("memio://a-test", &SourceOptions::new()).unwrap();
    pz::access::withdraw("a-test").unwrap();
    assert_eq!(read_at(&*source, 5, 5).unwrap(), b"bytes");
    let error = open_at("memio://a-test", &SourceOptions::new()).err().unwrap();
    assert_eq!(error.kind(), SourceErrorKind::NotFound);
}

fn tempfile_with(bytes: &[u8]) -> std::path::PathBuf {
    let name = format!("access-{}", std::process::id());
    let path = std::path::Path::new(env!("CARGO_TARGET_TMPDIR")).join(name);
    std::fs::write(&path, bytes).unwrap();
    path
}
