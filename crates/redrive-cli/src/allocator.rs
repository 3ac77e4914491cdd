//! The memory that everything here is made of, librdkafka included.

#![expect(unsafe_code, reason = "mimalloc's options are set in C")]

use std::ffi::{c_int, c_long};

#[global_allocator]
static ALLOCATOR: mimalloc::MiMalloc = mimalloc::MiMalloc;

/// `mi_option_purge_delay` of mimalloc.h.
const PURGE_DELAY: c_int = 15;

/// For how many milliseconds free memory is kept.
const KEPT: c_long = 10_000;

unsafe extern "C" {
    fn mi_option_set_default(option: c_int, value: c_long);
}

/// Free memory goes back to the system after ten seconds instead of one. What is fetched is freed a moment later by another thread,
/// and to get it back for the next fetch the system has to clear it first. `MIMALLOC_PURGE_DELAY` says otherwise.
pub(crate) fn set_up() {
    // SAFETY: two numbers, and no other thread is there yet.
    unsafe { mi_option_set_default(PURGE_DELAY, KEPT) };
}
