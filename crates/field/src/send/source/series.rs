//! One file a step: several names, or a pattern that no shell has expanded, are a series in the order of their numbers.

use std::cmp::Ordering;
use std::path::{Path, PathBuf};

use super::SourceError;

/// Files of a pattern at most.
const FILES: usize = 1 << 20;

/// The names, patterns expanded. Those in the order of the alphabet, as shells and patterns give them, are put in that of their numbers: step 2
/// before step 10. Any other order is the user's.
pub(super) fn of(names: &[String]) -> Result<Vec<String>, SourceError> {
    let mut all = Vec::new();
    for name in names {
        match pattern(name) {
            Some((dir, pattern, inner)) => all.extend(expanded(name, &dir, &pattern, inner)?),
            None => all.push(name.clone()),
        }
    }
    if all.len() > 1 && all.is_sorted() {
        all.sort_by(|a, b| natural(a, b));
    }
    Ok(all)
}

/// Directory, pattern of names in it, and the part after a colon, of a name that has wildcards and is not a
/// file.
fn pattern(name: &str) -> Option<(PathBuf, String, Option<&str>)> {
    if !name.contains(['*', '?']) || Path::new(name).exists() {
        return None;
    }
    // `run/step*.nc:density`: a variable has no slash in front, or is an absolute path within the file.
    let split = name.rsplit_once(':').filter(|(file, inner)| {
        file.contains(['*', '?'])
            && !inner.contains(['*', '?'])
            && !inner.starts_with(|c: char| c.is_ascii_digit())
    });
    let (file, inner) = split.map_or((name, None), |(file, inner)| (file, Some(inner)));
    let path = Path::new(file);
    let dir = path.parent().filter(|dir| !dir.as_os_str().is_empty()).unwrap_or(Path::new("."));
    Some((dir.to_owned(), path.file_name()?.to_str()?.to_owned(), inner))
}

fn expanded(name: &str, dir: &Path, pattern: &str, inner: Option<&str>) -> Result<Vec<String>, SourceError> {
    let mut found = Vec::new();
    for entry in std::fs::read_dir(dir).map_err(SourceError::io(dir))? {
        let entry = entry.map_err(SourceError::io(dir))?;
        let file = entry.file_name();
        let Some(text) = file.to_str() else { continue };
        // As in shells, a leading dot is not matched.
        if text.starts_with('.') && !pattern.starts_with('.') || !matches(pattern.as_bytes(), text.as_bytes())
        {
            continue;
        }
        if found.len() == FILES {
            return Err(SourceError::wrong(name, format!("more than {FILES} files match")));
        }
        let path = if dir == Path::new(".") { PathBuf::from(text) } else { dir.join(text) };
        let path = path.display();
        found.push(inner.map_or_else(|| path.to_string(), |inner| format!("{path}:{inner}")));
    }
    if found.is_empty() {
        return Err(SourceError::wrong(name, "no file matches"));
    }
    found.sort();
    Ok(found)
}

/// `*` stands for any letters, `?` for one byte. Takes time of one length times the other.
fn matches(pattern: &[u8], text: &[u8]) -> bool {
    let (mut p, mut t, mut star) = (0, 0, None);
    while t < text.len() {
        match pattern.get(p) {
            Some(b'*') => {
                star = Some((p, t));
                p += 1;
            }
            Some(sign) if *sign == b'?' || *sign == text[t] => (p, t) = (p + 1, t + 1),
            _ => match star {
                Some((at, from)) => {
                    star = Some((at, from + 1));
                    (p, t) = (at + 1, from + 1);
                }
                None => return false,
            },
        }
    }
    pattern[p..].iter().all(|sign| *sign == b'*')
}

/// Numbers are compared as such, all else by letters; of equal ones the shorter comes first. `0.25` is a number with a fraction;
/// `2026.11.28` are three numbers.
fn natural(a: &str, b: &str) -> Ordering {
    let (mut left, mut right) = (Parts::of(a), Parts::of(b));
    loop {
        let order = match (left.next(), right.next()) {
            (Some(Part::Number(x, p)), Some(Part::Number(y, q))) => {
                x.len().cmp(&y.len()).then_with(|| x.cmp(y)).then_with(|| p.cmp(q))
            }
            (Some(x), Some(y)) => x.first().cmp(&y.first()),
            (None, None) => return a.cmp(b),
            (x, y) => x.is_some().cmp(&y.is_some()),
        };
        if order != Ordering::Equal {
            return order;
        }
    }
}

/// A letter, or a number: its digits without leading zeros, and those of its fraction.
enum Part<'n> {
    Letter(u8),
    Number(&'n [u8], &'n [u8]),
}

