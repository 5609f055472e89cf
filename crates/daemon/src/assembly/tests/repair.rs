//! Damaged content on a disk is fetched again from any host that has it.

use std::os::unix::fs::PermissionsExt;

use super::site::{Site, admin, user};
use crate::model::api_error::ErrorKind;
use crate::model::types::CacheInfo;

/// A disk that forgets.
fn damage(info: &CacheInfo) {
    let path = info.path.as_ref().unwrap().join("file");
    std::fs::set_permissions(&path, std::fs::Permissions::from_mode(0o600)).unwrap();
    let mut bytes = std::fs::read(&path).unwrap();
    bytes[0] ^= 1;
    std::fs::write(&path, bytes).unwrap();
}

#[tokio::test(start_paused = true)]
async fn a_sound_store_is_clean() {
    let (site, alice) = (Site::new(&["head"]).await, user("alice"));
    site.host("head").make(&alice, "nt", "acgt").await;
    let checked = site.host("head").daemon.app.repair.fsck(&admin().name).await.unwrap();
    assert!(checked.clean && checked.caches == 1 && checked.damaged == 0, "{checked:?}");
}

#[tokio::test(start_paused = true)]
async fn a_replica_repairs_its_origin() {
    let (site, alice) = (Site::new(&["head", "node1"]).await, user("alice"));
    let (head, node1) = (site.host("head"), site.host("node1"));
    let made = head.make(&alice, "nt", "acgt").await;
    node1.get(&alice, "head/nt").await.unwrap();
    damage(&made);
    let checked = head.daemon.app.repair.fsck(&admin().name).await.unwrap();
    assert_eq!((checked.damaged, checked.repaired, checked.lost), (1, 1, 0), "{checked:?}");
    let again = head.get(&alice, "head/nt").await.unwrap();
    assert_eq!((again.name.as_str(), head.content(&again).as_str()), ("head/nt@1", "acgt"));
    assert_eq!(head.noted("repair"), ["root ok"]);
}

#[tokio::test(start_paused = true)]
async fn what_nobody_else_has_stays_invalid_and_its_owner_hears_what_to_do() {
    let (site, alice) = (Site::new(&["head", "node1"]).await, user("alice"));
    let head = site.host("head");
    let made = head.make(&alice, "nt", "acgt").await;
    damage(&made);
    let checked = head.daemon.app.repair.fsck(&admin().name).await.unwrap();
    assert_eq!((checked.damaged, checked.lost, checked.invalid), (1, 1, vec!["head/nt@1".to_owned()]));
    let refused = head.get(&alice, "head/nt").await.unwrap_err();
    assert_eq!(refused.kind, ErrorKind::Invalid);
    let from_elsewhere = site.host("node1").get(&alice, "head/nt").await.unwrap_err();
    assert_eq!(from_elsewhere.kind, ErrorKind::Absent, "a damaged one is given to nobody");
}

#[tokio::test(start_paused = true)]
async fn a_copy_is_repaired_from_its_origin() {
    let (site, alice) = (Site::new(&["head", "node1"]).await, user("alice"));
    site.host("head").make(&alice, "nt", "acgt").await;
    let node1 = site.host("node1");
    let got = node1.get(&alice, "head/nt").await.unwrap();
    damage(&got);
    let checked = node1.daemon.app.repair.fsck(&admin().name).await.unwrap();
    assert_eq!((checked.damaged, checked.repaired, checked.lost), (1, 1, 0), "{checked:?}");
    let again = node1.get(&alice, "head/nt").await.unwrap();
    assert_eq!(node1.content(&again), "acgt");
}

#[tokio::test(start_paused = true)]
async fn of_several_caches_the_sound_ones_stay_as_they_are() {
    let (site, alice) = (Site::new(&["head"]).await, user("alice"));
    let head = site.host("head");
    let sound = head.make(&alice, "a", "sound").await;
    let made = head.make(&alice, "b", "damaged").await;
    damage(&made);
    let checked = head.daemon.app.repair.fsck(&admin().name).await.unwrap();
    assert_eq!((checked.caches, checked.damaged, checked.invalid), (2, 1, vec!["head/b@1".to_owned()]));
    assert_eq!(head.content(&head.get(&alice, "a").await.unwrap()), "sound");
    head.remove(&alice, &made).await;
    let again = head.make(&alice, "b", "damaged").await;
    assert_eq!(head.content(&again), "damaged", "its owner makes it again");
    assert_eq!(sound.name, "head/a@1");
}

#[tokio::test(start_paused = true)]
async fn a_file_that_has_gone_is_put_back_from_the_store() {
    let (site, alice) = (Site::new(&["head", "node1"]).await, user("alice"));
    let (head, node1) = (site.host("head"), site.host("node1"));
    head.make(&alice, "nt", "acgt").await;
    let got = node1.get(&alice, "head/nt").await.unwrap();
    let path = got.path.as_ref().unwrap();
    std::fs::set_permissions(path, std::fs::Permissions::from_mode(0o700)).unwrap();
    std::fs::remove_file(path.join("file")).unwrap();
    let checked = node1.daemon.app.repair.fsck(&admin().name).await.unwrap();
    assert_eq!((checked.damaged, checked.views), (0, vec!["head/nt@1".to_owned()]));
    assert_eq!(node1.content(&node1.get(&alice, "head/nt").await.unwrap()), "acgt");
}
