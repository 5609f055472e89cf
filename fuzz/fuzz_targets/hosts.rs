//! Any text as a list of hosts and as a launch command. What must hold: no panic, bounded lists, each name once, and no
//! name that could be an option or leave its directory.
#![no_main]

use std::collections::BTreeSet;

use libfuzzer_sys::fuzz_target;

// The two parsers alone: their crate would bring the whole network stack along.
#[path = "../../crates/group/src/hosts/mod.rs"]
#[allow(dead_code, unused_imports)]
mod hosts;
#[path = "../../crates/group/src/launch/template.rs"]
mod template;

use hosts::{Host, MAX_HOSTS, parse};
use template::Template;

fuzz_target!(|text: &str| {
    if let Ok(hosts) = parse(text) {
        assert!(!hosts.is_empty() && hosts.len() <= MAX_HOSTS);
        let names: BTreeSet<&str> = hosts.iter().map(|h| h.name.as_str()).collect();
        assert_eq!(names.len(), hosts.len());
        assert!(names.iter().all(|name| !name.starts_with(['-', '.']) && !name.contains('/')));
    }
    if let Ok(template) = text.parse::<Template>() {
        let host = Host::named("n");
        assert!(!template.fill(&host, &["worker".into()]).is_empty());
    }
});
