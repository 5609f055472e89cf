//! Caches and daemons as ClassAds, with the attributes of the HTCondor CacheD paper, and whether two agree.

use tidecast_classad::{Ad, Context, Expr, ParseError, Value};
use tidecast_depot::CacheRecord;
use tidecast_text::{Size, escaped_bytes};

use crate::model::attributes::Attributes;
use crate::model::error::Error;
use crate::model::types::Method;

/// What a daemon requires of caches by default: no more than all of its disk space.
const FITS: &str = "MY.TotalDisk > TARGET.DiskUsage";
/// Bytes shown of an expression that does not hold.
const SHOWN: usize = 200;

/// Why an expression of a user or an ad of another daemon cannot be used.
#[derive(Debug, thiserror::Error)]
pub(crate) enum AdError {
    #[error("{what} is not a ClassAd expression: {source}")]
    Expression { what: &'static str, source: ParseError },
    #[error("{what} can never be true or false: its value is {value}")]
    Senseless { what: &'static str, value: String },
    #[error("malformed ad: {0}")]
    Ad(#[from] ParseError),
    #[error("cannot match ads: {0}")]
    Match(#[from] tidecast_classad::EvalError),
}

impl From<AdError> for Error {
    fn from(error: AdError) -> Self {
        Self::Ad(error.to_string())
    }
}

/// Checks a condition that a user gives for a cache.
pub(crate) fn check(what: &'static str, text: &str) -> Result<(), AdError> {
    condition(what, text, &usual_cache(), &usual_daemon())
}

/// Checks the requirements that a daemon makes of caches.
///
/// # Errors
/// It is not a ClassAd expression, or its value can never be true or false; with the reason, and the
/// position.
pub fn check_requirements(text: &str) -> Result<(), String> {
    condition("the requirement", text, &usual_daemon(), &usual_cache()).map_err(|e| e.to_string())
}

/// Rejects an expression whose value for two typical ads is an error, a text, a list or an ad: it can never
/// be a condition. An expression that refers to attributes that they lack is UNDEFINED, and is accepted:
/// other ads may have them.
fn condition(what: &'static str, text: &str, my: &Ad, target: &Ad) -> Result<(), AdError> {
    let expr = Expr::parse(text).map_err(|source| AdError::Expression { what, source })?;
    match Context::at(signed(crate::clock::now())).evaluate(&expr, my, Some(target))? {
        Value::Undefined | Value::Bool(_) | Value::Int(_) | Value::Real(_) => Ok(()),
        value => Err(AdError::Senseless { what, value: value.to_string() }),
    }
}

fn usual_cache() -> Ad {
    let mut ad = Ad::new();
    for name in ["CacheName", "CacheId", "CacheOriginatorHost", "Owner", "CacheMagnetLink"] {
        set(&mut ad, name, "name");
    }
    set(&mut ad, "CacheState", "COMMITTED");
    set(&mut ad, "ReplicationMethods", methods(&[Method::Swarm, Method::Direct]).as_str());
    set(&mut ad, "DiskUsage", kilobytes(1 << 30));
    set(&mut ad, "LeaseExpiration", signed(crate::clock::now() + 86_400));
    set(&mut ad, "Private", false);
    ad
}

fn usual_daemon() -> Ad {
    let host = Host {
        name: "name",
        machine: "machine",
        started: crate::clock::now(),
        disk: (1 << 40, 1 << 39),
        methods: &[Method::Swarm, Method::Direct],
        requirements: Some("true"),
    };
    // The requirements above can be read.
    daemon(&host).unwrap_or_default()
}

fn set(ad: &mut Ad, name: &str, value: impl Into<Value>) {
    ad.insert(name, Expr::from(value.into()));
}

/// The ad of a cache, for its record.
pub(crate) fn cache(record: &CacheRecord) -> Result<Ad, AdError> {
    let mut ad = Ad::new();
    let attributes = Attributes::of(record);
    set(&mut ad, "CacheName", record.name.as_str());
    set(&mut ad, "CacheId", record.full_name().as_str());
    set(&mut ad, "CacheOriginatorHost", record.origin.as_str());
    set(&mut ad, "CacheState", record.state.to_string().as_str());
    set(&mut ad, "Owner", record.owner.as_str());
    set(&mut ad, "DiskUsage", kilobytes(record.declared.bytes.max(record.bytes)));
    set(&mut ad, "LeaseExpiration", signed(record.lease_until));
    set(&mut ad, "ReplicationMethods", methods(&attributes.methods()).as_str());
    set(&mut ad, "Private", record.private);
    if let Some(content) = record.content {
        let magnet = format!("magnet:?xt=urn:btmh:1220{}", data_encoding::HEXLOWER.encode(&content));
        set(&mut ad, "CacheMagnetLink", magnet.as_str());
    }
    for (name, text) in
        [("ReplicationPolicy", &attributes.policy), ("Requirements", &attributes.requirements)]
    {
        let expr = match text {
            Some(text) => Expr::parse(text)?,
            None => Expr::from(Value::from(true)),
        };
        ad.insert(name, expr);
    }
    Ok(ad)
}

/// Properties of a daemon in its ad.
pub(crate) struct Host<'a> {
    pub(crate) name: &'a str,
    pub(crate) machine: &'a str,
    pub(crate) started: u64,
    /// Bytes that the store may have, and that are free of them.
    pub(crate) disk: (u64, u64),
    pub(crate) methods: &'a [Method],
    /// Its requirements of caches; None: enough disk space.
    pub(crate) requirements: Option<&'a str>,
}

/// The ad of a daemon.
pub(crate) fn daemon(host: &Host<'_>) -> Result<Ad, AdError> {
    let mut ad = Ad::new();
    set(&mut ad, "CachedServer", true);
    set(&mut ad, "Name", host.name);
    set(&mut ad, "Machine", host.machine);
    set(&mut ad, "DaemonStartTime", signed(host.started));
    set(&mut ad, "TotalDisk", kilobytes(host.disk.0));
    set(&mut ad, "FreeDisk", kilobytes(host.disk.1));
    set(&mut ad, "ReplicationMethods", methods(host.methods).as_str());
    ad.insert("Requirements", Expr::parse(host.requirements.unwrap_or(FITS))?);
    Ok(ad)
}

/// Both are satisfied with each other, and so is the cache's policy with the daemon.
pub(crate) fn agree(cache: &Ad, daemon: &Ad, now: u64) -> Result<bool, AdError> {
    let context = Context::at(signed(now));
    let policy = || context.attribute("ReplicationPolicy", cache, Some(daemon));
    Ok(context.symmetric_match(cache, daemon)? && policy()?.as_bool() == Some(true))
}

/// Why the two are not satisfied with each other, whatever the cache's policy is; none if they are.
pub(crate) fn mismatch(cache: &Ad, daemon: &Ad, now: u64) -> Result<Option<String>, AdError> {
    let context = Context::at(signed(now));
    let required = |ad: &Ad| ad.get("Requirements").map_or_else(|| "nothing".to_owned(), ToString::to_string);
    let shown = |text: &str| escaped_bytes(&text.as_bytes()[..text.len().min(SHOWN)]).to_string();
    let host = match context.attribute("Name", daemon, None)?.as_str() {
        Some(name) => format!("host {}", shown(name)),
        None => "the host".to_owned(),
    };
    if !context.consents(cache, daemon)? {
        return Ok(Some(format!("the cache's requirements exclude {host}: {}", shown(&required(cache)))));
    }
    if context.consents(daemon, cache)? {
        return Ok(None);
    }
    let kilobytes = |ad, name| Ok::<_, AdError>(context.attribute(name, ad, None)?.as_int());
    let sizes = (kilobytes(cache, "DiskUsage")?, kilobytes(daemon, "TotalDisk")?);
    let (true, (Some(usage), Some(total))) = (required(daemon) == FITS, sizes) else {
        let required = shown(&required(daemon));
        return Ok(Some(format!("the requirements of {host} exclude the cache: {required}")));
    };
    let size = |kilobytes: i64| Size(u64::try_from(kilobytes).unwrap_or(0).saturating_mul(1024));
    Ok(Some(format!("the cache takes {}; {host} has only {} for all caches", size(usage), size(total))))
}

/// As the paper writes it: `SWARM, DIRECT`.
fn methods(methods: &[Method]) -> String {
    methods.iter().map(ToString::to_string).collect::<Vec<_>>().join(", ")
}

fn kilobytes(bytes: u64) -> i64 {
    signed(bytes.div_ceil(1024))
}

fn signed(n: u64) -> i64 {
    i64::try_from(n).unwrap_or(i64::MAX)
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;

    const NOW: u64 = 1_000;

    fn record(attributes: serde_json::Value, bytes: u64) -> CacheRecord {
        let size = serde_json::json!({ "bytes": bytes, "inodes": 1 });
        serde_json::from_value(serde_json::json!({
            "id": 1, "origin": "head", "name": "nt", "version": 2, "owner": "alice", "mode": 0o444, "state": "COMMITTED",
            "declared": size, "created": 1, "last_used": 1, "lease_until": 2000, "content": "ab".repeat(32),
            "attributes": attributes,
        }))
        .unwrap()
    }

    fn host(requirements: Option<&str>) -> Ad {
        let host = Host {
            name: "node1",
            machine: "m1",
            started: 5,
            disk: (1 << 20, 1 << 19),
            methods: &[Method::Direct],
            requirements,
        };
        daemon(&host).unwrap()
    }

    fn matches(attributes: serde_json::Value, requirements: Option<&str>, by_policy: bool) -> bool {
        let (cache, host) = (cache(&record(attributes, 1000)).unwrap(), host(requirements));
        if by_policy { agree(&cache, &host, NOW).unwrap() } else { why_not(&cache, &host).is_none() }
    }

    fn why_not(cache: &Ad, host: &Ad) -> Option<String> {
        mismatch(cache, host, NOW).unwrap()
    }

    #[test]
    fn a_cache_says_what_the_paper_has_it_say() {
        let ad = cache(&record(serde_json::json!({ "methods": ["swarm"] }), 2049)).unwrap().to_string();
        for part in [
            "CacheId = \"head/nt@2\"",
            "CacheOriginatorHost = \"head\"",
            "DiskUsage = 3",
            "LeaseExpiration = 2000",
            "ReplicationMethods = \"SWARM\"",
            "xt=urn:btmh:1220abab",
        ] {
            assert!(ad.contains(part), "{part} in {ad}");
        }
    }

    #[test]
    fn both_requirements_have_to_be_satisfied() {
        let none = serde_json::json!({});
        assert!(matches(none.clone(), None, false));
        assert!(matches(none.clone(), Some("TARGET.Owner == \"alice\""), false));
        assert!(!matches(none.clone(), Some("TARGET.Owner == \"bob\""), false));
        let wants = |text: &str| serde_json::json!({ "requirements": text });
        assert!(matches(wants("TARGET.Name == \"node1\""), None, false));
        assert!(!matches(wants("TARGET.Name == \"node2\""), None, false));
        // An unknown attribute does not satisfy a requirement.
        assert!(!matches(wants("TARGET.HasGpu"), None, false));
    }

    #[test]
    fn the_policy_counts_for_copies_that_are_offered_and_not_for_those_that_are_asked_for() {
        let only = serde_json::json!({ "policy": "TARGET.Name == \"node2\"" });
        assert!(matches(only.clone(), None, false) && !matches(only, None, true));
        assert!(matches(serde_json::json!({ "policy": "TARGET.FreeDisk > 1" }), None, true));
        assert!(matches(serde_json::json!({}), None, true), "none allows all");
    }

    #[test]
    fn a_host_without_requirements_takes_what_fits() {
        let large = cache(&record(serde_json::json!({}), 2 << 20)).unwrap();
        let why = why_not(&large, &host(None)).unwrap();
        assert_eq!(why, "the cache takes 2 MiB; host node1 has only 1 MiB for all caches");
        assert_eq!(why_not(&large, &host(Some("true"))), None);
    }

    #[test]
    fn who_requires_what_is_said() {
        let choosy = cache(&record(serde_json::json!({ "requirements": "TARGET.HasGpu" }), 1)).unwrap();
        let why = why_not(&choosy, &host(None)).unwrap();
        assert_eq!(why, "the cache's requirements exclude host node1: TARGET.HasGpu");
        let any = cache(&record(serde_json::json!({}), 1)).unwrap();
        let why = why_not(&any, &host(Some("TARGET.Owner == \"bob\""))).unwrap();
        assert_eq!(why, "the requirements of host node1 exclude the cache: TARGET.Owner == \"bob\"");
        assert!(why_not(&Ad::new(), &Ad::new()).is_some(), "ads without requirements match nothing");
    }

    #[test]
    fn a_condition_that_could_never_hold_is_refused_when_it_is_given() {
        for fine in ["true", "TARGET.FreeDisk > 100", "Unknown == 3", "TARGET.Name == \"x\" || false"] {
            assert!(check("the policy", fine).is_ok(), "{fine}");
        }
        for bad in ["", "1 +", "\"text\"", "{ 1, 2 }", "error"] {
            assert!(check("the policy", bad).is_err(), "{bad}");
        }
        assert!(check_requirements("TARGET.DiskUsage < 5").is_ok() && check_requirements("{").is_err());
    }

    #[test]
    fn ads_go_as_text_and_come_back() {
        let ad =
            cache(&record(serde_json::json!({ "requirements": "TARGET.Name == \"node1\"" }), 10)).unwrap();
        let again = Ad::parse_new(ad.to_string()).unwrap();
        assert!(agree(&again, &host(None), NOW).unwrap());
    }
}
