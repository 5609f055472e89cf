//! The engine's decisions, event for event: the traces of a few runs, as numbers.
//!
//! A trace is the same on every machine, so that a change of one means that the engine, or the model, decides otherwise
//! from now on. Where that is meant, put in the new numbers, which a failure prints; where it is not, this has found it.
//! `cargo run --release -p tidecast-sim --example traces` prints them for more seeds, of two builds to compare.
#![allow(clippy::unwrap_used)]

use tidecast_sim::scenario::Scenario;
use tidecast_sim::soak;

/// A name, how it is drawn, and the traces of seeds.
type Kind = (&'static str, fn(u64) -> Scenario, &'static [(u64, u64)]);

/// Of each way to draw a scenario: whatever it is, a swarm, a broadcast by a plan.
const KINDS: [Kind; 3] = [
    ("new", Scenario::new, &NEW),
    ("swarm", Scenario::swarm, &SWARM),
    ("planned", Scenario::planned, &PLANNED),
];

const NEW: [(u64, u64); 24] = [
    (0, 0xe3fb_335a_99a6_07ea),
    (3, 0x9120_6393_d6a0_d52a),
    (5, 0x5820_0fd3_7083_57dc),
    (6, 0x579c_052e_d5e7_85ae),
    (9, 0xc95c_264d_f662_9d08),
    (13, 0x6f83_4686_f88f_2355),
    (15, 0x16cc_9b25_c9dd_7f52),
    (19, 0x2dd5_3692_6581_b5ba),
    (20, 0x1f31_1105_f3a7_a781),
    (21, 0xc424_d655_01f6_89dc),
    (22, 0xb8e7_86e9_46d9_024e),
    (23, 0xc1d6_ad83_fd21_a2cc),
    (24, 0xc528_a810_ef1c_00a9),
    (25, 0x1e13_470d_f107_015b),
    (26, 0xb5e9_e214_44d0_ad22),
    (29, 0xdcdc_200f_9215_44b3),
    (30, 0x33bf_6090_f3d6_457d),
    (31, 0x9779_2c00_a92d_7f79),
    (33, 0x97f9_820a_5aa6_3148),
    (34, 0x3920_8252_957c_8051),
    (35, 0xdca1_821c_3070_0027),
    (36, 0xb394_3371_66fc_eb7e),
    (37, 0x3f11_fc7c_1e17_71e6),
    (38, 0xb0ab_36ee_d414_0d2d),
];

const SWARM: [(u64, u64); 8] = [
    (0, 0xe3fb_335a_99a6_07ea),
    (3, 0x9120_6393_d6a0_d52a),
    (5, 0x5820_0fd3_7083_57dc),
    (6, 0x579c_052e_d5e7_85ae),
    (9, 0xc95c_264d_f662_9d08),
    (13, 0x6f83_4686_f88f_2355),
    (15, 0x16cc_9b25_c9dd_7f52),
    (19, 0x2dd5_3692_6581_b5ba),
];

const PLANNED: [(u64, u64); 16] = [
    (0, 0xe3fb_335a_99a6_07ea),
    (3, 0x9120_6393_d6a0_d52a),
    (5, 0x5820_0fd3_7083_57dc),
    (6, 0x579c_052e_d5e7_85ae),
    (9, 0xc95c_264d_f662_9d08),
    (13, 0x6f83_4686_f88f_2355),
    (15, 0x16cc_9b25_c9dd_7f52),
    (19, 0x2dd5_3692_6581_b5ba),
    (20, 0x1f31_1105_f3a7_a781),
    (21, 0xc424_d655_01f6_89dc),
    (22, 0xb8e7_86e9_46d9_024e),
    (23, 0xc1d6_ad83_fd21_a2cc),
    (24, 0xc528_a810_ef1c_00a9),
    (25, 0x1e13_470d_f107_015b),
    (26, 0xb5e9_e214_44d0_ad22),
    (29, 0xdcdc_200f_9215_44b3),
];

#[test]
fn the_engine_decides_as_it_did() {
    let mut changed = Vec::new();
    for (kind, draw, traces) in KINDS {
        for &(seed, before) in traces {
            let now = soak::job(&draw(seed).job).unwrap().outcome.trace;
            changed.extend(
                (now != before).then(|| format!("{kind} ({seed}, 0x{now:016x}), was 0x{before:016x}")),
            );
        }
    }
    assert!(changed.is_empty(), "{}", changed.join("\n"));
}
