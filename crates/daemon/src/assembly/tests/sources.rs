//! Which daemons are asked for a cache, and which are not.

use std::time::Duration;

use tokio::time::sleep;

use super::site::{Site, user};
use crate::model::api_error::ErrorKind;

#[tokio::test(start_paused = true)]
async fn the_origin_is_asked_before_other_holders() {
    let (site, alice) = (Site::new(&["head", "node1", "node2"]).await, user("alice"));
    let (head, node1, node2) = (site.host("head"), site.host("node1"), site.host("node2"));
    node2.make(&alice, "nt", "acgt").await;
    head.get(&alice, "node2/nt").await.unwrap();
    node1.get(&alice, "node2/nt").await.unwrap();
    assert_eq!(node1.sources(), ["node2"]);
}

#[tokio::test(start_paused = true)]
async fn holders_are_asked_before_daemons_that_have_not_said_so() {
    let names = ["head", "node1", "node2", "node3", "node4"];
    let (mut site, alice) = (Site::new(&names).await, user("alice"));
    site.host("head").make(&alice, "nt", "acgt").await;
    site.host("node3").get(&alice, "head/nt").await.unwrap();
    // That it holds it is known.
    assert_eq!(site.host("node1").holders(&alice, "head/nt").await.unwrap(), ["head", "node3"]);
    site.kill("head");
    let node1 = site.host("node1");
    node1.get(&alice, "head/nt@1").await.unwrap();
    assert_eq!(node1.sources(), ["node3"]);
}

#[tokio::test(start_paused = true)]
async fn a_source_that_fails_gives_way_to_another_and_is_left_alone() {
    let (site, alice) = (Site::new(&["head", "node1", "node2"]).await, user("alice"));
    let (head, node1, node2) = (site.host("head"), site.host("node1"), site.host("node2"));
    head.make(&alice, "nt", "acgt").await;
    node1.get(&alice, "head/nt").await.unwrap();
    node2.seen.broken.lock().insert("head".into());
    let got = node2.get(&alice, "head/nt").await.unwrap();
    assert_eq!((node2.sources(), got.came.peers), (vec!["head".to_owned(), "node1".into()], 4));
    assert!(node2.daemon.replicas.directory.backoff.has(head.addr));
    sleep(Duration::from_secs(121)).await;
    assert!(!node2.daemon.replicas.directory.backoff.has(head.addr), "not for ever");
}

#[tokio::test(start_paused = true)]
async fn when_all_sources_fail_the_user_hears_why() {
    let (site, alice) = (Site::new(&["head", "node1"]).await, user("alice"));
    site.host("head").make(&alice, "nt", "acgt").await;
    let node1 = site.host("node1");
    node1.seen.broken.lock().insert("head".into());
    let failed = node1.get(&alice, "head/nt").await.unwrap_err();
    assert_eq!(failed.kind, ErrorKind::Unreachable, "{failed:?}");
    assert!(!node1.has("nt"));
    // The reserved space is free again.
    assert_eq!(node1.daemon.app.admin.status().unwrap().transfers, Vec::<String>::new());
}

#[tokio::test(start_paused = true)]
async fn a_source_that_is_cut_off_in_the_midst_is_given_up_for_another() {
    let (site, alice) = (Site::new(&["head", "node1", "node2"]).await, user("alice"));
    let (head, node1, node2) = (site.host("head"), site.host("node1"), site.host("node2"));
    head.make(&alice, "nt", "acgt").await;
    node1.get(&alice, "head/nt").await.unwrap();
    let cut = async {
        while node2.sources().is_empty() {
            sleep(Duration::from_millis(1)).await;
        }
        site.part(&["head"]);
    };
    let (got, ()) = tokio::join!(node2.get(&alice, "head/nt"), cut);
    assert_eq!(node2.content(&got.unwrap()), "acgt");
    assert_eq!(node2.sources(), ["head", "node1"]);
}

#[tokio::test(start_paused = true)]
async fn what_a_user_wants_is_not_told_to_other_users_daemons() {
    let names = ["head", "alice.node1", "bob.node1"];
    let (site, alice) = (Site::new(&names).await, user("alice"));
    site.host("head").make(&alice, "nt", "acgt").await;
    let directory = &site.host("head").daemon.replicas.directory;
    let asked = |name: &'static str, reader: &'static str| async move {
        let links = directory.sources(&name.parse().unwrap(), reader).await;
        let mut names: Vec<String> = links.iter().map(|link| link.peer.hello.name.clone()).collect();
        names.sort();
        names
    };
    assert_eq!(asked("node7/nt", "alice").await, ["alice.node1"]);
    assert_eq!(asked("node7/nt", "bob").await, ["bob.node1"]);
    assert_eq!(asked("bob.node1/nt", "alice").await, ["alice.node1", "bob.node1"]);
    assert_eq!(asked("bob.node1/nt", "alice").await.len(), 2);
}

#[tokio::test(start_paused = true)]
async fn a_daemon_alone_says_that_there_is_nobody_to_ask() {
    let alone = |config: &mut crate::Config| config.trust = None;
    let (site, alice) = (Site::with(&["head"], &alone).await, user("alice"));
    let head = site.host("head");
    let refused = head.get(&alice, "node1/nt").await.unwrap_err();
    assert_eq!(refused.kind, ErrorKind::Absent);
    let why = "no cache node1/nt on this host that you may read, and this daemon trusts no other daemon: set the site's CA \
               in its configuration";
    assert_eq!(refused.why, why);
}

#[tokio::test(start_paused = true)]
async fn a_host_that_is_named_in_the_settings_is_connected_to_when_it_is_wanted() {
    let (mut site, alice) = (Site::empty(&["head", "node1"]), user("alice"));
    site.start("node1", &|_| {});
    site.start("head", &|config| config.peers.clear());
    site.host("head").make(&alice, "nt", "acgt").await;
    assert!(site.host("node1").get(&alice, "head/nt").await.is_ok());
}

#[tokio::test(start_paused = true)]
async fn all_hosts_that_want_a_cache_at_once_have_it() {
    let names = ["head", "node1", "node2", "node3", "node4"];
    let (site, alice) = (Site::new(&names).await, user("alice"));
    site.host("head").make(&alice, "nt", "acgt").await;
    let get = |name: &'static str| site.host(name).get(&alice, "head/nt");
    let (a, b, c, d) = tokio::join!(get("node1"), get("node2"), get("node3"), get("node4"));
    assert!([a, b, c, d].iter().all(Result::is_ok));
    assert_eq!(site.host("head").holders(&alice, "nt").await.unwrap().len(), 5);
}

#[tokio::test(start_paused = true)]
async fn a_holder_that_has_lost_it_gives_way_to_one_that_has_it() {
    let (site, alice) = (Site::new(&["head", "node1", "node2"]).await, user("alice"));
    let (head, node1, node2) = (site.host("head"), site.host("node1"), site.host("node2"));
    let made = head.make(&alice, "nt", "acgt").await;
    node1.get(&alice, "head/nt").await.unwrap();
    head.remove(&alice, &made).await;
    let got = node2.get(&alice, "head/nt@1").await.unwrap();
    assert_eq!((node2.content(&got), got.came.peers), ("acgt".to_owned(), 4));
}
