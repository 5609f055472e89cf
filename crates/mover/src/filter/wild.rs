//! Wildcards: `?` and `[...]` match a byte and `*` any number of them, but no slash; `**` matches slashes, too.

/// A compiled text with wildcards.
#[derive(Debug)]
pub(super) struct Wild {
    parts: Vec<One>,
    /// It ends in `***`.
    pub(super) ends_in_three: bool,
    /// Nothing matches it.
    pub(super) malformed: bool,
}

/// The elements of a pattern.
#[derive(Clone, Debug, PartialEq, Eq)]
enum One {
    Byte(u8),
    Any,
    Of(Box<Set>),
    /// Any number of bytes; with `true` slashes among them.
    Run(bool),
}

/// Bytes, a bit each.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
struct Set([u64; 4]);

impl Set {
    fn add(&mut self, byte: u8) {
        self.0[usize::from(byte >> 6)] |= 1 << (byte & 63);
    }

    fn has(&self, byte: u8) -> bool {
        self.0[usize::from(byte >> 6)] >> (byte & 63) & 1 == 1
    }
}

/// Which bytes are in a class.
type Class = fn(&u8) -> bool;

/// A `[` without its `]`, or a class that does not exist.
struct Malformed;

impl Wild {
    pub(super) fn new(text: &[u8]) -> Self {
        let ends_in_three = text.ends_with(b"***");
        let (mut parts, mut at) = (Vec::new(), 0);
        let mut malformed = false;
        while let Some(&byte) = text.get(at) {
            at += 1;
            parts.push(match byte {
                b'?' => One::Any,
                b'*' => {
                    let more = text[at..].iter().take_while(|b| **b == b'*').count();
                    at += more;
                    One::Run(more > 0)
                }
                b'[' => match set(text, &mut at) {
                    Ok(set) => One::Of(Box::new(set)),
                    Err(Malformed) => {
                        malformed = true;
                        break;
                    }
                },
                b'\\' => {
                    let escaped = text.get(at).copied();
                    at += 1;
                    // After the last byte of a path no set can match.
                    malformed |= escaped.is_none();
                    One::Byte(escaped.unwrap_or(0))
                }
                byte => One::Byte(byte),
            });
        }
        Self { parts, ends_in_three, malformed }
    }

    /// Whether all of `text` matches, in time bounded by the product of both lengths.
    pub(super) fn matches(&self, text: &[u8]) -> bool {
        let (mut part, mut at) = (0, 0);
        // Where to continue if the rest does not match: after the last run of each kind, one byte further
        // than before.
        let (mut star, mut stars) = (None, None);
        if self.malformed {
            return false;
        }
        loop {
            let fits = match (self.parts.get(part), text.get(at)) {
                (None, None) => return true,
                (Some(One::Run(slashes)), _) => {
                    part += 1;
                    if *slashes {
                        // This run can take everything that the runs before could.
                        (star, stars) = (None, Some((part, at)));
                    } else {
                        star = Some((part, at));
                    }
                    continue;
                }
                (None, _) | (_, None) => false,
                (Some(One::Byte(byte)), Some(has)) => byte == has,
                (Some(One::Any), Some(has)) => *has != b'/',
                (Some(One::Of(set)), Some(has)) => *has != b'/' && set.has(*has),
            };
            if fits {
                (part, at) = (part + 1, at + 1);
                continue;
            }
            let next = |(_, begin): &(usize, usize)| text.get(*begin).copied();
            if let Some((behind, begin)) = star.filter(|run| next(run).is_some_and(|byte| byte != b'/')) {
                star = Some((behind, begin + 1));
                (part, at) = (behind, begin + 1);
            } else if let Some((behind, begin)) = stars.filter(|run| next(run).is_some()) {
                (star, stars) = (None, Some((behind, begin + 1)));
                (part, at) = (behind, begin + 1);
            } else {
                return false;
            }
        }
    }
}

