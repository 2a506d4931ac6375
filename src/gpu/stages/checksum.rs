//! Plans for the two ends of a batch: checksums of contents and payloads, and packing payloads for the copy to the
//! host.

use crate::gpu::device::Limits;
use crate::gpu::model::cost::CostError;
use crate::gpu::model::kernel::{COMPACT, CRC32C, CRC32C_OF_CONTENTS, Kernel};
use crate::gpu::model::plan::{Plan, Run, Step};

/// Work items per workgroup that computes checksums. The kernel's constants are computed for this number.
const CRC_THREADS: u32 = 32;
/// Work items that combine the checksums of a block's pieces: one half for the contents, the other for the payload.
const SUM_THREADS: u32 = 64;
/// Size of a unit in bytes: 40 rows, in which each work item has one word.
const UNIT_BYTES: u32 = 40 * 4 * CRC_THREADS;
/// Units in a large piece and in a small one.
const PIECE_UNITS: [u32; 2] = [26, 4];
/// Work items per workgroup that packs.
const THREADS: u32 = 256;
/// 16-byte units that a workgroup packs.
const UNITS: u32 = 1024;

/// The direction of a batch.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Direction {
    /// From contents to payloads.
    Encode,
    /// From payloads to contents.
    Decode,
    /// Assembles contents from other decoded blocks. There are no payloads; jobs give their length as 0.
    Restore,
}

/// Adds steps that write the CRC-32C of each block's contents and payload to `results`. Add them after the steps that
/// write `contents`, `payload` and the other fields of `results`.
///
/// # Errors
/// Fails if a kernel's cost is wrong.
pub fn add_checksums(
    plan: &mut Plan,
    limits: &Limits,
    direction: Direction,
) -> Result<(), CostError> {
    // Large pieces waste less work at their ends; small pieces are more numerous and so fill the device.
    let in_flight = u64::from(limits.compute_units) * 16;
    let bytes = u64::from(plan.shape.blocks) * u64::from(plan.shape.slot);
    let large = bytes / u64::from(PIECE_UNITS[0] * UNIT_BYTES) >= in_flight;
    add_checksums_by(plan, direction, PIECE_UNITS[usize::from(!large)])
}

/// Like [`add_checksums`], with `piece_units` units per piece.
pub(crate) fn add_checksums_by(
    plan: &mut Plan,
    direction: Direction,
    piece_units: u32,
) -> Result<(), CostError> {
    let (kernel, payload, pieces): (&'static Kernel, _, _) = match direction {
        Direction::Restore => (&CRC32C_OF_CONTENTS, "no_payload", "content_pieces"),
        Direction::Encode | Direction::Decode => (&CRC32C, "payload", "crc_pieces"),
    };
    let mut buffers = Vec::new();
    for name in ["jobs", "results", "contents", payload, pieces] {
        buffers.push(plan.buffer(kernel, name)?);
    }
    let shape = plan.shape;
    let contents_count = shape.slot.div_ceil(piece_units * UNIT_BYTES);
    let payload_count = match direction {
        Direction::Restore => 0,
        Direction::Encode | Direction::Decode => {
            (shape.slot + 256).div_ceil(piece_units * UNIT_BYTES)
        }
    };
    let decoding = u32::from(direction != Direction::Encode);
    let args = vec![shape.blocks, shape.slot, contents_count, payload_count, decoding];
    let run = |entry, buffers, groups, threads| {
        Step::Run(Run {
            stage: "checksum",
            kernel,
            entry,
            defines: vec![("PIECE_UNITS", piece_units)],
            buffers,
            args: args.clone(),
            groups,
            threads,
        })
    };
    let summed = vec![buffers[0], buffers[4], buffers[1]];
    let groups = shape.blocks * (contents_count + payload_count);
    plan.steps.push(run("reduce_pieces", buffers, groups, CRC_THREADS));
    plan.steps.push(run("sum_pieces", summed, shape.blocks, SUM_THREADS));
    Ok(())
}

