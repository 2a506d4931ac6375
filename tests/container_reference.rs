//! A decoder written from `src/format/FORMAT.md` alone, in its order and its words, for clarity rather than speed. It
//! checks that files of the library follow that text.

#![cfg(feature = "modules")]

mod common;

use common::{calls, levels_and_pipelines, sample};
use pz::internal::{bwt, lz77};
use pz::{Level, Options, Pipeline};
use sha2::{Digest as _, Sha256};

/// CRC-32C, bit by bit.
fn crc(bytes: &[u8]) -> u32 {
    !bytes.iter().fold(u32::MAX, |crc, &byte| {
        (0..8).fold(crc ^ u32::from(byte), |crc, _| (crc >> 1) ^ (0x82F6_3B78 * (crc & 1)))
    })
}

/// Takes `N` bytes off the front.
fn take<const N: usize>(bytes: &mut &[u8]) -> [u8; N] {
    let (head, tail) = bytes.split_first_chunk().expect("the file goes on");
    *bytes = tail;
    *head
}

fn decode(file: &[u8]) -> Vec<u8> {
    let mut contents = Vec::new();
    let mut left = file;
    loop {
        left = frame(left, &mut contents);
        if left.iter().all(|&byte| byte == 0) {
            return contents;
        }
    }
}

/// Decodes the frame at the start of `frame`. Returns the bytes after it.
fn frame<'a>(frame: &'a [u8], contents: &mut Vec<u8>) -> &'a [u8] {
    let mut left = frame;
    let start = contents.len();
    assert_eq!(take::<8>(&mut left), [0x89, 0x50, 0x5A, 0x46, 0x0D, 0x0A, 0x1A, 0x0A]);
    let [version, pipeline, block_log, _level, flags] = take(&mut left);
    assert_eq!(version, 1);
    let (methods, largest): (&[u8], u8) = match pipeline {
        0 => (&[0, 1], 24),
        1..=3 => (&[0, 1, 2], 24),
        4 => (&[0, 1, 2, 3], 26),
        reserved => panic!("pipeline {reserved}"),
    };
    assert!((16..=largest).contains(&block_log));
    if flags & 8 != 0 {
        return single_frame(frame, methods, contents);
    }
    assert_eq!(flags & !7, 0);
    let declared = (flags & 1 != 0).then(|| u64::from_le_bytes(take(&mut left)));
    let list = if flags & 2 != 0 { list(&mut left) } else { Vec::new() };
    let reach = if flags & 4 != 0 { reach(&mut left) } else { 0 };
    let header_len = frame.len() - left.len();
    assert_eq!(u32::from_le_bytes(take(&mut left)), crc(&frame[..header_len]));
    let modules = modules(&list, &mut left);

    let block_size = 1_usize << block_log;
    let mut lengths: Vec<u32> = Vec::new();
    let mut own_bytes: Vec<Vec<u8>> = Vec::new();
    while left[..2] == [0xB7, 0x42] {
        assert_eq!(contents.len() - start, lengths.len() * block_size, "the last was not full");
        let block = left;
        let [_, _, kind] = take(&mut left);
        let method = kind & 3;
        let is_distant = kind & 4 != 0;
        let is_filtered = kind & 8 != 0;
        assert_eq!(kind >> 4, block_log - 16);
        assert!(methods.contains(&method));
        assert_eq!(u32::from_le_bytes(take(&mut left)) as usize, lengths.len());
        let content_len = u32::from_le_bytes(take(&mut left)) as usize;
        assert!((1..=block_size).contains(&content_len));
        let coded = (method != 0 || is_distant).then(|| {
            let payload_len = u32::from_le_bytes(take(&mut left)) as usize;
            assert!((1..=content_len).contains(&payload_len));
            (payload_len, u32::from_le_bytes(take(&mut left)))
        });
        assert!(!is_filtered || method >= 2);
        let filters = is_filtered.then(|| take(&mut left));
        let distant =
            is_distant.then(|| [(); 3].map(|()| u32::from_le_bytes(take(&mut left)) as usize));
        let content_checksum = u32::from_le_bytes(take(&mut left));
        let (payload_len, payload_checksum) = coded.unwrap_or((content_len, content_checksum));
        let header_len = block.len() - left.len();
        assert_eq!(u32::from_le_bytes(take(&mut left)), crc(&block[..header_len]));
        let (payload, rest) = left.split_at(payload_len);
        left = rest;
        assert_eq!(crc(payload), payload_checksum);
        let context = (&modules[..], contents.len() - start);
        let [own_len, own_checksum, list_len] =
            distant.unwrap_or([content_len, content_checksum as usize, 0]);
        assert!((1..=content_len).contains(&own_len));
        let (list, payload) = payload.split_at(list_len);
        let list = match list.strip_prefix(&[0x80, 0]) {
            Some(mut coded) => {
                let len = u32::from_le_bytes(take(&mut coded)) as usize;
                assert!(list_len < len && len <= content_len.min(1 << 24));
                block_contents(2, coded, len, None, (&[], 0))
            }
            None => list.to_vec(),
        };
        match method {
            0 => assert_eq!(payload.len(), own_len),
            1 => assert!(payload.len() == 1 && own_len >= 2),
            _ => assert!((1..own_len).contains(&payload.len())),
        }
        let own = block_contents(method, payload, own_len, filters, context);
        assert_eq!(crc(&own) as usize, own_checksum);
        let out = if is_distant { repeat(&list, &own, &own_bytes, reach) } else { own.clone() };
        own_bytes.push(own);
        assert_eq!(out.len(), content_len);
        assert_eq!(crc(&out), content_checksum);
        contents.extend(out);
        lengths.push((block.len() - left.len()) as u32);
    }

    let index = left;
    assert_eq!(take(&mut left), [0xB7, 0x49]);
    if let Some((_, but_the_last)) = lengths.split_last() {
        for length in but_the_last {
            assert_eq!(u32::from_le_bytes(take(&mut left)), *length);
        }
    }
    let content_size = u64::from_le_bytes(take(&mut left));
    assert_eq!(content_size, (contents.len() - start) as u64);
    assert!(declared.is_none_or(|declared| declared == content_size));
    assert_eq!(content_size.div_ceil(block_size as u64), lengths.len() as u64);
    let frame_len = u64::from_le_bytes(take(&mut left));
    let checked = index.len() - left.len();
    assert_eq!(u32::from_le_bytes(take(&mut left)), crc(&index[..checked]));
    assert_eq!(frame_len, (frame.len() - left.len()) as u64);
    left
}

