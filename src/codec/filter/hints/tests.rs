//! Headers written by other programs: NumPy, safetensors, Arrow, tifffile, Pillow and Python.

use super::*;

/// The beginning of a file, and the chains that it suggests.
type Case = (&'static str, &'static [u8], &'static [&'static str]);

const CASES: [Case; 19] = [
    (
        "a NumPy grid of i16",
        b"\x93NUMPY\x01\0v\0{'descr': '<i2', 'fortran_order': False, 'shape': (4, 50, 90), }              \
          \x20                                      \n",
        &[
            "delta2x90,zdelta2,transpose2",
            "delta2x90,zigzag2,transpose2",
            "delta2,zigzag2,transpose2",
        ],
    ),
    (
        "NumPy f64 in columns",
        b"\x93NUMPY\x01\0v\0{'descr': '<f8', 'fortran_order': True, 'shape': (70, 50), }                  \
          \x20                                      \n",
        &[
            "rotate8,transpose8",
            "delta8x70,zdelta8,transpose8",
            "delta8x70,zigzag8,transpose8",
            "delta8,zigzag8,transpose8",
        ],
    ),
    (
        "NumPy records",
        b"\x93NUMPY\x01\0\xb6\0{'descr': [('id', '<i4'), ('price', '<f8'), ('name', '|S8')], 'fortran_orde\
          r': False, 'shape': (99,), }               ",
        &["transpose20", "delta4x5,transpose20", "delta1x20,transpose20"],
    ),
    (
        "NumPy pixels",
        b"\x93NUMPY\x01\0v\0{'descr': '|u1', 'fortran_order': False, 'shape': (30, 40, 3), }              \
          \x20                                      \n",
        &["delta1x120,delta1x3", "delta1x120", "delta1x3"],
    ),
    (
        "NumPy i32 of another machine",
        b"\x93NUMPY\x01\0v\0{'descr': '>i4', 'fortran_order': False, 'shape': (30,), }                    \
          \x20                                      \n",
        &["delta1x4,transpose4", "transpose4"],
    ),
    (
        "NumPy times",
        b"\x93NUMPY\x01\0v\0{'descr': '<M8[ms]', 'fortran_order': False, 'shape': (30,), }                \
          \x20                                      \n",
        &["delta8,zigzag8,transpose8"],
    ),
    (
        "NumPy complex numbers",
        b"\x93NUMPY\x01\0v\0{'descr': '<c8', 'fortran_order': False, 'shape': (30,), }                    \
          \x20                                      \n",
        &["rotate4,transpose4", "delta4x2,zigzag4,transpose4"],
    ),
    (
        "safetensors",
        b"\xb0\0\0\0\0\0\0\0{\"n\":{\"dtype\":\"I64\",\"shape\":[1],\"data_offsets\":[0,8]},\"w\":{\"dtype\
          \":\"F32\",\"shape\":[30,40],\"data_offsets\":[8,4808]},\"b\":{\"dtype\":\"F16\",\"shape\":[40],\
          \"data_offsets\":[4808,4888]}}  ",
        &["delta8,zigzag8,transpose8", "rotate4,transpose4", "rotate2,transpose2"],
    ),
    (
        "stereo WAV",
        b"RIFF\xc4\x0f\0\0WAVEfmt \x10\0\0\0\x01\0\x02\0D\xac\0\0\x10\xb1\x02\0\x04\0\x10\0data\xa0\x0f\0\
          \0",
        &[
            "delta2x2,zigzag2,transpose2",
            "delta2x2,zigzag2,bits2",
            "deltadelta2x2,zigzag2,transpose2",
            "deltadelta2x2,zigzag2,bits2",
        ],
    ),
    (
        "WAV of 24 bits",
        b"RIFF\xdc\x0b\0\0WAVEfmt \x10\0\0\0\x01\0\x01\0D\xac\0\0\xcc\x04\x02\0\x03\0\x18\0data\xb8\x0b\0\
          \0",
        &["delta1x3,transpose3", "transpose3"],
    ),
    (
        "BMP",
        b"BMfu\0\0\0\0\0\x006\0\0\0(\0\0\0M\x01\0\0\x1e\0\0\0\x01\0\x18\0\0\0\0\x000u\0\0\xc4\x0e\0\0\xc4\x0e\
          \0\0\0\0\0\0\0\0\0\0",
        &["delta1x1000,delta1x3", "delta1x1000", "delta1x3"],
    ),
    (
        "TIFF of 16 bits",
        b"II*\0\x08\0\0\0\x0e\0\0\x01\x04\0\x01\0\0\0M\x01\0\0\x01\x01\x04\0\x01\0\0\0\x1e\0\0\0\x02\x01\
          \x03\0\x01\0\0\0\x10\0\0\0\x03\x01\x03\0\x01\0\0\0\x01\0\0\0\x06\x01\x03\0\x01\0\0\0\x01\0\0\0\
          \x0e\x01\x02\0\x15\0\0\0\xb6\0\0\0\x11\x01\x04\0\x01\0\0\0\0\x01\0\0\x15\x01\x03\0\x01\0\0\0\x01\
          \0\0\0\x16\x01\x04\0\x01\0\0\0\x1e\0\0\0\x17\x01\x04\0\x01\0\0\0\x0cN\0\0\x1a\x01\x05\0\x01\0\0\
          \0\xda\0\0\0\x1b\x01\x05\0\x01\0\0\0\xe2\0\0\0(\x01\x03\0\x01\0\0\0\x01\0\0\x001\x01\x02\0\x0c\0\0\
          \0\xea\0\0\0",
        &[
            "delta2x333,zdelta2,transpose2",
            "delta2x333,zigzag2,transpose2",
            "delta2,zigzag2,transpose2",
        ],
    ),
    (
        "TIFF of three channels",
        b"II*\0\x08\0\0\0\n\0\0\x01\x04\0\x01\0\0\0M\x01\0\0\x01\x01\x04\0\x01\0\0\0\x1e\0\0\0\x02\x01\x03\
          \0\x03\0\0\0\x86\0\0\0\x03\x01\x03\0\x01\0\0\0\x01\0\0\0\x06\x01\x03\0\x01\0\0\0\x02\0\0\0\x11\
          \x01\x04\0\x01\0\0\0\x8c\0\0\0\x15\x01\x03\0\x01\0\0\0\x03\0\0\0\x16\x01\x04\0\x01\0\0\0\x1e\0\0\
          \0\x17\x01\x04\0\x01\0\0\0\x12u\0\0\x1c\x01\x03\0\x01\0\0\0\x01\0\0\0\0\0\0\0\x08\0\x08\0\x08\0\
          \0\0",
        &["delta1x999,delta1x3", "delta1x999", "delta1x3"],
    ),
    (
        "BigTIFF of floats",
        b"II+\0\x08\0\0\0\x10\0\0\0\0\0\0\0\x10\0\0\0\0\0\0\0\0\x01\x04\0\x01\0\0\0\0\0\0\0M\x01\0\0\0\0\0\
          \0\x01\x01\x04\0\x01\0\0\0\0\0\0\0\x1e\0\0\0\0\0\0\0\x02\x01\x03\0\x03\0\0\0\0\0\0\0 \0 \0 \0\0\
          \0\x03\x01\x03\0\x01\0\0\0\0\0\0\0\x01\0\0\0\0\0\0\0\x06\x01\x03\0\x01\0\0\0\0\0\0\0\x02\0\0\0\0\
          \0\0\0\x0e\x01\x02\0\x18\0\0\0\0\0\0\0`\x01\0\0\0\0\0\0\x11\x01\x10\0\x01\0\0\0\0\0\0\0\xa0\x01\
          \0\0\0\0\0\0\x15\x01\x03\0\x01\0\0\0\0\0\0\0\x03\0\0\0\0\0\0\0\x16\x01\x04\0\x01\0\0\0\0\0\0\0\
          \x1e\0\0\0\0\0\0\0\x17\x01\x10\0\x01\0\0\0\0\0\0\0H\xd4\x01\0\0\0\0\0\x1a\x01\x05\0\x01\0\0\0\0\
          \0\0\0\x01\0\0\0\x01\0\0\0\x1b\x01\x05\0\x01\0\0\0\0\0\0\0\x01\0\0\0\x01\0\0\0\x1c\x01\x03\0\x01\
          \0\0\0\0\0\0\0\x01\0\0\0\0\0\0\0(\x01\x03\0\x01\0\0\0\0\0\0\0\x01\0\0\0\0\0\0\x001\x01\x02\0\x0c\0\
          \0\0\0\0\0\0\x88\x01\0\0\0\0\0\0S\x01\x03\0\x03\0\0\0\0\0\0\0\x03\0\x03\0\x03\0\0\0",
        &[
            "rotate4,transpose4",
            "delta4x999,zdelta4x3,transpose4",
            "delta4x999,zigzag4,transpose4",
            "delta4x3,zigzag4,transpose4",
        ],
    ),
    (
        "TIFF of another machine",
        b"MM\0*\0\0\0\x08\0\x0e\x01\0\0\x04\0\0\0\x01\0\0\x01M\x01\x01\0\x04\0\0\0\x01\0\0\0\x1e\x01\x02\0\
          \x03\0\0\0\x01\0\x10\0\0\x01\x03\0\x03\0\0\0\x01\0\x01\0\0\x01\x06\0\x03\0\0\0\x01\0\x01\0\0\x01\
          \x0e\0\x02\0\0\0\x15\0\0\0\xb6\x01\x11\0\x04\0\0\0\x01\0\0\x01\0\x01\x15\0\x03\0\0\0\x01\0\x01\0\
          \0\x01\x16\0\x04\0\0\0\x01\0\0\0\x1e\x01\x17\0\x04\0\0\0\x01\0\0N\x0c\x01\x1a\0\x05\0\0\0\x01\0\
          \0\0\xda\x01\x1b\0\x05\0\0\0\x01\0\0\0\xe2\x01(\0\x03\0\0\0\x01\0\x01\0\0\x011\0\x02\0\0\0\x0c\0\
          \0\0\xea",
        &[
            "delta1x666,delta1x2,transpose2",
            "delta1x666,transpose2",
            "delta1x2,transpose2",
            "transpose2",
        ],
    ),
    (
        "a plain Parquet column",
        b"PAR1\x15\0\x15\x90\xe2\x09\x15\x90\xe2\x09,\x15\xa0\x9c\x01\x15\0\x15\x06\x15\x06\x1c\x18\x08\
          \x8eC\xbf\x12q\x9c\x13\0\x18\x08y\xf3\xbd\x06\x83\0\0\0\x16\0(\x08\x8eC\xbf\x12q\x9c\x13\0\x18\
          \x08y\xf3\xbd\x06\x83\0\0\0\x11\x11",
        &["delta1x8,transpose8", "transpose8", "delta1x4,transpose4", "transpose4"],
    ),
    (
        "a Parquet dictionary",
        b"PAR1\x15\x04\x15\x80\xe2\x09\x15\x80\xe2\x09L\x15\xa0\x9c\x01\x15\0\x12\0\0y\xf3\xbd\x06\x83\0\0\
          \0:\xafTXv\x01\0\0B\xa5\xf9?\x9b\x01\0\0\x14T\xaa\x1a\x8e\x02\0\0S\xf4\xd9\xee\xdd\x02\0\x001:\xf9\
          MJ\x03",
        &["delta1x8,transpose8", "transpose8", "delta1x4,transpose4", "transpose4"],
    ),
    (
        "a newer Parquet page",
        b"PAR1\x15\x06\x15\x88\xe2\x09\x15\x88\xe2\x09\\\x15\xa0\x9c\x01\x15\0\x15\xa0\x9c\x01\x15\0\x15\
          \x08\x15\0\x12\x1c\x18\x08\x8eC\xbf\x12q\x9c\x13\0\x18\x08y\xf3\xbd\x06\x83\0\0\0\x16\0(\x08\x8e\
          C\xbf\x12q\x9c\x13\0\x18\x08y\xf3\xbd",
        &["delta1x8,transpose8", "transpose8", "delta1x4,transpose4", "transpose4"],
    ),
    (
        "a compressed Parquet page",
        b"PAR1\x15\0\x15\x90\xe2\x09\x15\xa2\xe2\x09,\x15\xa0\x9c\x01\x15\0\x15\x06\x15\x06\x1c\x18\x08\
          \x8eC\xbf\x12q\x9c\x13\0\x18\x08y\xf3\xbd\x06\x83\0\0\0\x16\0(\x08\x8eC\xbf\x12q\x9c\x13\0\x18\
          \x08y\xf3\xbd\x06\x83\0\0\0\x11\x11",
        &[],
    ),
];

