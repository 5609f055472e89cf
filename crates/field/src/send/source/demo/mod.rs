//! Fields that are computed as they are sent, so that there is something to see without data: `demo:gray-scott[:N]`, `demo:nbody[:N]`.

mod gray_scott;
mod nbody;

use std::ops::Range;
use std::sync::Arc;

use crossbeam_channel::{Receiver, RecvTimeoutError, Sender, bounded};

use super::{LOOK, Source, SourceError, Step, Wait, check};
use crate::geometry::Shape;

/// Values along each side, unless told.
const SIDE: u64 = 128;
/// Volumes that go round: one is computed, one waits, two are read.
const VOLUMES: usize = 4;

/// A computation that runs from step to step, for ever.
trait Model: Send {
    /// Computes the next step and writes its values, from 0 to 1, as float32: all of `into`, by this many
    /// threads.
    fn advance(&mut self, into: &mut [u8], threads: usize);
}

/// Opens `gray-scott[:N]` or `nbody[:N]`.
pub(super) fn open(name: &str) -> Result<Box<dyn Source>, SourceError> {
    let (kind, side) = name.split_once(':').map_or((name, None), |(kind, side)| (kind, Some(side)));
    let wrong = |what: String| SourceError::wrong(format!("demo:{name}"), what);
    let model: fn(usize) -> Box<dyn Model> = match kind {
        "gray-scott" => |side| Box::new(gray_scott::GrayScott::new(side)),
        "nbody" => |side| Box::new(nbody::Galaxies::new(side)),
        _ => {
            return Err(wrong("unknown demo; use demo:gray-scott[:N] or demo:nbody[:N]".into()));
        }
    };
    let side = match side.map(str::parse) {
        None => SIDE,
        Some(Ok(side @ 8..=1024)) => side,
        _ => return Err(wrong("N must be from 8 to 1024 values a side".into())),
    };
    let shape = check(name, [side; 3])?;
    let model = model(side as usize);
    Ok(Box::new(Demo::begin(name.replace(':', " "), shape, model)))
}

struct Demo {
    name: String,
    shape: Shape,
    volumes: Receiver<Vec<u8>>,
    used: Sender<Vec<u8>>,
}

impl Demo {
    /// Begins to compute, in a thread that ends when the volumes are no longer taken.
    fn begin(name: String, shape: Shape, mut model: Box<dyn Model>) -> Self {
        let (give, volumes) = bounded(1);
        let (used, take) = bounded::<Vec<u8>>(VOLUMES);
        let bytes = shape.values() as usize * 4;
        (0..VOLUMES).for_each(|_| drop(used.send(Vec::new())));
        let threads =
            std::thread::available_parallelism().map_or(1, usize::from).min(shape.sides().2 as usize);
        std::thread::spawn(move || {
            while let Ok(mut volume) = take.recv() {
                volume.resize(bytes, 0);
                model.advance(&mut volume, threads);
                if give.send(volume).is_err() {
                    return;
                }
            }
        });
        Self { name, shape, volumes, used }
    }
}

impl Source for Demo {
    fn shape(&self) -> Shape {
        self.shape
    }

    fn name(&self) -> &str {
        &self.name
    }

    fn steps(&self) -> Option<u64> {
        None
    }

    fn is_live(&self) -> bool {
        true
    }

    fn open(&mut self, step: u64, wait: &Wait<'_>) -> Result<Option<Arc<dyn Step>>, SourceError> {
        loop {
            match self.volumes.recv_timeout(LOOK) {
                Ok(volume) => {
                    let (used, plane) = (self.used.clone(), self.shape.plane() as usize * 4);
                    return Ok(Some(Arc::new(Computed { number: step, volume, plane, used })));
                }
                Err(RecvTimeoutError::Timeout) if wait() => {}
                Err(RecvTimeoutError::Timeout) => return Err(SourceError::Stopped),
                Err(RecvTimeoutError::Disconnected) => {
                    return Err(SourceError::wrong(&self.name, "the computation has failed"));
                }
            }
        }
    }
}

/// A step in memory.
struct Computed {
    number: u64,
    volume: Vec<u8>,
    plane: usize,
    used: Sender<Vec<u8>>,
}

impl Step for Computed {
    fn number(&self) -> u64 {
        self.number
    }

    fn read(&self, planes: Range<usize>, into: &mut [u8]) -> Result<(), SourceError> {
        let from = self.volume.get(planes.start * self.plane..planes.end * self.plane);
        match from {
            Some(from) if from.len() == into.len() => into.copy_from_slice(from),
            _ => return Err(SourceError::wrong("demo", "planes out of range")),
        }
        Ok(())
    }
}

impl Drop for Computed {
    fn drop(&mut self) {
        // There is room for every volume.
        let _ = self.used.try_send(std::mem::take(&mut self.volume));
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Mean, and mean of the distance from it.
    fn spread(volume: &[u8]) -> (f32, f32) {
        let values: Vec<f32> =
            volume.as_chunks::<4>().0.iter().map(|four| f32::from_le_bytes(*four)).collect();
        assert!(values.iter().all(|value| (0.0..=1.0).contains(value)));
        let mean = values.iter().sum::<f32>() / values.len() as f32;
        (mean, values.iter().map(|value| (value - mean).abs()).sum::<f32>() / values.len() as f32)
    }

    #[test]
    fn demos_are_alive_and_the_same_on_any_number_of_threads() {
        for name in ["gray-scott", "nbody"] {
            let make = || -> Box<dyn Model> {
                match name {
                    "nbody" => Box::new(nbody::Galaxies::new(24)),
                    _ => Box::new(gray_scott::GrayScott::new(24)),
                }
            };
            let (mut one, mut three) = (make(), make());
            let (mut a, mut b) = (vec![0; 24 * 24 * 24 * 4], vec![0; 24 * 24 * 24 * 4]);
            let mut before = Vec::new();
            for _ in 0..30 {
                before.clone_from(&a);
                one.advance(&mut a, 1);
                three.advance(&mut b, 3);
                assert_eq!(a, b, "{name}");
                assert_ne!(a, before, "{name}: it stands still");
            }
            let (mean, away) = spread(&a);
            assert!((0.002..0.9).contains(&mean) && away > 0.002, "{name}: {mean} {away}");
        }
    }

    #[test]
    fn steps_are_read_by_planes_and_recycled() {
        let mut source = open("gray-scott:8").unwrap();
        for step in 0..20 {
            let open = source.open(step, &|| true).unwrap().unwrap();
            let (mut whole, mut part) = (vec![0; 8 * 8 * 8 * 4], vec![0; 8 * 8 * 2 * 4]);
            open.read(0..8, &mut whole).unwrap();
            open.read(3..5, &mut part).unwrap();
            assert_eq!(whole[8 * 8 * 3 * 4..8 * 8 * 5 * 4], part);
            assert_eq!(open.number(), step);
            assert!(open.read(7..9, &mut part).is_err());
        }
        assert!(open("gray-scott:4").is_err() && open("life").is_err());
    }
}