/// Reads the optional fields, and returns the value of `reach`.
fn reach(left: &mut &[u8]) -> usize {
    let [n] = take(left);
    let (mut fields, rest) = left.split_at(n.into());
    *left = rest;
    let mut reach = None;
    while !fields.is_empty() {
        let [identifier, m] = take(&mut fields);
        let (field, rest) = fields.split_at(m.into());
        fields = rest;
        match identifier {
            0..128 => {}
            128 => assert!(reach.replace(u64::from_le_bytes(field.try_into().unwrap())).is_none()),
            unknown => panic!("field {unknown}"),
        }
    }
    let reach = reach.unwrap() as usize;
    assert!((1..=1 << 44).contains(&reach));
    reach
}

/// Puts the distant matches of `list` between a block's own bytes. `earlier` are the own bytes of the blocks before it.
fn repeat(mut list: &[u8], all_own: &[u8], earlier: &[Vec<u8>], reach: usize) -> Vec<u8> {
    let mut own = all_own;
    let number = |list: &mut &[u8]| {
        let mut number = 0_u64;
        for i in 0.. {
            let [byte] = take(list);
            number |= u64::from(byte & 127) << (7 * i);
            assert!(number < 1 << 32);
            if byte < 128 {
                assert!(byte > 0 || i == 0);
                break;
            }
        }
        number as usize
    };
    let mut out = Vec::new();
    let mut backs = std::collections::BTreeSet::new();
    let mut before = None;
    assert!(!list.is_empty());
    while !list.is_empty() {
        let [gap, length, b, z] = [(); 4].map(|()| number(&mut list));
        let (head, tail) = own.split_at(gap);
        own = tail;
        out.extend(head);
        let repeated = if b == earlier.len() {
            all_own
        } else {
            assert!(earlier[earlier.len() - b - 1..].iter().map(Vec::len).sum::<usize>() <= reach);
            backs.insert(b);
            &earlier[earlier.len() - b - 1]
        };
        let e = before.filter(|&(same, _)| same == b).map_or(0, |(_, end)| end);
        let from = if z % 2 == 0 { e + z / 2 } else { e - z.div_ceil(2) };
        let end = from + length + 32;
        out.extend(&repeated[from..end]);
        before = Some((b, end));
    }
    assert!(backs.len() <= 16);
    out.extend(own);
    out
}

