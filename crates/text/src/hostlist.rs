//! Lists of hosts with brackets, as in Slurm and clustershell: `rack[0-1]n[001-032/2,040],login!rack0n001`.
//!
//! Items are separated by a comma or white space; `!` removes the item after it, `&` keeps the hosts on both sides, `^` the
//! hosts on one side only. Operators apply from left to right, as in clustershell.
//!
//! Invariant: no result is longer than the caller allows, however short the text is.

use std::collections::BTreeSet;

/// The maximum of bytes of all names of one item.
const MAX_BYTES: usize = 32 << 20;
/// The maximum number of hosts of a list.
pub const MAX_HOSTS: usize = 65_536;
/// The maximum number of digits of a number.
const MAX_DIGITS: usize = 19;

/// Why a text is not a list.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum ListError {
    /// A missing bracket, or nested brackets.
    #[error("{0:?}: the brackets do not match; write node[001-064,100]")]
    Brackets(String),
    /// The text in brackets is not a number or range.
    #[error("{0:?} is not a range; write 001-064, 0-10/2, or 7")]
    Range(String),
    /// An operator without a list on one of its sides.
    #[error("{1:?} needs a list on both sides, in {0:?}")]
    Operator(String, char),
    /// An empty list.
    #[error("the list of hosts is empty")]
    Empty,
    /// More names than allowed.
    #[error("more than {0} hosts")]
    TooMany(usize),
    /// The same names again and again.
    #[error("the items of the host list name too many hosts together: name each host once")]
    TooMuch,
}

/// How an item is combined with the items before it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Operator {
    /// `,`: union.
    Join,
    /// `!`: difference.
    Remove,
    /// `&`: intersection.
    Common,
    /// `^`: symmetric difference.
    Either,
}

impl Operator {
    fn of(c: char) -> Option<Self> {
        match c {
            '!' => Some(Self::Remove),
            '&' => Some(Self::Common),
            '^' => Some(Self::Either),
            c if c == ',' || c.is_whitespace() => Some(Self::Join),
            _ => None,
        }
    }

    /// Applies an item; elements with the same `key` are equal. `Join` keeps duplicates.
    pub fn apply<T, K: Ord>(self, before: &mut Vec<T>, item: Vec<T>, key: impl Fn(&T) -> K) {
        let keys = |list: &[T]| list.iter().map(&key).collect::<BTreeSet<K>>();
        match self {
            Self::Join => before.extend(item),
            Self::Remove => {
                let item = keys(&item);
                before.retain(|one| !item.contains(&key(one)));
            }
            Self::Common => {
                let item = keys(&item);
                before.retain(|one| item.contains(&key(one)));
            }
            Self::Either => {
                let (old, new) = (keys(before), keys(&item));
                before.retain(|one| !new.contains(&key(one)));
                before.extend(item.into_iter().filter(|one| !old.contains(&key(one))));
            }
        }
    }
}

/// Names that may still be looked at while a list is read: a short text can name all hosts again and again.
#[derive(Debug)]
pub struct Budget(usize);

impl Default for Budget {
    fn default() -> Self {
        Self(256 * MAX_HOSTS)
    }
}

impl Budget {
    /// [`Operator::apply`], counting the names that it looks at.
    ///
    /// # Errors
    /// [`ListError::TooMuch`].
    pub fn apply<T, K: Ord>(
        &mut self,
        operator: Operator,
        before: &mut Vec<T>,
        item: Vec<T>,
        key: impl Fn(&T) -> K,
    ) -> Result<(), ListError> {
        self.take(item.len() + if operator == Operator::Join { 0 } else { before.len() })?;
        operator.apply(before, item, key);
        Ok(())
    }

    fn take(&mut self, names: usize) -> Result<(), ListError> {
        self.0 = self.0.checked_sub(names).ok_or(ListError::TooMuch)?;
        Ok(())
    }
}

