//! Lists of hosts as Slurm writes them: `login,rack[0-1]node[001-032,040]`.

use super::super::epoch::MAX_MEMBERS;
use super::Wrong;

/// Most bytes of all names of one list.
const MAX_BYTES: usize = 32 << 20;

/// All names of a list, in order.
pub(super) fn expand(list: &str) -> Result<Vec<String>, Wrong> {
    let mut names = Vec::new();
    let mut bytes = 0;
    for word in split(list)? {
        for name in one(word)? {
            bytes += name.len();
            if names.len() >= MAX_MEMBERS || bytes > MAX_BYTES {
                return Err(Wrong::Many);
            }
            names.push(name);
        }
    }
    Ok(names)
}

/// The words between commas that are in no brackets.
fn split(list: &str) -> Result<Vec<&str>, Wrong> {
    let (mut words, mut start, mut inside) = (Vec::new(), 0, false);
    for (i, byte) in list.bytes().enumerate() {
        match (byte, inside) {
            (b'[', false) => inside = true,
            (b']', true) => inside = false,
            (b'[', true) | (b']', false) => return Err(Wrong::List),
            (b',', false) => {
                words.push(&list[start..i]);
                start = i + 1;
            }
            _ => {}
        }
    }
    words.push(&list[start..]);
    if inside || words.iter().any(|w| w.is_empty()) { Err(Wrong::List) } else { Ok(words) }
}

/// The names of one word, whose last bracket runs fastest.
fn one(word: &str) -> Result<Vec<String>, Wrong> {
    let mut names = vec![String::new()];
    let mut rest = word;
    while let Some((before, after)) = rest.split_once('[') {
        let (inside, after) = after.split_once(']').ok_or(Wrong::List)?;
        let numbers = numbers(inside)?;
        let length: usize = names.iter().map(String::len).sum::<usize>() + before.len() * names.len();
        if names.len() * numbers.len() > MAX_MEMBERS || length.saturating_mul(numbers.len()) > MAX_BYTES {
            return Err(Wrong::Many);
        }
        names = names.iter().flat_map(|n| numbers.iter().map(move |m| format!("{n}{before}{m}"))).collect();
        rest = after;
    }
    if rest.len() * names.len() > MAX_BYTES {
        return Err(Wrong::Many);
    }
    names.iter_mut().for_each(|name| name.push_str(rest));
    Ok(names)
}

/// The numbers in a bracket, as they are written: `1-3,008` is 1, 2, 3, 008.
fn numbers(inside: &str) -> Result<Vec<String>, Wrong> {
    let mut all = Vec::new();
    for word in inside.split(',') {
        let (low, high) = word.split_once('-').unwrap_or((word, word));
        let read = |s: &str| if s.len() <= 9 && !s.is_empty() { super::number_of(s) } else { None };
        let (Some(from), Some(to)) = (read(low), read(high)) else { return Err(Wrong::List) };
        if from > to {
            return Err(Wrong::List);
        }
        if all.len() as u64 + (to - from) >= MAX_MEMBERS as u64 {
            return Err(Wrong::Many);
        }
        let width = if low.starts_with('0') { low.len() } else { 0 };
        all.extend((from..=to).map(|n| format!("{n:0width$}")));
    }
    Ok(all)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lists() {
        let names = |list| expand(list).map(|names| names.join(" "));
        assert_eq!(names("a,b[1-3,008]c"), Ok("a b1c b2c b3c b008c".into()));
        assert_eq!(names("r[0-1]n[09-10]"), Ok("r0n09 r0n10 r1n09 r1n10".into()));
        assert_eq!(names("n[098-101]"), Ok("n098 n099 n100 n101".into()));
        for bad in ["", "a,", "a[", "a]", "a[]", "a[2-1]", "a[x]", "a[1-]", "a[[1]]", "a[1-2-3]"] {
            assert_eq!(names(bad), Err(Wrong::List), "{bad}");
        }
        for many in ["a[1-200001]", "a[0-999]b[0-999]", "a[0-9]b[0-9]c[0-9]d[0-9]e[0-9]f[0-9]"] {
            assert_eq!(names(many), Err(Wrong::Many), "{many}");
        }
    }
}
