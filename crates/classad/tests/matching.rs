//! Matchmaking.
#![allow(clippy::unwrap_used, missing_docs)]

use tidecast_classad::{Ad, Context, EvalError};

fn ad(text: &str) -> Ad {
    Ad::parse(text).unwrap()
}

fn matches(left: &str, right: &str) -> bool {
    let context = Context::at(0);
    let (left, right) = (ad(left), ad(right));
    let both = context.symmetric_match(&left, &right).unwrap();
    assert_eq!(both, context.symmetric_match(&right, &left).unwrap(), "it is symmetric");
    assert_eq!(both, context.consents(&left, &right).unwrap() && context.consents(&right, &left).unwrap());
    both
}

#[test]
fn a_cache_and_a_daemon() {
    let daemon = "CachedServer = true\nTotalDisk = 100\nRequirements = MY.TotalDisk > TARGET.DiskUsage\n";
    let cache = |size: u32| {
        format!(
            "[DiskUsage = {size}; Requirements = TARGET.CachedServer && regexp(\"^node\", TARGET.Name ?: \"node1\")]"
        )
    };
    assert!(matches(daemon, &cache(99)));
    assert!(!matches(daemon, &cache(100)));
}

#[test]
fn only_what_is_true_is_consent() {
    let willing = "[Requirements = true]";
    for (requirements, consent) in [
        ("true", true),
        ("5", true),
        ("0", false),
        ("1.0", true),
        ("undefined", false),
        ("error", false),
        ("\"true\"", false),
        ("TARGET.Requirements", true),
        ("NoSuchAttribute", false),
    ] {
        assert_eq!(matches(willing, &format!("[requirements = {requirements}]")), consent, "{requirements}");
    }
    assert!(!matches(willing, "[]"), "who requires nothing has not been asked");
}

#[test]
fn names_are_looked_up_at_home_first() {
    let left = "[x = 1; y = 5; Requirements = x == 1 && TARGET.x == 2 && z == 3]";
    assert!(matches(left, "[x = 2; z = 3; Requirements = y == 5]"));
    // In a nested ad of the other side, only attributes there and around it count.
    assert!(matches("[v = 1; Requirements = other.n.w]", "[n = [w = x]; x = true; Requirements = true]"));
    assert!(!matches("[v = true; Requirements = other.n.w]", "[n = [w = v]; Requirements = true]"));
}

#[test]
fn rank_is_a_number_or_nothing() {
    let context = Context::at(0);
    let target = ad("[Memory = 512]");
    for (rank, expected) in [
        ("TARGET.Memory", 512.0),
        ("Memory * 0.5", 256.0),
        ("true", 1.0),
        ("\"high\"", 0.0),
        ("nope", 0.0),
        ("1/0", 0.0),
    ] {
        let rank = ad(&format!("[Rank = {rank}]"));
        assert!((context.rank(&rank, &target).unwrap() - expected).abs() < 1e-9);
    }
    assert!(context.rank(&ad("[]"), &target).unwrap().abs() < 1e-9);
}

#[test]
fn what_does_not_end_is_an_error_and_no_match() {
    let chain: String = (0..1000).map(|i| format!("c{i} = c{} + 1;", i + 1)).collect();
    let endless = ad(&format!("[{chain} c1000 = 0; Requirements = c0 > 5]"));
    let willing = ad("[Requirements = true]");
    assert_eq!(Context::at(0).symmetric_match(&endless, &willing), Err(EvalError::TooDeep));
}