impl Part<'_> {
    /// The byte by which a number is compared with a letter.
    fn first(&self) -> u8 {
        match self {
            Part::Letter(letter) => *letter,
            Part::Number(..) => b'0',
        }
    }
}

/// The parts of a name.
struct Parts<'n> {
    rest: &'n [u8],
    /// Numbers have no fractions: these are the parts of a date or a version.
    is_dotted: bool,
}

impl<'n> Parts<'n> {
    fn of(name: &'n str) -> Self {
        Self { rest: name.as_bytes(), is_dotted: false }
    }

    fn digits(text: &[u8]) -> usize {
        text.iter().take_while(|byte| byte.is_ascii_digit()).count()
    }

    /// The digits behind a point, at `at`.
    fn behind_point(&self, at: usize) -> &'n [u8] {
        let after = self.rest.get(at..).and_then(|rest| rest.strip_prefix(b".")).unwrap_or_default();
        &after[..Self::digits(after)]
    }
}

impl<'n> Iterator for Parts<'n> {
    type Item = Part<'n>;

    fn next(&mut self) -> Option<Part<'n>> {
        let whole = Self::digits(self.rest);
        if whole == 0 {
            let (letter, rest) = self.rest.split_first()?;
            self.is_dotted &= *letter == b'.';
            self.rest = rest;
            return Some(Part::Letter(*letter));
        }
        let mut fraction = self.behind_point(whole);
        let end = whole + 1 + fraction.len();
        self.is_dotted |= !fraction.is_empty() && !self.behind_point(end).is_empty();
        if self.is_dotted {
            fraction = &[];
        }
        let (number, rest) = self.rest.split_at(if fraction.is_empty() { whole } else { end });
        self.rest = rest;
        let zeros = number[..whole].iter().take_while(|byte| **byte == b'0').count();
        Some(Part::Number(&number[zeros..whole], fraction))
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn owned(names: &[&str]) -> Vec<String> {
        names.iter().map(|name| (*name).to_owned()).collect()
    }

    #[test]
    fn steps_come_in_the_order_of_their_numbers_unless_the_user_has_another() {
        let shell = owned(&["s1.nc", "s10.nc", "s2.nc", "s2.nc:T"]);
        assert_eq!(of(&shell).unwrap(), owned(&["s1.nc", "s2.nc", "s2.nc:T", "s10.nc"]));
        let times = owned(&["U_0.05", "U_0.1", "U_0.15", "U_0.2", "U_1", "U_1.5", "U_10"]);
        assert_eq!(of(&times).unwrap(), times);
        let dates = owned(&["d.2026.1.10.nc", "d.2026.1.2.nc"]);
        assert_eq!(of(&dates).unwrap(), owned(&["d.2026.1.2.nc", "d.2026.1.10.nc"]));
        let given = owned(&["s10.nc", "s1.nc", "s2.nc"]);
        assert_eq!(of(&given).unwrap(), given);
    }

    #[test]
    fn patterns_are_expanded_with_their_variable() {
        let dir = tempfile::tempdir().unwrap();
        let name = |file: &str| dir.path().join(file).display().to_string();
        for file in ["w_10:00", "w_2:00", "w_1:00", ".w_3:00", "x_1:00"] {
            std::fs::write(name(file), b"").unwrap();
        }
        let expected: Vec<_> = ["w_1:00", "w_2:00", "w_10:00"].map(name).into();
        assert_eq!(of(&[name("w_*")]).unwrap(), expected);
        assert_eq!(of(&[name("w_*:00")]).unwrap(), expected);
        let with: Vec<_> = expected.iter().map(|name| format!("{name}:T")).collect();
        assert_eq!(of(&[name("w_*:T")]).unwrap(), with);
        assert_eq!(of(&[name("w_?:00:T")]).unwrap(), with[..2]);
        assert!(of(&[name("z*")]).unwrap_err().to_string().contains("no file matches"));
    }

    proptest! {
        #[test]
        fn natural_is_an_order(mut names in proptest::collection::vec("[a0-2_.]{0,7}", 0..20)) {
            names.sort_by(|a, b| natural(a, b));
            for pair in names.windows(2) {
                prop_assert!(natural(&pair[0], &pair[1]) != Ordering::Greater);
                prop_assert_eq!(natural(&pair[0], &pair[1]) == Ordering::Equal, pair[0] == pair[1]);
            }
        }

        #[test]
        fn a_pattern_matches_what_it_was_made_of(parts in proptest::collection::vec("[ab]{0,3}", 1..5)) {
            let pattern = parts.join("*");
            let text = parts.join("ba");
            prop_assert!(matches(pattern.as_bytes(), text.as_bytes()));
            let more = format!("{text}c");
            prop_assert!(!matches(pattern.as_bytes(), more.as_bytes()) || pattern.ends_with('*'));
        }
    }
}
