//! Commands of administrators to daemons, here and on other hosts, and their effects for users.

use super::site::{Site, admin, user};
use crate::model::api_error::ErrorKind;
use crate::model::types::{CommandResult, Limit};

fn done(ruled: &[CommandResult]) -> Vec<(&str, Option<&str>)> {
    ruled.iter().map(|one| (one.host.as_str(), one.status.as_ref().map(|s| s.state.as_str()))).collect()
}

#[tokio::test(start_paused = true)]
async fn all_hosts_do_what_an_administrator_of_one_wants() {
    let site = Site::new(&["head", "node1", "node2"]).await;
    let rule = &site.host("node1").daemon.app.site;
    let ruled = rule.rule(&admin(), "pause", Limit::default(), None).await.unwrap();
    let all = [("head", Some("paused")), ("node1", Some("paused")), ("node2", Some("paused"))];
    assert_eq!(done(&ruled), all);
    assert_eq!(site.host("head").noted("pause"), ["root at node1 ok"]);
    let ruled = rule.rule(&admin(), "resume", Limit::default(), Some("node2")).await.unwrap();
    assert_eq!(done(&ruled), [("node2", Some("running"))]);
}

#[tokio::test(start_paused = true)]
async fn a_host_obeys_only_those_that_its_settings_name() {
    let only = |config: &mut crate::Config| {
        if config.name == "node2" {
            config.admins = vec!["head".into()];
        }
    };
    let site = Site::with(&["head", "node1", "node2"], &only).await;
    let by = |name: &'static str| {
        let rule = &site.host(name).daemon.app.site;
        async move { rule.rule(&admin(), "drain", Limit::default(), Some("node2")).await.unwrap() }
    };
    let refused = by("node1").await;
    assert_eq!(done(&refused), [("node2", None)]);
    assert_eq!(refused[0].why.as_deref(), Some("node2 does not accept commands from node1"));
    assert_eq!(done(&by("head").await), [("node2", Some("draining"))]);
}

#[tokio::test(start_paused = true)]
async fn a_users_daemon_is_no_administrator_of_hosts() {
    let site = Site::new(&["head", "alice.node1"]).await;
    let rule = &site.host("alice.node1").daemon.app.site;
    let ruled = rule.rule(&admin(), "pause", Limit::default(), Some("head")).await.unwrap();
    assert_eq!(done(&ruled), [("head", None)]);
    assert_eq!(site.host("head").daemon.app.admin.status().unwrap().state, "running");
}

#[tokio::test(start_paused = true)]
async fn a_user_is_no_administrator_and_sees_no_transfers_of_others() {
    let site = Site::new(&["head", "node1"]).await;
    let head = site.host("head");
    let refused = head.daemon.app.admin.admin(&user("alice"), "pause", Limit::default()).await;
    assert_eq!(refused.unwrap_err().kind, ErrorKind::Forbidden);
    let refused = head.daemon.app.site.rule(&user("alice"), "pause", Limit::default(), None).await;
    assert_eq!(refused.unwrap_err().kind, ErrorKind::Forbidden);
    let told = head.daemon.app.site.rule(&user("alice"), "status", Limit::default(), None).await.unwrap();
    assert_eq!(told.len(), 2);
    assert!(told.iter().all(|one| one.status.as_ref().unwrap().transfers.is_empty()));
}

#[tokio::test(start_paused = true)]
async fn a_host_of_no_name_is_not_found() {
    let site = Site::new(&["head", "node1"]).await;
    let rule = &site.host("head").daemon.app.site;
    let refused = rule.rule(&admin(), "pause", Limit::default(), Some("node7")).await.unwrap_err();
    assert_eq!((refused.kind, refused.why.as_str()), (ErrorKind::Absent, "no running daemon is named node7"));
}

#[tokio::test(start_paused = true)]
async fn a_mode_holds_after_the_next_start() {
    let site = Site::new(&["head"]).await;
    let head = site.host("head");
    head.daemon.app.admin.admin(&admin(), "pause", Limit::default()).await.unwrap();
    let again = crate::storage::run_mode::RunMode::open(&head.daemon.store.depot).unwrap();
    assert_eq!(again.now(), crate::storage::run_mode::Mode::Paused);
}

#[tokio::test(start_paused = true)]
async fn a_capacity_below_what_was_made_here_is_refused() {
    let (site, alice) = (Site::new(&["head"]).await, user("alice"));
    let head = site.host("head");
    head.make(&alice, "nt", &"acgt".repeat(1000)).await;
    let limit = |capacity| Limit { capacity: Some(capacity), ..Limit::default() };
    let refused = head.daemon.app.admin.admin(&admin(), "limit", limit(100)).await.unwrap_err();
    assert_eq!(refused.kind, ErrorKind::Leased);
    let status = head.daemon.app.admin.admin(&admin(), "limit", limit(1 << 20)).await.unwrap();
    assert_eq!(status.capacity, 1 << 20);
}

#[tokio::test(start_paused = true)]
async fn users_read_what_happened_to_what_they_may_read() {
    let (site, alice, bob) = (Site::new(&["head"]).await, user("alice"), user("bob"));
    let head = site.host("head");
    head.make(&alice, "open", "acgt").await;
    let own = crate::model::types::Create { name: "own".into(), mode: Some(0o700), ..Default::default() };
    head.create(&alice, own, &[("file", b"tgca")]).await;
    for name in ["head/open@1", "head/own@1"] {
        head.daemon.audit.note("tidecast", "evict", name, "ok");
    }
    let seen = |events: Vec<crate::model::types::Event>| -> Vec<String> {
        events.into_iter().map(|event| event.cache).collect()
    };
    let history = &head.daemon.app.admin;
    assert_eq!(seen(history.history(&bob, None).await.unwrap()), ["head/open@1"]);
    assert_eq!(seen(history.history(&alice, None).await.unwrap()), ["head/open@1", "head/own@1"]);
    assert_eq!(seen(history.history(&alice, Some("own".into())).await.unwrap()), ["head/own@1"]);
}
