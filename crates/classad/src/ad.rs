//! Ads: sets of named expressions.

use std::sync::Arc;

use crate::name::order;
use crate::{Expr, Name, NotInOldSyntax, ParseError, Value};

/// A ClassAd: attributes, each a name and an expression. Cloning is cheap; a change copies shared data.
///
/// Attributes come in HTCondor's order: shorter names first, then by the alphabet.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct Ad {
    attrs: Arc<Vec<(Name, Expr)>>,
}

impl Ad {
    /// An ad without attributes.
    pub fn new() -> Self {
        Self::default()
    }

    /// Parses an ad in either syntax: a text that begins with `[` is new.
    pub fn parse(text: impl AsRef<[u8]>) -> Result<Self, ParseError> {
        let text = text.as_ref();
        if crate::parse::is_new(text) { Self::parse_new(text) } else { Self::parse_old(text) }
    }

    /// Parses an ad in the new syntax: `[ name = expression; ... ]`.
    pub fn parse_new(text: impl AsRef<[u8]>) -> Result<Self, ParseError> {
        crate::parse::new_ad(text.as_ref())
    }

    /// Parses an ad in the old syntax: one `name = expression` per line; empty lines and those that begin with `#`
    /// are skipped.
    pub fn parse_old(text: impl AsRef<[u8]>) -> Result<Self, ParseError> {
        crate::parse::old_ad(text.as_ref())
    }

    /// Parses several ads: in the new syntax one after the other, in the old one with empty lines between them.
    /// Other text is an error.
    pub fn parse_all(text: impl AsRef<[u8]>) -> Result<Vec<Self>, ParseError> {
        let text = text.as_ref();
        if crate::parse::is_new(text) { crate::parse::new_ads(text) } else { crate::parse::old_ads(text) }
    }

    /// The old syntax, a line an attribute. `Display` writes the new one.
    pub fn to_old(&self) -> Result<String, NotInOldSyntax> {
        crate::print::old_ad(self)
    }

    /// The expression of an attribute.
    pub fn get(&self, name: &str) -> Option<&Expr> {
        self.find(&name.to_ascii_lowercase()).map(|at| &self.attrs[at].1)
    }

    /// Where the attribute is, its name given in lower case.
    pub(crate) fn find(&self, lower: &str) -> Option<usize> {
        self.attrs.binary_search_by(|(name, _)| order(name.lower(), lower)).ok()
    }

    /// The expression at a place that [`Self::find`] gave.
    pub(crate) fn at(&self, index: usize) -> Option<&Expr> {
        self.attrs.get(index).map(|(_, expr)| expr)
    }

    /// Sets an attribute; its old value.
    pub fn insert(&mut self, name: impl Into<Name>, expr: impl Into<Expr>) -> Option<Expr> {
        let (name, expr) = (name.into(), expr.into());
        let attrs = Arc::make_mut(&mut self.attrs);
        match attrs.binary_search_by(|(n, _)| order(n.lower(), name.lower())) {
            Ok(at) => Some(std::mem::replace(&mut attrs[at].1, expr)),
            Err(at) => {
                attrs.insert(at, (name, expr));
                None
            }
        }
    }

    /// Takes an attribute away.
    pub fn remove(&mut self, name: &str) -> Option<Expr> {
        let at = self.find(&name.to_ascii_lowercase())?;
        Some(Arc::make_mut(&mut self.attrs).remove(at).1)
    }

    /// Its attributes in order.
    pub fn iter(&self) -> impl ExactSizeIterator<Item = (&Name, &Expr)> {
        self.attrs.iter().map(|(name, expr)| (name, expr))
    }

    /// How many attributes it has.
    pub fn len(&self) -> usize {
        self.attrs.len()
    }

    /// True if it has no attributes.
    pub fn is_empty(&self) -> bool {
        self.attrs.is_empty()
    }
}

impl FromIterator<(Name, Expr)> for Ad {
    /// Of two attributes of a name the last one counts, and its name is written as the first was.
    fn from_iter<I: IntoIterator<Item = (Name, Expr)>>(attrs: I) -> Self {
        let mut attrs: Vec<_> = attrs.into_iter().collect();
        attrs.sort_by(|(a, _), (b, _)| order(a.lower(), b.lower()));
        attrs.dedup_by(|later, earlier| {
            let same = later.0 == earlier.0;
            if same {
                std::mem::swap(&mut later.1, &mut earlier.1);
            }
            same
        });
        Self { attrs: Arc::new(attrs) }
    }
}

impl<'a, V: Into<Value>> FromIterator<(&'a str, V)> for Ad {
    fn from_iter<I: IntoIterator<Item = (&'a str, V)>>(attrs: I) -> Self {
        attrs.into_iter().map(|(name, value)| (Name::new(name), Expr::from(value.into()))).collect()
    }
}