/// Decodes the payload of a block.
fn block_contents(
    method: u8,
    payload: &[u8],
    content_len: usize,
    filters: Option<[u8; 13]>,
    context: Context<'_>,
) -> Vec<u8> {
    let mut out = vec![0; content_len];
    match method {
        0 => out.copy_from_slice(payload),
        1 => {
            assert!(payload.len() == 1 && content_len >= 2);
            out.fill(payload[0]);
        }
        2 => {
            assert!(content_len <= 1 << 24);
            lz77::Decoder::new().decode(payload, &mut out).unwrap();
        }
        _ => bwt::Decoder::new().decode(payload, &mut out).unwrap(),
    }
    match filters {
        Some(filters) => unfilter(filters, &out, context),
        None => out,
    }
}

/// Inverts the filters of a block.
fn unfilter(filters: [u8; 13], filtered: &[u8], (modules, block): Context<'_>) -> Vec<u8> {
    let mut left = &filters[..];
    let [unit_log] = take(&mut left);
    assert!((18..=20).contains(&unit_log));
    let stages = [(); 3].map(|()| u32::from_le_bytes(take(&mut left)));
    let used = stages.iter().take_while(|&&stage| stage != 0).count();
    assert!(used > 0 && stages[used..].iter().all(|&stage| stage == 0));
    let units = filtered.chunks(1 << unit_log);
    let starts = (block..).step_by(1 << unit_log);
    let inverted = units.zip(starts).map(|(unit, start)| {
        stages[..used].iter().rev().fold(unit.to_vec(), |unit, &stage| {
            if stage & 15 == 15 {
                assert_eq!(stage >> 4 & 15, 0);
                modules[(stage >> 8 & 255) as usize].inverse(stage >> 16, start, &unit)
            } else {
                inverse(stage, &unit)
            }
        })
    });
    inverted.collect::<Vec<_>>().concat()
}

