//! Operations of users on caches of this host.

use std::time::Duration;

use axum::body::Body;

use super::site::{Host, Site, admin, publish, user};
use crate::host::caller::Caller;
use crate::model::api_error::{ApiError, ErrorKind};
use crate::model::types::{Create, Created, Get};

fn create(name: &str) -> Create {
    Create { name: name.into(), mode: Some(0o755), ..Create::default() }
}

/// Declares a cache of one file, and sends nothing yet.
async fn begin(host: &Host, who: &Caller, name: &str, content: &[u8]) -> Created {
    let (manifest, _dir) = publish(name, &[("file", content)]);
    let manifest = Body::from(manifest.to_bytes().to_vec());
    host.daemon.app.create(who, create(name), manifest).await.unwrap()
}

async fn send(host: &Host, who: &Caller, created: &Created, content: &[u8]) -> Result<(), ApiError> {
    let (uploads, body) = (&host.daemon.app.uploads, Body::from(content.to_vec()));
    uploads.take(who, created.cache.parse().unwrap(), body).await.map(drop)
}

async fn listed(host: &Host, who: &Caller) -> Vec<String> {
    let all = host.daemon.app.caches.list(who, None, None).await.unwrap();
    all.into_iter().map(|info| info.name).collect()
}

#[tokio::test(start_paused = true)]
async fn an_upload_that_breaks_off_leaves_nothing() {
    let (site, alice) = (Site::new(&["head"]).await, user("alice"));
    let head = site.host("head");
    let created = begin(head, &alice, "nt", b"acgtacgt").await;
    let error = send(head, &alice, &created, b"acgt").await.unwrap_err();
    assert_eq!(error.kind, ErrorKind::Interrupted);
    assert_eq!(error.why, "the upload ended within file: 4 of 8 bytes received");
    assert!(listed(head, &alice).await.is_empty());
    assert_eq!(send(head, &alice, &created, b"acgtacgt").await.unwrap_err().kind, ErrorKind::Absent);
}

#[tokio::test(start_paused = true)]
async fn more_or_other_bytes_than_the_manifest_names_are_refused() {
    let (site, alice) = (Site::new(&["head"]).await, user("alice"));
    let head = site.host("head");
    let created = begin(head, &alice, "a", b"acgt").await;
    assert_eq!(send(head, &alice, &created, b"acgtt").await.unwrap_err().kind, ErrorKind::Exceeded);
    let created = begin(head, &alice, "b", b"acgt").await;
    assert_eq!(send(head, &alice, &created, b"tgca").await.unwrap_err().kind, ErrorKind::Wrong);
    assert!(!head.has("a") && !head.has("b"));
}

#[tokio::test(start_paused = true)]
async fn the_room_of_an_upload_that_never_comes_is_free_again() {
    let (site, alice) = (Site::new(&["head"]).await, user("alice"));
    let head = site.host("head");
    let created = begin(head, &alice, "nt", &[7; 1000]).await;
    let reserved = || head.daemon.app.admin.status().unwrap().reserved;
    assert!(reserved() >= 1000);
    tokio::time::sleep(Duration::from_secs(100)).await;
    head.daemon.app.uploads.forget_stale().await;
    assert!(reserved() >= 1000, "not yet");
    tokio::time::sleep(Duration::from_secs(2 * 60)).await;
    head.daemon.app.uploads.forget_stale().await;
    assert_eq!(reserved(), 0);
    assert!(send(head, &alice, &created, &[7; 1000]).await.is_err());
}

#[tokio::test(start_paused = true)]
async fn nobody_goes_on_with_anothers_upload() {
    let (site, alice) = (Site::new(&["head"]).await, user("alice"));
    let head = site.host("head");
    let created = begin(head, &alice, "nt", b"acgt").await;
    assert!(send(head, &user("bob"), &created, b"acgt").await.is_err());
    assert!(send(head, &alice, &created, b"acgt").await.is_ok());
}

#[tokio::test(start_paused = true)]
async fn what_is_here_already_need_not_be_sent() {
    let (site, alice) = (Site::new(&["head"]).await, user("alice"));
    let head = site.host("head");
    head.make(&alice, "a", "acgt").await;
    let created = begin(head, &alice, "b", b"acgt").await;
    assert!(created.files.is_empty());
    // Another user may know it, since all users may read the first.
    assert!(begin(head, &user("bob"), "c", b"acgt").await.files.is_empty());
    let own = Create { mode: Some(0o700), ..create("d") };
    head.create(&alice, own, &[("file", b"a secret")]).await;
    assert_eq!(begin(head, &user("bob"), "e", b"a secret").await.files.len(), 1);
}