/// The set after a `[` at `at`, which is then moved past its `]`.
fn set(text: &[u8], at: &mut usize) -> Result<Set, Malformed> {
    let mut set = Set::default();
    let inverted = matches!(text.get(*at), Some(b'!' | b'^'));
    *at += usize::from(inverted);
    let begin = *at;
    // The byte before a `-`, from which a range begins.
    let mut before = None;
    loop {
        let byte = *text.get(*at).ok_or(Malformed)?;
        let next = text.get(*at + 1).copied();
        *at += 1;
        match (byte, before, next) {
            // As the first of a set it stands for itself.
            (b']', ..) if *at - 1 > begin => break,
            (b'-', Some(from), Some(to)) if to != b']' => {
                let to = if to == b'\\' { escaped(text, at)? } else { to };
                *at += 1;
                (from..=to).for_each(|byte| set.add(byte));
                before = None;
                continue;
            }
            (b'[', _, Some(b':')) => {
                if let Some(class) = class(text, at)? {
                    (0..=u8::MAX).filter(class).for_each(|byte| set.add(byte));
                    before = None;
                    continue;
                }
                set.add(byte);
            }
            (b'\\', _, Some(byte)) => {
                *at += 1;
                set.add(byte);
                before = Some(byte);
                continue;
            }
            (b'\\', _, None) => return Err(Malformed),
            _ => set.add(byte),
        }
        before = Some(byte);
    }
    Ok(if inverted { Set(set.0.map(|bits| !bits)) } else { set })
}

/// The byte after the backslash at `at`, which is then moved to that byte.
fn escaped(text: &[u8], at: &mut usize) -> Result<u8, Malformed> {
    *at += 1;
    text.get(*at).copied().ok_or(Malformed)
}

/// The class whose `:` is at `at`, as in `[:digit:]`; then `at` is moved past it. None: it is not a class,
/// and its bytes stand for themselves.
fn class(text: &[u8], at: &mut usize) -> Result<Option<Class>, Malformed> {
    let name = text.get(*at + 1..).unwrap_or_default();
    let end = name.iter().position(|b| *b == b']').ok_or(Malformed)?;
    let Some((b':', name)) = name[..end].split_last() else { return Ok(None) };
    let class: Class = match name {
        b"alnum" => u8::is_ascii_alphanumeric,
        b"alpha" => u8::is_ascii_alphabetic,
        b"blank" => |byte| matches!(byte, b' ' | b'\t'),
        b"cntrl" => u8::is_ascii_control,
        b"digit" => u8::is_ascii_digit,
        b"graph" => u8::is_ascii_graphic,
        b"lower" => u8::is_ascii_lowercase,
        b"print" => |byte| matches!(byte, b' '..=b'~'),
        b"punct" => u8::is_ascii_punctuation,
        b"space" => |byte| matches!(byte, b' ' | b'\t'..=b'\r'),
        b"upper" => u8::is_ascii_uppercase,
        b"xdigit" => u8::is_ascii_hexdigit,
        _ => return Err(Malformed),
    };
    *at += end + 2;
    Ok(Some(class))
}

#[cfg(test)]
mod tests {
    use super::Wild;

    #[test]
    fn runs_give_way_to_what_follows() {
        let matches = |pattern: &str, text: &str| Wild::new(pattern.as_bytes()).matches(text.as_bytes());
        assert!(matches("*a*b", "xaxab") && !matches("*a*b", "xa/b") && matches("**a*b", "x/y/ab"));
        assert!(matches("a**z/*c", "a/z/b/z/c") && !matches("a*z/**d", "a/z/d") && matches("**", ""));
        assert!(!matches("a\\", "a") && !matches("a\\", "a\\") && matches("\\[a]", "[a]"));
        assert!(matches("[a-c-e]", "-") && !matches("[a-c-e]", "d") && matches("[\\]-a]", "^"));
        assert!(matches("[[:abc]", ":") && matches("[[:]", "[") && matches("[a-[:digit:]]", ":]"));
        assert!(!matches("[^a]", "/") && !matches("[.-0]", "/") && matches("[^a]", "\u{1}"));
        // Would take ages by going back one after the other.
        assert!(!matches(&"*a".repeat(40), &"a".repeat(2000).replace('a', "aab")));
    }
}
