//! Kernel files in OpenCL C as CUDA C++.
//!
//! `kernels/dialects/cuda.h` precedes a file and defines OpenCL C's words in CUDA C++. All work items of an entry point
//! share one allocation of workgroup memory, whose size the compiler limits to 48 KiB for every entry point of a
//! program, whatever the size of the workgroups that run it. So a program has a single entry point, and the file's
//! others become functions that nothing calls.

use super::kernel::newest;

/// The header that makes a file CUDA C++.
const DIALECT: &str = include_str!("../../../kernels/dialects/cuda.h");

/// The beginning of an entry point in a kernel file.
#[cfg(any(feature = "cuda", test))]
const ENTRY: &str = "__kernel void ";

/// The text between the constants and a kernel file. With `states_workgroups`, entry points are compiled for workgroups
/// of `THREADS` work items.
pub(super) fn head(states_workgroups: bool) -> String {
    let bounds = if states_workgroups { " __launch_bounds__(THREADS)" } else { "" };
    let dialect = newest("dialects/cuda.h", DIALECT);
    format!("#define __kernel extern \"C\" __global__{bounds}\n{dialect}")
}

/// The source of a program with the entry point `entry` alone; `None` if `source` has no such entry point.
#[cfg(any(feature = "cuda", test))]
pub(in crate::gpu) fn with_entry(source: &str, entry: &str) -> Option<String> {
    let mut parts = source.split(ENTRY);
    let mut result = parts.next().unwrap_or_default().to_string();
    let mut is_found = false;
    for part in parts {
        let name = part.split('(').next().unwrap_or_default();
        is_found |= name == entry;
        result += if name == entry { ENTRY } else { "static void " };
        result += part;
    }
    is_found.then_some(result)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn one_entry_point_remains() {
        let source =
            "#define __kernel x\n__kernel void one(uint a) {}\n__kernel void two(uint a) {}\n";
        assert_eq!(
            with_entry(source, "two").unwrap(),
            "#define __kernel x\nstatic void one(uint a) {}\n__kernel void two(uint a) {}\n"
        );
        assert_eq!(with_entry(source, "tw"), None);
        assert_eq!(with_entry("", "one"), None);
    }
}
