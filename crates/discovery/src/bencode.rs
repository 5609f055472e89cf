//! Reads the bencoded answer of a tracker (BEP 3), without copying strings.
//!
//! Depth and number of values are bounded, so a small body cannot become a large tree.

/// Deepest nesting read: an answer, its peers, a peer, and something to spare.
const MAX_DEPTH: u8 = 8;
/// Most values read.
const MAX_VALUES: u32 = 65_536;

/// A bencoded value that borrows its strings.
#[derive(Debug)]
pub(crate) enum Value<'a> {
    Int(i64),
    Bytes(&'a [u8]),
    List(Vec<Value<'a>>),
    Dict(Vec<(&'a [u8], Value<'a>)>),
}

impl<'a> Value<'a> {
    pub(crate) fn get(&self, key: &[u8]) -> Option<&Value<'a>> {
        self.dict()?.iter().find(|(k, _)| *k == key).map(|(_, v)| v)
    }

    pub(crate) fn dict(&self) -> Option<&[(&'a [u8], Value<'a>)]> {
        if let Self::Dict(entries) = self { Some(entries) } else { None }
    }

    pub(crate) fn bytes(&self) -> Option<&'a [u8]> {
        if let Self::Bytes(bytes) = self { Some(bytes) } else { None }
    }

    pub(crate) fn int(&self) -> Option<i64> {
        if let Self::Int(n) = self { Some(*n) } else { None }
    }
}

/// Reads one value; what follows it is ignored, because some trackers send a line end.
pub(crate) fn decode(input: &[u8]) -> Result<Value<'_>, &'static str> {
    Reader { rest: input, values: 0 }.value(MAX_DEPTH)
}

struct Reader<'a> {
    rest: &'a [u8],
    values: u32,
}

impl<'a> Reader<'a> {
    fn value(&mut self, depth: u8) -> Result<Value<'a>, &'static str> {
        self.values += 1;
        if self.values > MAX_VALUES {
            return Err("it holds too many values");
        }
        let deeper = || depth.checked_sub(1).ok_or("it is nested too deeply");
        match self.rest.first() {
            Some(b'i') => {
                self.skip();
                self.number(b'e').map(Value::Int)
            }
            Some(b'0'..=b'9') => self.string().map(Value::Bytes),
            Some(b'l') => {
                let depth = deeper()?;
                self.skip();
                let mut list = Vec::new();
                while !self.end()? {
                    list.push(self.value(depth)?);
                }
                Ok(Value::List(list))
            }
            Some(b'd') => {
                let depth = deeper()?;
                self.skip();
                let mut entries = Vec::new();
                while !self.end()? {
                    entries.push((self.string()?, self.value(depth)?));
                }
                Ok(Value::Dict(entries))
            }
            Some(_) => Err("it is not bencoded"),
            None => Err("it ends too early"),
        }
    }

    fn skip(&mut self) {
        self.rest = self.rest.get(1..).unwrap_or_default();
    }

    /// Takes the `e` of a list or dictionary, if it is next.
    fn end(&mut self) -> Result<bool, &'static str> {
        let next = *self.rest.first().ok_or("it ends too early")?;
        if next == b'e' {
            self.skip();
        }
        Ok(next == b'e')
    }

    fn number(&mut self, end: u8) -> Result<i64, &'static str> {
        let at = self.rest.iter().take(21).position(|&b| b == end).ok_or("a number does not end")?;
        let (digits, rest) = self.rest.split_at(at);
        self.rest = rest;
        self.skip();
        let number = str::from_utf8(digits).ok().filter(|d| !d.starts_with('+'));
        number.and_then(|d| d.parse().ok()).ok_or("a number is not one")
    }

    fn string(&mut self) -> Result<&'a [u8], &'static str> {
        let len = usize::try_from(self.number(b':')?).map_err(|_| "a string has a negative length")?;
        let (string, rest) = self.rest.split_at_checked(len).ok_or("a string is longer than the answer")?;
        self.rest = rest;
        Ok(string)
    }
}