#[tokio::test(start_paused = true)]
async fn users_see_what_they_may_read() {
    let (site, alice, bob) = (Site::new(&["head"]).await, user("alice"), user("bob"));
    let head = site.host("head");
    head.make(&alice, "open", "acgt").await;
    head.create(&alice, Create { mode: Some(0o700), ..create("own") }, &[("file", b"x")]).await;
    assert_eq!(listed(head, &alice).await, ["head/open@1", "head/own@1"]);
    assert_eq!(listed(head, &bob).await, ["head/open@1"]);
}

#[tokio::test(start_paused = true)]
async fn only_the_owner_changes_a_cache() {
    let (site, alice, bob) = (Site::new(&["head"]).await, user("alice"), user("bob"));
    let caches = &site.host("head").daemon.app.caches;
    let id = site.host("head").make(&alice, "nt", "acgt").await.cache.parse().unwrap();
    for refused in [
        caches.pin(&bob, id, true).await.map(drop),
        caches.extend(&bob, id, 5).await.map(drop),
        caches.remove(&bob, id).await,
    ] {
        let error = refused.unwrap_err();
        assert_eq!((error.kind, error.why.as_str()), (ErrorKind::Forbidden, "head/nt@1 belongs to alice"));
    }
    assert!(caches.pin(&alice, id, true).await.unwrap().pinned);
    let pinned = caches.remove(&alice, id).await.unwrap_err();
    assert_eq!((pinned.kind, pinned.why.as_str()), (ErrorKind::InUse, "head/nt@1 is pinned: unpin it first"));
    assert!(!caches.pin(&alice, id, false).await.unwrap().pinned);
    caches.remove(&alice, id).await.unwrap();
}

#[tokio::test(start_paused = true)]
async fn wishes_that_make_no_sense_are_refused_before_anything_is_kept() {
    let (site, alice) = (Site::new(&["head"]).await, user("alice"));
    let head = site.host("head");
    let private = Create { private: true, mode: Some(0o755), ..create("nt") };
    let written = Create { mode: Some(0o777), ..create("nt") };
    let policy = Create { policy: Some("1 +".into()), ..create("nt") };
    for bad in [private, written, policy] {
        let error = head.try_create(&alice, bad.clone(), &[("file", b"acgt")]).await.unwrap_err();
        assert_eq!(error.kind, ErrorKind::Malformed, "{bad:?}");
    }
    let group = Create { group: Some("wheel".into()), ..create("nt") };
    let error = head.try_create(&alice, group, &[("file", b"acgt")]).await.unwrap_err();
    assert_eq!((error.kind, error.why.as_str()), (ErrorKind::Forbidden, "you are not in the group wheel"));
    assert!(listed(head, &alice).await.is_empty());
}

#[tokio::test(start_paused = true)]
async fn an_administrator_changes_what_others_own() {
    let (site, alice) = (Site::new(&["head"]).await, user("alice"));
    let caches = &site.host("head").daemon.app.caches;
    let id = site.host("head").make(&alice, "nt", "acgt").await.cache.parse().unwrap();
    assert!(caches.pin(&admin(), id, true).await.unwrap().pinned);
    caches.pin(&admin(), id, false).await.unwrap();
    caches.remove(&admin(), id).await.unwrap();
    assert!(!site.host("head").has("nt"));
}

#[tokio::test(start_paused = true)]
async fn a_list_is_of_a_name_a_version_or_an_owner() {
    let (site, alice, bob) = (Site::new(&["head"]).await, user("alice"), user("bob"));
    let head = site.host("head");
    for (who, name, content) in
        [(&alice, "nt", "a"), (&alice, "nt", "b"), (&alice, "nr", "c"), (&bob, "x", "d")]
    {
        head.make(who, name, content).await;
    }
    let list = async |name: Option<&str>, owner: Option<&str>| {
        let (name, owner) = (name.map(|name| name.parse().unwrap()), owner.map(str::to_owned));
        let all = head.daemon.app.caches.list(&alice, name, owner).await.unwrap();
        all.into_iter().map(|info| info.name).collect::<Vec<_>>()
    };
    assert_eq!(list(Some("nt"), None).await, ["head/nt@1", "head/nt@2"]);
    assert_eq!(list(Some("nt@2"), None).await, ["head/nt@2"]);
    assert_eq!(list(None, Some("bob")).await, ["head/x@1"]);
    assert!(list(Some("node1/nt"), None).await.is_empty());
}

