//! `--chmod`: changes of modes, in the words of rsync's manual (`D755,F644`, `u+rwX,go-w`). `tests/e2e/test_copy_flags.py` has rsync
//! judge them.

use std::str::FromStr;

use serde::{Deserialize, Serialize};

use crate::error::Error;

const ALL: u32 = 0o7777;
const EXECUTE: u32 = 0o111;

/// Changes, one after the other.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Chmod(Vec<Step>);

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
struct Step {
    /// Only directories (true), or only other files (false).
    dirs: Option<bool>,
    how: How,
    /// The classes that are changed: the execution bit of each; 0 means all, except the bits of the umask.
    of: u32,
    /// Of each `rwx`, as the last three bits; or as they are of another: 6 the user, 3 the group, 0 others.
    rights: u32,
    like: Option<u32>,
    /// Set-id and sticky bits, and those that `=` takes away.
    special: u32,
    special_of: u32,
    /// `X`: execution only of directories and of files that have an execution bit already.
    keeps_execution: bool,
}

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
enum How {
    Add,
    Take,
    #[default]
    Set,
    /// As a number: nothing of the old one stays.
    Number,
}

impl Chmod {
    /// Whether it changes nothing.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    /// Adds the changes of another flag.
    pub fn extend(&mut self, other: Self) {
        self.0.extend(other.0);
    }

    /// The mode that comes of another one.
    pub(crate) fn apply(&self, mode: u32, is_dir: bool, umask: u32) -> u32 {
        let executes = mode & EXECUTE != 0 || is_dir;
        let steps = self.0.iter().filter(|step| step.dirs.is_none_or(|dirs| dirs == is_dir));
        steps.fold(mode, |mode, step| step.apply(mode, executes, umask)) & ALL
    }
}

impl FromStr for Chmod {
    type Err = Error;

    fn from_str(text: &str) -> Result<Self, Error> {
        let bad = |part: &str| {
            Error::Usage(format!(
                "invalid mode change {part:?}; write for example D755,F644 or u+rwX,go-w (D: directories only, F: files only)"
            ))
        };
        text.split(',')
            .map(|part| Step::read(part).ok_or_else(|| bad(part)))
            .collect::<Result<_, _>>()
            .map(Self)
    }
}

impl Step {
    fn read(text: &str) -> Option<Self> {
        let (dirs, rest) = match text.split_at_checked(1)? {
            ("D", rest) => (Some(true), rest),
            ("F", rest) => (Some(false), rest),
            _ => (None, text),
        };
        let mut step = Self { dirs, ..Self::default() };
        if rest.starts_with(|c: char| c.is_ascii_digit()) {
            let mode = u32::from_str_radix(rest, 8).ok().filter(|mode| *mode <= ALL)?;
            return Some(Self { how: How::Number, special: mode, ..step });
        }
        let (who, rest) = rest.split_at(rest.find(['+', '-', '='])?);
        let (sign, what) = rest.split_at(1);
        step.how = match sign {
            "+" => How::Add,
            "-" => How::Take,
            _ => How::Set,
        };
        for letter in who.chars() {
            let (bits, special) = match letter {
                'u' => (0o100, 0o4000),
                'g' => (0o010, 0o2000),
                'o' => (0o001, 0),
                'a' => (0o111, 0o6000),
                _ => return None,
            };
            (step.of, step.special_of) = (step.of | bits, step.special_of | special);
        }
        step.like = match what {
            "u" => Some(6),
            "g" => Some(3),
            "o" => Some(0),
            _ => None,
        };
        for letter in what.chars().filter(|_| step.like.is_none()) {
            match letter {
                'r' => step.rights |= 4,
                'w' => step.rights |= 2,
                'x' => step.rights |= 1,
                'X' => (step.rights, step.keeps_execution) = (step.rights | 1, true),
                // Without a class rsync takes back a `t` before it.
                's' if step.special_of == 0 => step.special = 0o4000,
                's' => step.special |= step.special_of,
                't' => step.special |= 0o1000,
                _ => return None,
            }
        }
        Some(step)
    }

    fn apply(&self, mode: u32, executes: bool, umask: u32) -> u32 {
        let (of, masked) = if self.of == 0 { (EXECUTE, umask) } else { (self.of & EXECUTE, 0) };
        let rights = self.like.map_or(self.rights, |from| mode >> (from & 7)) & 7;
        let hidden = if self.keeps_execution && !executes { EXECUTE } else { 0 };
        let bits = (of * rights) & !masked;
        match self.how {
            How::Add => mode | bits & !hidden | self.special,
            How::Take => mode & !(bits | self.special),
            How::Number => self.special,
            How::Set => {
                let special = match (self.like, self.special) {
                    // The bits of all classes that get the rights of another one.
                    (Some(_), _) => (of & 0o100) << 5 | (of & 0o010) << 7 | (of & 0o001) << 9,
                    (None, 0) => 0,
                    (None, _) => self.special_of,
                };
                let gone = (of * 7) | special;
                mode & !gone | bits & !hidden | self.special
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn of(text: &str, mode: u32, is_dir: bool) -> u32 {
        text.parse::<Chmod>().unwrap().apply(mode, is_dir, 0o022)
    }

    #[test]
    fn the_words_of_rsync_are_read() {
        assert_eq!((of("D755,F644", 0o600, true), of("D755,F644", 0o777, false)), (0o755, 0o644));
        assert_eq!((of("u+rwX,go-w", 0o466, false), of("u+rwX,go-w", 0o166, true)), (0o644, 0o744));
        assert_eq!((of("a=rX", 0o640, false), of("a=rX", 0o650, false)), (0o444, 0o555));
        assert_eq!((of("Dg+s", 0o755, true), of("Dg+s", 0o755, false)), (0o2755, 0o755));
        assert_eq!(
            (of("+w", 0o444, false), of("=", 0o444, false), of("0", 0o4755, true)),
            (0o644, 0, 0),
            "the umask counts"
        );
        // As chmod(1), and as rsync from 3.5 on.
        assert_eq!((of("a+s", 0o755, false), of("a-s", 0o6755, false)), (0o6755, 0o755));
        assert_eq!((of("ug-s,+t", 0o6755, false), of("4755", 0, false)), (0o1755, 0o4755));
        assert_eq!(
            (of("o=g", 0o7777, true), of("go=u", 0o7777, true), of("o=", 0o7777, true)),
            (0o6777, 0o4777, 0o7770)
        );
        assert_eq!((of("g=u,o-g", 0o640, false), of("-w", 0o666, false)), (0o660, 0o466));
    }

    #[test]
    fn what_is_none_is_refused() {
        for text in ["", "x", "888", "77777", "u", "q+x", "u+q", "DF644", "D", "644,", "u+x,,g+x", "é"] {
            assert!(text.parse::<Chmod>().is_err(), "{text}");
        }
    }
}
