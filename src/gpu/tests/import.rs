//! Coding between the caller's buffers, without copies.

use super::coder::on_cpu;
use crate::Options;
use crate::format::Pipeline;
use crate::gpu::coder::{CallerBuffers, CoderError, Decoder, Encoder, PayloadPlace};
use crate::gpu::device::pool::Pool;
use crate::gpu::device::{BufferId, Device, DeviceError, NativeBuffer};
use crate::gpu::stages::lz77_decode::PayloadFeatures;

/// Encodes and decodes on `ours` between buffers of `theirs`. The latter stands in for the caller's own code: it makes,
/// fills and reads the buffers. `native` returns their handles.
pub(crate) fn codes_between_callers_buffers(
    theirs: &dyn Device,
    ours: impl Device,
    native: impl Fn(BufferId) -> NativeBuffer,
) {
    const BLOCK: usize = 1 << 16;
    let text = include_bytes!("../../format/lz77.md").repeat(20);
    let contents = &text[..3 * BLOCK - 1000];
    let options = Options::new().pipeline(Pipeline::Fse).block_size(BLOCK as u64);
    let (encoding, recipe) = (options.encoding().unwrap(), options.recipe().unwrap());
    let ours = Pool::new(ours);
    let limits = ours.limits();
    let Ok(needed) = Encoder::buffer_bytes(limits, &encoding, 3) else {
        println!("{}: declined", limits.name);
        return;
    };
    // SAFETY: only one of the two devices works at a time, and no two of these buffers share memory.
    let import = |buffer| unsafe { ours.import(native(buffer)) }.unwrap();
    let their_contents = theirs.allocate(needed.contents).unwrap();
    let their_payloads = theirs.allocate(needed.payloads).unwrap();
    let own = CallerBuffers {
        contents: Some(import(their_contents)),
        payloads: Some(import(their_payloads)),
    };
    assert_eq!(ours.buffer_bytes(own.contents.unwrap()), Some(needed.contents));
    let mut queue = theirs.queue().unwrap();

    let mut encoder = Encoder::new(&ours, &encoding, 3, own).unwrap();
    let slot = encoder.slot() as usize;
    let lens: Vec<u32> = contents.chunks(BLOCK).map(|block| block.len() as u32).collect();
    for (number, block) in contents.chunks(BLOCK).enumerate() {
        queue.write(their_contents, (number * slot) as u64, block).unwrap();
    }
    queue.finish().unwrap();
    let encoded = encoder.encode(&lens).unwrap();
    drop(encoder);
    let (mut places, mut features) = (Vec::new(), PayloadFeatures::default());
    for (block, part) in encoded.iter().zip(contents.chunks(BLOCK)) {
        let (start, payload_len) = block.payload.unwrap();
        let mut payload = vec![0; payload_len.next_multiple_of(4) as usize];
        queue.read(their_payloads, start, &mut payload).unwrap();
        payload.truncate(payload_len as usize);
        assert!(payload == on_cpu(&recipe, part).1);
        features = features.and(PayloadFeatures::of(&payload, part.len()));
        let content_len = part.len() as u32;
        places.push(PayloadPlace { start, payload_len, content_len, position: 0, filters: None });
    }

    queue.clear(their_contents, 0, needed.contents).unwrap();
    queue.finish().unwrap();
    let pipeline = options.chosen_pipeline();
    let mut decoder = Decoder::new(&ours, pipeline, BLOCK as u32, 3, own).unwrap();
    decoder.expect(features);
    assert!(decoder.decode(&places).unwrap().iter().all(|block| block.is_decoded));
    for (number, block) in contents.chunks(BLOCK).enumerate() {
        let mut back = vec![0; block.len()];
        queue.read(their_contents, (number * decoder.slot() as usize) as u64, &mut back).unwrap();
        assert!(back == block);
    }
    drop(decoder);

    let least = Decoder::buffer_bytes(limits, pipeline, BLOCK as u32, 3).unwrap();
    let small = theirs.allocate(least.contents.min(least.payloads) - 4).unwrap();
    let coders = |own| {
        let encoder = Encoder::new(&ours, &encoding, 3, own).err();
        let decoder = Decoder::new(&ours, pipeline, BLOCK as u32, 3, own).err();
        [encoder, decoder]
    };
    refuse_unsuitable_buffers(&ours, own, import(small), coders);

    // After freeing, the buffers still belong to the caller.
    assert_eq!(ours.live(), 0);
    for id in [own.contents.unwrap(), own.payloads.unwrap()] {
        ours.free(id);
        assert_eq!(ours.buffer_bytes(id), None);
    }
    let mut first = [0; 4];
    queue.read(their_contents, 0, &mut first).unwrap();
    assert_eq!(first, contents[..4]);
    drop(queue);
    [their_contents, their_payloads, small].into_iter().for_each(|buffer| theirs.free(buffer));
}

/// Checks that coders refuse buffers that are too small, shared, or missing. `small` is too small for either buffer.
/// `coders` returns the errors of both coders with some buffers.
fn refuse_unsuitable_buffers(
    ours: &Pool<impl Device>,
    own: CallerBuffers,
    small: BufferId,
    coders: impl Fn(CallerBuffers) -> [Option<CoderError>; 2],
) {
    let is_refused = |own, part: &str| {
        for error in coders(own) {
            let Some(CoderError::Device(DeviceError::Unsupported(why))) = error else {
                panic!("{error:?}")
            };
            assert!(why.contains(part), "{why}");
        }
    };
    is_refused(CallerBuffers { contents: Some(small), ..own }, "the buffer for the contents has");
    is_refused(CallerBuffers { payloads: Some(small), ..own }, "the buffer for the payloads has");
    is_refused(CallerBuffers { payloads: own.contents, ..own }, "cannot share");
    ours.free(small);
    is_refused(CallerBuffers { contents: Some(small), ..own }, "has no buffer for the contents");
}
