//! Membership.

use super::site::{Site, eventually, user};

#[tokio::test(start_paused = true)]
async fn daemons_that_know_one_know_all() {
    let names = ["head", "node1", "node2", "node3", "node4", "node5"];
    let site = Site::new(&names).await;
    assert_eq!(site.host("node5").daemon.app.admin.status().unwrap().members, 6);
}

#[tokio::test(start_paused = true)]
async fn a_dead_host_is_no_member_after_seconds() {
    let mut site = Site::new(&["head", "node1", "node2", "node3"]).await;
    let gone = site.host("node2").node;
    site.kill("node2");
    let knows = |name: &str| site.host(name).daemon.membership.alive().contains_key(&gone);
    eventually("all know", 30, || !["head", "node1", "node3"].iter().any(|name| knows(name))).await;
}

#[tokio::test(start_paused = true)]
async fn one_that_leaves_is_gone_at_once() {
    let site = Site::new(&["head", "node1", "node2"]).await;
    let (gone, began) = (site.host("node2").node, tokio::time::Instant::now());
    site.host("node2").daemon.membership.leave().await;
    let knows = |name: &str| site.host(name).daemon.membership.alive().contains_key(&gone);
    eventually("the others know", 30, || !knows("head") && !knows("node1")).await;
    assert!(began.elapsed().as_secs() < 5, "{:?}", began.elapsed());
}

#[tokio::test(start_paused = true)]
async fn one_that_comes_later_is_known_and_knows_what_others_hold() {
    let (mut site, alice) = (Site::empty(&["head", "node1", "node2"]), user("alice"));
    for name in ["head", "node1"] {
        site.start(name, &|_| {});
    }
    site.all_alive().await;
    site.host("head").make(&alice, "nt", "acgt").await;
    site.host("node1").get(&alice, "head/nt").await.unwrap();
    site.start("node2", &|_| {});
    site.all_alive().await;
    assert_eq!(site.host("node2").holders(&alice, "head/nt").await.unwrap(), ["head", "node1"]);
}

#[tokio::test(start_paused = true)]
async fn members_are_remembered_for_the_next_start() {
    let site = Site::new(&["head", "node1"]).await;
    let addr = site.host("head").addr.to_string();
    let path = site.host("node1").daemon.config.dir.join("members");
    let remembered = || std::fs::read_to_string(&path).is_ok_and(|text| text.contains(&addr));
    eventually("it is written down", 10, remembered).await;
}

#[tokio::test(start_paused = true)]
async fn one_that_nobody_trusts_is_no_member() {
    let mut site = Site::empty(&["head", "node1", "mallory"]);
    site.trust(&["head", "node1"]);
    for name in ["head", "node1", "mallory"] {
        site.start(name, &|_| {});
    }
    let alive = |name: &str| site.host(name).daemon.membership.alive().len();
    eventually("the two are together", 30, || alive("head") == 1 && alive("node1") == 1).await;
    tokio::time::sleep(std::time::Duration::from_secs(60)).await;
    assert_eq!((alive("head"), alive("node1"), alive("mallory")), (1, 1, 0));
    // It asks again and again: that is noted once a minute.
    let noted = site.host("head").noted("connect");
    assert!((1..=3).contains(&noted.len()), "{noted:?}");
}

#[tokio::test(start_paused = true)]
async fn one_that_is_trusted_later_is_let_in() {
    let mut site = Site::empty(&["head", "node1"]);
    site.trust(&["head"]);
    for name in ["head", "node1"] {
        site.start(name, &|_| {});
    }
    tokio::time::sleep(std::time::Duration::from_secs(30)).await;
    assert_eq!(site.host("head").daemon.membership.alive().len(), 0);
    site.trust(&["head", "node1"]);
    site.host("head").daemon.links.trust().read_again();
    site.host("node1").daemon.links.trust().read_again();
    let alive = |name: &str| site.host(name).daemon.membership.alive().len();
    eventually("they know each other", 180, || alive("head") == 1 && alive("node1") == 1).await;
}

#[tokio::test(start_paused = true)]
async fn half_of_the_hosts_die_and_the_others_know_it_soon() {
    let names: Vec<String> = (0..16).map(|n| format!("n{n}")).collect();
    let names: Vec<&str> = names.iter().map(String::as_str).collect();
    let mut site = Site::new(&names).await;
    for name in &names[8..] {
        site.kill(name);
    }
    let alive = |name: &str| site.host(name).daemon.membership.alive().len();
    eventually("they know", 20, || names[..8].iter().all(|name| alive(name) == 7)).await;
}