/// The items of a list with all brackets expanded: at least one and at most [`MAX_HOSTS`] names.
///
/// # Errors
/// See [`ListError`].
pub fn items(list: &str) -> Result<Vec<String>, ListError> {
    let all = names(list, MAX_HOSTS)?;
    if all.is_empty() { Err(ListError::Empty) } else { Ok(all) }
}

/// The items of a list, each with the operator before it. An operator may begin the list, for callers that have items
/// before.
///
/// # Errors
/// Brackets that do not match, or two operators without an item between them.
pub fn split(text: &str) -> Result<Vec<(Operator, &str)>, ListError> {
    let unmatched = || ListError::Brackets(text.into());
    let lonely = |c: char| ListError::Operator(text.into(), c);
    let (mut items, mut start, mut open) = (Vec::new(), 0, false);
    let mut operator: Option<char> = None;
    let mut item = |operator: &mut Option<char>, item| {
        if !str::is_empty(item) {
            items.push((operator.take().and_then(Operator::of).unwrap_or(Operator::Join), item));
        }
    };
    for (at, c) in text.char_indices() {
        match c {
            '[' if open => return Err(unmatched()),
            '[' => open = true,
            ']' if !open => return Err(unmatched()),
            ']' => open = false,
            c if !open => {
                let Some(now) = Operator::of(c) else { continue };
                item(&mut operator, &text[start..at]);
                start = at + c.len_utf8();
                match (operator, now) {
                    (_, Operator::Join) => {}
                    (Some(before), _) => return Err(lonely(before)),
                    (None, _) => operator = Some(c),
                }
            }
            _ => {}
        }
    }
    if open {
        return Err(unmatched());
    }
    item(&mut operator, &text[start..]);
    operator.map_or(Ok(items), |c| Err(lonely(c)))
}

/// All names of an item, at most `most`; the last bracket varies fastest. An IPv6 address keeps its brackets.
///
/// # Errors
/// See [`ListError`].
pub fn expand(item: &str, most: usize) -> Result<Vec<String>, ListError> {
    let unmatched = || ListError::Brackets(item.into());
    let mut names = vec![String::new()];
    let mut rest = item;
    while let Some((plain, tail)) = rest.split_once('[') {
        let (inside, tail) = tail.split_once(']').ok_or_else(unmatched)?;
        let choices = if inside.contains(':') { vec![format!("[{inside}]")] } else { numbers(inside, most)? };
        let count = names.len().saturating_mul(choices.len());
        let bytes: usize = names.iter().map(|name| name.len() + plain.len()).sum();
        if count > most || bytes.saturating_mul(choices.len()) > MAX_BYTES {
            return Err(ListError::TooMany(most));
        }
        let longer = |name: &String| choices.iter().map(|n| format!("{name}{plain}{n}")).collect::<Vec<_>>();
        names = names.iter().flat_map(longer).collect();
        rest = tail;
    }
    if rest.contains(']') {
        return Err(unmatched());
    }
    if rest.len().saturating_mul(names.len()) > MAX_BYTES {
        return Err(ListError::TooMany(most));
    }
    names.iter_mut().for_each(|name| name.push_str(rest));
    Ok(names)
}

/// The numbers in brackets. The numbers of a range are padded to the width of its first.
fn numbers(text: &str, most: usize) -> Result<Vec<String>, ListError> {
    let mut all = Vec::new();
    for range in text.split(',').map(str::trim) {
        let bad = || ListError::Range(range.into());
        let number = |digits: &str| {
            let plain = !digits.is_empty() && digits.bytes().all(|b| b.is_ascii_digit());
            digits.parse::<u64>().ok().filter(|_| plain && digits.len() <= MAX_DIGITS).ok_or_else(bad)
        };
        let (ends, step) = match range.split_once('/') {
            Some((ends, step)) if ends.contains('-') => (ends, number(step)?),
            Some(_) => return Err(bad()),
            None => (range, 1),
        };
        let (from, to) = ends.split_once('-').unwrap_or((ends, ends));
        let (first, last, width) = (number(from)?, number(to)?, from.len());
        if first > last || step == 0 {
            return Err(bad());
        }
        if (last - first) / step >= (most - all.len()) as u64 {
            return Err(ListError::TooMany(most));
        }
        let count = (last - first) / step;
        all.extend((0..=count).map(|n| format!("{:0width$}", first + n * step)));
    }
    Ok(all)
}