/// Inverts a stage of a unit.
fn inverse(stage: u32, unit: &[u8]) -> Vec<u8> {
    let (id, order, w, p) = (stage & 15, stage >> 4 & 15, (stage >> 8 & 255) as usize, stage >> 16);
    assert!(match id {
        3 => [1, 2, 5, 6].contains(&order),
        7 => order == 0 || (order == 1 && w == 8),
        8 => order <= if w == 4 { 11 } else { 15 },
        _ => order == 0,
    });
    assert!(if id == 1 { (2..=255).contains(&w) } else { [1, 2, 4, 8].contains(&w) });
    let bits = 8 * w as u32;
    match id {
        1 | 2 | 4 => assert_eq!(p, 0),
        3 | 6 => assert!(p >= 1),
        5 => assert!(p >= 1 && p < bits),
        7 => assert!((w == 4 && p <= 10) || (w == 8 && p <= 15)),
        8 => assert!((w == 4 || w == 8) && (p == 1 || p == 2)),
        9 => assert!((w == 1 || w == 4) && p == 0),
        _ => panic!("stage {id}"),
    }
    let mut n = unit.len() / w;
    if id == 2 {
        n = n / 8 * 8;
    }
    let mut x = unit.to_vec();
    if id == 1 {
        (0..n).for_each(|i| (0..w).for_each(|j| x[i * w + j] = unit[j * n + i]));
        return x;
    }
    if id == 2 {
        x[..n * w].fill(0);
        for i in 0..n {
            for j in 0..8 * w {
                let k = j * n + i;
                x[i * w + j / 8] |= (unit[k / 8] >> (k % 8) & 1) << (j % 8);
            }
        }
        return x;
    }
    let modulo = if w == 8 { u64::MAX } else { (1 << bits) - 1 };
    if id == 8 {
        return from_dictionary(unit, w, p as usize, modulo, order);
    }
    if id == 9 {
        return with_distances(unit, w);
    }
    if id == 3 && order > 4 {
        let differences = inverse(4 | stage & 0xff00, unit);
        return inverse(stage & !(4 << 4), &differences);
    }
    let mut y: Vec<u64> = unit[..n * w]
        .chunks(w)
        .map(|element| element.iter().rev().fold(0, |number, &byte| number << 8 | u64::from(byte)))
        .collect();
    let p_elements = p as usize;
    match id {
        3 => (0..order % 4).for_each(|_| {
            (p_elements..n).for_each(|i| y[i] = y[i].wrapping_add(y[i - p_elements]) & modulo);
        }),
        4 => y.iter_mut().for_each(|y| *y = if *y % 2 == 0 { *y / 2 } else { modulo - *y / 2 }),
        5 => y.iter_mut().for_each(|y| *y = (*y >> p | *y << (bits - p)) & modulo),
        6 => (p_elements..n).for_each(|i| y[i] ^= y[i - p_elements]),
        _ => y.iter_mut().for_each(|y| *y = float(*y, w, p, order == 1)),
    }
    for (element, number) in x.chunks_mut(w).zip(y) {
        element.copy_from_slice(&number.to_le_bytes()[..w]);
    }
    x
}

/// Inverts stage 9.
fn with_distances(unit: &[u8], w: usize) -> Vec<u8> {
    let mut x = unit.to_vec();
    let number = |bytes: &[u8]| u32::from_le_bytes(bytes.try_into().unwrap());
    if w == 4 {
        for (i, word) in x.chunks_exact_mut(4).enumerate() {
            let y = number(word);
            if y >> 26 == 37 {
                let distance = (y & 0x3ff_ffff).wrapping_sub(i as u32) & 0x3ff_ffff;
                word.copy_from_slice(&(y >> 26 << 26 | distance).to_le_bytes());
            }
        }
        return x;
    }
    let mut i = 0;
    while i < x.len() {
        let page_end = x.len().min((i / 1024 + 1) * 1024);
        if !matches!(x[i], 0xe8 | 0xe9) {
            i += 1;
        } else if i + 4 < page_end && matches!(x[i + 4], 0 | 0xff) {
            let t = number(&x[i + 1..i + 5]).wrapping_sub(i as u32 + 5);
            let sign = if t >> 24 & 1 == 1 { 0xfe00_0000 } else { 0 };
            x[i + 1..i + 5].copy_from_slice(&(t & 0x1ff_ffff | sign).to_le_bytes());
            i += 5;
        } else {
            i = (i + 4).min(page_end);
        }
    }
    x
}

/// Inverts stage 8.
fn from_dictionary(unit: &[u8], w: usize, p: usize, modulo: u64, order: u32) -> Vec<u8> {
    if unit.len() < 65_536 {
        return unit.to_vec();
    }
    let n = unit.len() / w;
    let e = (n * p).div_ceil(w);
    let m = (n - e).min(1 << (8 * p));
    let number = |bytes: &[u8]| bytes.iter().rev().fold(0, |n, &byte| n << 8 | u64::from(byte));
    let mut sum = 0;
    let values: Vec<u64> = unit[e * w..(e + m) * w]
        .chunks(w)
        .map(|entry| {
            sum = number(entry).wrapping_add(sum) & modulo;
            if order == 0 { sum } else { float(sum, w, order - 1, w == 8) }
        })
        .collect();
    let places = unit[..n * p].chunks(p).map(number);
    let x = places.flat_map(|place| {
        let value = values.get(place as usize).map_or(0, |&value| value);
        value.to_le_bytes().into_iter().take(w)
    });
    x.chain(unit[n * w..].iter().copied()).collect()
}

