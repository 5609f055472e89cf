//! The users that a cache is fetched for, and reasons of failures.

use std::time::Duration;

use tokio::time::sleep;

use super::site::{Site, admin, eventually, user};
use crate::model::api_error::ErrorKind;
use crate::model::types::{Create, Get, Got, Method};

fn create(name: &str) -> Create {
    Create { name: name.into(), mode: Some(0o755), ..Create::default() }
}

#[tokio::test(start_paused = true)]
async fn a_cache_comes_by_its_name_with_its_content() {
    let (site, alice) = (Site::new(&["head", "node1"]).await, user("alice"));
    let (head, node1) = (site.host("head"), site.host("node1"));
    head.make(&alice, "nt", "acgt").await;
    let got = node1.get(&alice, "head/nt").await.unwrap();
    assert_eq!((got.name.as_str(), node1.content(&got).as_str()), ("head/nt@1", "acgt"));
    assert_eq!((node1.sources(), got.came.origin, got.came.peers), (vec!["head".to_owned()], 4, 0));
    assert_eq!(head.noted("send"), ["node1 ok"]);
    assert_eq!(node1.noted("fetch"), ["alice ok"]);
}

#[tokio::test(start_paused = true)]
async fn all_who_wait_for_a_cache_share_one_transfer() {
    let (site, alice) = (Site::new(&["head", "node1"]).await, user("alice"));
    site.host("head").make(&alice, "nt", "acgt").await;
    let node1 = site.host("node1");
    let gets = (node1.get(&alice, "head/nt"), node1.get(&alice, "head/nt"), node1.get(&alice, "head/nt"));
    let (a, b, c) = tokio::join!(gets.0, gets.1, gets.2);
    assert!(a.is_ok() && b.is_ok() && c.is_ok());
    assert_eq!(node1.sources().len(), 1);
}

#[tokio::test(start_paused = true)]
async fn what_a_reader_may_not_have_is_absent_and_its_owner_has_it() {
    let (site, alice, bob) = (Site::new(&["head", "node1"]).await, user("alice"), user("bob"));
    let (head, node1) = (site.host("head"), site.host("node1"));
    let own = Create { mode: Some(0o700), ..create("nt") };
    head.create(&alice, own, &[("file", b"acgt")]).await;
    let refused = node1.get(&bob, "head/nt").await.unwrap_err();
    assert_eq!(refused.kind, ErrorKind::Absent);
    assert_eq!(head.noted("want"), ["node1 absent"]);
    assert!(node1.sources().is_empty());
    assert!(node1.get(&alice, "head/nt").await.is_ok());
    // The copy on this host does not change that.
    assert_eq!(node1.get(&bob, "head/nt").await.unwrap_err().kind, ErrorKind::Absent);
}

#[tokio::test(start_paused = true)]
async fn a_group_reads_what_is_open_to_it() {
    let site = Site::new(&["head", "node1"]).await;
    let with = |name: &str, group: &str| {
        let mut who = user(name);
        who.groups = vec![group.into()];
        who
    };
    let (alice, bob, eve) = (with("alice", "lab"), with("bob", "lab"), with("eve", "other"));
    let of_group = Create { mode: Some(0o750), ..create("nt") };
    site.host("head").create(&alice, of_group, &[("file", b"acgt")]).await;
    let node1 = site.host("node1");
    assert_eq!(node1.get(&eve, "head/nt").await.unwrap_err().kind, ErrorKind::Absent);
    assert!(node1.get(&bob, "head/nt").await.is_ok());
}

