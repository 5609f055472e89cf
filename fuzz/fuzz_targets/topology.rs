//! Any text as a topology of each kind. What must hold: no panic, bounded maps, and places that form a tree.
#![no_main]

use libfuzzer_sys::fuzz_target;
use tidecast_swarm::plan::topology::Map;
use tidecast_swarm::plan::{Epoch, Member, Part, Plan};

fuzz_target!(|text: &str| {
    let all = [Map::from_slurm(text), Map::from_lab(text), Map::from_rules(text), Map::read(text)];
    for map in all.into_iter().flatten() {
        let place = |host| Member { place: map.place(host, "10.1.2.3".parse().ok()), part: Part::Relay };
        let members = ["n000", "a1", "b.c"].map(place).to_vec();
        let places = map.places().to_vec();
        let epoch = Epoch { number: 0, source: 0, members, places, stripes: 2, seed: 1 };
        assert!(Plan::new(&epoch).is_ok());
    }
});
