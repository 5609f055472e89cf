//! The number of copies that the owner wants is kept while hosts join and leave.

use std::time::Duration;

use tokio::time::sleep;

use super::site::{Site, admin, eventually, user};
use crate::model::api_error::ErrorKind;
use crate::model::types::Create;

fn two(name: &str) -> Create {
    Create { name: name.into(), mode: Some(0o755), replicas: 2, ..Create::default() }
}

fn holders(site: &Site, names: &[&str], cache: &str) -> Vec<String> {
    let holds = names.iter().filter(|name| site.host(name).has(cache));
    holds.map(|name| (*name).to_owned()).collect()
}

#[tokio::test(start_paused = true)]
async fn a_cache_of_two_copies_is_offered_to_one_other_host() {
    let names = ["head", "node1", "node2", "node3"];
    let (site, alice) = (Site::new(&names).await, user("alice"));
    site.host("head").create(&alice, two("nt"), &[("file", b"acgt")]).await;
    eventually("there are two copies", 60, || holders(&site, &names, "nt").len() == 2).await;
    sleep(Duration::from_secs(120)).await;
    assert_eq!(holders(&site, &names, "nt").len(), 2, "and no more");
    assert_eq!(site.host("head").noted("replicate").len(), 1);
}

#[tokio::test(start_paused = true)]
async fn a_copy_that_is_lost_is_made_again_elsewhere() {
    let names = ["head", "node1", "node2"];
    let (mut site, alice) = (Site::new(&names).await, user("alice"));
    site.host("head").create(&alice, two("nt"), &[("file", b"acgt")]).await;
    eventually("there are two copies", 60, || holders(&site, &names, "nt").len() == 2).await;
    let held = holders(&site, &["node1", "node2"], "nt").pop().unwrap();
    let other = if held == "node1" { "node2" } else { "node1" };
    site.kill(&held);
    eventually("the other has it", 120, || site.host(other).has("nt")).await;
}

#[tokio::test(start_paused = true)]
async fn holders_see_to_copies_when_the_origin_is_gone() {
    let names = ["head", "node1", "node2", "node3"];
    let (mut site, alice) = (Site::new(&names).await, user("alice"));
    site.host("head").create(&alice, two("nt"), &[("file", b"acgt")]).await;
    eventually("there are two copies", 60, || holders(&site, &names, "nt").len() == 2).await;
    site.kill("head");
    let left = ["node1", "node2", "node3"];
    eventually("there are two again", 180, || holders(&site, &left, "nt").len() == 2).await;
    sleep(Duration::from_secs(120)).await;
    assert_eq!(holders(&site, &left, "nt").len(), 2, "and no more");
}

#[tokio::test(start_paused = true)]
async fn a_copy_too_many_goes_when_a_host_comes_back() {
    let names = ["head", "node1", "node2"];
    let (site, alice) = (Site::new(&names).await, user("alice"));
    site.host("head").create(&alice, two("nt"), &[("file", b"acgt")]).await;
    eventually("there are two copies", 60, || holders(&site, &names, "nt").len() == 2).await;
    let held = holders(&site, &["node1", "node2"], "nt").pop().unwrap();
    site.part(&[&held]);
    eventually("all have it", 180, || holders(&site, &names, "nt").len() == 3).await;
    site.heal();
    eventually("one copy has gone", 300, || holders(&site, &names, "nt").len() == 2).await;
    assert!(site.host("head").has("nt"), "never the origin's");
    let trimmed: usize = ["node1", "node2"].iter().map(|name| site.host(name).noted("trim").len()).sum();
    assert_eq!(trimmed, 1);
}

#[tokio::test(start_paused = true)]
async fn a_copy_that_somebody_has_asked_for_stays() {
    let names = ["head", "node1", "node2"];
    let (site, alice) = (Site::new(&names).await, user("alice"));
    site.host("head").create(&alice, two("nt"), &[("file", b"acgt")]).await;
    eventually("there are two copies", 60, || holders(&site, &names, "nt").len() == 2).await;
    for name in ["node1", "node2"] {
        site.host(name).get(&alice, "head/nt").await.unwrap();
    }
    sleep(Duration::from_secs(300)).await;
    assert_eq!(holders(&site, &names, "nt").len(), 3);
}

#[tokio::test(start_paused = true)]
async fn a_paused_origin_offers_no_copies() {
    let (site, alice) = (Site::new(&["head", "node1"]).await, user("alice"));
    let head = site.host("head");
    head.create(&alice, two("nt"), &[("file", b"acgt")]).await;
    head.daemon.app.admin.admin(&admin(), "pause", Default::default()).await.unwrap();
    sleep(Duration::from_secs(90)).await;
    assert!(!site.host("node1").has("nt"));
    head.daemon.app.admin.admin(&admin(), "resume", Default::default()).await.unwrap();
    eventually("there are two copies", 60, || site.host("node1").has("nt")).await;
}

