//! A full store.

use super::site::{Host, Site, admin, user};
use crate::Config;
use crate::host::caller::Caller;
use crate::model::api_error::{ApiError, ErrorKind};
use crate::model::types::{CacheInfo, Create};

/// A store has room for two of these, not for three.
const SIZE: usize = 100_000;

fn small(config: &mut Config) {
    config.depot.max_bytes = Some(300_000);
}

async fn fill(host: &Host, who: &Caller, name: &str, lease: u64) -> Result<CacheInfo, ApiError> {
    let create = Create { name: name.into(), lease: Some(lease), mode: Some(0o755), ..Create::default() };
    let content = vec![*name.as_bytes().first().unwrap(); SIZE];
    host.try_create(who, create, &[("file", &content)]).await
}

#[tokio::test(start_paused = true)]
async fn what_nobody_keeps_makes_room_for_what_comes() {
    let (site, alice) = (Site::with(&["head"], &small).await, user("alice"));
    let head = site.host("head");
    fill(head, &alice, "kept", 3600).await.unwrap();
    fill(head, &alice, "over", 0).await.unwrap();
    fill(head, &alice, "new", 3600).await.unwrap();
    assert_eq!([head.has("kept"), head.has("over"), head.has("new")], [true, false, true]);
}

#[tokio::test(start_paused = true)]
async fn a_store_that_is_full_of_what_is_pinned_refuses_more() {
    let (site, root, bob) = (Site::with(&["head"], &small).await, admin(), user("bob"));
    let head = site.host("head");
    for name in ["a", "b"] {
        let made = fill(head, &root, name, 3600).await.unwrap();
        head.daemon.app.caches.pin(&root, made.cache.parse().unwrap(), true).await.unwrap();
    }
    assert_eq!(fill(head, &bob, "c", 3600).await.unwrap_err().kind, ErrorKind::Denied);
    assert_eq!([head.has("a"), head.has("b"), head.has("c")], [true, true, false]);
    // A rejected request leaves no reserved space and no name.
    let left = head.daemon.app.caches.list(&bob, None, None).await.unwrap();
    assert_eq!(left.into_iter().map(|info| info.name).collect::<Vec<_>>(), ["head/a@1", "head/b@1"]);
}

#[tokio::test(start_paused = true)]
async fn what_is_pinned_stays_though_its_lease_is_over() {
    let (site, root) = (Site::with(&["head"], &small).await, admin());
    let head = site.host("head");
    let pinned = fill(head, &root, "pinned", 0).await.unwrap();
    head.daemon.app.caches.pin(&root, pinned.cache.parse().unwrap(), true).await.unwrap();
    fill(head, &root, "over", 0).await.unwrap();
    fill(head, &root, "new", 0).await.unwrap();
    assert_eq!([head.has("pinned"), head.has("over"), head.has("new")], [true, false, true]);
}

#[tokio::test(start_paused = true)]
async fn a_lease_that_is_extended_keeps_a_cache() {
    let (site, alice) = (Site::with(&["head"], &small).await, user("alice"));
    let head = site.host("head");
    let extended = fill(head, &alice, "extended", 0).await.unwrap();
    head.daemon.app.caches.extend(&alice, extended.cache.parse().unwrap(), 3600).await.unwrap();
    fill(head, &alice, "over", 0).await.unwrap();
    fill(head, &alice, "new", 3600).await.unwrap();
    assert_eq!([head.has("extended"), head.has("over"), head.has("new")], [true, false, true]);
}

#[tokio::test(start_paused = true)]
async fn a_copy_makes_room_where_it_comes() {
    let alice = user("alice");
    let change = |config: &mut Config| {
        if config.name == "node" {
            small(config);
        }
    };
    let site = Site::with(&["head", "node"], &change).await;
    let (head, node) = (site.host("head"), site.host("node"));
    for name in ["a", "b", "c"] {
        fill(head, &alice, name, 0).await.unwrap();
        node.get(&alice, &format!("head/{name}")).await.unwrap();
    }
    assert_eq!([node.has("head/a"), node.has("head/b"), node.has("head/c")], [false, true, true]);
}
