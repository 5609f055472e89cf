//! `libtidecast.so`: the C interface to [`tidecast_memory`]. `include/tidecast.h` documents it.
//!
//! Why `unsafe`: C pointers become references here and nowhere else, under the conditions that the header states; all code
//! below is safe Rust. A panic is caught at this boundary and becomes `TIDECAST_INTERNAL`.
#![allow(unsafe_code)]

mod sigpipe;

use std::cell::RefCell;
use std::ffi::{CStr, CString, c_char, c_int, c_void};
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::time::Duration;

use tidecast_memory::{Buffer, Error, Group, Options};

/// The codes of the header.
const USAGE: c_int = 1;
const JOIN: c_int = 2;
const LOST: c_int = 3;
const FAILED: c_int = 4;
const MEMORY: c_int = 5;
const SYSTEM: c_int = 6;
const INTERNAL: c_int = 7;
/// The flag of the header.
const PLAIN: u32 = 1;
/// The maximum timeout, seconds: a year.
const LONGEST: f64 = 366.0 * 86_400.0;

const NAMES: [&CStr; 8] = [
    c"no error",
    c"invalid arguments",
    c"cannot join the group",
    c"this rank was removed from the group",
    c"the broadcast failed for this rank",
    c"shared memory is too small",
    c"a system call failed",
    c"internal error of Tidecast",
];

thread_local! {
    static LAST: RefCell<CString> = RefCell::default();
    static MISSED: RefCell<Vec<u32>> = const { RefCell::new(Vec::new()) };
}

/// A member of a group, behind the C pointer.
pub struct TidecastGroup {
    group: Group,
    address: CString,
}

/// Runs `call`; its error or panic becomes a code and the thread's last error.
fn guarded(call: impl FnOnce() -> Result<(), Error>) -> c_int {
    let _blocked = sigpipe::Blocked::new();
    let (code, text) = match catch_unwind(AssertUnwindSafe(call)) {
        Ok(Ok(())) => return 0,
        Ok(Err(error)) => (code(&error), error.to_string()),
        Err(_) => (INTERNAL, "internal error of Tidecast; standard error has the details".to_owned()),
    };
    let text = CString::new(text.replace('\0', " ")).unwrap_or_default();
    LAST.with_borrow_mut(|last| *last = text);
    code
}

fn code(error: &Error) -> c_int {
    match error {
        Error::Usage(_) => USAGE,
        Error::Join(_) => JOIN,
        Error::Lost(_) => LOST,
        Error::Failed(_) => FAILED,
        Error::Room { .. } => MEMORY,
        Error::System { .. } => SYSTEM,
        _ => INTERNAL,
    }
}

fn usage(what: &str) -> Error {
    Error::Usage(what.to_owned())
}

fn time(seconds: f64) -> Result<Duration, Error> {
    let fits = (0.0..=LONGEST).contains(&seconds);
    let seconds = Some(seconds)
        .filter(|_| fits)
        .ok_or_else(|| usage("invalid timeout; use seconds from 0 to a year"))?;
    Ok(Duration::from_secs_f64(seconds))
}

/// The caller's text.
///
/// # Safety
/// `text` is NULL, or ends with a zero byte and lives as long as `'a`.
unsafe fn text<'a>(text: *const c_char, what: &str) -> Result<&'a str, Error> {
    if text.is_null() {
        return Err(usage(&format!("the {what} is NULL")));
    }
    // SAFETY: not NULL; the rest is the caller's obligation.
    let text = unsafe { CStr::from_ptr(text) };
    text.to_str().map_err(|_| usage(&format!("the {what} is not UTF-8")))
}

