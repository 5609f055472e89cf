//! Reaction and diffusion of two substances in three dimensions (Gray and Scott 1983; Pearson 1993): spots that grow, split, die and are
//! born again. The rates are from the region where that never ends.

use super::Model;

const FEED: f32 = 0.022;
const KILL: f32 = 0.051;
const DIFFUSION_U: f32 = 0.16;
const DIFFUSION_V: f32 = 0.08;
/// Iterations of a step: chosen so that motion is visible, without jumps.
const ITERATIONS: usize = 8;
/// The second substance seldom has more.
const MOST: f32 = 0.5;

/// Two substances in a box whose opposite sides are one.
pub(super) struct GrayScott {
    side: usize,
    now: [Vec<f32>; 2],
    next: [Vec<f32>; 2],
}

impl GrayScott {
    /// A box of `side` cells each way with drops of the second substance in the first: one for each 20 x 20 x 20 cells, always the same.
    pub(super) fn new(side: usize) -> Self {
        let cells = side * side * side;
        let (mut u, mut v) = (vec![1.0; cells], vec![0.0; cells]);
        let mut dice = super::nbody::Rng(1);
        for _ in 0..(cells / 8000).max(1) {
            let centre = [(); 3].map(|()| (dice.next_f32() * side as f32) as isize);
            for n in 0..9isize.pow(3) {
                let away = [n / 81, n / 9 % 9, n % 9].map(|n| n - 4);
                if away.iter().map(|n| n * n).sum::<isize>() < 16 {
                    let at = [0, 1, 2].map(|n| (centre[n] + away[n]).rem_euclid(side as isize) as usize);
                    let cell = (at[0] * side + at[1]) * side + at[2];
                    (u[cell], v[cell]) = (0.25, 0.33);
                }
            }
        }
        let next = [u.clone(), v.clone()];
        Self { side, now: [u, v], next }
    }

    fn iterate(&mut self, threads: usize) {
        let (side, plane) = (self.side, self.side * self.side);
        let band = side.div_ceil(threads.max(1)) * plane;
        let (now, [u, v]) = (&self.now, &mut self.next);
        std::thread::scope(|scope| {
            for (n, (u, v)) in u.chunks_mut(band).zip(v.chunks_mut(band)).enumerate() {
                scope.spawn(move || {
                    let rows = u.chunks_exact_mut(side).zip(v.chunks_exact_mut(side));
                    for (row, (u, v)) in (n * band / side..).zip(rows) {
                        react(now, side, row, u, v);
                    }
                });
            }
        });
        std::mem::swap(&mut self.now, &mut self.next);
    }
}

/// One iteration of one row.
fn react(now: &[Vec<f32>; 2], side: usize, row: usize, to_u: &mut [f32], to_v: &mut [f32]) {
    let (z, y) = (row / side, row % side);
    let (before, behind) = (|n: usize| (n + side - 1) % side, |n: usize| (n + 1) % side);
    let around = [(z, y), (z, before(y)), (z, behind(y)), (before(z), y), (behind(z), y)];
    let rows = |field: usize| around.map(|(z, y)| &now[field][(z * side + y) * side..][..side]);
    let (u, v) = (rows(0), rows(1));
    let mut cell = |x: usize, left: usize, right: usize| {
        let spread = |f: &[&[f32]; 5]| {
            f[0][left] + f[0][right] + f[1][x] + f[2][x] + f[3][x] + f[4][x] - 6.0 * f[0][x]
        };
        let (a, b) = (u[0][x], v[0][x]);
        let reaction = a * b * b;
        to_u[x] = a + DIFFUSION_U * spread(&u) - reaction + FEED * (1.0 - a);
        to_v[x] = b + DIFFUSION_V * spread(&v) + reaction - (FEED + KILL) * b;
    };
    cell(0, side - 1, 1);
    (1..side - 1).for_each(|x| cell(x, x - 1, x + 1));
    cell(side - 1, side - 2, 0);
}

impl Model for GrayScott {
    fn advance(&mut self, into: &mut [u8], threads: usize) {
        (0..ITERATIONS).for_each(|_| self.iterate(threads));
        for (to, value) in into.as_chunks_mut::<4>().0.iter_mut().zip(&self.now[1]) {
            *to = (value / MOST).clamp(0.0, 1.0).to_le_bytes();
        }
    }
}
