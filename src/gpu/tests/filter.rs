//! Kernels that apply and undo filters, against the CPU's.

use super::testing::{each_device, run_plan};
use crate::codec::filter::{Context, FilterChain, apply, invert};
use crate::gpu::device::Device;
use crate::gpu::model::plan::{Plan, Shape};
use crate::gpu::stages::filter::{Undoing, append};
use crate::gpu::stages::forward_filter::{Passes, prepend};
use crate::gpu::stages::job::{Job, Undo};
use crate::test_data::{calls, noise};

/// Chains with every stage, of every width, with short and long strides.
const CHAINS: [&str; 70] = [
    "transpose2",
    "transpose3",
    "transpose4",
    "transpose8",
    "transpose20",
    "transpose255",
    "bits1",
    "bits2",
    "bits4",
    "bits8",
    "zigzag1",
    "zigzag2",
    "zigzag4",
    "zigzag8",
    "rotate1:3",
    "rotate2",
    "rotate4:31",
    "rotate8",
    "rotate8:32",
    "rotate8:63",
    "delta1x3",
    "delta1",
    "delta2",
    "delta4",
    "delta8",
    "deltadelta2",
    "delta8x256",
    "deltadelta4x85",
    "xor4x256",
    "xor1x1000",
    "delta2x257,delta2,transpose2",
    "deltadelta8x300,zigzag8,transpose8",
    "delta4x65535,xor8,bits8",
    "transpose7,transpose5,bits4",
    "zigzag2,delta1x257,rotate4:9",
    // Stages that are undone while elements move, and stages that only resemble them.
    "rotate2,transpose2",
    "zigzag4,transpose4",
    "rotate8:33,transpose8",
    "rotate4,transpose8",
    "zigzag1,transpose3",
    "rotate2:7,bits2",
    // Rows of each length that `row_sums` handles.
    "delta1x2",
    "delta1x4",
    "deltadelta2x2",
    "delta2x3",
    "deltadelta1x6",
    "delta4x2",
    "delta1x8",
    "delta4x3",
    "delta2x6",
    "deltadelta2x8",
    "delta8x3",
    "delta8x4,zigzag8",
    "delta4x8",
    "xor1,xor4",
    "xor1x3,xor2x3",
    "xor8x3,xor2x16",
    // Differences with zigzag: while elements move, elsewhere, and by every kernel of sums.
    "zdelta1",
    "zdelta2,transpose2",
    "zdeltadelta4,transpose4",
    "zdelta8,bits8",
    "zdeltadelta8x300",
    "delta2x500,zdelta2x3,transpose2",
    "zdelta4x2,zdeltadelta1x5",
    "zdelta2,transpose8",
    "x86",
    "arm64",
    "x86,transpose4",
    "delta1,x86,arm64",
    "rotate4,zdelta4x8,transpose4",
];

/// Undoes each block's chain on `device`, by the steps they need, and returns the contents.
fn undone(device: &dyn Device, blocks: &[(Vec<u8>, Undo)], longest: usize) -> Vec<Vec<u8>> {
    undone_by(Undoing::default(), device, blocks, longest)
}

/// Like [`undone`], with the steps of `undoing` too.
fn undone_by(
    mut undoing: Undoing,
    device: &dyn Device,
    blocks: &[(Vec<u8>, Undo)],
    longest: usize,
) -> Vec<Vec<u8>> {
    let shape = Shape::new(blocks.len() as u32, longest as u32);
    let mut contents = Vec::new();
    let mut jobs = Vec::new();
    for (filtered, undo) in blocks {
        undoing = undoing.and(Undoing::of(undo));
        jobs.push(Job { content_len: filtered.len() as u32, undo: *undo, ..Job::default() });
        contents.extend_from_slice(filtered);
        contents.resize(jobs.len() * shape.slot as usize, 0xa5);
    }
    let mut plan = Plan::new(shape);
    append(&mut plan, undoing, &[], device.limits()).unwrap();
    let jobs: &[u8] = bytemuck::cast_slice(&jobs);
    let inputs = [("jobs", jobs), (undoing.source(), &contents[..])];
    let outputs = run_plan(device, &plan, &inputs, &["contents"]).unwrap();
    let slots = outputs[0].chunks(shape.slot as usize).zip(blocks);
    slots.map(|(slot, (filtered, _))| slot[..filtered.len()].to_vec()).collect()
}

/// The contents filtered by the chain, and how to undo it.
fn filtered(name: &str, contents: &[u8]) -> (Vec<u8>, Undo) {
    let chain: FilterChain = name.parse().unwrap();
    let (mut filtered, mut scratch) = (Vec::new(), Vec::new());
    assert!(apply(&chain, contents, &mut filtered, &mut scratch, Context::default()).unwrap());
    (filtered, Undo::of(&chain, &[]).unwrap())
}