/// See the header.
///
/// # Safety
/// `address` and `secret` are NULL or end with a zero byte; `group` is NULL or can be written to.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn tidecast_open(
    address: *const c_char,
    rank: u32,
    size: u32,
    secret: *const c_char,
    timeout: f64,
    flags: u32,
    group: *mut *mut TidecastGroup,
) -> c_int {
    guarded(|| {
        if group.is_null() {
            return Err(usage("the pointer for the group is NULL"));
        }
        // SAFETY: not NULL, and writable for the caller. Written first, so that closing the group after an error is
        // harmless.
        unsafe { group.write(std::ptr::null_mut()) };
        if flags & !PLAIN != 0 {
            return Err(usage("unknown flags"));
        }
        // SAFETY: the caller's obligation; neither is kept.
        let (at, secret) = unsafe { (text(address, "address")?, text(secret, "secret")?) };
        let (secret, plain) = (secret.as_bytes().to_vec(), flags & PLAIN != 0);
        let options = Options { rank, size, secret, patience: time(timeout)?, plain, shared: None };
        let opened = Group::open(at, &options)?;
        let address = CString::new(opened.address()).unwrap_or_default();
        let opened = Box::new(TidecastGroup { group: opened, address });
        // SAFETY: not NULL, and the caller's to write to.
        unsafe { group.write(Box::into_raw(opened)) };
        Ok(())
    })
}

/// See the header.
///
/// # Safety
/// `group` is NULL or of `tidecast_open` and not closed.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn tidecast_address(group: *const TidecastGroup) -> *const c_char {
    // SAFETY: the caller's obligation.
    match unsafe { group.as_ref() } {
        Some(group) => group.address.as_ptr(),
        None => std::ptr::null(),
    }
}

/// See the header.
///
/// # Safety
/// `group` is NULL or of `tidecast_open` and not closed; `buffer` has `length` bytes that no other thread accesses during
/// the call, to read at the root and to write elsewhere; `missed` is NULL or can be written to.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn tidecast_bcast(
    group: *mut TidecastGroup,
    buffer: *mut c_void,
    length: usize,
    root: u32,
    timeout: f64,
    missed: *mut usize,
) -> c_int {
    guarded(|| {
        MISSED.with_borrow_mut(Vec::clear);
        // SAFETY: the caller's obligation. Shared, since other threads may wait for their turn.
        let group = unsafe { group.as_ref() }.ok_or_else(|| usage("the group is NULL"))?;
        let buffer = buffer.cast::<u8>();
        if (buffer.is_null() && length > 0) || isize::try_from(length).is_err() {
            return Err(usage("no buffer given, or it is longer than memory"));
        }
        // Even the pointer of an empty slice must not be NULL.
        let start = if length == 0 { std::ptr::NonNull::dangling().as_ptr() } else { buffer };
        let buffer = if root == group.group.rank() {
            // SAFETY: not NULL, `length` bytes to read, by the caller's obligation.
            Buffer::Send(unsafe { std::slice::from_raw_parts(start, length) })
        } else {
            // SAFETY: not NULL, `length` bytes to write that no other thread accesses, by the caller's obligation.
            Buffer::Receive(unsafe { std::slice::from_raw_parts_mut(start, length) })
        };
        let who = group.group.bcast(buffer, root, time(timeout)?)?;
        // SAFETY: the caller's obligation.
        if let Some(missed) = unsafe { missed.as_mut() } {
            *missed = who.len();
        }
        MISSED.with_borrow_mut(|last| *last = who);
        Ok(())
    })
}

/// See the header.
///
/// # Safety
/// `ranks` is NULL, or has room for that many.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn tidecast_missed(ranks: *mut u32, room: usize) -> usize {
    MISSED.with_borrow(|missed| {
        let count = if ranks.is_null() { 0 } else { missed.len().min(room) };
        if count > 0 {
            // SAFETY: `count` is within the caller's room and within `missed`, which is ours alone.
            unsafe { std::ptr::copy_nonoverlapping(missed.as_ptr(), ranks, count) };
        }
        missed.len()
    })
}

/// See the header.
///
/// # Safety
/// `group` is NULL or of `tidecast_open` and not closed; `why` is NULL or ends with a zero byte.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn tidecast_abstain(
    group: *mut TidecastGroup,
    root: u32,
    why: *const c_char,
    timeout: f64,
) -> c_int {
    guarded(|| {
        // SAFETY: the caller's obligation.
        let (group, why) = unsafe { (group.as_ref(), text(why, "reason")?) };
        let group = group.ok_or_else(|| usage("the group is NULL"))?;
        group.group.abstain(root, why, time(timeout)?)
    })
}

