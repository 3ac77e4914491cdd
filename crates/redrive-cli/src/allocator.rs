//! The memory that everything here is made of, librdkafka included.

#![expect(unsafe_code, reason = "mimalloc's options are set in C")]

use std::ffi::{c_int, c_long};
use std::thread;
use std::time::Duration;

#[global_allocator]
static ALLOCATOR: mimalloc::MiMalloc = mimalloc::MiMalloc;

/// `mi_option_purge_delay` of mimalloc.h.
const PURGE_DELAY: c_int = 15;

/// For how many milliseconds free memory is kept.
const KEPT: c_long = 10_000;

/// How often somebody looks whether there is memory to give back.
const LOOK_EVERY: Duration = Duration::from_secs(5);

unsafe extern "C" {
    fn mi_option_set_default(option: c_int, value: c_long);
    fn mi_collect(force: bool);
}

/// Free memory goes back to the system after ten seconds instead of one. What is fetched is freed a moment later by another thread,
/// and to get it back for the next fetch the system has to clear it first. `MIMALLOC_PURGE_DELAY` says otherwise.
///
/// mimalloc looks at the time only where somebody wants memory, so that a process which has nothing more to do would keep all of it. Hence a
/// thread that looks now and then. Without it there is only more memory in use.
pub(crate) fn set_up() {
    // SAFETY: two numbers, and no other thread is there yet.
    unsafe { mi_option_set_default(PURGE_DELAY, KEPT) };
    _ = thread::Builder::new().name("redrive-memory".to_owned()).spawn(|| {
        loop {
            thread::sleep(LOOK_EVERY);
            // SAFETY: any thread may call it at any time. Not forced, it gives back what was free for long enough.
            unsafe { mi_collect(false) };
        }
    });
}
