//! The umask of this process.

/// Permissions that new files and directories of this process do not get; all, if they cannot be known. They are read from /proc, since
/// any system call for them would change them.
#[must_use]
pub fn umask() -> u32 {
    let status = std::fs::read_to_string("/proc/self/status").unwrap_or_default();
    let line = status.lines().find_map(|line| line.strip_prefix("Umask:"));
    line.and_then(|octal| u32::from_str_radix(octal.trim(), 8).ok()).unwrap_or(0o777)
}