#[tokio::test(start_paused = true)]
async fn a_cache_that_is_not_there_or_is_anothers_is_absent() {
    let (site, alice, bob) = (Site::new(&["head"]).await, user("alice"), user("bob"));
    let head = site.host("head");
    let own = Create { mode: Some(0o700), ..create("own") };
    let made = head.create(&alice, own, &[("file", b"acgt")]).await;
    let caches = &head.daemon.app.caches;
    let (id, unknown) = (made.cache.parse().unwrap(), "00000000000000000000000000000000".parse());
    assert_eq!(caches.show(&bob, id).await.unwrap_err().kind, ErrorKind::Absent);
    assert_eq!(
        caches.remove(&bob, id).await.unwrap_err().kind,
        ErrorKind::Absent,
        "not even that it is there"
    );
    if let Ok(unknown) = unknown {
        assert_eq!(caches.show(&alice, unknown).await.unwrap_err().kind, ErrorKind::Absent);
    }
    let shown = caches.show(&alice, id).await.unwrap();
    assert!(shown.ad.unwrap().contains("own") && shown.uses.unwrap().is_empty());
}

#[tokio::test(start_paused = true)]
async fn what_is_no_name_is_refused() {
    let (site, alice) = (Site::new(&["head"]).await, user("alice"));
    let (manifest, _dir) = publish("file", &[("file", b"acgt")]);
    for name in ["", ".", "..", "a/b", "a@1", "-a", "a b", &"n".repeat(300)] {
        let create = Create { name: name.into(), ..Create::default() };
        let manifest = Body::from(manifest.to_bytes().to_vec());
        let refused = site.host("head").daemon.app.create(&alice, create, manifest).await;
        assert_eq!(refused.unwrap_err().kind, ErrorKind::Malformed, "{name:?}");
    }
}

#[tokio::test(start_paused = true)]
async fn what_is_no_manifest_is_refused_and_keeps_no_room() {
    let (site, alice) = (Site::new(&["head"]).await, user("alice"));
    let head = site.host("head");
    for bytes in [&b""[..], b"d4:infode", b"no torrent"] {
        let refused = head.daemon.app.create(&alice, create("nt"), Body::from(bytes)).await;
        assert_eq!(refused.unwrap_err().kind, ErrorKind::Malformed);
    }
    assert_eq!(head.daemon.app.admin.status().unwrap().reserved, 0);
}

#[tokio::test(start_paused = true)]
async fn the_same_files_again_are_the_same_version() {
    let (site, alice) = (Site::new(&["head"]).await, user("alice"));
    let head = site.host("head");
    head.make(&alice, "nt", "acgt").await;
    let again = head.try_create(&alice, create("nt"), &[("file", b"acgt")]).await;
    assert_eq!(listed(head, &alice).await, ["head/nt@1"], "{again:?}");
    head.make(&alice, "nt", "tgca").await;
    assert_eq!(listed(head, &alice).await, ["head/nt@1", "head/nt@2"]);
}

#[tokio::test(start_paused = true)]
async fn what_a_process_uses_is_not_removed_and_the_owner_hears_who_it_is() {
    let site = Site::new(&["head"]).await;
    let (head, root) = (site.host("head"), admin());
    let id = head.make(&root, "nt", "acgt").await.cache.parse().unwrap();
    let pid = i32::try_from(std::process::id()).unwrap();
    let get = Get { name: "nt".into(), pid: Some(pid), ..Get::default() };
    head.daemon.app.getting.get(&root, "nt".parse().unwrap(), (Duration::ZERO, true), get).await.unwrap();
    let refused = head.daemon.app.caches.remove(&root, id).await.unwrap_err();
    assert_eq!(refused.kind, ErrorKind::InUse);
    assert!(refused.why.starts_with(&format!("head/nt@1 is in use by process {pid}")), "{}", refused.why);
    let uses = head.daemon.app.caches.show(&root, id).await.unwrap().uses.unwrap();
    assert_eq!(uses.iter().map(|one| one.pid).collect::<Vec<_>>(), [std::process::id().into()]);
}
