//! The head of NumPy's .npy files (NEP 1), read as hostile input.

use super::Kind;

/// The longest head that is read: NumPy's own is below 200 bytes.
pub const MAX_HEADER: usize = 64 << 10;

/// The contents of the header.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Header {
    /// The kind of numbers.
    pub kind: Kind,
    /// Their byte order.
    pub big_endian: bool,
    /// The first axis is the fastest, and not the last.
    pub fortran: bool,
    /// The axes: time, if present, z, y, x.
    pub shape: Vec<u64>,
    /// Where they begin.
    pub offset: usize,
}

/// Reads the head at the beginning of a file.
///
/// # Errors
/// The defect, as text.
pub fn parse(bytes: &[u8]) -> Result<Header, String> {
    let rest = bytes.strip_prefix(b"\x93NUMPY").ok_or("not a .npy file")?;
    let (before, length, text) = match rest {
        [1, _, a, b, rest @ ..] => (10, usize::from(u16::from_le_bytes([*a, *b])), rest),
        [2 | 3, _, a, b, c, d, rest @ ..] => (12, u32::from_le_bytes([*a, *b, *c, *d]) as usize, rest),
        _ => return Err("unknown .npy version".into()),
    };
    if length > MAX_HEADER {
        return Err(format!("the .npy header of {length} bytes is too long"));
    }
    let text = text.get(..length).ok_or("the .npy header is truncated")?;
    let text = std::str::from_utf8(text).map_err(|_| "the .npy header is not text")?;
    let (mut descr, mut fortran, mut shape) = (None, None, None);
    let mut words = Words(text);
    words.expect('{')?;
    while !words.take('}') {
        let key = words.string()?;
        words.expect(':')?;
        match key {
            "descr" => descr = Some(number(words.string()?)?),
            "fortran_order" => fortran = Some(words.truth()?),
            "shape" => shape = Some(words.tuple()?),
            _ => return Err(format!("unknown key {key:?} in the .npy header")),
        }
        if !words.take(',') {
            words.expect('}')?;
            break;
        }
    }
    let missing = "missing descr, fortran_order or shape in the .npy header";
    let (kind, big_endian) = descr.ok_or(missing)?;
    let shape = shape.ok_or(missing)?;
    let fortran = fortran.ok_or(missing)? && shape.len() > 1;
    Ok(Header { kind, big_endian, fortran, shape, offset: before + length })
}

/// The kind of number and its byte order of `<f4` and the like.
fn number(descr: &str) -> Result<(Kind, bool), String> {
    let unknown = || {
        format!(
            "values of type {descr:?} cannot be sent; only real numbers of at most 64 bits can (array.astype('f8'))"
        )
    };
    let mut letters = descr.chars();
    let (order, kind) = (letters.next().ok_or_else(unknown)?, letters.next().ok_or_else(unknown)?);
    let size = match letters.as_str() {
        "1" => 1,
        "2" => 2,
        "4" => 4,
        "8" => 8,
        _ => return Err(unknown()),
    };
    let kind = match (kind, size) {
        ('f', 2) => Kind::F16,
        ('f', 4) => Kind::F32,
        ('f', 8) => Kind::F64,
        ('i', _) => Kind::Signed(size),
        ('u', _) | ('b', 1) => Kind::Unsigned(size),
        _ => return Err(unknown()),
    };
    match (order, size) {
        ('<', _) | ('|', 1) => Ok((kind, false)),
        ('>', _) => Ok((kind, true)),
        _ => Err(unknown()),
    }
}

/// The rest of a Python literal.
struct Words<'a>(&'a str);

impl<'a> Words<'a> {
    fn take(&mut self, sign: char) -> bool {
        let rest = self.0.trim_start();
        let taken = rest.strip_prefix(sign);
        self.0 = taken.unwrap_or(rest);
        taken.is_some()
    }

    fn expect(&mut self, sign: char) -> Result<(), String> {
        if self.take(sign) { Ok(()) } else { Err(format!("damaged .npy header: missing {sign:?}")) }
    }