#[test]
fn blocks_are_undone_as_on_the_cpu() {
    let lens = [1, 7, 8, 63, 1000, 4095, 4096, 4097, 30_011];
    let mut contents = Vec::new();
    let mut blocks = Vec::new();
    for (i, name) in CHAINS.into_iter().enumerate() {
        for len in [lens[i % lens.len()], 20_000 + i] {
            contents.push(noise(len as u32 + 1, len, 256));
            blocks.push(filtered(name, &contents[contents.len() - 1]));
        }
    }
    each_device(|device| {
        let undone = undone(device, &blocks, 30_011);
        for (i, (undone, expected)) in undone.iter().zip(&contents).enumerate() {
            assert!(undone == expected, "{}, {} bytes", CHAINS[i / 2], expected.len());
        }
    });
}

/// Applies each block's chain on `device`, in one batch, and returns the filtered contents.
fn applied(device: &dyn Device, blocks: &[(&str, &[u8])]) -> Vec<Vec<u8>> {
    let longest = blocks.iter().map(|(_, contents)| contents.len()).max().unwrap();
    let shape = Shape::new(blocks.len() as u32, longest as u32);
    let mut contents = Vec::new();
    let mut jobs = Vec::new();
    let mut most = 0;
    for (name, block) in blocks {
        let mut job = Job { content_len: block.len() as u32, ..Job::default() };
        if !name.is_empty() {
            let passes = Passes::of(&name.parse().unwrap()).unwrap();
            most = most.max(passes.count());
            job.undo = passes.to_job();
        }
        jobs.push(job);
        contents.extend_from_slice(block);
        contents.resize(jobs.len() * shape.slot as usize, 0xa5);
    }
    let mut plan = Plan::new(shape);
    prepend(&mut plan, most).unwrap();
    let inputs = [("jobs", bytemuck::cast_slice(&jobs)), ("contents", &contents[..])];
    let outputs = run_plan(device, &plan, &inputs, &["filtered", "contents"]).unwrap();
    assert!(outputs[1] == contents, "the contents have changed");
    let slots = outputs[0].chunks(shape.slot as usize).zip(blocks);
    slots.map(|(slot, (_, contents))| slot[..contents.len()].to_vec()).collect()
}

#[test]
fn blocks_are_filtered_as_on_the_cpu() {
    let lens = [1, 7, 8, 63, 1000, 4095, 4096, 4097, 16_384, 30_011, 32_768, 32_896];
    let mut blocks = Vec::new();
    for (i, name) in CHAINS.into_iter().chain(["delta4,zigzag4,delta4x2"]).enumerate() {
        for len in [lens[i % lens.len()], 16 * name.len(), 20_000 + i, 32_768] {
            blocks.push((name, noise(len as u32 + 1, len, 256)));
        }
    }
    // Some blocks between the others have no filters.
    blocks.insert(5, ("", noise(1, 777, 256)));
    let blocks: Vec<_> = blocks.iter().map(|(name, contents)| (*name, &contents[..])).collect();
    each_device(|device| {
        // Batches of a few passes each, and one with all.
        for some in blocks.chunks(50).chain([&blocks[..]]) {
            for ((name, contents), applied) in some.iter().zip(applied(device, some)) {
                let expected = match name.is_empty() {
                    true => contents.to_vec(),
                    false => filtered(name, contents).0,
                };
                assert!(applied == expected, "{name}, {} bytes", contents.len());
            }
        }
    });
}

/// Chains of few steps for each work item, for blocks of several units.
const LONG: [&str; 14] = [
    "delta4x3,zigzag4,transpose4",
    "delta1x3000,delta1x3",
    "xor8,bits8",
    "transpose3",
    "deltadelta1",
    "xor1x257",
    "rotate2,transpose2",
    "deltadelta8,zigzag8,transpose8",
    "zigzag8,transpose8",
    "deltadelta1x3,xor2",
    "delta8x3,deltadelta8x2",
    "delta2x2,delta1x6,delta4x8",
    "x86",
    "arm64,x86",
];

#[test]
fn units_are_filtered_and_undone_alone() {
    let contents = noise(9, (1 << 20) + 70_001, 256);
    let blocks = LONG.map(|name| filtered(name, &contents));
    let even = &contents[..(1 << 20) + 65_536];
    let unfiltered: Vec<_> =
        LONG.iter().flat_map(|name| [(*name, &contents[..]), (*name, even)]).collect();
    each_device(|device| {
        for (name, undone) in LONG.iter().zip(undone(device, &blocks, contents.len())) {
            assert!(undone == contents, "{name}");
        }
        for ((name, contents), applied) in unfiltered.iter().zip(applied(device, &unfiltered)) {
            assert!(applied == filtered(name, contents).0, "{name}, {} bytes", contents.len());
        }
    });
}

