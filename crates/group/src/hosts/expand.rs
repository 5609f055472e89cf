//! Brackets: `n[1-3,7]` stands for four names.

use super::{HostError, MAX_HOSTS};

/// The items of a list: commas and white space between them, but not within brackets.
pub(super) fn split(text: &str) -> Result<Vec<&str>, HostError> {
    let unmatched = || HostError::Brackets(text.into());
    let (mut items, mut start, mut open) = (Vec::new(), 0, false);
    for (at, c) in text.char_indices() {
        match c {
            '[' if open => return Err(unmatched()),
            '[' => open = true,
            ']' if !open => return Err(unmatched()),
            ']' => open = false,
            c if (c == ',' || c.is_whitespace()) && !open => {
                items.push(&text[start..at]);
                start = at + c.len_utf8();
            }
            _ => {}
        }
    }
    if open {
        return Err(unmatched());
    }
    items.push(&text[start..]);
    items.retain(|item| !item.is_empty());
    Ok(items)
}

/// All names that an item stands for; the last bracket runs fastest.
pub(super) fn expand(item: &str) -> Result<Vec<String>, HostError> {
    let unmatched = || HostError::Brackets(item.into());
    let mut names = vec![String::new()];
    let mut rest = item;
    while let Some((plain, tail)) = rest.split_once('[') {
        let (ranges, tail) = tail.split_once(']').ok_or_else(unmatched)?;
        let choices = numbers(ranges)?;
        if names.len().saturating_mul(choices.len()) > MAX_HOSTS {
            return Err(HostError::TooMany);
        }
        let longer = |name: &String| choices.iter().map(|n| format!("{name}{plain}{n}")).collect::<Vec<_>>();
        names = names.iter().flat_map(longer).collect();
        rest = tail;
    }
    if rest.contains(']') {
        return Err(unmatched());
    }
    names.iter_mut().for_each(|name| name.push_str(rest));
    Ok(names)
}

/// What stands in brackets. Numbers have the width that the first of their range is written with.
fn numbers(text: &str) -> Result<Vec<String>, HostError> {
    let mut all = Vec::new();
    for range in text.split(',') {
        let bad = || HostError::Range(range.into());
        let (from, to) = range.split_once('-').unwrap_or((range, range));
        let number = |digits: &str| {
            let plain = !digits.is_empty() && digits.bytes().all(|b| b.is_ascii_digit());
            digits.parse::<u64>().ok().filter(|_| plain).ok_or_else(bad)
        };
        let (first, last, width) = (number(from)?, number(to)?, from.len());
        if first > last {
            return Err(bad());
        }
        if last - first >= MAX_HOSTS as u64 || width > 20 {
            return Err(HostError::TooMany);
        }
        all.extend((first..=last).map(|n| format!("{n:0width$}")));
        if all.len() > MAX_HOSTS {
            return Err(HostError::TooMany);
        }
    }
    Ok(all)
}