/// See the header.
///
/// # Safety
/// `group` is NULL, or of `tidecast_open`, not closed, and in use by no other thread.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn tidecast_close(group: *mut TidecastGroup) {
    if !group.is_null() {
        guarded(|| {
            // SAFETY: made by `Box::into_raw` in `tidecast_open`, and given back once, by the caller's obligation.
            drop(unsafe { Box::from_raw(group) });
            Ok(())
        });
    }
}

/// See the header.
#[unsafe(no_mangle)]
pub extern "C" fn tidecast_strerror(error: c_int) -> *const c_char {
    let name = usize::try_from(error).ok().and_then(|code| NAMES.get(code));
    name.copied().unwrap_or(c"unknown error code").as_ptr()
}

/// See the header.
#[unsafe(no_mangle)]
pub extern "C" fn tidecast_last_error() -> *const c_char {
    LAST.with_borrow(|last| last.as_ptr())
}

/// See the header.
#[unsafe(no_mangle)]
pub extern "C" fn tidecast_version() -> *const c_char {
    static VERSION: &CStr =
        match CStr::from_bytes_with_nul(concat!(env!("CARGO_PKG_VERSION"), "\0").as_bytes()) {
            Ok(version) => version,
            Err(_) => c"",
        };
    VERSION.as_ptr()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn last() -> String {
        LAST.with_borrow(|last| last.to_string_lossy().into_owned())
    }

    #[test]
    fn a_panic_ends_at_the_boundary() {
        assert_eq!(guarded(|| Ok(())), 0);
        assert_eq!(guarded(|| Err(usage("so\0what"))), USAGE);
        assert_eq!(last(), "so what");
        assert_eq!(guarded(|| panic!("ouch")), INTERNAL);
        assert!(last().contains("internal error"));
        assert_eq!(NAMES.len(), INTERNAL as usize + 1);
    }

    #[test]
    fn times_are_times() {
        for bad in [-1.0, f64::NAN, f64::INFINITY, 1e30] {
            assert!(time(bad).is_err(), "{bad}");
        }
        assert_eq!(time(1.5).ok(), Some(Duration::from_millis(1500)));
    }

    #[test]
    fn nothing_is_no_group() {
        use std::ptr::{null, null_mut};
        // SAFETY: NULL is allowed everywhere.
        unsafe {
            let mut group = null_mut();
            assert_eq!(tidecast_open(null(), 0, 1, c"".as_ptr(), 1.0, 0, &mut group), USAGE);
            assert_eq!(tidecast_open(c":0".as_ptr(), 0, 1, c"".as_ptr(), 1.0, 8, &mut group), USAGE);
            assert_eq!(tidecast_open(c":0".as_ptr(), 0, 1, c"".as_ptr(), 1.0, 0, null_mut()), USAGE);
            assert_eq!(tidecast_bcast(null_mut(), null_mut(), 0, 0, 1.0, null_mut()), USAGE);
            assert_eq!(tidecast_abstain(null_mut(), 0, c"".as_ptr(), 1.0), USAGE);
            assert!(tidecast_address(null()).is_null() && group.is_null());
            tidecast_close(null_mut());
            for (rank, flags, timeout) in [(0, 8, 1.0), (5, 0, 1.0), (0, 0, -1.0)] {
                group = std::ptr::dangling_mut();
                assert_eq!(
                    tidecast_open(c":0".as_ptr(), rank, 1, c"".as_ptr(), timeout, flags, &mut group),
                    USAGE
                );
                assert!(group.is_null(), "what was there before is no group");
            }
            group = std::ptr::dangling_mut();
            assert_eq!(tidecast_open(c"127.0.0.1:1".as_ptr(), 1, 2, c"".as_ptr(), 0.1, 0, &mut group), JOIN);
            assert!(group.is_null());
        }
    }
}