#[tokio::test(start_paused = true)]
async fn a_drained_host_has_others_take_what_it_holds() {
    let (site, alice) = (Site::new(&["head", "node1"]).await, user("alice"));
    let head = site.host("head");
    head.daemon.app.admin.admin(&admin(), "drain", Default::default()).await.unwrap();
    let refused = head.try_create(&alice, two("nt"), &[("file", b"acgt")]).await;
    assert!(refused.is_err(), "it takes nothing new");
    head.daemon.app.admin.admin(&admin(), "resume", Default::default()).await.unwrap();
    head.create(&alice, two("nt"), &[("file", b"acgt")]).await;
    head.daemon.app.admin.admin(&admin(), "drain", Default::default()).await.unwrap();
    eventually("its copy is there", 60, || site.host("node1").has("nt")).await;
}

#[tokio::test(start_paused = true)]
async fn hosts_that_the_policy_excludes_never_get_a_copy() {
    let names = ["head", "node1", "node2"];
    let (site, alice) = (Site::new(&names).await, user("alice"));
    let create = Create { policy: Some("TARGET.Name == \"node2\"".into()), ..two("nt") };
    site.host("head").create(&alice, create, &[("file", b"acgt")]).await;
    eventually("the one has it", 60, || site.host("node2").has("nt")).await;
    assert!(!site.host("node1").has("nt") && site.host("node1").noted("offer").is_empty());
}

#[tokio::test(start_paused = true)]
async fn a_host_that_rejects_is_passed_over_for_the_next() {
    let alice = user("alice");
    let bobs = |config: &mut crate::Config| {
        if config.name == "node1" {
            config.owners = vec!["bob".into()];
        }
    };
    let site = Site::with(&["head", "node1", "node2"], &bobs).await;
    site.host("head").create(&alice, two("nt"), &[("file", b"acgt")]).await;
    eventually("the other has it", 60, || site.host("node2").has("nt")).await;
    assert!(!site.host("node1").has("nt"));
}

#[tokio::test(start_paused = true)]
async fn more_copies_than_hosts_are_one_on_each() {
    let names = ["head", "node1", "node2"];
    let (site, alice) = (Site::new(&names).await, user("alice"));
    let five = Create { replicas: 5, ..two("nt") };
    site.host("head").create(&alice, five, &[("file", b"acgt")]).await;
    eventually("all have it", 60, || holders(&site, &names, "nt").len() == 3).await;
    let offered = site.host("head").noted("replicate").len();
    sleep(Duration::from_secs(120)).await;
    assert_eq!(site.host("head").noted("replicate").len(), offered, "who has it is offered it no more");
}

#[tokio::test(start_paused = true)]
async fn a_host_that_comes_later_gets_the_copy_that_is_missing() {
    let names = ["head", "node1"];
    let (mut site, alice) = (Site::empty(&names), user("alice"));
    site.start("head", &|_| {});
    site.host("head").create(&alice, two("nt"), &[("file", b"acgt")]).await;
    sleep(Duration::from_secs(60)).await;
    site.start("node1", &|_| {});
    eventually("it has it", 120, || site.host("node1").has("nt")).await;
}

#[tokio::test(start_paused = true)]
async fn how_many_copies_there_are_to_be_is_said_anew_only_while_there_are_none() {
    let names = ["head", "node1", "node2"];
    let (site, alice) = (Site::new(&names).await, user("alice"));
    let head = site.host("head");
    head.create(&alice, two("nt"), &[("file", b"acgt")]).await;
    eventually("there are two copies", 60, || holders(&site, &names, "nt").len() == 2).await;
    let three = Create { replicas: 3, ..two("nt") };
    let refused = head.try_create(&alice, three, &[("file", b"acgt")]).await.unwrap_err();
    assert_eq!(refused.kind, ErrorKind::Copies, "{}", refused.why);
}

#[tokio::test(start_paused = true)]
async fn a_private_cache_of_two_copies_goes_to_a_host_too() {
    let names = ["head", "node1", "node2"];
    let (site, alice) = (Site::new(&names).await, user("alice"));
    let private = Create { private: true, mode: Some(0o700), ..two("nt") };
    site.host("head").create(&alice, private, &[("file", b"acgt")]).await;
    eventually("there are two copies", 60, || holders(&site, &names, "nt").len() == 2).await;
    let held = holders(&site, &["node1", "node2"], "nt").pop().unwrap();
    let refused = site.host(&held).get(&user("bob"), "head/nt").await.unwrap_err();
    assert_eq!(refused.kind, ErrorKind::Absent, "it is nobody else's there either");
}

#[tokio::test(start_paused = true)]
async fn a_users_daemon_takes_no_copies_for_others() {
    let (site, alice) = (Site::new(&["head", "bob.node1", "node2"]).await, user("alice"));
    site.host("head").create(&alice, Create { replicas: 3, ..two("nt") }, &[("file", b"acgt")]).await;
    eventually("the host has it", 60, || site.host("node2").has("nt")).await;
    sleep(Duration::from_secs(60)).await;
    assert!(!site.host("bob.node1").has("nt"));
}