/// The float for a number of stage 7, computed in integers.
fn float(y: u64, w: usize, p: u32, is_near: bool) -> u64 {
    let (m_log, s, bias) = if w == 4 { (22, 24, 127) } else { (51, 53, 1023) };
    let c = if w == 4 { i64::from(y as u32 as i32) } else { y as i64 };
    if c.abs_diff(0) >= 1 << m_log {
        return y;
    }
    let q = if is_near { (c + 1).div_euclid(4) } else { c };
    let e = if is_near { c - 4 * q } else { 0 };
    nearest(q, w, p, s, bias).wrapping_add_signed(e)
}

/// The bits of the float nearest to q / 10^p.
fn nearest(q: i64, w: usize, p: u32, s: i32, bias: i32) -> u64 {
    if q == 0 {
        return 0;
    }
    // With |q| < 2^51 and d < 2^50, everything fits in 128 bits.
    let (mut above, mut below) = (u128::from(q.unsigned_abs()), 10_u128.pow(p));
    let mut e = 0_i32;
    while above < below << (s - 1) {
        (above, e) = (above << 1, e - 1);
    }
    while above >= below << s {
        (below, e) = (below << 1, e + 1);
    }
    let (mut m, rest) = (above / below, above % below);
    if 2 * rest > below || (2 * rest == below && m % 2 == 1) {
        m += 1;
    }
    if m == 1 << s {
        (m, e) = (1 << (s - 1), e + 1);
    }
    let exponent = (e + s - 1 + bias) as u64;
    let sign = u64::from(q < 0) << (8 * w - 1);
    sign | exponent << (s - 1) | (m as u64 - (1 << (s - 1)))
}

/// The frame's modules, and the block's offset in the frame's contents.
type Context<'a> = (&'a [Module], usize);

/// A module of the frame.
struct Module {
    fuel: u32,
    lane_log: u8,
    bytes: Vec<u8>,
}

/// An entry of the header's list: hash, length, fuel and lanes.
type Entry = ([u8; 32], usize, u32, u8);

/// Reads the list of modules.
fn list(left: &mut &[u8]) -> Vec<Entry> {
    let [n] = take(left);
    assert!((1..=6).any(|entries| n == 40 * entries));
    (0..n / 40)
        .map(|_| {
            let sha256 = take(left);
            let len = usize::from(u16::from_le_bytes(take(left))) + 1;
            let fuel = u32::from_le_bytes(take(left));
            let [lane_log, reserved] = take(left);
            assert!((8..=20).contains(&lane_log) && reserved == 0);
            assert!((1..=1 << (lane_log + 8)).contains(&fuel));
            (sha256, len, fuel, lane_log)
        })
        .collect()
}

/// Reads the modules after the header.
fn modules(list: &[Entry], left: &mut &[u8]) -> Vec<Module> {
    list.iter()
        .map(|&(sha256, len, fuel, lane_log)| {
            let (bytes, rest) = left.split_at(len);
            *left = rest;
            assert_eq!(Sha256::digest(bytes)[..], sha256);
            Module { fuel, lane_log, bytes: bytes.to_vec() }
        })
        .collect()
}

/// The state that a lane can access.
struct Windows {
    lane: i32,
    input: Vec<u8>,
    output: Vec<u8>,
}

