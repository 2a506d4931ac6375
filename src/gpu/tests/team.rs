//! Compares the team functions on each device with plain Rust. This also proves that a backend works at all.

use super::testing::{each_device, run_plan};
use crate::gpu::device::{Device, Teams};
use crate::gpu::model::kernel::TEST_TEAM;
use crate::gpu::model::plan::{Plan, Run, Shape, Step};

/// Results per lane.
const RESULTS: usize = 16;
/// A multiple of the teams of the largest workgroup.
const TEAM_COUNT: usize = 64;

fn values() -> Vec<u32> {
    let mut state = 12345u32;
    let mut next = || {
        state = state.wrapping_mul(1664525).wrapping_add(1013904223);
        state >> 7
    };
    (0..TEAM_COUNT * 32).map(|_| next()).collect()
}

/// The results that the kernel must give for the 32 values of a team.
fn expected(values: &[u32]) -> Vec<[u32; RESULTS]> {
    let mask = |p: &dyn Fn(u32) -> bool| {
        values.iter().enumerate().fold(0u32, |mask, (lane, v)| mask | u32::from(p(*v)) << lane)
    };
    let odd = mask(&|v| v & 1 != 0);
    let sum = values.iter().fold(0u32, |sum, v| sum.wrapping_add(*v));
    let of = |lane: usize| {
        let v = values[lane];
        let up = |by: usize| values[if lane >= by { lane - by } else { lane }];
        [
            odd,
            u32::from(values.iter().any(|v| v % 41 == 7)),
            values[(v >> 8 & 31) as usize],
            up(1),
            up(16),
            values[..=lane].iter().fold(0, |sum: u32, v| sum.wrapping_add(*v)),
            sum,
            values.iter().copied().max().unwrap_or(0),
            mask(&|other| other & 7 == v & 7),
            values[(sum & 31) as usize],
            odd,
            (1u32 << lane) - 1,
            v ^ 0x5a5a_5a5a,
            values[(lane + 1) & 31] ^ 0x5a5a_5a5a,
            lane as u32,
            (sum & 63).div_ceil(5),
        ]
    };
    (0..32).map(of).collect()
}

fn plan(threads: u32, teams: usize) -> Plan {
    let mut plan = Plan::new(Shape::new(1, (TEAM_COUNT * 32 * 4) as u32));
    let buffers = ["values", "results"].map(|name| plan.buffer(&TEST_TEAM, name).unwrap());
    plan.steps.push(Step::Run(Run {
        stage: "test",
        kernel: &TEST_TEAM,
        entry: "team_functions",
        defines: vec![("UNUSED", 1)],
        buffers: buffers.to_vec(),
        args: vec![teams as u32],
        groups: (TEAM_COUNT as u32).div_ceil(threads / 32),
        threads,
    }));
    plan
}

fn sizes(device: &dyn Device) -> Vec<u32> {
    match device.limits().teams {
        Teams::Local => vec![32],
        _ => vec![32, 128, 256],
    }
}

/// Teams with wrong results.
fn wrong(results: &[u8], values: &[u32]) -> Vec<usize> {
    let results: &[u32] = bytemuck::cast_slice(results);
    (0..TEAM_COUNT)
        .filter(|team| {
            let lanes = team * 32..(team + 1) * 32;
            let own = &results[lanes.start * RESULTS..lanes.end * RESULTS];
            own != expected(&values[lanes]).as_flattened()
        })
        .collect()
}

#[test]
fn functions_of_teams() {
    let values = values();
    each_device(|device| {
        for threads in sizes(device) {
            let inputs = [("values", bytemuck::cast_slice(&values))];
            let results =
                run_plan(device, &plan(threads, TEAM_COUNT), &inputs, &["results"]).unwrap();
            assert_eq!(wrong(&results[0], &values), [0usize; 0], "{threads} threads");
        }
    });
}

#[test]
fn a_wrong_result_is_found() {
    let values = values();
    each_device(|device| {
        let inputs = [("values", bytemuck::cast_slice(&values))];
        let plan = plan(32, TEAM_COUNT);
        let mut results = run_plan(device, &plan, &inputs, &["results"]).unwrap().remove(0);
        results[(5 * 32 + 3) * RESULTS * 4 + 17] ^= 1;
        assert_eq!(wrong(&results, &values), [5]);
    });
}

#[test]
fn what_no_kernel_writes_stays_as_it_was() {
    let values = values();
    each_device(|device| {
        let inputs = [("values", bytemuck::cast_slice(&values))];
        let results = run_plan(device, &plan(32, 7), &inputs, &["results"]).unwrap().remove(0);
        let end = 7 * 32 * RESULTS * 4;
        assert!(results[..end].iter().any(|byte| *byte != super::testing::GARBAGE));
        assert!(results[end..].iter().all(|byte| *byte == super::testing::GARBAGE));
    });
}
