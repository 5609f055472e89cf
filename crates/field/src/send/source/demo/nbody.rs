//! Two galaxies that pass through each other repeatedly: heavy bodies attract one another, all pairs, and a
//! cloud of light ones follows. The density of all bodies is sent.

use super::Model;

const HEAVY: usize = 128;
const LIGHT: usize = 40_000;
/// Of the bodies that attract; the box has sides of 1.
const SOFTENING: f32 = 0.02;
/// The mass of all heavy bodies.
const MASS: f32 = 0.05;
const TIME: f32 = 0.02;
/// A pull towards the middle, so that no body escapes.
const HOME: f32 = 0.15;
/// Light bodies in a cell of a volume of 128 a side that are shown as half of the maximum.
const HALF: f32 = 1.0;

/// Numbers that look random and are always the same (splitmix64).
pub(super) struct Rng(pub(super) u64);

impl Rng {
    /// From 0 to 1, without 1.
    pub(super) fn next_f32(&mut self) -> f32 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut z = self.0;
        z = (z ^ z >> 30).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        z = (z ^ z >> 27).wrapping_mul(0x94d0_49bb_1331_11eb);
        ((z ^ z >> 31) >> 40) as f32 / 16_777_216.0
    }
}

#[derive(Clone, Copy)]
struct Body {
    at: [f32; 3],
    speed: [f32; 3],
}

pub(super) struct Galaxies {
    side: usize,
    heavy: Vec<Body>,
    light: Vec<Body>,
    density: Vec<f32>,
}

impl Galaxies {
    pub(super) fn new(side: usize) -> Self {
        let mut dice = Rng(7);
        let mut disc = |count: usize, galaxy: usize| -> Vec<Body> {
            (0..count).map(|_| body(&mut dice, galaxy)).collect()
        };
        let heavy = [disc(HEAVY / 2, 0), disc(HEAVY / 2, 1)].concat();
        let light = [disc(LIGHT / 2, 0), disc(LIGHT / 2, 1)].concat();
        Self { side, heavy, light, density: vec![0.0; side * side * side] }
    }

    /// Each body's density goes to the eight cells around it (cloud in cell).
    fn deposit(&mut self) {
        self.density.fill(0.0);
        let side = self.side;
        for body in self.heavy.iter().chain(&self.light) {
            let place = body.at.map(|x| x * side as f32 - 0.5);
            let (cell, part) = (place.map(|x| x.floor() as i64), place.map(|x| x - x.floor()));
            for corner in 0..8usize {
                let bit = |axis: usize| corner >> axis & 1;
                let at = [0, 1, 2].map(|axis| cell[axis] + bit(axis) as i64);
                if at.iter().all(|x| (0..side as i64).contains(x)) {
                    let share: f32 = (0..3)
                        .map(|axis| if bit(axis) == 1 { part[axis] } else { 1.0 - part[axis] })
                        .product();
                    self.density[(at[2] as usize * side + at[1] as usize) * side + at[0] as usize] += share;
                }
            }
        }
    }
}

/// One in a disc that turns: denser inside, thin, each galaxy in a plane of its own.
fn body(dice: &mut Rng, galaxy: usize) -> Body {
    let (radius, angle) = (0.03 + 0.2 * dice.next_f32().powi(2), dice.next_f32() * std::f32::consts::TAU);
    let thick = (dice.next_f32() - 0.5) * 0.02;
    // The speed at which the mass of one galaxy within this radius holds it.
    let speed = (MASS / 2.0 * (radius / 0.23).sqrt() / radius).sqrt();
    let (sin, cos) = angle.sin_cos();
    let (at, turn) = ([radius * cos, radius * sin, thick], [-speed * sin, speed * cos, 0.0]);
    let (centre, drift, tilt) = match galaxy {
        0 => ([0.3, 0.42, 0.5], [0.06, 0.03, 0.0], 0.3f32),
        _ => ([0.7, 0.58, 0.5], [-0.06, -0.03, 0.0], 1.3),
    };
    let lean = |[x, y, z]: [f32; 3]| [x, y * tilt.cos() - z * tilt.sin(), y * tilt.sin() + z * tilt.cos()];
    let (at, turn) = (lean(at), lean(turn));
    Body { at: [0, 1, 2].map(|n| centre[n] + at[n]), speed: [0, 1, 2].map(|n| drift[n] + turn[n]) }
}

/// Moves bodies by one step, as the heavy ones pull.
fn pull(bodies: &mut [Body], heavy: &[Body]) {
    for body in bodies {
        let mut force = body.at.map(|x| (0.5 - x) * HOME);
        for other in heavy {
            let away = [0, 1, 2].map(|n| other.at[n] - body.at[n]);
            let square = away.iter().map(|x| x * x).sum::<f32>() + SOFTENING * SOFTENING;
            let strength = MASS / HEAVY as f32 / (square * square.sqrt());
            (0..3).for_each(|n| force[n] += away[n] * strength);
        }
        for ((speed, at), force) in body.speed.iter_mut().zip(&mut body.at).zip(force) {
            *speed += force * TIME;
            *at += *speed * TIME;
        }
    }
}

impl Model for Galaxies {
    fn advance(&mut self, into: &mut [u8], threads: usize) {
        let heavy = self.heavy.clone();
        let share = LIGHT.div_ceil(threads.max(1));
        std::thread::scope(|scope| {
            for bodies in self.light.chunks_mut(share) {
                scope.spawn(|| pull(bodies, &heavy));
            }
            pull(&mut self.heavy, &heavy);
        });
        self.deposit();
        let half = HALF * (128.0 / self.side as f32).powi(3);
        for (to, density) in into.as_chunks_mut::<4>().0.iter_mut().zip(&self.density) {
            *to = (density / (density + half)).to_le_bytes();
        }
    }
}