impl Module {
    /// Undoes stage 15 in a unit that begins at byte `position` of the frame's contents. A valid file never runs out of
    /// fuel, so wasmi's own fuel is the only limit here.
    fn inverse(&self, argument: u32, position: usize, unit: &[u8]) -> Vec<u8> {
        assert!(self.fuel > 0);
        let engine = wasmi::Engine::default();
        let module = wasmi::Module::new(&engine, &self.bytes).unwrap();
        let lanes = unit.len().div_ceil(1 << self.lane_log);
        let mut output = vec![0; unit.len()];
        for lane in 0..lanes {
            let windows = Windows { lane: lane as i32, input: unit.to_vec(), output };
            // Globals and memory begin anew.
            let mut store = wasmi::Store::new(&engine, windows);
            let linker = imports(&engine);
            let instance = linker.instantiate_and_start(&mut store, &module).unwrap();
            let decode = instance.get_func(&store, "decode").unwrap();
            let all = [lane, lanes, unit.len(), unit.len(), argument as usize, position];
            let ty = decode.ty(&store);
            let arguments: Vec<_> = (ty.params().iter().enumerate())
                .map(|(at, ty)| match (ty, all.get(at).copied().unwrap_or(0)) {
                    (wasmi::ValType::I64, value) => wasmi::Val::I64(value as i64),
                    (_, value) => wasmi::Val::I32(value as i32),
                })
                .collect();
            let mut results = vec![wasmi::Val::I32(0); ty.results().len()];
            decode.call(&mut store, &arguments, &mut results).unwrap();
            output = store.into_data().output;
        }
        output
    }
}

/// The functions that a module may import. An access beyond the windows panics: no valid file has one.
fn imports(engine: &wasmi::Engine) -> wasmi::Linker<Windows> {
    type Caller<'a> = wasmi::Caller<'a, Windows>;
    let mut linker = wasmi::Linker::new(engine);
    linker
        .func_wrap("pz", "in8", |of: Caller<'_>, at: u32| i32::from(of.data().input[at as usize]))
        .unwrap()
        .func_wrap("pz", "in32", |of: Caller<'_>, at: u32| {
            let at = 4 * at as usize;
            i32::from_le_bytes(of.data().input[at..at + 4].try_into().unwrap())
        })
        .unwrap()
        .func_wrap("pz", "out8", |mut of: Caller<'_>, at: u32, value: i32| {
            of.data_mut().output[at as usize] = value as u8;
        })
        .unwrap()
        .func_wrap("pz", "out32", |mut of: Caller<'_>, at: u32, value: i32| {
            let at = 4 * at as usize;
            of.data_mut().output[at..at + 4].copy_from_slice(&value.to_le_bytes());
        })
        .unwrap()
        .func_wrap("gpu", "thread_id", |of: Caller<'_>| of.data().lane)
        .unwrap()
        .func_wrap("gpu", "get_time", |_: Caller<'_>| 0_i32)
        .unwrap();
    linker
}

/// Decodes the single frame at the start of `frame`. Returns the bytes after it.
fn single_frame<'a>(frame: &'a [u8], methods: &[u8], contents: &mut Vec<u8>) -> &'a [u8] {
    let mut left = &frame[10..];
    let [block_log, level_and_method, flags] = take(&mut left);
    let method = level_and_method >> 4 & 7;
    let is_filtered = level_and_method >> 7 != 0;
    assert!(methods.contains(&method));
    assert_eq!(flags & 0b1100_1101, 8);
    let w = usize::from(flags >> 4 & 3);
    let mut number = || {
        let mut bytes = [0; 4];
        let (head, tail) = left.split_at(w);
        bytes[..w].copy_from_slice(head);
        left = tail;
        u32::from_le_bytes(bytes) as usize
    };
    let content_len = if w == 0 { 0 } else { number() + 1 };
    let payload_len = match method {
        0 => content_len,
        1 => 1,
        _ => number() + 1,
    };
    assert!(!is_filtered || method >= 2);
    let filters = is_filtered.then(|| take(&mut left));
    match w {
        0 => assert_eq!(method, 0),
        1 => assert!((1..=256).contains(&content_len)),
        2 => assert!((257..=65_536).contains(&content_len)),
        _ => assert!((65_537..=1 << 24).contains(&content_len)),
    }
    assert!(content_len <= 1 << block_log);
    assert!(method == 0 || payload_len < content_len);
    let list = if flags & 2 != 0 { list(&mut left) } else { Vec::new() };
    let checked = frame.len() - left.len();
    let [check] = take(&mut left);
    assert_eq!(check, crc(&frame[..checked]) as u8);
    let modules = modules(&list, &mut left);
    let header = &frame[..frame.len() - left.len()];
    let (payload, rest) = left.split_at(payload_len);
    left = rest;
    let out = block_contents(method, payload, content_len, filters, (&modules, 0));
    let counted = [header, if method == 0 { &[] } else { payload }, &out].concat();
    assert_eq!(u32::from_le_bytes(take(&mut left)), crc(&counted));
    contents.extend(out);
    left
}

