//! The cost blocks of kernel files.

use pz::internal::KernelCost;

/// Checks that a text either has a cost that can be evaluated, or gives an error that points into it.
pub fn cost(data: &[u8]) {
    let text = String::from_utf8_lossy(data);
    match KernelCost::parse("kernels/fuzz.cl", &text) {
        Ok(cost) => {
            for n in [0, 1, 256, 1 << 24, u64::MAX] {
                let parts = cost.buffers.iter().map(|(_, formula)| formula.eval(n));
                let parts: Result<Vec<u64>, _> = parts.collect();
                let sum = parts.ok().and_then(|parts| {
                    parts.into_iter().try_fold(0u64, |sum, part| sum.checked_add(part))
                });
                assert_eq!(cost.memory_bytes(n).ok(), sum);
                let _ = (cost.threads.eval(n), cost.passes.eval(n));
            }
        }
        Err(error) => {
            assert!(error.to_string().starts_with("kernels/fuzz.cl:"));
            let line = text.lines().nth(error.line - 1).unwrap_or_default();
            assert!((1..=line.chars().count() + 1).contains(&error.column), "{error}");
        }
    }
}
