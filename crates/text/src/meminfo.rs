//! Linux's `/proc/meminfo`.

/// Bytes of a line of its text, which counts in KiB; a line without a unit is a count. `MemAvailable` is what can be had without
/// swapping.
#[must_use]
pub fn meminfo(text: &str, name: &str) -> Option<u64> {
    let of = |line: &str| {
        let (key, value) = line.split_once(':')?;
        let mut words = (key.trim() == name).then(|| value.split_whitespace())?;
        let number: u64 = words.next()?.parse().ok()?;
        Some(if words.next() == Some("kB") { number.saturating_mul(1024) } else { number })
    };
    text.lines().find_map(of)
}
