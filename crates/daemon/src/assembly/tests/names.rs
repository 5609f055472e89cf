//! The meaning of a name: its origin, its version, and its signature.

use super::site::{Site, user};
use crate::model::api_error::ErrorKind;
use crate::model::types::{Create, Get, Got};

/// The cache that a name gives, and why it may not be the newest.
async fn older(
    host: &super::site::Host,
    who: &crate::host::caller::Caller,
    get: Get,
) -> (String, Option<String>) {
    match host.got(who, get).await.unwrap() {
        Got::Ready { info, older, .. } => (info.name, older),
        Got::Wait { why, .. } => panic!("{why}"),
    }
}

fn by(name: &str) -> Get {
    Get { name: name.into(), ..Get::default() }
}

#[tokio::test(start_paused = true)]
async fn a_name_without_an_origin_is_this_hosts_own_first() {
    let (site, alice) = (Site::new(&["head", "node1"]).await, user("alice"));
    let (head, node1) = (site.host("head"), site.host("node1"));
    head.make(&alice, "nt", "of head").await;
    let got = node1.get(&alice, "nt").await.unwrap();
    assert_eq!(node1.content(&got), "of head", "of whoever has it, if there is none here");
    node1.make(&alice, "nt", "of node1").await;
    let got = node1.get(&alice, "nt").await.unwrap();
    assert_eq!((got.name.as_str(), node1.content(&got).as_str()), ("node1/nt@1", "of node1"));
    let got = node1.get(&alice, "head/nt").await.unwrap();
    assert_eq!(node1.content(&got), "of head");
}

#[tokio::test(start_paused = true)]
async fn a_name_without_a_version_is_the_newest_that_its_origin_has() {
    let (site, alice) = (Site::new(&["head", "node1"]).await, user("alice"));
    let (head, node1) = (site.host("head"), site.host("node1"));
    head.make(&alice, "nt", "first").await;
    node1.get(&alice, "head/nt").await.unwrap();
    head.make(&alice, "nt", "second").await;
    let got = node1.get(&alice, "head/nt").await.unwrap();
    assert_eq!((got.name.as_str(), node1.content(&got).as_str()), ("head/nt@2", "second"));
    let got = node1.get(&alice, "head/nt@1").await.unwrap();
    assert_eq!(node1.content(&got), "first", "a version that is named is that one");
    assert_eq!(older(node1, &alice, by("head/nt")).await, ("head/nt@2".into(), None));
}

#[tokio::test(start_paused = true)]
async fn without_the_origin_what_is_here_is_given_and_said_to_be_perhaps_old() {
    let (site, alice) = (Site::new(&["head", "node1"]).await, user("alice"));
    let (head, node1) = (site.host("head"), site.host("node1"));
    head.make(&alice, "nt", "first").await;
    node1.get(&alice, "head/nt").await.unwrap();
    site.part(&["node1"]);
    let began = tokio::time::Instant::now();
    let (name, why) = older(node1, &alice, by("head/nt")).await;
    assert_eq!(name, "head/nt@1");
    let why = why.unwrap();
    assert!(why.starts_with("head/nt@1 may not be the newest version: head"), "{why}");
    assert!(began.elapsed().as_secs() <= 3, "nobody waits for long");
    let began = tokio::time::Instant::now();
    let (_, why) = older(node1, &alice, by("head/nt")).await;
    assert!(why.unwrap().ends_with("head did not answer recently"));
    assert!(began.elapsed().as_millis() < 100, "it is not asked again at once");
    let offline = Get { offline: true, ..by("head/nt") };
    assert_eq!(older(node1, &alice, offline).await, ("head/nt@1".into(), None));
}

