//! One batch on the device: copies it, computes, and checks the results.

use crc32c::{crc32c, crc32c_append};

use super::{CPU_CHECK_INTERVAL, Coder, GpuEngine, State};
use crate::clock::Instant;
use crate::codec::{Codec, Recipe, filter};
use crate::format::{BlockHeader, Method, Pipeline};
use crate::gpu::coder::{CoderError, Decoder, PayloadPlace};
use crate::gpu::model::plan::Shape;
use crate::gpu::stages::lz77_decode::PayloadFeatures;
use crate::pipeline::cpu::CpuEngine;
use crate::pipeline::engine::{Coded, DecodeJob, EncodeJob};
use crate::pipeline::modules::FrameModules;

/// A block encoded by the device, and the device's record of the payload.
struct Encoded<'a, 'j> {
    job: &'a mut EncodeJob<'j>,
    coded: Coded,
    place: PayloadPlace,
}

impl<'d> GpuEngine<'d> {
    /// Encodes as many of `jobs` on the device as possible, and sets their `coded`.
    pub(super) fn try_encode(
        &self,
        state: &mut State<'d>,
        recipe: &Recipe,
        jobs: &mut [&mut EncodeJob<'_>],
        shape: Shape,
    ) -> Result<(), CoderError> {
        self.make_encoder(state, recipe, shape)?;
        let State { coder: Coder::Encode(_, encoder, checker), encoded, .. } = state else {
            return Ok(());
        };
        let begun = Instant::now();
        encoder.write_all(jobs.iter().map(|job| job.contents))?;
        let uploaded = Instant::now();
        let blocks = jobs.iter().map(|job| (job.contents.len() as u32, job.filters));
        encoder.submit_filtered(blocks)?;
        let crcs: Vec<_> = jobs.iter().map(|job| crc32c(job.contents)).collect();
        let blocks = encoder.wait()?;

        let computed = Instant::now();
        let method = match recipe.codec {
            Codec::Bwt(_) => Method::Bwt,
            Codec::Lz77(_) => Method::Lz77,
            Codec::Store | Codec::Smallest(_) => return Ok(()),
        };
        let mut sent = Vec::with_capacity(jobs.len());
        let mut is_wrong = false;
        for ((job, block), content_crc) in jobs.iter_mut().zip(blocks).zip(crcs) {
            if block.content_crc != content_crc {
                // The device received different bytes from those that the host sent.
                is_wrong = true;
                continue;
            }
            let Some((start, payload_len)) = block.payload else {
                job.coded = Some(Coded::stored(content_crc));
                continue;
            };
            let content_len = job.contents.len() as u32;
            let (filters, payload_crc, position) = (job.filters, block.payload_crc, job.position);
            let place = PayloadPlace { start, payload_len, content_len, position, filters };
            let coded = Coded { method, filters, payload_crc, content_crc };
            sent.push(Encoded { job, coded, place });
        }
        let range = |block: &Encoded<'_, '_>| (block.place.start, block.place.payload_len as usize);
        let ranges: Vec<_> = sent.iter().map(range).collect();
        encoder.read_all(&ranges, |i, piece| sent[i].job.payload.extend_from_slice(piece))?;

        let downloaded = Instant::now();
        let is_turn =
            self.verifies && checker.is_some() && encoded.is_multiple_of(CPU_CHECK_INTERVAL);
        let by_cpu = (is_turn && !sent.is_empty()).then(|| *encoded as usize % sent.len());
        let is_sound = check(checker.as_deref_mut(), &sent, by_cpu)?;
        let needs_check = self.verifies && checker.is_none();
        for (Encoded { job, coded, .. }, is_sound) in sent.into_iter().zip(is_sound) {
            if is_sound {
                job.coded = Some(coded);
                job.is_unverified = needs_check;
            } else {
                is_wrong = true;
            }
        }
        *encoded += 1;
        self.note(|device| {
            device.upload += uploaded - begun;
            device.compute += computed - uploaded;
            device.download += downloaded - computed;
            device.verify += downloaded.elapsed();
        });
        self.note_stages(|| encoder.take_times())?;
        if is_wrong {
            self.note_wrong(state);
        }
        Ok(())
    }

    /// Decodes as many of `jobs` on the device as possible, and sets `outcome` on the right ones.
    pub(super) fn try_decode(
        &self,
        state: &mut State<'d>,
        pipeline: Pipeline,
        jobs: &mut [&mut DecodeJob<'_>],
        shape: Shape,
    ) -> Result<(), CoderError> {
        self.make_decoder(state, pipeline, shape)?;
        let Coder::Decode(_, decoder) = &mut state.coder else { return Ok(()) };
        let begun = Instant::now();
        decoder.clear();
        let payloads: Vec<_> = jobs
            .iter()
            .map(|job| (job.payload.unwrap_or_default(), job.contents.len() as u32))
            .collect();
        let mut places = decoder.write_all(&payloads)?;
        // A batch has the modules of one frame. The host undoes those of other frames.
        let modules = jobs.iter().find_map(|job| job.modules.filter(|_| job.needs_modules()));
        decoder.set_modules(modules.map_or(&[][..], FrameModules::on_devices));
        for (place, job) in places.iter_mut().zip(jobs.iter()) {
            place.position = job.context().position;
            let is_own = modules.map(std::ptr::from_ref) == job.modules.map(std::ptr::from_ref);
            place.filters = job.header.filters.filter(|_| is_own || !job.needs_modules());
        }
        let on_host: Vec<_> = places.iter().map(|place| place.filters.is_none()).collect();
        if on_host.iter().zip(jobs.iter()).any(|(on_host, job)| *on_host && job.needs_modules()) {
            self.note_line("a batch of several frames: the CPU runs the modules of all but one");
        }
        let uploaded = Instant::now();
        let blocks = decoder.decode(&places)?;
        let computed = Instant::now();
        let mut copies = Vec::with_capacity(jobs.len());
        let mut ranges = Vec::with_capacity(jobs.len());
        for ((number, job), block) in (0..).zip(jobs.iter_mut()).zip(blocks) {
            let BlockHeader { payload_crc, content_crc, .. } = job.header;
            // For contents left filtered, the device's checksum covers the filtered bytes.
            let is_filtered =
                block.is_filtered || on_host[number as usize] && job.header.filters.is_some();
            let is_right = is_filtered || block.content_crc == content_crc;
            // The CPU decodes the remaining blocks again, and reports their faults.
            if block.is_decoded && block.payload_crc == payload_crc && is_right {
                ranges.push((number, job.contents.len()));
                let expected = block.content_crc;
                copies.push(Copied { job, len: 0, crc: 0, expected, is_filtered });
            }
        }
        decoder.read_all(&ranges, |i, piece| {
            let Copied { job, len, crc, .. } = &mut copies[i];
            let place = &mut job.contents[*len..*len + piece.len()];
            place.copy_from_slice(piece);
            *crc = crc32c_append(*crc, place);
            *len += piece.len();
        })?;
        let mut is_wrong = false;
        let mut scratch = Vec::new();
        for Copied { job, len, crc, expected, is_filtered } in copies {
            if len != job.contents.len() || crc != expected {
                is_wrong = true;
                continue;
            }
            let Some(filters) = job.header.filters.as_ref().filter(|_| is_filtered) else {
                job.outcome = Some(Ok(()));
                continue;
            };
            // If the contents are wrong, or there is no memory, the CPU decodes the block again.
            let context = job.context();
            let is_inverted = filter::invert(filters, job.contents, &mut scratch, context).is_ok();
            if is_inverted && crc32c(job.contents) == job.header.content_crc {
                job.outcome = Some(Ok(()));
            }
        }
        self.note(|device| {
            device.upload += uploaded - begun;
            device.compute += computed - uploaded;
            device.download += computed.elapsed();
        });
        self.note_stages(|| decoder.take_times())?;
        if is_wrong {
            self.note_wrong(state);
        }
        Ok(())
    }
}

/// A decoded block while the host copies it from the device.
struct Copied<'a, 'j> {
    job: &'a mut DecodeJob<'j>,
    /// Bytes copied so far.
    len: usize,
    /// Their checksum.
    crc: u32,
    /// The checksum that they must have.
    expected: u32,
    /// Whether the host undoes the filters.
    is_filtered: bool,
}

/// Returns which of the encoded blocks are sound. The host compares the payloads' checksums, and decodes block
/// `by_cpu`. Meanwhile `checker`, if there is one, decodes all of them on the device.
fn check(
    checker: Option<&mut Decoder<'_>>,
    sent: &[Encoded<'_, '_>],
    by_cpu: Option<usize>,
) -> Result<Vec<bool>, CoderError> {
    let mut is_sound = vec![true; sent.len()];
    let mut on_host = || {
        for (sound, Encoded { job, coded, .. }) in is_sound.iter_mut().zip(sent) {
            *sound = crc32c(job.payload) == coded.payload_crc;
        }
        if let Some(at) = by_cpu {
            let Encoded { job, coded, .. } = &sent[at];
            is_sound[at] &= CpuEngine::restores(coded, job.contents, job.payload);
        }
    };
    let Some(checker) = checker.filter(|_| !sent.is_empty()) else {
        on_host();
        return Ok(is_sound);
    };
    checker.clear();
    for Encoded { job, .. } in sent {
        checker.expect(PayloadFeatures::of(job.payload, job.contents.len()));
    }
    let places: Vec<_> = sent.iter().map(|block| block.place).collect();
    let decoded = checker.decode_while(&places, on_host)?;
    for ((sound, block), Encoded { coded, .. }) in is_sound.iter_mut().zip(decoded).zip(sent) {
        *sound &= block.is_decoded
            && block.payload_crc == coded.payload_crc
            && block.content_crc == coded.content_crc;
    }
    Ok(is_sound)
}
