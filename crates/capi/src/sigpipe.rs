//! SIGPIPE: it kills a C program by default, but the end of a peer must not end the program.
//!
//! The signal is sent to the thread that writes. So it is blocked while a thread is in this library, and in the threads
//! that are started meanwhile, which inherit the mask. The program's own handling elsewhere is not changed.

use std::mem::MaybeUninit;
use std::ptr;

/// Blocks SIGPIPE for this thread until it is dropped.
pub(crate) struct Blocked {
    /// The mask to restore; `None` if the signal was already blocked or pending.
    before: Option<libc::sigset_t>,
}

impl Blocked {
    pub(crate) fn new() -> Self {
        let pipe = only_pipe();
        let mut before = MaybeUninit::<libc::sigset_t>::uninit();
        // SAFETY: both sets are valid for the call, which fills `before` when it answers 0.
        let blocked = unsafe { libc::pthread_sigmask(libc::SIG_BLOCK, &pipe, before.as_mut_ptr()) } == 0;
        // SAFETY: filled, see above.
        let before = blocked.then(|| unsafe { before.assume_init() });
        // SAFETY: a valid set, and a valid number.
        let ours =
            before.filter(|before| unsafe { libc::sigismember(before, libc::SIGPIPE) } == 0 && !waits());
        Self { before: ours }
    }
}

impl Drop for Blocked {
    fn drop(&mut self) {
        let Some(before) = &self.before else { return };
        if waits() {
            let (pipe, now) = (only_pipe(), libc::timespec { tv_sec: 0, tv_nsec: 0 });
            // SAFETY: both are valid for the call; the details of the signal are not needed.
            unsafe { libc::sigtimedwait(&pipe, ptr::null_mut(), &now) };
        }
        // SAFETY: the set that was this thread's before.
        unsafe { libc::pthread_sigmask(libc::SIG_SETMASK, before, ptr::null_mut()) };
    }
}

fn only_pipe() -> libc::sigset_t {
    let mut set = MaybeUninit::<libc::sigset_t>::uninit();
    // SAFETY: `sigemptyset` makes it a set, `sigaddset` with a valid number changes it.
    unsafe {
        libc::sigemptyset(set.as_mut_ptr());
        libc::sigaddset(set.as_mut_ptr(), libc::SIGPIPE);
        set.assume_init()
    }
}

/// Whether a SIGPIPE is pending.
fn waits() -> bool {
    let mut set = MaybeUninit::<libc::sigset_t>::uninit();
    // SAFETY: `sigpending` fills the set when it answers 0, and only then is it looked at.
    unsafe { libc::sigpending(set.as_mut_ptr()) == 0 && libc::sigismember(set.as_ptr(), libc::SIGPIPE) == 1 }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_signal_of_ours_is_swallowed_and_the_mask_is_as_before() {
        let mask = || {
            let mut set = only_pipe();
            // SAFETY: the set is valid; no new mask is given.
            unsafe { libc::pthread_sigmask(libc::SIG_BLOCK, ptr::null(), &mut set) };
            // SAFETY: filled above.
            unsafe { libc::sigismember(&set, libc::SIGPIPE) }
        };
        assert_eq!(mask(), 0);
        {
            let _blocked = Blocked::new();
            assert_eq!(mask(), 1);
            // SAFETY: to this thread only; Rust's tests ignore the signal, so it has its default again for this one.
            unsafe {
                libc::signal(libc::SIGPIPE, libc::SIG_DFL);
                libc::pthread_kill(libc::pthread_self(), libc::SIGPIPE);
            }
            assert!(waits());
            drop(Blocked::new());
            assert!(waits(), "it is not the inner one's");
        }
        assert!(mask() == 0 && !waits(), "and this process lives");
    }
}
