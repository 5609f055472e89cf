//! The owner's side of private swarms: issues tickets, enrols nodes, revokes.
//!
//! Its state is one small file of the state directory, so that `tidecast revoke` in another process takes
//! effect in a running `tidecast share`: every change is made under a lock on the newest state and written
//! atomically; [`Authority::reload_if_changed`] is a `stat` when nothing changed.

use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};
use std::sync::{Mutex, MutexGuard, PoisonError};

use data_encoding::{BASE32_NOPAD, HEXLOWER};
use serde::{Deserialize, Serialize};

use crate::credential::{DEFAULT_LIFETIME, MAX_LIFETIME, MAX_REVOKED};
use crate::ticket::{MAX_USES, Secret, Terms};
use crate::{
    Credential, EnrolRequest, Error, NodeId, NodeKey, Refused, RevocationList, SwarmId, Token, TokenId, files,
};

/// Most live tickets of one owner.
const MAX_TOKENS: usize = 16_384;
const FORMAT: u32 = 1;

/// An issued ticket, without its secret.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct TokenInfo {
    /// Number of the ticket.
    pub id: TokenId,
    /// The swarm it lets into.
    pub swarm: SwarmId,
    /// When it was issued, seconds since 1970.
    pub issued: u64,
    /// For how long and for how many nodes it is good.
    pub terms: Terms,
    /// Nodes that have enrolled with it; counted only where there is a limit.
    pub used: usize,
}

/// The owner of private swarms. Shared by reference between threads; nodes are enrolled without touching a file.
#[derive(Debug)]
pub struct Authority {
    key: NodeKey,
    path: PathBuf,
    lock: PathBuf,
    inner: Mutex<Inner>,
}

#[derive(Debug)]
struct Inner {
    state: State,
    stamp: Option<Stamp>,
    list: RevocationList,
    /// Number of the latest list that [`Authority::reload_if_changed`] has reported.
    told: u64,
}

/// Identity of one version of the state file: every write makes a new inode.
type Stamp = (u64, u64, i64, i64, u64);

#[derive(Clone, Default, Serialize, Deserialize)]
struct State {
    format: u32,
    /// Number of the revocation list.
    seq: u64,
    /// Live tickets by number.
    tokens: BTreeMap<String, Issued>,
    /// Revoked tickets by number: when (seconds since 1970).
    revoked: BTreeMap<String, u64>,
}

#[derive(Clone, Serialize, Deserialize)]
struct Issued {
    secret: String,
    swarm: String,
    issued: u64,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    expires: Option<u64>,
    /// Most nodes that may enrol.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    uses: Option<u32>,
    /// Those that have, where there is a limit.
    #[serde(default, skip_serializing_if = "BTreeSet::is_empty")]
    nodes: BTreeSet<String>,
}

/// Why a change was not made.
enum Unchanged {
    Refused(Refused),
    Failed,
}

impl From<Error> for Unchanged {
    fn from(_: Error) -> Self {
        Self::Failed
    }
}

impl std::fmt::Debug for State {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let Self { seq, tokens, revoked, .. } = self;
        write!(f, "State {{ seq: {seq}, tokens: {}, revoked: {} }}", tokens.len(), revoked.len())
    }
}

impl Authority {
    /// File name of the state in the state directory.
    pub const FILE: &str = "authority.json";

    /// Opens (or begins) the authority of `key`, kept in `state_dir`.
    ///
    /// # Errors
    /// The state cannot be read, may be read by others, or is damaged.
    pub fn open(state_dir: &Path, key: &NodeKey) -> Result<Self, Error> {
        files::make_dir(state_dir)?;
        let path = state_dir.join(Self::FILE);
        let stamp = stamp(&path);
        let state = read(&path)?;
        let list = sign_list(key, &state, &path)?;
        Ok(Self {
            key: key.clone(),
            lock: state_dir.join("authority.lock"),
            path,
            inner: Mutex::new(Inner { state, stamp, list, told: 0 }),
        })
    }

    /// Name of the owner.
    #[must_use]
    pub fn id(&self) -> NodeId {
        self.key.id()
    }

