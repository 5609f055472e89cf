//! Two parts of a site that do not see each other, and are one again.

use super::site::{Site, eventually, user};
use crate::model::api_error::ErrorKind;

const NAMES: [&str; 4] = ["head", "node1", "node2", "node3"];

async fn in_two() -> Site {
    let site = Site::new(&NAMES).await;
    site.part(&["node2", "node3"]);
    let alive = |name: &str| site.host(name).daemon.membership.alive().len();
    eventually("each part knows its own", 60, || NAMES.iter().all(|name| alive(name) == 1)).await;
    site
}

#[tokio::test(start_paused = true)]
async fn the_parts_find_together_by_themselves() {
    let site = in_two().await;
    site.heal();
    let alive = |name: &str| site.host(name).daemon.membership.alive().len();
    eventually("all know all", 180, || NAMES.iter().all(|name| alive(name) == 3)).await;
}

#[tokio::test(start_paused = true)]
async fn each_part_has_what_its_own_hosts_hold() {
    let (site, alice) = (in_two().await, user("alice"));
    site.host("head").make(&alice, "a", "of the first").await;
    site.host("node2").make(&alice, "b", "of the second").await;
    assert!(site.host("node1").get(&alice, "head/a").await.is_ok());
    assert!(site.host("node3").get(&alice, "node2/b").await.is_ok());
    let refused = site.host("node3").get(&alice, "head/a").await.unwrap_err();
    assert!(matches!(refused.kind, ErrorKind::Unreachable | ErrorKind::Absent), "{refused:?}");
}

#[tokio::test(start_paused = true)]
async fn what_was_made_in_one_part_is_found_from_the_other_afterwards() {
    let (site, alice) = (in_two().await, user("alice"));
    site.host("head").make(&alice, "nt", "acgt").await;
    site.host("node1").get(&alice, "head/nt").await.unwrap();
    site.heal();
    let alive = |name: &str| site.host(name).daemon.membership.alive().len();
    eventually("all know all", 180, || NAMES.iter().all(|name| alive(name) == 3)).await;
    let node3 = site.host("node3");
    assert_eq!(node3.holders(&alice, "head/nt").await.unwrap(), ["head", "node1"]);
    let got = node3.get(&alice, "head/nt").await.unwrap();
    assert_eq!(node3.content(&got), "acgt");
}

#[tokio::test(start_paused = true)]
async fn versions_that_were_made_meanwhile_are_the_newest_afterwards() {
    let (site, alice) = (Site::new(&NAMES).await, user("alice"));
    site.host("head").make(&alice, "nt", "first").await;
    site.host("node2").get(&alice, "head/nt").await.unwrap();
    site.part(&["node2", "node3"]);
    site.host("head").make(&alice, "nt", "second").await;
    let node2 = site.host("node2");
    let before = node2.get(&alice, "head/nt").await.unwrap();
    assert_eq!(node2.content(&before), "first");
    site.heal();
    let linked = || node2.daemon.links.find(|peer| peer.hello.name == "head").is_some();
    eventually("they speak again", 180, linked).await;
    tokio::time::sleep(std::time::Duration::from_secs(11)).await;
    let after = node2.get(&alice, "head/nt").await.unwrap();
    assert_eq!(node2.content(&after), "second");
}

#[tokio::test(start_paused = true)]
async fn a_host_that_starts_again_is_known_with_what_it_holds() {
    let (mut site, alice) = (Site::new(&NAMES).await, user("alice"));
    site.host("head").make(&alice, "nt", "acgt").await;
    site.host("node2").get(&alice, "head/nt").await.unwrap();
    site.start_again("node2").await;
    let alive = |name: &str| site.host(name).daemon.membership.alive().len();
    eventually("all know all", 180, || NAMES.iter().all(|name| alive(name) == 3)).await;
    assert!(site.host("node2").has("nt"), "it has what it had");
    assert_eq!(site.host("node3").holders(&alice, "head/nt").await.unwrap(), ["head", "node2"]);
}

#[tokio::test(start_paused = true)]
async fn an_origin_that_starts_again_goes_on_counting_versions() {
    let (mut site, alice) = (Site::new(&["head", "node1"]).await, user("alice"));
    site.host("head").make(&alice, "nt", "first").await;
    site.start_again("head").await;
    site.host("head").make(&alice, "nt", "second").await;
    let node1 = site.host("node1");
    let linked = || node1.daemon.links.find(|peer| peer.hello.name == "head").is_some();
    eventually("they speak again", 180, linked).await;
    let got = node1.get(&alice, "head/nt").await.unwrap();
    assert_eq!((got.name.as_str(), node1.content(&got).as_str()), ("head/nt@2", "second"));
}

#[tokio::test(start_paused = true)]
async fn what_was_removed_in_one_part_is_held_in_the_other_still() {
    let (site, alice) = (Site::new(&NAMES).await, user("alice"));
    let made = site.host("head").make(&alice, "nt", "acgt").await;
    site.host("node2").get(&alice, "head/nt").await.unwrap();
    site.part(&["node2", "node3"]);
    site.host("head").remove(&alice, &made).await;
    site.heal();
    let alive = |name: &str| site.host(name).daemon.membership.alive().len();
    eventually("all know all", 180, || NAMES.iter().all(|name| alive(name) == 3)).await;
    assert_eq!(site.host("node1").holders(&alice, "head/nt").await.unwrap(), ["node2"]);
    let got = site.host("node1").get(&alice, "head/nt@1").await.unwrap();
    assert_eq!(site.host("node1").content(&got), "acgt");
}

/// Cuts a host off as soon as it has asked a source.
async fn cut_once_asked(site: &Site, name: &'static str) {
    while site.host(name).sources().is_empty() {
        tokio::time::sleep(std::time::Duration::from_millis(1)).await;
    }
    site.part(&[name]);
}

#[tokio::test(start_paused = true)]
async fn a_transfer_that_was_cut_comes_to_its_end_when_all_is_well() {
    let (site, alice) = (Site::new(&["head", "node1"]).await, user("alice"));
    site.host("head").make(&alice, "nt", "acgt").await;
    let node1 = site.host("node1");
    let (failed, ()) = tokio::join!(node1.get(&alice, "head/nt"), cut_once_asked(&site, "node1"));
    assert!(failed.is_err(), "{failed:?}");
    assert!(!node1.has("nt"), "nothing half of it is a cache");
    site.heal();
    let linked = || node1.daemon.links.find(|peer| peer.hello.name == "head").is_some();
    eventually("they speak again", 180, linked).await;
    tokio::time::sleep(std::time::Duration::from_secs(121)).await;
    let got = node1.get(&alice, "head/nt").await.unwrap();
    assert_eq!(node1.content(&got), "acgt");
}

#[tokio::test(start_paused = true)]
async fn a_transfer_that_was_cut_goes_on_when_the_link_is_there_again() {
    let (site, alice) = (Site::new(&["head", "node1"]).await, user("alice"));
    site.host("head").make(&alice, "nt", "acgt").await;
    let node1 = site.host("node1");
    let cut = async {
        cut_once_asked(&site, "node1").await;
        tokio::time::sleep(std::time::Duration::from_secs(25)).await;
        site.heal();
    };
    let (got, ()) = tokio::join!(node1.get(&alice, "head/nt"), cut);
    assert_eq!(node1.content(&got.unwrap()), "acgt");
}
