//! Any bytes as the table of a block's parts. What must hold: no panic; paths lead nowhere else; stretches lie within their
//! file and their block; what was read is written and read back as the same.
#![no_main]

use libfuzzer_sys::fuzz_target;
use tidecast_mover::part::{BLOCK, Data, Part, Parts, TableWriter, is_safe};

/// All parts of a table, unless it is damaged.
fn read(table: &[u8], payload: usize) -> Option<Vec<Part>> {
    let (mut parts, mut part, mut all) = (Parts::new(table, payload), Part::default(), Vec::new());
    while parts.next(&mut part).ok()? {
        all.push(part.clone());
    }
    Some(all)
}

fuzz_target!(|input: &[u8]| {
    let Some((payload, table)) = input.split_first_chunk::<4>() else { return };
    let payload = u32::from_le_bytes(*payload) as usize % (BLOCK + 1);
    let Some(all) = read(table, payload) else { return };
    let mut writer = TableWriter::default();
    let mut claimed = 0;
    for part in &all {
        assert!(is_safe(&part.entry.path));
        claimed += part.data.payload();
        if let Data::Bytes { offset, len, .. } | Data::Same { offset, len, .. } = part.data {
            assert!(offset + u64::from(len) <= part.entry.len());
        }
        if let Data::Hole { offset, len, .. } = part.data {
            assert!(offset + len <= part.entry.len());
        }
        writer.push(part.file, &part.entry, &part.data);
    }
    assert_eq!(claimed, payload);
    assert_eq!(read(&writer.finish(), payload), Some(all));
});
