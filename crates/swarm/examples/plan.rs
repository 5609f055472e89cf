//! The cost of plans of known clusters: hops, load, time to make. `cargo run --release --example plan`.
#![allow(clippy::unwrap_used, missing_docs)]

use std::time::Instant;

use tidecast_swarm::plan::{Epoch, Member, Part, Place, Plan};

fn main() {
    println!(
        "{:>24} {:>7} {:>8} {:>5} {:>15} {:>9}",
        "cluster", "members", "stripes", "hops", "most children", "ms"
    );
    for stripes in [4, 8, 16] {
        for members in [16, 64, 1000, 10_000, 100_000] {
            row("one switch", &Epoch::flat(members, stripes, 1));
        }
        row("switches in a row", &cluster(&[Some(1), Some(2), None], &[32, 25, 7], stripes));
        for (racks, each) in [(8, 8), (100, 16), (1000, 1), (2000, 50)] {
            let mut places = vec![Some(racks); racks as usize];
            places.push(None);
            row(&format!("{racks} racks of {each}"), &cluster(&places, &vec![each; racks as usize], stripes));
        }
    }
}

fn cluster(above: &[Option<u32>], counts: &[usize], stripes: u16) -> Epoch {
    let places = above.iter().map(|&above| Place { above, rate: 0 }).collect();
    let member = |place| Member { place, part: Part::Relay };
    let members = (0..).zip(counts).flat_map(|(place, &n)| vec![member(place); n]).collect();
    Epoch { number: 0, source: 0, members, places, stripes, seed: 1 }
}

fn row(name: &str, epoch: &Epoch) {
    let start = Instant::now();
    let plan = Plan::new(epoch).unwrap();
    let took = start.elapsed();
    let hops = (0..epoch.stripes).filter_map(|s| plan.depths(s).into_iter().flatten().max()).max().unwrap();
    let load = |m| (0..epoch.stripes).map(|s| plan.children(m, s).len()).sum::<usize>();
    let most = (1..epoch.members.len() as u32).map(load).max().unwrap();
    let ms = took.as_secs_f64() * 1e3;
    println!("{name:>24} {:>7} {:>8} {hops:>5} {most:>15} {ms:>9.2}", epoch.members.len(), epoch.stripes);
}