#[tokio::test(start_paused = true)]
async fn a_rejection_is_remembered_for_a_quarter_of_an_hour() {
    let (site, alice) = (Site::new(&["head", "node1"]).await, user("alice"));
    let (head, node1) = (site.host("head"), site.host("node1"));
    let choosy = Create { requirements: Some("TARGET.Machine == \"another\"".into()), ..create("nt") };
    head.create(&alice, choosy, &[("file", b"acgt")]).await;
    for asked in [1, 1, 2] {
        let refused = node1.get(&alice, "head/nt").await.unwrap_err();
        assert_eq!(refused.kind, ErrorKind::Rejected);
        let required = "TARGET.Machine == \"another\"";
        assert_eq!(refused.why, format!("head: the cache's requirements exclude host node1: {required}"));
        let noted = head.noted("want");
        assert_eq!(noted.len(), asked, "{noted:?}");
        if asked == 1 {
            sleep(Duration::from_secs(8 * 60)).await;
        }
    }
}

#[tokio::test(start_paused = true)]
async fn a_host_takes_what_it_requires_only() {
    let alice = user("alice");
    let small = |config: &mut crate::Config| {
        if config.name == "node1" {
            config.requirements = Some("TARGET.DiskUsage < 1".into());
        }
    };
    let site = Site::with(&["head", "node1", "node2"], &small).await;
    site.host("head").make(&alice, "nt", "acgt").await;
    let refused = site.host("node1").get(&alice, "head/nt").await.unwrap_err();
    assert_eq!(refused.kind, ErrorKind::Rejected, "{}", refused.why);
    assert!(site.host("node2").get(&alice, "head/nt").await.is_ok());
}

#[tokio::test(start_paused = true)]
async fn a_host_takes_nothing_of_owners_whose_jobs_are_not_expected() {
    let (alice, bob) = (user("alice"), user("bob"));
    let bobs = |config: &mut crate::Config| config.owners = vec!["bob".into()];
    let site = Site::with(&["head", "node1"], &bobs).await;
    let head = site.host("head");
    head.make(&alice, "a", "acgt").await;
    head.make(&bob, "b", "tgca").await;
    let refused = site.host("node1").get(&alice, "head/a").await.unwrap_err();
    let why = "this host accepts no caches of user alice";
    assert_eq!((refused.kind, refused.why.as_str()), (ErrorKind::Rejected, why));
    assert!(site.host("node1").get(&bob, "head/b").await.is_ok());
}

#[tokio::test(start_paused = true)]
async fn a_paused_holder_has_others_wait_until_it_goes_on() {
    let (site, alice) = (Site::new(&["head", "node1"]).await, user("alice"));
    let (head, node1) = (site.host("head"), site.host("node1"));
    head.make(&alice, "nt", "acgt").await;
    head.daemon.app.admin.admin(&admin(), "pause", Default::default()).await.unwrap();
    let get = Get { name: "head/nt".into(), ..Get::default() };
    match node1.got(&alice, get.clone()).await.unwrap() {
        Got::Wait { why, .. } => assert_eq!(why, "head is paused"),
        other => panic!("{other:?}"),
    }
    head.daemon.app.admin.admin(&admin(), "resume", Default::default()).await.unwrap();
    assert!(matches!(node1.got(&alice, get).await, Ok(Got::Ready { .. })));
}

#[tokio::test(start_paused = true)]
async fn a_paused_host_takes_nothing_new_and_gives_what_it_has() {
    let (site, alice) = (Site::new(&["head", "node1"]).await, user("alice"));
    let (head, node1) = (site.host("head"), site.host("node1"));
    head.make(&alice, "a", "acgt").await;
    head.make(&alice, "b", "tgca").await;
    node1.get(&alice, "head/a").await.unwrap();
    node1.daemon.app.admin.admin(&admin(), "pause", Default::default()).await.unwrap();
    assert_eq!(node1.get(&alice, "head/b").await.unwrap_err().kind, ErrorKind::Denied);
    assert_eq!(node1.get(&alice, "head/a").await.unwrap().name, "head/a@1");
    let made = node1.try_create(&alice, create("c"), &[("file", b"ccgg")]).await.unwrap_err();
    assert_eq!(made.kind, ErrorKind::Paused);
}

