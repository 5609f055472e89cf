//! How a large store behaves: `large DIR [CACHES [FILES]]` makes CACHES caches of FILES small files each (100 and 100 if
//! not said), then says how long it takes to list them, to open the store, and to keep its watermark while more come.
#![allow(clippy::unwrap_used, clippy::expect_used)]

use std::fs;
use std::path::Path;
use std::time::Instant;

use tidecast_depot::{Admission, Config, Declare, Depot, Filter, Reader, Size};
use tidecast_hash::{LEAF, leaves};
use tidecast_metainfo::{Builder, Content, Entry, Manifest, Version, merkle};

/// A manifest of small, distinct files, and their contents.
fn cache(number: u64, files: u64) -> (Manifest, Vec<Vec<u8>>) {
    let data: Vec<Vec<u8>> = (0..files).map(|f| [number, f].map(u64::to_le_bytes).concat()).collect();
    let entry = |(f, data): (usize, &Vec<u8>)| Entry {
        path: format!("{f:06}").into_bytes(),
        content: Content::File {
            len: data.len() as u64,
            executable: false,
            holes: Vec::new(),
            hard_link: None,
        },
        mode: Some(0o644),
        mtime: None,
        xattrs: Vec::new(),
    };
    let entries = data.iter().enumerate().map(entry).collect();
    let mut builder = Builder::new(b"data", Version::V2, LEAF as u32, entries).unwrap();
    for (f, data) in (0..).zip(&data) {
        let mut leaf = [[0; 32]];
        leaves(data, &mut leaf);
        let (root, layer) = merkle::file(&leaf, LEAF as u32).unwrap();
        builder.set_root(f, root, layer);
    }
    (builder.build().unwrap(), data)
}

fn put(depot: &Depot, number: u64, files: u64) {
    let (manifest, data) = cache(number, files);
    let declare = Declare {
        origin: "here".into(),
        name: format!("n{number}"),
        owner: format!("owner{}", number % 20),
        size: Size { bytes: files * 16, inodes: files + 1 },
        ..Declare::default()
    };
    let reader = Reader::owner(&declare.owner);
    let id = depot.declare(declare, number).unwrap().id;
    let Admission::Ok(r) = depot.admit(id, Some(&manifest), &reader, number).unwrap() else {
        panic!("there is no room")
    };
    let top = r.dir().join("data");
    fs::create_dir_all(&top).unwrap();
    for (f, data) in data.iter().enumerate() {
        fs::write(top.join(format!("{f:06}")), data).unwrap();
    }
    r.commit(&manifest, true, number).unwrap();
}

fn main() {
    let args: Vec<String> = std::env::args().collect();
    let dir = args.get(1).expect("a directory for the store");
    let number = |i: usize, or: u64| args.get(i).map_or(or, |a| a.parse().expect("a number"));
    let (caches, files) = (number(2, 100), number(3, 100));
    let free = Config { reserve_bytes: 0, reserve_inodes: 0, ..Config::default() };
    let depot = Depot::open(Path::new(dir), free.clone()).unwrap();
    let start = Instant::now();
    let first = depot.caches(&Filter::default()).len() as u64;
    (first..caches).for_each(|n| put(&depot, n, files));
    println!("made {} caches of {files} files in {:?}", caches - first.min(caches), start.elapsed());
    let start = Instant::now();
    let listed = depot.caches(&Filter::default()).len();
    println!("listed {listed} in {:?}", start.elapsed());
    drop(depot);
    let start = Instant::now();
    let depot = Depot::open(Path::new(dir), free.clone()).unwrap();
    println!("opened in {:?}", start.elapsed());
    // From here on the capacity is the used space: each new cache evicts another.
    let room = depot.usage().unwrap().kept.bytes * 100 / 95;
    depot.configure(Config { max_bytes: Some(room), ..free });
    let start = Instant::now();
    let mut over = 0;
    for n in 0..100 {
        put(&depot, caches + n, files);
        depot.sweep(caches + n).unwrap();
        let usage = depot.usage().unwrap();
        over += u64::from(usage.kept.bytes > usage.high.bytes);
    }
    println!("100 more in {:?}; {over} times above the high watermark", start.elapsed());
}