#[tokio::test(start_paused = true)]
async fn a_newer_version_that_does_not_come_leaves_the_older() {
    let (site, alice) = (Site::new(&["head", "node1"]).await, user("alice"));
    let (head, node1) = (site.host("head"), site.host("node1"));
    head.make(&alice, "nt", "first").await;
    node1.get(&alice, "head/nt").await.unwrap();
    let choosy = Create {
        name: "nt".into(),
        requirements: Some("TARGET.Machine == \"x\"".into()),
        ..Create::default()
    };
    head.create(&alice, choosy, &[("file", b"second")]).await;
    let (name, why) = older(node1, &alice, by("head/nt")).await;
    assert_eq!(name, "head/nt@1");
    assert!(why.unwrap().starts_with("head/nt@1 is not the newest version; cannot get head/nt@2"));
}

#[tokio::test(start_paused = true)]
async fn a_holder_shows_the_origins_word_when_the_origin_is_gone() {
    let (mut site, alice) = (Site::new(&["head", "node1", "node2"]).await, user("alice"));
    site.host("head").make(&alice, "nt", "acgt").await;
    site.host("node1").get(&alice, "head/nt").await.unwrap();
    site.kill("head");
    let got = site.host("node2").get(&alice, "head/nt@1").await.unwrap();
    assert_eq!(site.host("node2").content(&got), "acgt");
    assert_eq!((site.host("node2").sources(), got.came.peers), (vec!["node1".to_owned()], 4));
}

#[tokio::test(start_paused = true)]
async fn a_users_daemon_gives_no_name_to_what_another_owns() {
    let (site, alice, bob) = (Site::new(&["head", "alice.node1"]).await, user("alice"), user("bob"));
    let own = site.host("alice.node1");
    own.make(&alice, "mine", "acgt").await;
    own.make(&bob, "forged", "tgca").await;
    let head = site.host("head");
    assert!(head.get(&alice, "alice.node1/mine").await.is_ok());
    let refused = head.get(&bob, "alice.node1/forged").await.unwrap_err();
    assert_eq!(refused.kind, ErrorKind::Unreachable, "{refused:?}");
    assert!(!head.has("forged"));
}

#[tokio::test(start_paused = true)]
async fn what_is_removed_is_found_no_more() {
    let (site, alice) = (Site::new(&["head", "node1", "node2"]).await, user("alice"));
    let (head, node1) = (site.host("head"), site.host("node1"));
    let made = head.make(&alice, "nt", "acgt").await;
    let got = node1.get(&alice, "head/nt").await.unwrap();
    assert_eq!(site.host("node2").holders(&alice, "head/nt").await.unwrap(), ["head", "node1"]);
    node1.remove(&alice, &got).await;
    assert_eq!(site.host("node2").holders(&alice, "head/nt").await.unwrap(), ["head"]);
    head.remove(&alice, &made).await;
    assert_eq!(site.host("node2").get(&alice, "head/nt").await.unwrap_err().kind, ErrorKind::Absent);
}

#[tokio::test(start_paused = true)]
async fn who_may_read_changes_only_while_there_are_no_copies() {
    let (site, alice) = (Site::new(&["head", "node1"]).await, user("alice"));
    let (head, node1) = (site.host("head"), site.host("node1"));
    head.make(&alice, "nt", "acgt").await;
    let got = node1.get(&alice, "head/nt").await.unwrap();
    let closed = Create { name: "nt".into(), mode: Some(0o700), ..Create::default() };
    let refused = head.try_create(&alice, closed.clone(), &[("file", b"acgt")]).await.unwrap_err();
    assert_eq!(refused.kind, ErrorKind::Copies);
    assert!(refused.why.contains("(node1)"), "{}", refused.why);
    node1.remove(&alice, &got).await;
    // Until then it may be about to have it.
    tokio::time::sleep(std::time::Duration::from_secs(30)).await;
    let same = head.try_create(&alice, closed, &[("file", b"acgt")]).await;
    let mode = head.daemon.app.caches.list(&alice, Some("nt".parse().unwrap()), None).await.unwrap()[0].mode;
    assert_eq!(mode, 0o700, "{same:?}");
}