#[tokio::test(start_paused = true)]
async fn a_cache_that_is_larger_than_the_store_is_denied() {
    let alice = user("alice");
    let small = |config: &mut crate::Config| {
        if config.name == "node1" {
            config.depot.max_bytes = Some(1000);
        }
    };
    let site = Site::with(&["head", "node1"], &small).await;
    site.host("head").create(&alice, create("nt"), &[("file", &[7; 5000])]).await;
    let refused = site.host("node1").get(&alice, "head/nt").await.unwrap_err();
    assert!(matches!(refused.kind, ErrorKind::Denied | ErrorKind::Rejected), "{refused:?}");
    assert!(!site.host("node1").has("nt"));
}

#[tokio::test(start_paused = true)]
async fn a_cache_that_nobody_has_is_absent() {
    let (site, alice) = (Site::new(&["head", "node1"]).await, user("alice"));
    let node1 = site.host("node1");
    assert_eq!(node1.get(&alice, "head/nt").await.unwrap_err().kind, ErrorKind::Absent);
    // Of its own caches there is no other host to ask.
    assert_eq!(node1.get(&alice, "node1/nt").await.unwrap_err().kind, ErrorKind::Absent);
    assert_eq!(site.host("head").noted("want"), ["node1 absent"]);
}

#[tokio::test(start_paused = true)]
async fn a_daemon_that_is_not_trusted_is_told_so_and_users_hear_it() {
    let (site, alice) = (Site::new(&["head", "node1"]).await, user("alice"));
    let (head, node1) = (site.host("head"), site.host("node1"));
    head.make(&alice, "nt", "acgt").await;
    site.trust(&["head"]);
    // As on SIGHUP.
    head.daemon.links.trust().read_again();
    head.daemon.swarms.expel(&head.daemon.links.recheck_peers());
    eventually("the link is down", 10, || node1.daemon.links.to(head.node).is_none()).await;
    let refused = node1.get(&alice, "head/nt").await.unwrap_err();
    assert_eq!(refused.kind, ErrorKind::Unreachable, "{refused:?}");
    assert!(refused.why.contains("head rejected this daemon"), "{}", refused.why);
    assert_eq!(head.noted("connect").len(), 1);
}

#[tokio::test(start_paused = true)]
async fn so_many_transfers_go_on_at_once_and_others_wait() {
    let alice = user("alice");
    let one = |config: &mut crate::Config| config.transfers = 1;
    let site = Site::with(&["head", "node1", "node2"], &one).await;
    let (head, node1, node2) = (site.host("head"), site.host("node1"), site.host("node2"));
    head.make(&alice, "a", "acgt").await;
    node2.make(&alice, "b", "tgca").await;
    // The first does not end while its source is paused.
    head.daemon.app.admin.admin(&admin(), "pause", Default::default()).await.unwrap();
    let get = |name: &str| Get { name: name.into(), ..Get::default() };
    assert!(matches!(node1.got(&alice, get("head/a")).await, Ok(Got::Wait { .. })));
    match node1.got(&alice, get("node2/b")).await.unwrap() {
        Got::Wait { why, .. } => assert_eq!(why, "looking for a source"),
        other => panic!("{other:?}"),
    }
    node1.daemon.requests.allow(2);
    assert!(matches!(node1.got(&alice, get("node2/b")).await, Ok(Got::Ready { .. })));
}

#[tokio::test(start_paused = true)]
async fn a_private_cache_travels_by_direct_alone() {
    let site = Site::new(&["head", "node1"]).await;
    let (alice, node1) = (user("alice"), site.host("node1"));
    let create = Create { private: true, mode: Some(0o700), ..create("nt") };
    site.host("head").create(&alice, create, &[("file", b"acgt")]).await;
    match node1.got(&alice, Get { name: "head/nt".into(), ..Get::default() }).await.unwrap() {
        Got::Ready { method, info, .. } => assert_eq!((method, info.mode), (Some(Method::Direct), 0o700)),
        other => panic!("{other:?}"),
    }
}