fn names(hints: &Hints) -> Vec<String> {
    hints.chains().map(|chain| chain.to_string()).collect()
}

#[test]
fn headers_name_widths_and_rows() {
    for (what, header, expected) in CASES {
        let contents = [header, &[0; 1000]].concat();
        assert_eq!(names(&Hints::of(&contents)), expected, "{what}");
        // Another magic number is another format.
        for at in 0..2 {
            let mut other = contents.clone();
            other[at] ^= 0x20;
            // The first bytes of safetensors are a length.
            if !what.contains("safetensors") {
                assert_eq!(Hints::of(&other), Hints::default(), "{what}, byte {at}");
            }
        }
    }
    for other in
        [&b""[..], b"BM", b"RIFF", b"\x93NUMPY\x01\0", b"{\"dtype\":\"F32\"}", &[0; 70_000]]
    {
        assert_eq!(Hints::of(other), Hints::default());
    }
}

#[test]
fn damaged_headers_are_harmless() {
    let mut state = 1_u64;
    let mut random = move || {
        state = state.wrapping_mul(0x5851_f42d_4c95_7f2d).wrapping_add(0x1405_7b7e_f767_814f);
        (state >> 33) as usize
    };
    for (_, header, _) in CASES {
        for len in 0..header.len() {
            let hints = Hints::of(&header[..len]);
            assert!(hints.chains().all(|chain| chain.reach() <= MAX_REACH));
        }
        for _ in 0..2000 {
            let mut damaged = header.to_vec();
            for _ in 0..=random() % 4 {
                let at = random() % damaged.len();
                damaged[at] = [0, 1, 255, b'9', random() as u8][random() % 5];
            }
            let hints = Hints::of(&damaged);
            assert!(hints.chains().all(|chain| chain.reach() <= MAX_REACH));
        }
    }
}

#[test]
fn headers_count_only_at_the_beginning() {
    let (_, header, _) = CASES[0];
    let mut contents = vec![b' '; LOOKED_AT];
    contents.extend_from_slice(header);
    assert_eq!(Hints::of(&contents), Hints::default());
    // No stage reaches from row to row, but the type still gives hints.
    let wide = b"\x93NUMPY\x01\0v\0{'descr': '<i4', 'fortran_order': False, 'shape': (3, 90000), }";
    let wide = [&wide[..], &[b' '; 100]].concat();
    assert_eq!(names(&Hints::of(&wide)), ["delta4,zigzag4,transpose4"]);
}
