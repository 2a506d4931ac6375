//! Shows how far a run has come: on a terminal, after half a second, and never between other lines.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering::Relaxed};
use std::time::{Duration, Instant};

use indicatif::{ProgressBar, ProgressDrawTarget, ProgressStyle};

use crate::sizes;

/// Runs shorter than this show nothing.
const PATIENCE: Duration = Duration::from_millis(500);

/// The progress of one file. Its clones share the counts: the source's counts bytes read, the output's bytes
/// written.
#[derive(Clone)]
pub struct Progress(Option<Arc<Shared>>);

struct Shared {
    bar: ProgressBar,
    begun: Instant,
    shown: AtomicBool,
    read: AtomicU64,
    written: AtomicU64,
    /// Whether the output is larger than the input. The ratio is always contents to compressed bytes.
    expands: bool,
}

impl Progress {
    /// Shows nothing.
    pub fn silent() -> Self {
        Progress(None)
    }

    /// Shows the progress of `name` through `total` bytes of input, once the run has taken half a second.
    pub fn new(name: &str, total: Option<u64>, expands: bool) -> Self {
        let bar = ProgressBar::with_draw_target(total, ProgressDrawTarget::hidden());
        let template = match total {
            Some(_) => {
                "{prefix} {percent}% of {binary_total_bytes}  {binary_bytes_per_sec}  {msg}  {eta} left"
            }
            None => "{prefix} {binary_bytes}  {binary_bytes_per_sec}  {msg}  {elapsed}",
        };
        let style = ProgressStyle::with_template(template);
        bar.set_style(style.unwrap_or_else(|_| ProgressStyle::default_bar()));
        bar.set_prefix(name.to_string());
        Progress(Some(Arc::new(Shared {
            bar,
            begun: Instant::now(),
            shown: AtomicBool::new(false),
            read: AtomicU64::new(0),
            written: AtomicU64::new(0),
            expands,
        })))
    }

    /// Counts bytes read.
    pub fn read(&self, bytes: usize) {
        if let Some(shared) = &self.0 {
            shared.bar.set_position(shared.read.fetch_add(bytes as u64, Relaxed) + bytes as u64);
            shared.show();
        }
    }

    /// Counts bytes written.
    pub fn wrote(&self, bytes: usize) {
        if let Some(shared) = &self.0 {
            let written = shared.written.fetch_add(bytes as u64, Relaxed) + bytes as u64;
            // Update the ratio here and not in `read`: the bytes just read have not been written yet.
            let read = shared.read.load(Relaxed);
            let (large, small) = if shared.expands { (written, read) } else { (read, written) };
            shared.bar.set_message(format!("ratio {:.2}", sizes::ratio(large, small)));
            shared.show();
        }
    }

    /// Removes the display. Call this before printing anything else.
    pub fn finish(&self) {
        if let Some(shared) = &self.0 {
            shared.bar.finish_and_clear();
        }
    }
}

impl Shared {
    /// Shows the display once the run has lasted long enough.
    fn show(&self) {
        if self.begun.elapsed() >= PATIENCE && !self.shown.swap(true, Relaxed) {
            self.bar.set_draw_target(ProgressDrawTarget::stderr());
        }
    }
}
