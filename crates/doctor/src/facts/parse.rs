//! The formats of /proc and /sys. The texts may be anything: a container or a planted tree can put what it likes there.

pub use tidecast_text::meminfo;

/// Most CPUs of a list, and bits of a mask.
const CPUS: usize = 1 << 14;
/// Most rows of a table.
const ROWS: usize = 1 << 16;

/// The CPUs of a list such as `0-3,8`; none of an empty one.
#[must_use]
pub fn list(text: &str) -> Option<Vec<u32>> {
    let mut cpus = Vec::new();
    for part in text.trim().split(',').filter(|part| !part.is_empty()) {
        let (first, last) = part.split_once('-').unwrap_or((part, part));
        let (first, last): (u32, u32) = (first.trim().parse().ok()?, last.trim().parse().ok()?);
        if last < first || (last - first) as usize >= CPUS || cpus.len() >= CPUS {
            return None;
        }
        cpus.extend(first..=last);
    }
    cpus.sort_unstable();
    cpus.dedup();
    Some(cpus)
}

/// The CPUs of a mask such as `ff,00000001`: hexadecimal, 32 bits a group, the highest first.
#[must_use]
pub fn mask(text: &str) -> Option<Vec<u32>> {
    let groups: Vec<&str> = text.trim().split(',').collect();
    if groups.len() * 32 > CPUS {
        return None;
    }
    let mut cpus = Vec::new();
    for (group, digits) in groups.iter().rev().enumerate() {
        let bits = u32::from_str_radix(digits, 16).ok()?;
        let first = group as u32 * 32;
        cpus.extend((0..32).filter(|bit| bits >> bit & 1 == 1).map(|bit| first + bit));
    }
    Some(cpus)
}

/// Three numbers: least, default and most.
#[must_use]
pub fn triple(text: &str) -> Option<[u64; 3]> {
    let mut numbers = text.split_whitespace().map(str::parse);
    let mut next = || numbers.next()?.ok();
    Some([next()?, next()?, next()?])
}

/// A counter of /proc/net/snmp or netstat, where each section has a line of names before its line of numbers.
#[must_use]
pub fn counter(text: &str, section: &str, name: &str) -> Option<u64> {
    let rows = || text.lines().filter_map(|line| line.split_once(':')).filter(|(head, _)| *head == section);
    let (_, names) = rows().next()?;
    let (_, numbers) = rows().nth(1)?;
    let place = names.split_whitespace().position(|found| found == name)?;
    numbers.split_whitespace().nth(place)?.parse().ok()
}

/// The chosen one of `always [madvise] never`; of a text without brackets, its first word.
#[must_use]
pub fn chosen(text: &str) -> Option<&str> {
    let inner = text.split_once('[').and_then(|(_, rest)| rest.split_once(']'));
    inner.map(|(word, _)| word).or_else(|| text.split_whitespace().next())
}

/// Gigatransfers per second of `8.0 GT/s PCIe`.
#[must_use]
pub fn gigatransfers(text: &str) -> Option<f64> {
    let number: f64 = text.split_whitespace().next()?.parse().ok()?;
    (text.contains("GT/s") && number.is_finite() && number > 0.0).then_some(number)
}

/// Major and minor number of a kernel: `6.18.44-1`.
#[must_use]
pub fn version(text: &str) -> Option<(u32, u32)> {
    let mut numbers = text.split(|c: char| !c.is_ascii_digit());
    Some((numbers.next()?.parse().ok()?, numbers.next()?.parse().ok()?))
}

/// A limit of a process.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Limit {
    /// What holds now; `u64::MAX`: no limit.
    pub soft: u64,
    /// What a process can raise it to.
    pub hard: u64,
}

/// A line of /proc/self/limits, by its name there.
#[must_use]
pub fn limit(text: &str, name: &str) -> Option<Limit> {
    let line = text.lines().find(|line| line.starts_with(name))?;
    let mut words = line.get(name.len()..)?.split_whitespace();
    let mut next = || match words.next()? {
        "unlimited" => Some(u64::MAX),
        number => number.parse().ok(),
    };
    Some(Limit { soft: next()?, hard: next()? })
}

