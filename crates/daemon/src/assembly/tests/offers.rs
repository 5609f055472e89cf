//! Copies that are offered to other hosts.

use super::site::{Host, Site, admin, eventually, user};
use crate::model::api_error::ErrorKind;
use crate::model::types::{CacheInfo, Create, Offered};

async fn offer(host: &Host, info: &CacheInfo, to: &[&str]) -> Vec<Offered> {
    let to = to.iter().map(|name| (*name).to_owned()).collect();
    let offered = host.daemon.app.copies.replicate(&user("alice"), info.cache.parse().unwrap(), to).await;
    offered.unwrap()
}

fn told(offered: &[Offered]) -> Vec<(&str, &str)> {
    offered.iter().map(|one| (one.host.as_str(), one.answer.as_str())).collect()
}

#[tokio::test(start_paused = true)]
async fn a_host_that_is_offered_a_copy_takes_it_and_has_it_then() {
    let (site, alice) = (Site::new(&["head", "node1"]).await, user("alice"));
    let (head, node1) = (site.host("head"), site.host("node1"));
    let made = head.make(&alice, "nt", "acgt").await;
    assert_eq!(told(&offer(head, &made, &["node1"]).await), [("node1", "wait")]);
    eventually("it has come", 10, || node1.has("head/nt@1")).await;
    assert_eq!(told(&offer(head, &made, &["node1"]).await), [("node1", "ok")]);
}

#[tokio::test(start_paused = true)]
async fn a_host_that_is_not_there_is_unreachable() {
    let (site, alice) = (Site::new(&["head", "node1"]).await, user("alice"));
    let made = site.host("head").make(&alice, "nt", "acgt").await;
    let offered = offer(site.host("head"), &made, &["127.0.0.1:1", "node1"]).await;
    assert_eq!(told(&offered), [("127.0.0.1:1", "unreachable"), ("node1", "wait")]);
}

#[tokio::test(start_paused = true)]
async fn a_paused_host_and_one_whose_owners_are_others_reject_an_offer() {
    let alice = user("alice");
    let bobs = |config: &mut crate::Config| {
        if config.name == "node2" {
            config.owners = vec!["bob".into()];
        }
    };
    let site = Site::with(&["head", "node1", "node2"], &bobs).await;
    let (head, node1) = (site.host("head"), site.host("node1"));
    let made = head.make(&alice, "nt", "acgt").await;
    node1.daemon.app.admin.admin(&admin(), "pause", Default::default()).await.unwrap();
    let offered = offer(head, &made, &["node1", "node2"]).await;
    assert_eq!(told(&offered), [("node1", "rejected"), ("node2", "rejected")]);
    assert_eq!(offered[0].why.as_deref(), Some("this daemon accepts no new caches"));
    assert_eq!(node1.noted("offer"), ["head rejected: this daemon accepts no new caches"]);
}

#[tokio::test(start_paused = true)]
async fn a_users_daemon_offers_nothing_to_hosts() {
    let (site, alice) = (Site::new(&["head", "alice.node1"]).await, user("alice"));
    let own = site.host("alice.node1");
    let made = own.make(&alice, "nt", "acgt").await;
    let offered = offer(own, &made, &["head"]).await;
    assert_eq!(told(&offered), [("head", "rejected")]);
    assert_eq!(offered[0].why.as_deref(), Some("only a host's daemon offers caches"));
}

#[tokio::test(start_paused = true)]
async fn only_its_owner_replicates_a_cache() {
    let (site, alice) = (Site::new(&["head", "node1"]).await, user("alice"));
    let made = site.host("head").make(&alice, "nt", "acgt").await;
    let copies = &site.host("head").daemon.app.copies;
    let refused = copies.replicate(&user("bob"), made.cache.parse().unwrap(), vec!["node1".into()]).await;
    assert_eq!(refused.unwrap_err().kind, ErrorKind::Forbidden);
}

#[tokio::test(start_paused = true)]
async fn without_names_those_are_offered_it_that_the_policy_allows() {
    let names = ["head", "node1", "node2", "node3"];
    let (site, alice) = (Site::new(&names).await, user("alice"));
    let head = site.host("head");
    let create = Create {
        name: "nt".into(),
        mode: Some(0o755),
        policy: Some("TARGET.Name != \"node2\"".into()),
        replicas: 3,
        ..Create::default()
    };
    let made = head.create(&alice, create, &[("file", b"acgt")]).await;
    let mut offered = offer(head, &made, &[]).await;
    offered.sort_by(|a, b| a.host.cmp(&b.host));
    assert_eq!(told(&offered), [("node1", "wait"), ("node3", "wait")]);
}

#[tokio::test(start_paused = true)]
async fn a_cache_that_does_not_suit_a_host_is_rejected_with_the_reason() {
    let alice = user("alice");
    let small = |config: &mut crate::Config| {
        if config.name == "node1" {
            config.requirements = Some("TARGET.DiskUsage < 1".into());
        }
    };
    let site = Site::with(&["head", "node1"], &small).await;
    let head = site.host("head");
    let made = head.make(&alice, "nt", "acgt").await;
    let offered = offer(head, &made, &["node1"]).await;
    assert_eq!(told(&offered), [("node1", "rejected")]);
    assert!(!site.host("node1").has("nt"));
}

#[tokio::test(start_paused = true)]
async fn an_offer_of_what_is_bigger_than_the_store_takes_no_room() {
    let alice = user("alice");
    let small = |config: &mut crate::Config| {
        if config.name == "node1" {
            config.depot.max_bytes = Some(1000);
        }
    };
    let site = Site::with(&["head", "node1"], &small).await;
    let (head, node1) = (site.host("head"), site.host("node1"));
    let made = head.make(&alice, "nt", &"acgt".repeat(2000)).await;
    offer(head, &made, &["node1"]).await;
    tokio::time::sleep(std::time::Duration::from_secs(60)).await;
    assert!(!node1.has("nt"));
    assert_eq!(node1.daemon.app.admin.status().unwrap().reserved, 0);
}
