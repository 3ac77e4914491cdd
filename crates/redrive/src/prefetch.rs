//! Asking for memory before it is needed.
//!
//! A record is read on one core, run on another and let go there, and each has to fetch it from the other. That takes as long as
//! a hundred instructions, unless it is asked for while something else is done.

/// Asks for memory that will soon be read and written, so that no other core has it any more.
#[inline]
#[cfg_attr(target_arch = "x86_64", expect(unsafe_code, reason = "the processor's own instruction"))]
pub(crate) fn prefetch<T>(at: *const T) {
    #[cfg(target_arch = "x86_64")]
    // SAFETY: it is a hint, which does nothing but fill the cache, whatever the address. What the compiler has for it only asks to
    // read; processors that do not know this one do nothing.
    unsafe {
        std::arch::asm!("prefetchw [{}]", in(reg) at, options(nostack, preserves_flags, readonly));
    }
    #[cfg(not(target_arch = "x86_64"))]
    let _ = at;
}

/// Asks for memory that will soon be read.
#[inline]
#[cfg_attr(target_arch = "x86_64", expect(unsafe_code, reason = "the processor's own instruction"))]
pub(crate) fn prefetch_to_read<T>(at: *const T) {
    #[cfg(target_arch = "x86_64")]
    // SAFETY: it is a hint, which does nothing but fill the cache, whatever the address.
    unsafe {
        std::arch::x86_64::_mm_prefetch::<{ std::arch::x86_64::_MM_HINT_T0 }>(at.cast());
    }
    #[cfg(not(target_arch = "x86_64"))]
    let _ = at;
}