/// A mount.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Mount {
    /// Major and minor number of its device, as `8:1`.
    pub device: String,
    /// Where it is.
    pub point: String,
    /// Kind of file system: `ext4`.
    pub kind: String,
    /// Options of the mount and of its file system.
    pub options: Vec<String>,
    /// What is mounted.
    pub source: String,
}

/// The mounts of /proc/self/mountinfo, in their order: the last one at a place covers the others.
#[must_use]
pub fn mounts(text: &str) -> Vec<Mount> {
    let of = |line: &str| {
        let (head, tail) = line.split_once(" - ")?;
        let head: Vec<&str> = head.split(' ').collect();
        let mut tail = tail.split(' ');
        let (kind, source, own) = (tail.next()?, tail.next()?, tail.next().unwrap_or_default());
        let options = head.get(5)?.split(',').chain(own.split(','));
        Some(Mount {
            device: (*head.get(2)?).to_owned(),
            point: unescaped(head.get(4)?),
            kind: kind.to_owned(),
            options: options.filter(|word| !word.is_empty()).map(str::to_owned).collect(),
            source: unescaped(source),
        })
    };
    text.lines().take(ROWS).filter_map(of).collect()
}

/// `\040` as a space, and so on.
fn unescaped(text: &str) -> String {
    let mut bytes = Vec::with_capacity(text.len());
    let mut rest = text.as_bytes();
    while let Some((&first, after)) = rest.split_first() {
        let octal =
            after.get(..3).filter(|digits| first == b'\\' && digits.iter().all(|d| (b'0'..b'8').contains(d)));
        if let Some(digits) = octal {
            bytes
                .push(digits.iter().fold(0u8, |byte, digit| byte.wrapping_mul(8).wrapping_add(digit - b'0')));
            rest = after.get(3..).unwrap_or_default();
        } else {
            bytes.push(first);
            rest = after;
        }
    }
    String::from_utf8_lossy(&bytes).into_owned()
}

/// An interrupt of /proc/interrupts that has a number.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Interrupt {
    /// Its number.
    pub number: u32,
    /// How often it came on each CPU, in the order of the columns.
    pub counts: Vec<u64>,
    /// What it belongs to: `mlx5_comp3@pci:0000:81:00.0`.
    pub name: String,
}

/// The interrupts of /proc/interrupts, and the CPUs of its columns.
#[must_use]
pub fn interrupts(text: &str) -> (Vec<u32>, Vec<Interrupt>) {
    let mut lines = text.lines();
    let head = lines.next().unwrap_or_default().split_whitespace();
    let cpus: Vec<u32> = head.filter_map(|word| word.strip_prefix("CPU")?.parse().ok()).take(CPUS).collect();
    let of = |line: &str| {
        let (number, rest) = line.split_once(':')?;
        let number = number.trim().parse().ok()?;
        let mut words = rest.split_whitespace();
        let counts = words.by_ref().take(cpus.len()).map(str::parse).collect::<Result<Vec<u64>, _>>().ok()?;
        Some(Interrupt { number, counts, name: words.next_back().unwrap_or_default().to_owned() })
    };
    let rows = lines.take(ROWS).filter_map(of).collect();
    (cpus, rows)
}

/// The local port of the socket in a line of /proc/net/tcp, if it is in this state.
#[must_use]
pub fn bound(line: &str, state: &str) -> Option<u16> {
    let mut words = line.split_whitespace().skip(1);
    let (local, _, found) = (words.next()?, words.next()?, words.next()?);
    let port = u16::from_str_radix(local.rsplit(':').next()?, 16).ok()?;
    (found == state).then_some(port)
}

/// Gives one text to every parser, as a fuzzer does.
pub fn everything(text: &str, name: &str) {
    let _ =
        (list(text), mask(text), triple(text), counter(text, name, name), meminfo(text, name), chosen(text));
    let _ = (gigatransfers(text), version(text), limit(text, name), mounts(text), interrupts(text));
    let _ = bound(text, name);
}

#[cfg(test)]
#[path = "parse_tests.rs"]
mod tests;