#[test]
fn files_follow_the_text_of_the_format() {
    let mut file = Vec::new();
    let mut contents = Vec::new();
    for len in [0, 1, 2, 100, 256, 257, 500, 65_536, 65_537, 100_000, 300_000] {
        for (options, _) in levels_and_pipelines() {
            let part = sample(len, len as u64);
            let options = options
                .block_size(if len == 100_000 { 1 << 17 } else { 1 << 16 })
                .content_size(len as u64);
            file.extend(pz::compress(&part, &options).unwrap());
            contents.extend(part);
        }
    }
    let zeros = vec![0; 200_000];
    for block_size in [1 << 17, 1 << 18] {
        let options = Options::new().pipeline(Pipeline::Store).block_size(block_size);
        file.extend(pz::compress(&zeros, &options).unwrap());
        contents.extend(&zeros);
    }
    assert!(decode(&file) == contents);
    file.extend([0; 512]);
    assert!(decode(&file) == contents);
    assert!(pz::decompress(&file, &pz::DecodeOptions::new()).unwrap() == contents);
}

#[test]
fn files_with_distant_matches_follow_the_text_of_the_format() {
    let parts: Vec<_> = (0..3).map(|i| sample(150_000, i)).collect();
    let contents =
        [&parts[0][..], &parts[1], &parts[0][7000..], &parts[2], &parts[1], &parts[0]].concat();
    for (options, name) in levels_and_pipelines() {
        let options = options.block_size(1 << 16);
        let plain = pz::compress(&contents, &options.clone().long_distance(0)).unwrap();
        let file = pz::compress(&contents, &options.long_distance(1 << 30)).unwrap();
        assert!(2 * file.len() < plain.len() + 20_000, "{name}: {} {}", file.len(), plain.len());
        assert!(decode(&file) == contents, "{name}");
    }
    let filtered = Options::new().block_size(1 << 16).filter("delta2,transpose2".parse().unwrap());
    let file = pz::compress(&contents, &filtered.long_distance(1 << 20)).unwrap();
    assert!(decode(&file) == contents);
    // Blocks that repeat themselves, also if there is only one, or also repeat others.
    for block_size in [1 << 17, 1 << 18, 1 << 21] {
        let options = Options::new().level(Level::MAX).block_size(block_size);
        let file = pz::compress(&contents, &options.clone().long_distance(1 << 20)).unwrap();
        let alone = pz::compress(&contents, &options.long_distance(0)).unwrap();
        assert!(file.len() < alone.len(), "{block_size}: {} {}", file.len(), alone.len());
        assert!(decode(&file) == contents);
    }
    // Enough matches for a coded list.
    let pieces = (0..3000).flat_map(|i| &parts[0][i * 7919 % 149_000..][..400 + i % 500]);
    let many: Vec<u8> = parts[0].iter().chain(pieces).copied().collect();
    let options = Options::new().level(Level::MAX).long_distance(1 << 20);
    let file = pz::compress(&many, &options).unwrap();
    assert!(decode(&file) == many);
}

