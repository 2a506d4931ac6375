//! Kernels that undo filters, against the CPU's.

use super::testing::{each_device, run_plan};
use crate::codec::filter::{FilterChain, apply};
use crate::gpu::device::Device;
use crate::gpu::model::plan::{Plan, Shape};
use crate::gpu::stages::filter::{Undoing, append};
use crate::gpu::stages::job::{Job, Undo};
use crate::test_data::noise;

/// Chains with every stage, of every width, with short and long strides.
const CHAINS: [&str; 41] = [
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
    // What is undone while elements move, and what only resembles it.
    "rotate2,transpose2",
    "zigzag4,transpose4",
    "rotate8:33,transpose8",
    "rotate4,transpose8",
    "zigzag1,transpose3",
    "rotate2:7,bits2",
];

/// Undoes each block's chain on `device`, by the steps they need, and returns the contents.
fn undone(device: &dyn Device, blocks: &[(Vec<u8>, Undo)], longest: usize) -> Vec<Vec<u8>> {
    undone_by(Undoing::default(), device, blocks, longest)
}

/// The same by `undoing` as well.
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
    append(&mut plan, undoing).unwrap();
    let jobs: &[u8] = bytemuck::cast_slice(&jobs);
    let inputs = [("jobs", jobs), (undoing.source(), &contents[..])];
    let outputs = run_plan(device, &plan, &inputs, &["contents"]).unwrap();
    let slots = outputs[0].chunks(shape.slot as usize).zip(blocks);
    slots.map(|(slot, (filtered, _))| slot[..filtered.len()].to_vec()).collect()
}

/// The contents, and what the chain makes of them.
fn filtered(name: &str, contents: &[u8]) -> (Vec<u8>, Undo) {
    let chain: FilterChain = name.parse().unwrap();
    let (mut filtered, mut scratch) = (Vec::new(), Vec::new());
    assert!(apply(&chain, contents, &mut filtered, &mut scratch).unwrap());
    (filtered, Undo::of(&chain).unwrap())
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

#[test]
fn units_are_undone_alone() {
    let contents = noise(9, (1 << 20) + 70_001, 256);
    // The last ones take the most steps for each work item.
    let names = [
        "delta4x3,zigzag4,transpose4",
        "delta1x3000,delta1x3",
        "xor8,bits8",
        "transpose3",
        "deltadelta1",
        "xor1x257",
    ];
    let blocks = names.map(|name| filtered(name, &contents));
    each_device(|device| {
        for (name, undone) in names.iter().zip(undone(device, &blocks, contents.len())) {
            assert!(undone == contents, "{name}");
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

/// Jobs that no header gives change nothing beyond their blocks.
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