#[tokio::test(start_paused = true)]
async fn what_travels_by_no_method_of_a_host_does_not_come() {
    let alice = user("alice");
    let swarm = |config: &mut crate::Config| config.methods = vec![Method::Swarm];
    let site = Site::with(&["head", "node1"], &swarm).await;
    let direct = Create { methods: vec![Method::Direct], ..create("nt") };
    site.host("head").create(&alice, direct, &[("file", b"acgt")]).await;
    let refused = site.host("node1").get(&alice, "head/nt").await.unwrap_err();
    assert_eq!(refused.kind, ErrorKind::Rejected, "{}", refused.why);
    assert!(!site.host("node1").has("nt"));
}

#[tokio::test(start_paused = true)]
async fn of_the_methods_that_a_cache_allows_the_hosts_first_is_taken() {
    let alice = user("alice");
    let direct_first = |config: &mut crate::Config| {
        if config.name == "node1" {
            config.methods = vec![Method::Direct, Method::Swarm];
        }
    };
    let site = Site::with(&["head", "node1", "node2"], &direct_first).await;
    site.host("head").make(&alice, "nt", "acgt").await;
    for (name, first) in [("node1", Method::Direct), ("node2", Method::Swarm)] {
        match site.host(name).got(&alice, Get { name: "head/nt".into(), ..Get::default() }).await.unwrap() {
            Got::Ready { method, .. } => assert_eq!(method, Some(first), "{name}"),
            other => panic!("{other:?}"),
        }
    }
}

#[tokio::test(start_paused = true)]
async fn nobody_asks_in_the_name_of_another_user() {
    let (site, alice, bob) = (Site::new(&["head"]).await, user("alice"), user("bob"));
    let head = site.host("head");
    let own = Create { mode: Some(0o700), ..create("nt") };
    head.create(&alice, own, &[("file", b"acgt")]).await;
    let get = Get { name: "nt".into(), copy_for: Some("alice".into()), ..Get::default() };
    let getting = &head.daemon.app.getting;
    let refused =
        getting.get(&bob, "nt".parse().unwrap(), (Duration::ZERO, true), get.clone()).await.unwrap_err();
    assert_eq!(refused.kind, ErrorKind::Forbidden, "{refused:?}");
    assert!(getting.get(&alice, "nt".parse().unwrap(), (Duration::ZERO, true), get).await.is_ok());
}

#[tokio::test(start_paused = true)]
async fn a_cache_keeps_its_owner_group_and_mode_where_it_comes() {
    let mut alice = user("alice");
    alice.groups = vec!["lab".into()];
    let site = Site::new(&["head", "node1"]).await;
    let of_group = Create { mode: Some(0o750), ..create("nt") };
    site.host("head").create(&alice, of_group, &[("file", b"acgt")]).await;
    let got = site.host("node1").get(&alice, "head/nt").await.unwrap();
    assert_eq!((got.owner.as_str(), got.group.as_deref(), got.mode), ("alice", Some("lab"), 0o750));
    assert_eq!((got.bytes, got.files), (4, 1));
}

#[tokio::test(start_paused = true)]
async fn a_cache_of_many_files_comes_whole() {
    let (site, alice) = (Site::new(&["head", "node1"]).await, user("alice"));
    let names: Vec<String> = (0..50).map(|n| format!("d{}/f{n}", n % 7)).collect();
    let files: Vec<(&str, &[u8])> = names.iter().map(|name| (name.as_str(), name.as_bytes())).collect();
    site.host("head").create(&alice, create("nt"), &files).await;
    let got = site.host("node1").get(&alice, "head/nt").await.unwrap();
    let path = got.path.unwrap();
    assert!(names.iter().all(|name| std::fs::read_to_string(path.join(name)).unwrap() == *name));
    assert_eq!(got.files, 50);
}
