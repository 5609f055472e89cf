//! Any bytes as bencode. What must hold: no panic; the cursor and the tree accept the same
//! inputs (but for duplicate keys and limits, which only the tree knows); what is written from a
//! tree is read back as the same tree.
#![no_main]

use libfuzzer_sys::fuzz_target;
use tidecast_metainfo::bencode::{Cursor, Fault, Limits, Value, Writer};

fn write(value: &Value<'_>, w: &mut Writer) {
    match value {
        Value::Int(i) => w.int(*i),
        Value::Bytes(b) => w.bytes(b),
        Value::List(items) => w.list(|w| items.iter().for_each(|item| write(item, w))),
        Value::Dict(pairs) => w.dict(|w| {
            for (key, item) in pairs {
                write(item, w.key(key));
            }
        }),
    }
}

fuzz_target!(|input: &[u8]| {
    let skipped = Cursor::new(input).skip();
    match Value::decode_prefix(input, Limits::default()) {
        Ok((value, used)) => {
            assert_eq!(skipped, Ok(&input[..used]), "the cursor sees the same value");
            let mut w = Writer::new();
            write(&value, &mut w);
            let canonical = w.into_bytes();
            assert_eq!(canonical.len(), used, "canonical but for the order of keys");
            assert_eq!(Value::decode(&canonical, Limits::default()), Ok(value));
        }
        Err(e) => {
            let own = matches!(e.what, Fault::DuplicateKey | Fault::Count(_) | Fault::Depth);
            assert!(own || skipped.is_err(), "only the tree refuses: {e}");
        }
    }
});
