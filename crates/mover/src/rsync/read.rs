//! Flags out of the words of a command line.

use std::ffi::OsStr;

use super::foreign::{DONE, DONE_VALUED, OTHERS, REFUSED};
use super::table::{ALIASES, KEPT, NAMED, SWITCHES, VALUED};
use super::{Flags, Said};

impl Flags {
    /// What these words ask for: `--name`, `--name=value`, `--name` and its value, and letters (`-avH`). Flags that ask for what is
    /// done anyway change nothing.
    ///
    /// # Errors
    /// A word is no flag, lacks its value, or is one that asks for something else than a copy does: with what to do instead.
    pub fn read<'a>(words: impl IntoIterator<Item = &'a str>) -> Result<Self, String> {
        let mut words = words.into_iter();
        let mut said = Vec::new();
        while let Some(word) = words.next() {
            if let Some(long) = word.strip_prefix("--") {
                let (name, value) =
                    long.split_once('=').map_or((long, None), |(name, value)| (name, Some(value)));
                said.extend(flag(|other, _| other == name, word, value, &mut words)?);
                continue;
            }
            let letters = word.strip_prefix('-').filter(|letters| !letters.is_empty());
            let letters = letters.ok_or_else(|| format!("{word:?} is no flag"))?;
            for (at, letter) in letters.char_indices() {
                let rest = letters.get(at + letter.len_utf8()..).filter(|rest| !rest.is_empty());
                let found = flag(
                    |_, short| short == Some(letter),
                    word,
                    None,
                    &mut rest.into_iter().chain(&mut words),
                )?;
                let valued = matches!(found, Some(Said::Value(..) | Said::Name(..)));
                said.extend(found);
                if valued {
                    break;
                }
            }
        }
        Self::of(&said)
    }
}

/// The flag that `is` one by name and letter; none of one that changes nothing.
fn flag<'a>(
    is: impl Fn(&str, Option<char>) -> bool,
    word: &str,
    value: Option<&'a str>,
    words: &mut impl Iterator<Item = &'a str>,
) -> Result<Option<Said<'a>>, String> {
    let mut value = || value.or_else(|| words.next()).ok_or_else(|| format!("{word} lacks its value"));
    for kept in &KEPT {
        if is(kept.name, kept.letter) {
            return Ok(Some(Said::Keep(kept, true)));
        }
        if is(kept.no, None) || kept.no_letter.is_some_and(|name| is(name, None)) {
            return Ok(Some(Said::Keep(kept, false)));
        }
    }
    let aliased = |name: &str| ALIASES.iter().any(|(of, alias)| *of == name && is(alias, None));
    if let Some(switch) = SWITCHES.iter().find(|(name, letter, ..)| is(name, *letter) || aliased(name)) {
        return Ok(Some(Said::Switch(switch, 1)));
    }
    if let Some(valued) = VALUED.iter().find(|(name, letter, ..)| is(name, *letter)) {
        return Ok(Some(Said::Value(valued, value()?)));
    }
    if let Some(named) = NAMED.iter().find(|(name, ..)| is(name, None)) {
        return Ok(Some(Said::Name(named, OsStr::new(value()?))));
    }
    if DONE.iter().any(|(name, letter)| is(name, *letter)) {
        return Ok(None);
    }
    if DONE_VALUED.iter().any(|name| is(name, None)) {
        return value().map(|_| None);
    }
    match REFUSED.iter().chain(&OTHERS).find(|(name, letter, _)| is(name, *letter)) {
        Some((name, _, hint)) => Err(format!("--{name} is not supported: {hint}")),
        None => Err(format!("{word} is no flag of rsync's")),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn flags_count_in_their_order() {
        let keep = |words: &[&str]| Flags::read(words.iter().copied()).unwrap().receive.keep;
        assert!(keep(&[]).perms && keep(&["-a"]).perms && keep(&["-rlptgoD"]).perms);
        assert!(!keep(&["-a", "--no-perms"]).perms && keep(&["--no-p", "-a"]).perms);
        let some = keep(&["-rt"]);
        assert!(some.times && !some.perms && !some.links);
        assert!(keep(&["-H"]).perms, "what is beside it does not say what else is kept");
        assert!(keep(&["-t", "--chown=:staff"]).group);
    }

    #[test]
    fn values_come_with_the_flag_or_after_it() {
        for words in [&["--max-delete=5"][..], &["--max-delete", "5"]] {
            assert_eq!(Flags::read(words.iter().copied()).unwrap().receive.max_delete, Some(5), "{words:?}");
        }
        let window = |words: &[&str]| Flags::read(words.iter().copied()).unwrap().receive.only.window;
        assert_eq!((window(&["-u@-1"]), window(&["-@", "2"])), (Some(-1), Some(2)));
        assert_eq!(Flags::read(["--bwlimit=10"]).unwrap().limit, Some(10 << 10));
        let backups = Flags::read(["-b", "--suffix", ".old"]).unwrap().backups();
        assert_eq!(backups.as_deref(), Some(&b"*.old"[..]));
    }

    #[test]
    fn what_is_done_anyway_changes_nothing_and_the_rest_is_refused() {
        assert!(Flags::read(["-zPS", "--info=progress2", "--partial-dir", "x"]).is_ok());
        for bad in [
            "--safe-links",
            "--atimes",
            "--usermap=a:b",
            "-K",
            "--no-such",
            "--max-size",
            "--chmod=x!",
            "word",
            "-",
        ] {
            assert!(Flags::read([bad]).is_err(), "{bad}");
        }
    }
}
