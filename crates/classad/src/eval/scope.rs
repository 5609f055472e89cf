//! Where names are looked up: an ad, the ads around it, and the two ads of a match.

use crate::name::Special;
use crate::{Ad, Expr, Name};

/// A scope of an evaluation.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct ScopeId(u32);

impl ScopeId {
    /// No scope: no name is found there.
    pub(super) const NOWHERE: Self = Self(u32::MAX);
    /// The scope around a match: `LEFT`, `RIGHT`.
    const MATCH: Self = Self(0);
    const LEFT: Self = Self(3);
    const RIGHT: Self = Self(4);
}

/// A borrowed ad, or one created during evaluation.
#[derive(Debug, Clone)]
pub(super) enum Handle<'a> {
    Borrowed(&'a Ad),
    Shared(Ad),
}

impl Handle<'_> {
    pub(super) fn get(&self) -> &Ad {
        match self {
            Self::Borrowed(ad) => ad,
            Self::Shared(ad) => ad,
        }
    }
}

#[derive(Debug)]
pub(super) enum Scope<'a> {
    /// An ad, and which one is asked for names without a scope that it does not know.
    Ad { ad: Handle<'a>, parent: ScopeId, other: Option<ScopeId> },
    /// Around each ad of a match: `MY`, `TARGET` and so on.
    Side { my: ScopeId, target: ScopeId },
    /// Around both.
    Match,
}

/// The target of a name.
#[derive(Debug)]
pub(super) enum Found<'a> {
    /// The attribute of an ad.
    Attr {
        ad: Handle<'a>,
        index: usize,
        scope: ScopeId,
    },
    /// A whole ad.
    Ad(ScopeId),
    /// The time.
    Time,
    Nothing,
}

#[derive(Debug)]
pub(super) struct Scopes<'a> {
    all: Vec<Scope<'a>>,
}

impl<'a> Scopes<'a> {
    /// The scopes of an ad, alone or in a match, and its own.
    pub(super) fn new(my: &'a Ad, target: Option<&'a Ad>) -> (Self, ScopeId) {
        let ad = |ad, parent, other| Scope::Ad { ad: Handle::Borrowed(ad), parent: ScopeId(parent), other };
        let Some(target) = target else {
            return (Self { all: vec![ad(my, u32::MAX, None)] }, ScopeId(0));
        };
        let (left, right) = (ScopeId::LEFT, ScopeId::RIGHT);
        let all = vec![
            Scope::Match,
            Scope::Side { my: left, target: right },
            Scope::Side { my: right, target: left },
            ad(my, 1, Some(right)),
            ad(target, 2, Some(left)),
        ];
        (Self { all }, left)
    }

    fn get(&self, id: ScopeId) -> Option<&Scope<'a>> {
        self.all.get(usize::try_from(id.0).ok()?)
    }

    /// The outermost ad.
    pub(super) fn root(&self) -> ScopeId {
        ScopeId(0)
    }

    /// The other ad of a match.
    pub(super) fn other(&self, id: ScopeId) -> ScopeId {
        self.alternative(id).unwrap_or(id)
    }

    /// The ad in which names without a scope are looked up at last.
    pub(super) fn alternative(&self, id: ScopeId) -> Option<ScopeId> {
        match self.get(id) {
            Some(Scope::Ad { other, .. }) => *other,
            _ => None,
        }
    }

    /// A scope for an ad inside another.
    pub(super) fn nest(&mut self, ad: Ad, parent: ScopeId) -> ScopeId {
        self.push(Scope::Ad { ad: Handle::Shared(ad), parent, other: None })
    }

    fn push(&mut self, scope: Scope<'a>) -> ScopeId {
        // Steps are 32 bits: there are never so many scopes.
        let id = ScopeId(u32::try_from(self.all.len()).unwrap_or(u32::MAX));
        self.all.push(scope);
        id
    }

    /// The ad again, so that names that it does not know are looked up where its parent would look them up.
    pub(super) fn with_alternative(&mut self, id: ScopeId) -> ScopeId {
        let (ad, parent) = match self.get(id) {
            Some(Scope::Ad { ad, parent, other: None }) => (ad.clone(), *parent),
            _ => return id,
        };
        match self.alternative(parent) {
            other @ Some(_) => self.push(Scope::Ad { ad, parent, other }),
            None => id,
        }
    }

    /// Looks a name up in a scope and the enclosing ones.
    pub(super) fn lookup(&self, start: ScopeId, name: &Name) -> Found<'a> {
        let mut id = start;
        while let Some(scope) = self.get(id) {
            match self.own(id, name) {
                Found::Nothing => {}
                found => return found,
            }
            let parent = self.parent(scope);
            if let Some(special) = name.special() {
                return match special {
                    Special::Itself => Found::Ad(id),
                    Special::Root => Found::Ad(self.root()),
                    Special::Parent if self.get(parent).is_some() => Found::Ad(parent),
                    Special::Parent => Found::Nothing,
                    Special::Time => Found::Time,
                };
            }
            id = parent;
        }
        Found::Nothing
    }

    fn parent(&self, scope: &Scope<'a>) -> ScopeId {
        match scope {
            Scope::Ad { parent, .. } => *parent,
            Scope::Side { .. } => ScopeId::MATCH,
            Scope::Match => ScopeId::NOWHERE,
        }
    }

    /// Looks a name up in a scope alone.
    pub(super) fn own(&self, id: ScopeId, name: &Name) -> Found<'a> {
        let ad = match (self.get(id), name.lower()) {
            (Some(Scope::Ad { ad, .. }), lower) => {
                return match ad.get().find(lower) {
                    Some(index) => Found::Attr { ad: ad.clone(), index, scope: id },
                    None => Found::Nothing,
                };
            }
            (Some(Scope::Side { my, .. }), "my" | "ad") => *my,
            (Some(Scope::Side { target, .. }), "target" | "other") => *target,
            (Some(Scope::Match), "left") => ScopeId::LEFT,
            (Some(Scope::Match), "right") => ScopeId::RIGHT,
            _ => return Found::Nothing,
        };
        Found::Ad(ad)
    }

    /// The ad of a scope; the scope around a match as an ad.
    pub(super) fn ad(&self, id: ScopeId) -> Ad {
        let reference = |name: &str| Expr::Attr { base: None, name: Name::new(name), absolute: true };
        let side = |id: ScopeId| reference(if id == ScopeId::LEFT { "LEFT" } else { "RIGHT" });
        match self.get(id) {
            Some(Scope::Ad { ad, .. }) => ad.get().clone(),
            Some(Scope::Side { my, target }) => {
                [("ad", my), ("my", my), ("other", target), ("target", target)]
                    .map(|(name, id)| (Name::new(name), side(*id)))
                    .into_iter()
                    .collect()
            }
            Some(Scope::Match) | None => Ad::new(),
        }
    }
}
