//! Removes unfinished files however the program ends. If it is killed outright, the next run removes them.

use std::sync::Once;

use pz::internal::output;

/// Makes signals remove unfinished files from now on. Drivers may install handlers that end the program at once, so
/// call this before a driver is loaded: its handlers then call ours.
pub fn watch() {
    static WATCH: Once = Once::new();
    WATCH.call_once(|| {
        output::keep_list();
        watch_signals();
    });
}

/// On a signal, removes the unfinished files and then ends as the signal would have ended the program.
#[cfg(unix)]
fn watch_signals() {
    use signal_hook::consts::{SIGHUP, SIGINT, SIGQUIT, SIGTERM, SIGXFSZ};

    // A signal that our parent made us ignore (nohup, a shell's background job) stays ignored.
    let signals = [SIGINT, SIGTERM, SIGHUP, SIGQUIT, SIGXFSZ];
    let ignored = ignored();
    let signals = signals.into_iter().filter(|signal| ignored >> (signal - 1) & 1 == 0);
    // Without these handlers a signal leaves a temporary file behind, and does no other harm.
    let Ok(mut signals) = signal_hook::iterator::Signals::new(signals) else { return };
    let watch = move || {
        // SIGXFSZ: with this handler, exceeding the file size limit is an ordinary write error.
        if let Some(signal) = signals.forever().find(|&signal| signal != SIGXFSZ) {
            // The lock is held to the end, so that nothing can be renamed any more.
            let _list = output::remove_all();
            let _ = signal_hook::low_level::emulate_default_handler(signal);
        }
    };
    let _ = std::thread::Builder::new().name("signals".into()).spawn(watch);
}

#[cfg(not(unix))]
fn watch_signals() {}

/// The signals that our parent had us ignore: bit n - 1 stands for signal n. Only Linux tells without `unsafe`.
#[cfg(unix)]
fn ignored() -> u64 {
    let status = std::fs::read_to_string("/proc/self/status").unwrap_or_default();
    let mask = status.lines().find_map(|line| line.strip_prefix("SigIgn:"));
    mask.and_then(|mask| u64::from_str_radix(mask.trim(), 16).ok()).unwrap_or(0)
}