#[test]
fn filtered_programs_follow_the_text_of_the_format() {
    let mut file = Vec::new();
    let mut contents = Vec::new();
    for name in ["x86", "arm64", "arm64,x86", "x86,transpose4"] {
        for len in [300, 1027, 65_536, 1_300_001] {
            let part = calls(sample(len, len as u64));
            for pipeline in [Pipeline::Lzh, Pipeline::Bwt] {
                let options = Options::new().pipeline(pipeline).block_size(1 << 21);
                let filtered = options.filter(name.parse().unwrap());
                file.extend(pz::compress(&part, &filtered).unwrap());
                contents.extend(&part);
            }
        }
    }
    assert!(decode(&file) == contents);
}

#[test]
fn filtered_files_follow_the_text_of_the_format() {
    let mut file = Vec::new();
    let mut contents = Vec::new();
    let prices = |i: i32| (f64::from(i % 977) / 100.0 - 3.0).to_le_bytes();
    for (name, options) in [
        ("delta4x3,zigzag4,transpose4", Options::new()),
        ("deltadelta2,zigzag2,bits2", Options::new().pipeline(Pipeline::Bwt)),
        ("rotate8:11,transpose8", Options::new().pipeline(Pipeline::Fse)),
        ("transpose20", Options::new()),
        ("xor8,transpose8", Options::new()),
        ("decimal8:2,zigzag8,transpose8", Options::new()),
        ("delta1x3000,delta1x3", Options::new()),
        ("dictionary8:2,zdelta2,transpose2", Options::new()),
        ("delta8x4,zdeltadelta8,bits8", Options::new().pipeline(Pipeline::Fse)),
        ("dictionary4:2,delta2,zigzag2", Options::new().pipeline(Pipeline::Bwt)),
        ("decimal8:2,delta8,dictionary8:2", Options::new().pipeline(Pipeline::Fse)),
        ("neardecimal8:2,zigzag8,transpose8", Options::new()),
        ("dictionary8:2.2,zdelta2", Options::new()),
        ("dictionary4:2.1,transpose2", Options::new()),
    ] {
        for len in [300, 65_536, 100_003, 1_300_001] {
            let part: Vec<u8> = (0..).flat_map(prices).take(len).collect();
            for block_log in [16, 20, 21] {
                let options = options.clone().block_size(1 << block_log);
                let filtered = options.clone().filter(name.parse().unwrap());
                let small = pz::compress(&part, &filtered).unwrap();
                let plain = pz::compress(&part, &options).unwrap();
                // A short block is stored, with or without the filter.
                assert!(len < 1000 || small != plain, "{name}, {len} bytes");
                file.extend(small);
                contents.extend(&part);
            }
        }
    }
    assert!(decode(&file) == contents);
}

#[test]
fn files_with_modules_follow_the_text_of_the_format() {
    let bytes = wat::parse_str(include_str!("modules/filter.wat")).unwrap();
    let module = pz::module::Module::read(bytes).unwrap();
    let module = pz::FilterModule::new(&module).unwrap().lane_bytes(1 << 14).unwrap();
    let words = wat::parse_str(include_str!("modules/words.wat")).unwrap();
    let words = pz::FilterModule::new(&pz::module::Module::read(words).unwrap()).unwrap();
    let (mut file, mut contents) = (Vec::new(), Vec::new());
    for chain in
        ["module0", "module0:1234,transpose4", "delta1,module1,module0:255", "module1:9,bits1"]
    {
        for len in [300, 65_536, 150_003, 1_300_001] {
            let part: Vec<u8> = (0..len).map(|i| (5 * i + i / 999) as u8).collect();
            for (block_log, pipeline) in
                [(16, Pipeline::Lzh), (20, Pipeline::Fse), (21, Pipeline::Bwt)]
            {
                let options = Options::new().block_size(1 << block_log).pipeline(pipeline);
                let modules = [module.clone(), words.clone()];
                let options = options.filter(chain.parse().unwrap()).modules(modules);
                file.extend(pz::compress(&part, &options).unwrap());
                contents.extend(part.clone());
            }
        }
    }
    assert!(decode(&file) == contents);
}