    fn string(&mut self) -> Result<&'a str, String> {
        let quote = if self.take('"') { '"' } else { '\'' };
        if quote == '\'' {
            self.expect('\'').map_err(|_| "values are not plain numbers, or the .npy header is damaged")?;
        }
        let (text, rest) = self.0.split_once(quote).ok_or("damaged .npy header: unterminated string")?;
        self.0 = rest;
        Ok(text)
    }

    fn truth(&mut self) -> Result<bool, String> {
        self.0 = self.0.trim_start();
        for (word, value) in [("True", true), ("False", false)] {
            if let Some(rest) = self.0.strip_prefix(word) {
                self.0 = rest;
                return Ok(value);
            }
        }
        Err("damaged .npy header: expected True or False".into())
    }

    fn tuple(&mut self) -> Result<Vec<u64>, String> {
        self.expect('(')?;
        let mut numbers = Vec::new();
        while !self.take(')') {
            if numbers.len() == 32 {
                return Err("too many axes".into());
            }
            self.0 = self.0.trim_start();
            let end = self.0.find(|c: char| !c.is_ascii_digit()).unwrap_or(self.0.len());
            let (digits, rest) = self.0.split_at(end);
            numbers.push(digits.parse().map_err(|_| "damaged .npy header: invalid axis length")?);
            // Python 2 wrote long integers with this letter.
            self.0 = rest.strip_prefix('L').unwrap_or(rest);
            if !self.take(',') {
                self.expect(')')?;
                break;
            }
        }
        Ok(numbers)
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn file(version: u8, text: &str) -> Vec<u8> {
        let mut bytes = b"\x93NUMPY".to_vec();
        bytes.extend([version, 0]);
        match version {
            1 => bytes.extend((text.len() as u16).to_le_bytes()),
            _ => bytes.extend((text.len() as u32).to_le_bytes()),
        }
        bytes.extend(text.as_bytes());
        bytes
    }

    #[test]
    fn heads_as_numpy_writes_them() {
        let text = "{'descr': '<f4', 'fortran_order': False, 'shape': (3, 4, 5), }          \n";
        for version in [1, 2, 3] {
            let bytes = file(version, text);
            let header = parse(&bytes).unwrap();
            assert_eq!(
                header,
                Header {
                    kind: Kind::F32,
                    big_endian: false,
                    fortran: false,
                    shape: vec![3, 4, 5],
                    offset: bytes.len()
                }
            );
        }
        let one = parse(&file(1, "{'descr': '|u1', 'fortran_order': True, 'shape': (7,)}")).unwrap();
        assert_eq!((one.kind, one.shape), (Kind::Unsigned(1), vec![7]));
        assert!(!one.fortran, "of one axis it makes no difference");
        assert!(
            parse(&file(1, "{'descr': '<f4', 'fortran_order': True, 'shape': (3, 4), }")).unwrap().fortran
        );
        let none = parse(&file(1, "{'shape': (), 'descr': '>f8', 'fortran_order': False}")).unwrap();
        assert!(none.shape.is_empty() && none.big_endian);
    }

    #[test]
    fn what_is_wrong_is_said() {
        for (text, said) in [
            ("{'descr': '<c8', 'fortran_order': False, 'shape': (3,), }", "only real numbers"),
            ("{'descr': [('x', '<f4')], 'fortran_order': False, 'shape': (3,), }", "not plain numbers"),
            ("{'descr': '<f4', 'fortran_order': False, }", "missing descr"),
            ("{'descr': '<f4', 'fortran_order': False, 'shape': (99999999999999999999,), }", "axis length"),
            ("{'descr': '<f4', 'fortran_order': False, 'shape': (-1,), }", "axis length"),
            ("{'descr': '<f4", "unterminated"),
            ("{'more': 1}", "unknown key"),
            ("", "missing"),
        ] {
            let error = parse(&file(1, text)).unwrap_err();
            assert!(error.contains(said), "{text}: {error}");
        }
        assert!(parse(b"PK\x03\x04").is_err());
        assert!(parse(&file(1, "{}")[..9]).is_err());
        assert!(parse(b"\x93NUMPY\x02\x00\xff\xff\xff\xff{").unwrap_err().contains("too long"));
    }

    proptest! {
        #[test]
        fn what_is_written_is_read(shape in proptest::collection::vec(any::<u64>(), 0..6), big: bool) {
            let list: String = shape.iter().map(|n| format!("{n}, ")).collect();
            let order = if big { '>' } else { '<' };
            let bytes = file(1, &format!("{{'descr': '{order}i2', 'fortran_order': False, 'shape': ({list}), }}"));
            let header = parse(&bytes).unwrap();
            prop_assert_eq!((header.shape, header.big_endian, header.kind), (shape, big, Kind::Signed(2)));
        }

        #[test]
        fn no_bytes_make_it_panic(text in "[{}()'descrfortan_hp:,<>|0-9 TrueFals]{0,80}", noise: Vec<u8>) {
            let _ = (parse(&file(1, &text)), parse(&noise));
        }
    }
}