/// Adds the step that packs the payloads: it copies those of blocks with status 0 to `packed`, in order, each to the
/// next multiple of 16 bytes. Add it after the steps that write `payload`, `status` and `payload_len`.
///
/// # Errors
/// Fails if a kernel's cost is wrong.
pub fn add_packing(plan: &mut Plan) -> Result<(), CostError> {
    let results = plan.buffer(&COMPACT, "results")?;
    let starts = plan.buffer(&COMPACT, "packed_starts")?;
    let payload = plan.buffer(&COMPACT, "payload")?;
    let packed = plan.buffer(&COMPACT, "packed")?;
    let shape = plan.shape;
    let count = (shape.slot + 256).div_ceil(16 * UNITS);
    let run = |entry, buffers, args, groups| {
        Step::Run(Run {
            stage: "pack",
            kernel: &COMPACT,
            entry,
            defines: vec![("UNITS", UNITS)],
            buffers,
            args,
            groups,
            threads: THREADS,
        })
    };
    let of_all = vec![shape.blocks, shape.slot];
    plan.steps.push(run("place", vec![results, starts], of_all.clone(), 1));
    let buffers = vec![results, starts, payload, packed];
    let args = [of_all, vec![count]].concat();
    plan.steps.push(run("gather", buffers, args, shape.blocks * count));
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::gpu::device::Device;
    use crate::gpu::model::plan::Shape;
    use crate::gpu::stages::job::{Job, JobResult};
    use crate::gpu::tests::testing::{each_device, run_plan};

    /// Bytes without a pattern.
    fn noise(len: usize, seed: u32) -> Vec<u8> {
        let mut state = seed.wrapping_mul(2_654_435_761) | 1;
        let mut next = || {
            state = state.wrapping_mul(1_664_525).wrapping_add(1_013_904_223);
            (state >> 24) as u8
        };
        (0..len).map(|_| next()).collect()
    }

    /// A batch with known contents and payloads.
    struct KnownBatch {
        shape: Shape,
        contents: Vec<Vec<u8>>,
        payloads: Vec<Vec<u8>>,
        status: Vec<u32>,
    }

    impl KnownBatch {
        /// Makes blocks whose contents and payloads have these lengths.
        fn new(lens: &[(usize, usize)]) -> Self {
            let longest = lens.iter().map(|(contents, _)| *contents).max().unwrap();
            let make = |(i, len): (usize, usize)| noise(len, i as u32);
            Self {
                shape: Shape::new(lens.len() as u32, longest as u32),
                contents: lens.iter().map(|lens| lens.0).enumerate().map(make).collect(),
                payloads: lens.iter().map(|lens| lens.1).enumerate().map(make).collect(),
                status: vec![0; lens.len()],
            }
        }

        /// Runs the steps that `add` makes on the batch, and returns the named outputs.
        fn run(
            &self,
            device: &dyn Device,
            direction: Direction,
            add: impl Fn(&mut Plan, &Limits) -> Result<(), CostError>,
            outputs: &[&str],
        ) -> Vec<Vec<u8>> {
            let mut plan = Plan::new(self.shape);
            add(&mut plan, device.limits()).unwrap();
            let slot = self.shape.slot as usize;
            // The bytes outside a block are not 0.
            let mut contents = noise(slot * self.contents.len(), 99);
            let mut payload = noise((slot + 256) * self.contents.len(), 98);
            let mut jobs = vec![Job::default(); self.contents.len()];
            let mut results = vec![JobResult::default(); self.contents.len()];
            let mut filled = 0;
            for (b, job) in jobs.iter_mut().enumerate() {
                let (own, coded) = (&self.contents[b], &self.payloads[b]);
                contents[b * slot..][..own.len()].copy_from_slice(own);
                job.content_len = own.len() as u32;
                results[b].status = self.status[b];
                let start = match direction {
                    Direction::Encode => {
                        results[b].payload_len = coded.len() as u32;
                        b * (slot + 256)
                    }
                    Direction::Decode | Direction::Restore => {
                        job.payload_len = coded.len() as u32;
                        job.payload_start = (filled / 16) as u32;
                        let start = filled;
                        filled = (filled + coded.len()).next_multiple_of(16);
                        start
                    }
                };
                payload[start..][..coded.len()].copy_from_slice(coded);
            }
            let mut inputs: Vec<(&str, &[u8])> = vec![
                ("jobs", bytemuck::cast_slice(&jobs)),
                ("results", bytemuck::cast_slice(&results)),
                ("contents", &contents),
                ("payload", &payload),
            ];
            inputs.retain(|(name, _)| plan.buffers.iter().any(|buffer| buffer.name == *name));
            run_plan(device, &plan, &inputs, outputs).unwrap()
        }

        fn checksums(
            &self,
            device: &dyn Device,
            direction: Direction,
            piece_units: u32,
        ) -> Vec<JobResult> {
            let add = |plan: &mut Plan, _: &Limits| add_checksums_by(plan, direction, piece_units);
            bytemuck::cast_slice(&self.run(device, direction, add, &["results"])[0]).to_vec()
        }

        /// The blocks whose checksums differ from those that the CPU computes.
        fn wrong(&self, results: &[JobResult], direction: Direction) -> Vec<usize> {
            let is_wrong = |b: &usize| {
                let has_payload = direction == Direction::Decode || self.status[*b] == 0;
                let payload = if has_payload { &self.payloads[*b][..] } else { &[] };
                let expected = (crc32c::crc32c(&self.contents[*b]), crc32c::crc32c(payload));
                (results[*b].content_crc, results[*b].payload_crc) != expected
            };
            (0..results.len()).filter(is_wrong).collect()
        }
    }

    const BOTH: [Direction; 2] = [Direction::Encode, Direction::Decode];

    #[test]
    fn checksums_of_all_small_lengths() {
        let lens: Vec<_> = (1..=300).map(|len| (len, (len * 7) % 311)).collect();
        let mut batch = KnownBatch::new(&lens);
        batch.status[17] = 3;
        each_device(|device| {
            for direction in BOTH {
                let results = batch.checksums(device, direction, 4);
                assert_eq!(batch.wrong(&results, direction), [0usize; 0], "{direction:?}");
                let kept = results.iter().map(|result| result.status).collect::<Vec<_>>();
                assert_eq!(kept, batch.status);
            }
        });
    }

    #[test]
    fn checksums_of_blocks_of_many_pieces() {
        let sizes =
            [1 << 20, (1 << 20) - 1, 700_001, 133_120, 133_121, 20_481, 20_480, 20_479, 5120, 5121];
        let lens: Vec<_> = sizes.iter().map(|&len| (len, len.min(1 << 20) - len / 5)).collect();
        let batch = KnownBatch::new(&lens);
        each_device(|device| {
            for (direction, piece_units) in BOTH.into_iter().zip([4, 26]) {
                let results = batch.checksums(device, direction, piece_units);
                assert_eq!(batch.wrong(&results, direction), [0usize; 0], "{direction:?}");
            }
        });
    }

    #[test]
    fn checksums_of_contents_alone() {
        let sizes = [1 << 20, 700_001, 133_121, 5121, 4096, 3, 1];
        let batch = KnownBatch::new(&sizes.map(|len| (len, 0)));
        each_device(|device| {
            for piece_units in PIECE_UNITS {
                let results = batch.checksums(device, Direction::Restore, piece_units);
                assert_eq!(batch.wrong(&results, Direction::Restore), [0usize; 0], "{piece_units}");
            }
        });
    }

    #[test]
    fn a_flipped_bit_is_found() {
        each_device(|device| {
            let mut batch = KnownBatch::new(&[(70_000, 300), (5, 2), (300, 40_000)]);
            let results = batch.checksums(device, Direction::Encode, 4);
            batch.contents[0][69_999] ^= 128;
            batch.payloads[2][0] ^= 1;
            assert_eq!(batch.wrong(&results, Direction::Encode), [0, 2]);
        });
    }

    #[test]
    fn what_jobs_say_is_bounded() {
        each_device(|device| {
            let shape = Shape::new(3, 4096);
            let mut plan = Plan::new(shape);
            add_checksums_by(&mut plan, Direction::Decode, 4).unwrap();
            let hostile = Job {
                content_len: u32::MAX,
                payload_len: u32::MAX,
                payload_start: u32::MAX,
                ..Job::default()
            };
            let fine = Job { content_len: 4096, payload_len: 100, ..Job::default() };
            let contents = noise(3 * 4096, 1);
            let payload = noise(3 * 4352, 2);
            let jobs = [fine, hostile, fine];
            let inputs: [(&str, &[u8]); 3] = [
                ("jobs", bytemuck::cast_slice(&jobs)),
                ("contents", &contents),
                ("payload", &payload),
            ];
            let results = run_plan(device, &plan, &inputs, &["results"]).unwrap();
            let results: &[JobResult] = bytemuck::cast_slice(&results[0]);
            for (b, start, len) in [(0, 0, 100), (1, 2 * 4352, 4352), (2, 0, 100)] {
                let own = &contents[b * 4096..][..4096];
                assert_eq!(results[b].content_crc, crc32c::crc32c(own));
                assert_eq!(results[b].payload_crc, crc32c::crc32c(&payload[start..][..len]));
            }
        });
    }

    #[test]
    fn payloads_are_packed() {
        let mut lens: Vec<_> = (0..700).map(|i| (1000, (i * 37) % 1257)).collect();
        lens.extend([(1000, 1256), (1000, 0), (1000, 16), (1000, 17)]);
        let large = [(1 << 18, 1 << 18), (1, 1), (1 << 18, (1 << 18) + 256), (9, 200_003)];
        for mut batch in
            [KnownBatch::new(&lens), KnownBatch::new(&large), KnownBatch::new(&[(1, 1)])]
        {
            for (b, status) in batch.status.iter_mut().enumerate() {
                *status = u32::from(b % 5 == 1) * 7;
            }
            let mut expected = Vec::new();
            let mut places = Vec::new();
            for (payload, status) in batch.payloads.iter().zip(&batch.status) {
                places.push((expected.len() / 16) as u32);
                if *status == 0 {
                    expected.extend(payload);
                    expected.resize(expected.len().next_multiple_of(16), 0);
                }
                places.push((expected.len() / 16) as u32 - places[places.len() - 1]);
            }
            each_device(|device| {
                let add = |plan: &mut Plan, _: &Limits| add_packing(plan);
                let outputs = ["packed", "packed_starts"];
                let outputs = batch.run(device, Direction::Encode, add, &outputs);
                assert_eq!(bytemuck::cast_slice::<_, u32>(&outputs[1]), places);
                assert!(outputs[0][..expected.len()] == expected);
                let behind = &outputs[0][expected.len()..];
                assert!(behind.iter().all(|byte| *byte == crate::gpu::tests::testing::GARBAGE));
            });
        }
    }
}