/// All names of a whole list, each once, in the order of first mention.
///
/// # Errors
/// See [`ListError`].
pub fn names(list: &str, most: usize) -> Result<Vec<String>, ListError> {
    let (mut all, mut budget) = (Vec::new(), Budget::default());
    for (at, (operator, item)) in split(list)?.into_iter().enumerate() {
        if at == 0 && operator != Operator::Join {
            return Err(ListError::Operator(list.into(), list.trim_start().chars().next().unwrap_or('!')));
        }
        budget.apply(operator, &mut all, expand(item, most)?, String::clone)?;
        if all.len() > most.saturating_mul(2) {
            return Err(ListError::TooMany(most));
        }
    }
    let mut seen = BTreeSet::new();
    all.retain(|name| seen.insert(name.clone()));
    if all.len() > most { Err(ListError::TooMany(most)) } else { Ok(all) }
}

/// A short list for these names, sorted, with the numbers at their ends in brackets; Slurm reads the same format.
#[must_use]
pub fn fold<'a>(names: impl IntoIterator<Item = &'a str>) -> String {
    let mut parts: Vec<(&str, &str)> = names.into_iter().map(numbered).collect();
    parts.sort_unstable_by_key(|(stem, digits)| (*stem, digits.len(), *digits));
    parts.dedup();
    let mut text = String::new();
    for group in parts.chunk_by(|a, b| a.0 == b.0 && !a.1.is_empty() && !b.1.is_empty()) {
        let stem = group.first().map_or("", |(stem, _)| *stem);
        let digits: Vec<&str> = group.iter().map(|(_, digits)| *digits).collect();
        if !text.is_empty() {
            text.push(',');
        }
        text.push_str(stem);
        match ranges(&digits).as_slice() {
            [one] if !one.contains('-') => text.push_str(one),
            several => {
                text.push('[');
                text.push_str(&several.join(","));
                text.push(']');
            }
        }
    }
    text
}

/// A name and the digits at its end; no digits if there are too many for a number, or in an address.
fn numbered(name: &str) -> (&str, &str) {
    let stem = name.trim_end_matches(|c: char| c.is_ascii_digit());
    let digits = name.get(stem.len()..).unwrap_or_default();
    if stem.contains(':') || digits.len() >= MAX_DIGITS { (name, "") } else { (stem, digits) }
}

