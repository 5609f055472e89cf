//! A check without descriptors. In a process of its own: the limit is that of the whole process.
#![allow(clippy::unwrap_used, clippy::expect_used)]

mod common;

use common::*;
use rustix::process::{Resource, Rlimit, getrlimit, setrlimit};
use tidecast_depot::{Depth, State};

#[test]
fn a_check_without_descriptors_condemns_nothing() {
    let tmp = tempfile::tempdir().unwrap();
    let depot = open(&tmp.path().join("depot"));
    let root = tree(&tmp.path().join("data"), &[("f", &[1; 5000]), ("d/g", b"2")]);
    let a = put(&depot, named("a"), &root, 1);
    let usual = getrlimit(Resource::Nofile);
    let (mut failed, mut passed) = (0, 0);
    for most in 3..64 {
        setrlimit(Resource::Nofile, Rlimit { current: Some(most), ..usual }).unwrap();
        let report = depot.fsck(Depth::Bytes, &mut |_, _| Ok(false));
        setrlimit(Resource::Nofile, usual).unwrap();
        match report {
            Ok(report) => {
                assert!(report.bad.is_empty() && report.invalid.is_empty(), "with {most}: {report:?}");
                passed += 1;
            }
            Err(error) => {
                assert!(error.to_string().contains("oo many open files"), "with {most}: {error}");
                failed += 1;
            }
        }
        assert_eq!(depot.cache(a.id).unwrap().state, State::Committed, "with {most}");
    }
    assert!(failed > 0 && passed > 0, "{failed} failed, {passed} passed");
    assert_clean(&depot);
}
