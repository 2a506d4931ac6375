use super::*;
use crate::{DecodeOptions, SeekableReader, decompress, list};
use std::io::Cursor;

#[test]
fn ranges_and_writes_follow_each_other() {
    let contents: Vec<u8> = (0..900_000_u32).map(|i| (i / 999 * i) as u8).collect();
    let input: Arc<dyn ReadAt> = Arc::new(contents.clone());
    for threads in [1, 2, 6] {
        let options = Options::new().block_size(1 << 16).threads(threads);
        let whole = crate::compress(&contents, &options).unwrap();
        for cuts in [[0, 900_000], [131_072, 500_000], [77_777, 77_778], [100_000, 420_000]] {
            let mut encoder = Encoder::new(Vec::new(), &options).unwrap();
            encoder.read_range(&input, 0..cuts[0]).unwrap();
            let (from, to) = (cuts[0] as usize, cuts[1] as usize);
            encoder.write_all(&contents[from..to]).unwrap();
            encoder.read_range(&input, cuts[1]..900_000).unwrap();
            assert_eq!(encoder.bytes_in(), 900_000);
            let file = encoder.finish().unwrap();
            assert!(decompress(&file, &DecodeOptions::new()).unwrap() == contents);
            assert_eq!(file.len().abs_diff(whole.len()) / 64, 0, "{cuts:?}");
        }
        let mut encoder = Encoder::new(Vec::new(), &options).unwrap();
        let read = encoder.read_range(&input, 0..900_001);
        let error = read.and_then(|()| encoder.finish().map(drop)).unwrap_err();
        assert!(matches!(error, Error::Io(e) if e.kind() == io::ErrorKind::UnexpectedEof));
    }
}

#[test]
fn a_full_frame_is_followed_by_another() {
    let contents: Vec<u8> = (0..500_000_u32).map(|i| (i / 999) as u8).collect();
    for declared in [None, Some(contents.len() as u64)] {
        let mut options = Options::new().block_size(1 << 16);
        options.content_size = declared;
        let mut encoder = Encoder::new(Vec::new(), &options).unwrap();
        encoder.frames.set_max_blocks(3);
        encoder.write_all(&contents).unwrap();
        assert_eq!(encoder.bytes_in(), contents.len() as u64);
        let file = encoder.finish().unwrap();
        assert!(decompress(&file, &DecodeOptions::new()).unwrap() == contents);
        let frames = list(&mut Cursor::new(&file), true).unwrap();
        assert_eq!(frames.len(), 3);
        assert_eq!(frames[2].content_size, contents.len() as u64 - (6 << 16));
        assert!(frames.iter().all(|f| f.size_in_header == declared.is_some()));
        let mut reader = SeekableReader::new(Cursor::new(&file), &DecodeOptions::new()).unwrap();
        let mut part = Vec::new();
        reader.copy_range(190_000..400_000, &mut part).unwrap();
        assert!(part == contents[190_000..400_000]);
    }
}