/// Sorted numbers as ranges of equal width.
fn ranges(digits: &[&str]) -> Vec<String> {
    let mut all: Vec<(&str, u64, u64)> = Vec::new();
    for text in digits {
        let number = text.parse().unwrap_or_default();
        match all.last_mut() {
            Some((first, from, count))
                if *text == format!("{:0width$}", *from + *count + 1, width = first.len()) =>
            {
                *count += 1;
            }
            _ => all.push((text, number, 0)),
        }
    }
    let range = |(first, from, count): (&str, u64, u64)| match count {
        0 => first.to_owned(),
        _ => format!("{first}-{:0width$}", from + count, width = first.len()),
    };
    all.into_iter().map(range).collect()
}

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn read(list: &str) -> String {
        names(list, 1000).unwrap().join(" ")
    }

    #[test]
    fn lists() {
        for (list, all) in [
            ("a", "a"),
            (" a , b,,c ", "a b c"),
            ("n[08-11,100]", "n08 n09 n10 n11 n100"),
            ("n[0-10/5,7]", "n0 n5 n10 n7"),
            ("n[01-05/2]-ib", "n01-ib n03-ib n05-ib"),
            ("n[1-3/9]", "n1"),
            ("n[1, 3-4 ]", "n1 n3 n4"),
            ("r[1-2]n[1,3].x,y", "r1n1.x r1n3.x r2n1.x r2n3.x y"),
            ("a,b,a", "a b"),
            ("n[1-5]!n[2-4]", "n1 n5"),
            ("n[1-5] ! n2,n2", "n1 n3 n4 n5 n2"),
            ("n[1-5]!n[1-5/2]!n4", "n2"),
            ("n[1-5]&n[4-9]", "n4 n5"),
            ("n[1-3]^n[3-4]", "n1 n2 n4"),
            ("n[1-2]!x", "n1 n2"),
            ("[fd00::1]:22,me@[::1]", "[fd00::1]:22 me@[::1]"),
            ("fd00::[1-2]", "fd00::1 fd00::2"),
        ] {
            assert_eq!(read(list), all, "{list}");
        }
    }

    #[test]
    fn mistakes() {
        use ListError as E;
        for bad in ["n[1", "n1]", "n[[1]]", "n[1]]"] {
            assert!(matches!(names(bad, 9), Err(E::Brackets(_))), "{bad}");
        }
        for bad in [
            "n[]",
            "n[a]",
            "n[2-1]",
            "n[1-]",
            "n[-1]",
            "n[1,,2]",
            "n[1-2-3]",
            "n[0-4/0]",
            "n[0-4/]",
            "n[4/2]",
            "n[0-4/-1]",
            "n[99999999999999999999]",
        ] {
            assert!(matches!(names(bad, 9), Err(E::Range(_))), "{bad}");
        }
        for bad in ["!a", "a!", "a!!b", "a,&", "a!^b"] {
            assert!(matches!(names(bad, 9), Err(E::Operator(..))), "{bad}");
        }
        for many in
            ["n[1-10]", "n[1-9],m", "n[1-4][1-4]", "n[0-999999999999999999]", "n[1-9,1-9]", "n[0-99/3]"]
        {
            assert_eq!(names(many, 9), Err(E::TooMany(9)), "{many}");
        }
        assert_eq!(read("n[0-999999999999999999/999999999999999999]"), "n0 n999999999999999999");
    }

    #[test]
    fn folded() {
        for (all, list) in [
            ("a", "a"),
            ("n3 n1 n2", "n[1-3]"),
            ("n8 n9 n10 n11 n100", "n[8-11,100]"),
            ("n08 n09 n10", "n[08-10]"),
            ("n1 n01", "n[1,01]"),
            ("x n7 login n7", "login,n7,x"),
            ("r1n1 r1n2 r2n1", "r1n[1-2],r2n1"),
            ("n1.a n2.a", "n1.a,n2.a"),
            ("1 2 3", "[1-3]"),
        ] {
            assert_eq!(fold(all.split(' ')), list);
        }
    }

    #[test]
    fn all_hosts_again_and_again_are_refused() {
        let all = format!("n[1-{MAX_HOSTS}]");
        assert_eq!(names(&format!("{all}!n1!n2"), MAX_HOSTS).unwrap().len(), MAX_HOSTS - 2);
        let mut budget = Budget::default();
        let looks = std::iter::repeat_with(|| budget.take(2 * MAX_HOSTS)).take(200);
        assert_eq!(looks.filter(Result::is_ok).count(), 128);
    }

    proptest! {
        #[test]
        fn what_is_folded_is_read_again(all in prop::collection::btree_set("[ab]{0,1}[0-9]{0,3}[x.]{0,1}[0-9]{1,2}", 1..40)) {
            let list = fold(all.iter().map(String::as_str));
            let back: BTreeSet<String> = names(&list, 1000).unwrap().into_iter().collect();
            prop_assert_eq!(back, all, "{}", list);
        }

        #[test]
        fn no_text_makes_it_panic_or_long(text in "[a-c0-9=.,@!&^/\\[\\]\\- :]{0,40}", any in "\\PC{0,40}") {
            for text in [text, any] {
                if let Ok(all) = names(&text, 100) {
                    prop_assert!(all.len() <= 100);
                }
            }
        }
    }
}
