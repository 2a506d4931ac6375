//! Huge pages: memory in them needs fewer address look-ups, and is ready sooner.

/// The usual length of a huge page.
#[cfg(target_os = "linux")]
pub(crate) const HUGE_PAGE: usize = 2 << 20;

/// Asks the system to use huge pages for memory that has not been touched, where it holds whole ones. The system may
/// ignore this. Systems other than Linux are not asked.
#[cfg_attr(
    not(target_os = "linux"),
    expect(unused_variables, reason = "other systems are not asked")
)]
pub fn advise_huge_pages<T>(memory: &mut [T]) {
    #[cfg(target_os = "linux")]
    {
        use rustix::mm::{Advice, madvise};

        let len = size_of_val(memory);
        let start: *mut u8 = memory.as_mut_ptr().cast();
        let before = start.align_offset(HUGE_PAGE);
        let Some(inside) = len.checked_sub(before).filter(|&inside| inside >= HUGE_PAGE) else {
            return;
        };
        // SAFETY: The pages lie within memory that is borrowed here, and the advice does not change their contents.
        let _ = unsafe {
            madvise(start.add(before).cast(), inside / HUGE_PAGE * HUGE_PAGE, Advice::LinuxHugepage)
        };
    }
}