    /// A new token for `swarm`, good by these terms, durable when this returns.
    ///
    /// # Errors
    /// The state cannot be written, or there are too many live tickets.
    pub fn issue(&self, swarm: SwarmId, terms: impl Into<Terms>, now: u64) -> Result<Token, Error> {
        let Terms { expires, uses } = terms.into();
        let token = Token::generate()?;
        self.change(now, |state| {
            if state.tokens.len() >= MAX_TOKENS {
                return Err(Error::TooMany { what: "live tickets", limit: MAX_TOKENS });
            }
            let issued = Issued {
                secret: BASE32_NOPAD.encode(&token.secret.0),
                swarm: swarm.to_string(),
                issued: now,
                expires,
                uses: uses.map(|uses| uses.min(MAX_USES)),
                nodes: BTreeSet::new(),
            };
            state.tokens.insert(token.id.to_string(), issued);
            Ok(())
        })?;
        Ok(token)
    }

    /// Enrols `node`, whose key TLS has proven: a credential for a day, or less if the ticket ends sooner.
    /// A node renews by enrolling again.
    ///
    /// # Errors
    /// The reason of the rejection.
    pub fn redeem(&self, request: &EnrolRequest, node: NodeId, now: u64) -> Result<Credential, Refused> {
        let number = request.token.to_string();
        let inner = self.inner();
        if inner.state.revoked.contains_key(&number) {
            return Err(Refused::Revoked);
        }
        let issued = inner.state.tokens.get(&number).ok_or(Refused::UnknownTicket)?;
        let (token, swarm) = issued.token(request.token).ok_or(Refused::UnknownTicket)?;
        if !request.proves(&token.secret.0, self.id(), node) {
            return Err(Refused::BadProof);
        }
        if request.swarm != swarm {
            return Err(Refused::WrongSwarm);
        }
        let end = issued.expires.unwrap_or(u64::MAX);
        if now >= end {
            return Err(Refused::Expired);
        }
        let counts = issued.uses.is_some() && !issued.nodes.contains(&node.to_string());
        drop(inner);
        if counts {
            self.count(&number, node, now)?;
        }
        let expires = now.saturating_add(DEFAULT_LIFETIME).min(end);
        Ok(Credential::issue(&self.key, swarm, node, token.id, now, expires))
    }

    /// Writes down that `node` has enrolled, if the ticket's limit allows one more: the newest state decides, under the
    /// lock between processes, so that no race and no restart lets in more.
    fn count(&self, number: &str, node: NodeId, now: u64) -> Result<(), Refused> {
        let changed = self.change(now, |state| {
            let gone =
                if state.revoked.contains_key(number) { Refused::Revoked } else { Refused::UnknownTicket };
            let issued = state.tokens.get_mut(number).ok_or(Unchanged::Refused(gone))?;
            let limit = issued.uses.unwrap_or(u32::MAX);
            if !issued.nodes.contains(&node.to_string()) && issued.nodes.len() as u64 >= u64::from(limit) {
                return Err(Unchanged::Refused(Refused::UsedUp(limit)));
            }
            issued.nodes.insert(node.to_string());
            Ok(())
        });
        changed.map_err(|unchanged| match unchanged {
            Unchanged::Refused(refused) => refused,
            Unchanged::Failed => Refused::NotRecorded,
        })
    }

    /// Revokes a ticket: its secret is deleted, and the new signed list informs the members.
    ///
    /// # Errors
    /// No such ticket, or the state cannot be written.
    pub fn revoke(&self, token: TokenId, now: u64) -> Result<RevocationList, Error> {
        let number = token.to_string();
        self.change(now, |state| {
            if state.revoked.contains_key(&number) {
                return Ok(());
            }
            if state.revoked.len() >= MAX_REVOKED {
                return Err(Error::TooMany { what: "revoked tickets", limit: MAX_REVOKED });
            }
            state.tokens.remove(&number).ok_or_else(|| Error::UnknownTicket(number.clone()))?;
            state.revoked.insert(number.clone(), now);
            state.seq += 1;
            Ok(())
        })?;
        Ok(self.revocations())
    }

    /// The current list of revocations, signed; number 0 and empty before the first.
    #[must_use]
    pub fn revocations(&self) -> RevocationList {
        self.inner().list.clone()
    }

    /// The live tickets, without their secrets.
    #[must_use]
    pub fn tokens(&self) -> Vec<TokenInfo> {
        let inner = self.inner();
        let info = |(number, issued): (&String, &Issued)| {
            let id = number.parse().ok()?;
            let (_, swarm) = issued.token(id)?;
            let terms = Terms { expires: issued.expires, uses: issued.uses };
            Some(TokenInfo { id, swarm, issued: issued.issued, terms, used: issued.nodes.len() })
        };
        inner.state.tokens.iter().filter_map(info).collect()
    }

