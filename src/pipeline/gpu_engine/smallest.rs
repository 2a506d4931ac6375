//! Encodes by both codecs, by the rule of the CPU's engine.

use super::GpuEngine;
use crate::codec::filter::FilterChain;
use crate::codec::{Codec, Recipe, Smallest};
use crate::pipeline::engine::{Coded, EncodeJob};

/// LZ77's result for a block.
struct Trial {
    /// `None` if the device did not encode the block.
    coded: Option<Coded>,
    is_unverified: bool,
    payload: Vec<u8>,
}

/// Length of the payload of a block of `content_len` bytes. An empty payload means that the block is stored, because it
/// would not shrink.
fn stored_or(payload: &[u8], content_len: usize) -> usize {
    if payload.is_empty() { content_len } else { payload.len() }
}

impl GpuEngine<'_> {
    /// Encodes `jobs` by the BWT, and then those that LZ77 may make smaller by LZ77. Leaves a block to the CPU if the
    /// device fails to encode it by one of the two.
    pub(super) fn encode_smallest(
        &self,
        recipe: &Recipe,
        smallest: &Smallest,
        jobs: &mut [&mut EncodeJob<'_>],
    ) {
        let Smallest { bwt, quick, best } = *smallest;
        let by = |codec| Recipe { codec, ..*recipe };
        self.encode_by(&by(Codec::Bwt(bwt)), jobs);
        let mut jobs: Vec<_> = jobs.iter_mut().filter(|job| job.coded.is_some()).collect();

        let blocks = jobs.iter().map(|job| (job.contents, job.filters));
        let trials = self.try_lz77(&by(Codec::Lz77(quick)), blocks);
        let mut trials = trials.into_iter();
        jobs.retain_mut(|job| {
            let Some(Trial { coded: Some(_), payload, .. }) = trials.next() else {
                job.coded = None;
                return false;
            };
            let len = job.contents.len();
            let limit = Smallest::quick_limit(stored_or(job.payload, len));
            stored_or(&payload, len) < limit.min(len)
        });

        let blocks = jobs.iter().map(|job| (job.contents, job.filters));
        let trials = self.try_lz77(&by(Codec::Lz77(best)), blocks);
        for (job, trial) in jobs.into_iter().zip(trials) {
            let len = job.contents.len();
            let is_smaller = stored_or(&trial.payload, len) < stored_or(job.payload, len);
            if is_smaller || trial.coded.is_none() {
                job.coded = trial.coded;
                job.is_unverified = trial.is_unverified;
                job.payload.clear();
                job.payload.extend_from_slice(&trial.payload);
            }
        }
    }

    fn try_lz77<'a>(
        &self,
        recipe: &Recipe,
        blocks: impl Iterator<Item = (&'a [u8], Option<FilterChain>)>,
    ) -> Vec<Trial> {
        let blocks: Vec<_> = blocks.collect();
        let mut payloads = vec![Vec::new(); blocks.len()];
        let jobs = blocks.iter().zip(&mut payloads);
        let mut jobs: Vec<_> = jobs
            .map(|(&(block, filters), payload)| EncodeJob {
                filters,
                ..EncodeJob::new(block, 0, payload)
            })
            .collect();
        self.encode_by(recipe, &mut jobs.iter_mut().collect::<Vec<_>>());
        let outcomes: Vec<_> = jobs.iter().map(|job| (job.coded, job.is_unverified)).collect();
        let trials = outcomes.into_iter().zip(payloads);
        trials
            .map(|((coded, is_unverified), payload)| Trial { coded, is_unverified, payload })
            .collect()
    }
}
