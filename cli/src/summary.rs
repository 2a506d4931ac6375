//! What `-v` prints about a file besides its sizes: how much each engine did, and where the time went.

use std::time::Duration;

use pz::Statistics;
use pz::access::Traffic;

use crate::direction::Direction;
use crate::sizes::Human;

/// Requests to the server and bytes from it.
pub fn traffic(traffic: &Traffic) -> String {
    let requests = counted(traffic.requests, "request", "requests");
    format!("{requests} brought {}", Human(traffic.bytes))
}

/// The lines; none if the library counted no blocks, as for the formats of other programs.
pub fn lines(statistics: &Statistics, direction: Direction) -> Vec<String> {
    let cpu = statistics.cpu();
    let device = statistics.device();
    let on_device = device.as_ref().map_or(0, |device| device.done.blocks);
    let blocks = cpu.blocks + on_device;
    if blocks == 0 {
        return Vec::new();
    }
    let mut lines = Vec::from_iter(statistics.choice().map(|why| format!("choice: {why}")));
    let engines = match &device {
        None => "all on the CPU".into(),
        Some(device) => {
            format!("{on_device} on {} ({}), {} on the CPU", device.name, device.api, cpu.blocks)
        }
    };
    lines.push(format!("{}: {engines}", counted(blocks, "block", "blocks")));
    lines.extend(statistics.idle_device().map(|why| format!("device: {why}")));
    if let Some(device) = &device {
        lines.push(format!(
            "device memory: {} planned, {} predicted for the batches that ran ({} bytes), {} in use at the peak ({} \
             bytes)",
            Human(device.planned_memory),
            Human(device.predicted_memory),
            device.predicted_memory,
            Human(device.peak_memory),
            device.peak_memory,
        ));
    }
    if let Some(device) = &device {
        lines.push(format!(
            "device: opened in {}, kernels ready in {}, memory in {}; {}, at most {} at once, each of up to {}; {} \
             left to the CPU",
            seconds(device.opening),
            seconds(device.preparing),
            seconds(device.allocating),
            counted(device.batches, "batch", "batches"),
            device.slots,
            counted(device.batch, "block", "blocks"),
            counted(device.left, "block", "blocks"),
        ));
        lines.push(format!(
            "device threads: uploading {}, computing {}, downloading {}, checking {}, waiting {}",
            seconds(device.upload),
            seconds(device.compute),
            seconds(device.download),
            seconds(device.verify),
            seconds(device.waiting),
        ));
        if device.batches == 0 {
            lines.push("device: it was ready too late, and no block was left for it".into());
        }
        lines.extend(device.notes.iter().map(|note| format!("device: {note}")));
    }
    let coding = match direction {
        Direction::Compress => "encoding",
        Direction::Decompress => "decoding",
    };
    let mut times = vec![("reading".into(), statistics.reading())];
    if cpu.blocks > 0 {
        times.push((format!("{coding} on the CPU (all threads)"), cpu.busy));
    }
    let verified = statistics.verified();
    if verified.blocks > 0 {
        times.push(("checking on the CPU (all threads)".into(), verified.busy));
    }
    times.push(("writing".into(), statistics.writing()));
    if let Some(device) = &device {
        times.push(("device batches, first to last".into(), device.span));
        let stages = device.stages.iter().map(|s| (format!("{} on the device", s.stage), s.time));
        times.extend(stages);
    }
    let times: Vec<_> =
        times.into_iter().map(|(what, time)| format!("{what} {}", seconds(time))).collect();
    lines.push(format!("time: {}", times.join(", ")));
    lines
}

/// "1 block", "2 blocks".
fn counted(number: impl Into<u64>, one: &str, several: &str) -> String {
    let number = number.into();
    format!("{number} {}", if number == 1 { one } else { several })
}

/// Seconds with three decimal places.
fn seconds(time: Duration) -> String {
    format!("{:.3} s", time.as_secs_f64())
}