    /// Reloads changes of another process; true if there are revocations that it has not reported yet, those from
    /// before the start included. Cheap: call it every second.
    ///
    /// # Errors
    /// The state cannot be read or is damaged; the old state then stays in force.
    pub fn reload_if_changed(&self) -> Result<bool, Error> {
        let now = stamp(&self.path);
        let told = self.inner().told;
        if now != self.inner().stamp {
            let state = read(&self.path)?;
            let list = sign_list(&self.key, &state, &self.path)?;
            *self.inner() = Inner { state, stamp: now, list, told };
        }
        let mut inner = self.inner();
        inner.told = inner.list.seq;
        Ok(inner.told != told)
    }

    fn inner(&self) -> MutexGuard<'_, Inner> {
        // Every change replaces the whole state at once, so a poisoned lock still guards a sound one.
        self.inner.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Read, change and write under the lock between processes.
    fn change<E: From<Error>>(
        &self,
        now: u64,
        change: impl FnOnce(&mut State) -> Result<(), E>,
    ) -> Result<(), E> {
        let _lock = files::lock(&self.lock)?;
        let mut state = read(&self.path)?;
        state.prune(now);
        change(&mut state)?;
        let json = serde_json::to_vec_pretty(&state)
            .map_err(|e| Error::Damaged { path: self.path.clone(), why: e.to_string() })?;
        let list = sign_list(&self.key, &state, &self.path)?;
        files::replace(&self.path, &json)?;
        let mut inner = self.inner();
        *inner = Inner { state, stamp: stamp(&self.path), list, told: inner.told };
        Ok(())
    }
}

impl State {
    /// Drops tickets that have ended, and revocations of which no credential can still be alive.
    fn prune(&mut self, now: u64) {
        self.tokens.retain(|_, t| t.expires.is_none_or(|end| end.saturating_add(MAX_LIFETIME) > now));
        self.revoked.retain(|_, when| when.saturating_add(2 * MAX_LIFETIME) > now);
    }

    fn check(&self) -> Result<(), String> {
        if self.format != FORMAT {
            return Err(format!("unknown format {}", self.format));
        }
        if self.tokens.len() > MAX_TOKENS || self.revoked.len() > MAX_REVOKED {
            return Err("too many tickets".into());
        }
        let parsed = |n: &String| n.parse::<TokenId>().ok();
        let sound = self.tokens.iter().all(|(n, t)| parsed(n).and_then(|id| t.token(id)).is_some());
        let limits = |t: &Issued| t.nodes.len() <= MAX_USES as usize;
        let sound =
            sound && self.tokens.values().all(limits) && self.revoked.keys().all(|n| parsed(n).is_some());
        if sound { Ok(()) } else { Err("malformed ticket in the file".into()) }
    }
}

impl Issued {
    fn token(&self, id: TokenId) -> Option<(Token, SwarmId)> {
        let secret = BASE32_NOPAD.decode(self.secret.as_bytes()).ok()?.try_into().ok()?;
        let swarm = HEXLOWER.decode(self.swarm.as_bytes()).ok()?.try_into().ok()?;
        Some((Token { id, secret: Secret(secret) }, SwarmId(swarm)))
    }
}

fn stamp(path: &Path) -> Option<Stamp> {
    let m = fs::metadata(path).ok()?;
    Some((m.dev(), m.ino(), m.mtime(), m.mtime_nsec(), m.len()))
}

fn read(path: &Path) -> Result<State, Error> {
    let Some(bytes) = files::read_secret(path)? else {
        return Ok(State { format: FORMAT, ..State::default() });
    };
    let damaged = |why: String| Error::Damaged { path: path.to_owned(), why };
    // serde's message may quote the text, which holds secrets: only the position is reported.
    let state: State = serde_json::from_slice(&bytes)
        .map_err(|e| damaged(format!("syntax error in line {}, column {}", e.line(), e.column())))?;
    state.check().map_err(damaged)?;
    Ok(state)
}

fn sign_list(key: &NodeKey, state: &State, path: &Path) -> Result<RevocationList, Error> {
    let tokens = state.revoked.keys().map(|n| n.parse()).collect::<Result<Vec<TokenId>, _>>();
    let tokens = tokens.map_err(|e| Error::Damaged { path: path.to_owned(), why: e.to_string() })?;
    Ok(RevocationList::issue(key, state.seq, tokens))
}
