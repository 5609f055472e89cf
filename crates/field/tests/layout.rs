//! Python and the document have the layout that Rust has. `TIDECAST_BLESS=1` writes Python's again.
#![allow(clippy::unwrap_used)]

use std::fmt::Write as _;
use std::path::Path;

use tidecast_field::layout::{
    DIR, ENTRY, HEAD, MAGIC, PREFIX, SLAB, TITLE, VERSION, VOLUMES, entry, head, slab,
};

fn read(file: &str) -> String {
    std::fs::read_to_string(Path::new(env!("CARGO_MANIFEST_DIR")).join("../..").join(file))
        .unwrap_or_default()
}

fn python() -> String {
    let mut out = "\"\"\"The layout of a field's shared memory. Generated from crates/field/src/layout.rs:\n\
        TIDECAST_BLESS=1 cargo test -p tidecast-field --test layout\n\"\"\"\n"
        .to_owned();
    writeln!(out, "DIR, PREFIX, MAGIC = {DIR:?}, {PREFIX:?}, b{:?}", std::str::from_utf8(&MAGIC).unwrap())
        .unwrap();
    writeln!(out, "VERSION, HEAD_SIZE, TITLE_SIZE, ENTRY_SIZE, MOST_VOLUMES = {VERSION}, {HEAD}, {TITLE}, {ENTRY}, {VOLUMES}").unwrap();
    for (what, name, all) in [
        ("the head", "HEAD", head::ALL),
        ("a slab's header", "SLAB", slab::ALL),
        ("an entry of the history", "ENTRY", entry::ALL),
    ] {
        writeln!(out, "#: Offsets of words of {what}, in bytes.\n{name} = {{").unwrap();
        all.iter().for_each(|(word, at)| writeln!(out, "    {:?}: {at},", word.to_lowercase()).unwrap());
        out.push_str("}\n");
    }
    out
}

#[test]
fn python_has_this_layout() {
    let (file, text) = ("python/tidecast/_field_layout.py", python());
    if std::env::var_os("TIDECAST_BLESS").is_some() {
        std::fs::write(Path::new(env!("CARGO_MANIFEST_DIR")).join("../..").join(file), &text).unwrap();
    }
    assert!(
        read(file) == text,
        "{file} is out of date: TIDECAST_BLESS=1 cargo test -p tidecast-field --test layout"
    );
}

#[test]
fn the_document_has_this_layout() {
    let text = read("docs/field-format.md");
    let section = text.split("\n## ").find(|section| section.starts_with("Shared memory")).unwrap();
    // Of the table, the first offset of each row; of the two sentences, the number before each word.
    let (table, rest) = section.split_once("\nA map has").unwrap();
    let rows = table.lines().filter_map(|line| line.strip_prefix("| ")).collect::<Vec<_>>();
    let number = |text: &str| text.split([' ', ',']).next().and_then(|word| word.parse::<usize>().ok());
    let told: Vec<usize> = rows
        .iter()
        .flat_map(|row| row.split(" |").next().unwrap_or_default().split(", ").filter_map(number))
        .collect();
    let missing: Vec<_> = head::ALL.iter().filter(|(_, at)| !told.contains(at)).collect();
    assert!(missing.is_empty() && told.contains(&HEAD), "{missing:?} of the head: {told:?}");
    for (begin, all, size) in
        [("A slab header: ", slab::ALL, SLAB), ("An entry of the history", entry::ALL, ENTRY)]
    {
        let sentence = rest.split_once(begin).unwrap().1.split("\n\n").next().unwrap();
        let told: Vec<usize> = sentence
            .split([' ', '\n'])
            .filter_map(|word| word.parse().ok())
            .filter(|at| at % 8 == 0)
            .collect();
        for (name, at) in all {
            assert!(told.contains(at) && at + 8 <= size, "{begin}{name} at {at}: {told:?}");
        }
    }
}
