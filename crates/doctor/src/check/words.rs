//! Texts and numbers that several checks have.

use std::time::Duration;

/// From this round-trip time on a path is long for `copy`: it begins with more streams, and asks for bbr.
pub(super) const FAR: Duration = Duration::from_millis(5);
/// Streams that `copy` begins with on a long path.
pub(super) const STREAMS_FAR: u32 = 8;

/// A time on a path, in milliseconds as people give it.
pub(super) fn ms(time: Duration) -> String {
    let ms = time.as_secs_f64() * 1e3;
    if ms.fract() == 0.0 { format!("{ms:.0} ms") } else { format!("{ms:.1} ms") }
}

/// Sorted numbers as `0-3,8`.
pub(super) fn ranges(numbers: &[u32]) -> String {
    let mut parts: Vec<(u32, u32)> = Vec::new();
    for number in numbers {
        match parts.last_mut() {
            Some((_, last)) if last.checked_add(1) == Some(*number) => *last = *number,
            _ => parts.push((*number, *number)),
        }
    }
    let text = |(first, last): &(u32, u32)| {
        if first == last { first.to_string() } else { format!("{first}-{last}") }
    };
    parts.iter().map(text).collect::<Vec<_>>().join(",")
}