#[test]
fn calls_in_programs_are_changed_as_on_the_cpu() {
    let chains = ["x86", "arm64", "x86,delta1", "transpose2,x86"];
    let lens = [4, 5, 1000, 1023, 1024, 1030, 16_384, 16_400, 262_144 + 3, (1 << 20) + 3001];
    let contents: Vec<_> = lens.iter().map(|len| calls(*len as u32, *len)).collect();
    let blocks: Vec<_> =
        contents.iter().flat_map(|block| chains.map(|name| (name, &block[..]))).collect();
    let filtered: Vec<_> = blocks.iter().map(|(name, block)| filtered(name, block)).collect();
    each_device(|device| {
        let applied = applied(device, &blocks);
        let undone = undone(device, &filtered, (1 << 20) + 3001);
        for (((name, block), expected), (applied, undone)) in
            blocks.iter().zip(&filtered).zip(applied.iter().zip(&undone))
        {
            assert!(applied == &expected.0, "{name}, {} bytes", block.len());
            assert!(undone == block, "{name}, {} bytes", block.len());
        }
    });
}

/// Elements of 8 bytes, and their halves, that take `values` different values.
fn few_values(values: u32, len: usize) -> Vec<u8> {
    let value = |i: u32| (i / 2).wrapping_mul(2_654_435_761) % values * 0x0012_3456 + i % 2;
    (0..).flat_map(|i| value(i).to_le_bytes()).take(len).collect()
}

#[test]
fn lists_of_values_are_looked_up() {
    let chains = [
        "dictionary4:2",
        "dictionary8:2,transpose2",
        "dictionary4:2,delta2,zigzag2",
        "dictionary4:2,delta2,transpose2",
        "rotate4:9,dictionary4:2,bits2",
        "dictionary8:1",
        "dictionary4:1,delta1",
        "delta8x3,transpose4",
    ];
    let mut contents = Vec::new();
    let mut blocks = Vec::new();
    // Units that are too short for a list, of no whole number of elements, and several.
    for len in [1000, 65_535, 65_536, 100_003, (1 << 20) + 7, (1 << 20) + 131_075] {
        for chain in chains {
            let values = if chain.contains(":1") { 100 } else { 1500 };
            let block = few_values(values, len);
            blocks.push(filtered(chain, &block));
            contents.push(block);
        }
    }
    each_device(|device| {
        for (undone, expected) in undone(device, &blocks, (1 << 20) + 131_075).iter().zip(&contents)
        {
            assert!(undone == expected, "{} bytes", expected.len());
        }
    });
}

/// Lists and places of arbitrary bytes: devices restore the same contents as the CPU.
#[test]
fn hostile_lists_give_the_same_everywhere() {
    let chains = ["dictionary4:1", "dictionary4:2", "dictionary8:1", "dictionary8:2"];
    let bytes = noise(7, 200_003, 256);
    let mut expected = Vec::new();
    let mut blocks = Vec::new();
    for name in chains {
        let chain: FilterChain = name.parse().unwrap();
        let mut restored = bytes.clone();
        invert(&chain, &mut restored, &mut Vec::new(), Context::default()).unwrap();
        expected.push(restored);
        blocks.push((bytes.clone(), Undo::of(&chain, &[]).unwrap()));
    }
    each_device(|device| {
        for ((undone, expected), name) in
            undone(device, &blocks, bytes.len()).iter().zip(&expected).zip(chains)
        {
            assert!(undone == expected, "{name}");
        }
    });
}

#[test]
fn a_planted_fault_is_found() {
    let contents = noise(9, 5000, 256);
    let (mut filtered, undo) = filtered("delta2,transpose2", &contents);
    filtered[4000] ^= 1;
    each_device(|device| {
        let other = Undo { stages: [undo.stages[1], undo.stages[0], 0], ..undo };
        let blocks = [(filtered.clone(), undo), (filtered.clone(), other)];
        assert!(undone(device, &blocks, 5000).iter().all(|undone| *undone != contents));
    });
}

/// Jobs that no valid header produces change nothing beyond their blocks.
#[test]
fn what_jobs_say_is_bounded() {
    let other = noise(1, 4096, 256);
    each_device(|device| {
        for word in [
            1,
            2,
            3 | 1 << 4,
            4,
            5,
            6,
            u32::MAX,
            3 | 15 << 4 | 0xff << 8,
            2 | 0xff << 8,
            4 | 3 << 8,
            6 | 7 << 8,
            8,
            8 | 255 << 8 | 0xffff << 16,
            8 | 1 << 8 | 1 << 16,
            9,
            9 | 4 << 8,
            9 | 255 << 8,
        ] {
            let hostile = Undo { unit_log: u32::MAX, stages: [word; 3] };
            let blocks = [
                (other.clone(), Undo::default()),
                (other.clone(), hostile),
                (other.clone(), Undo::default()),
            ];
            let undone = undone_by(Undoing::ALL, device, &blocks, 4096);
            assert!(undone[0] == other && undone[2] == other, "{word:x}");
        }
    });
}
