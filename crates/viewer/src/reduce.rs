//! Fewer cells for more values: a volume, or a box of it, at a level of detail, on all cores.

use std::time::{Duration, Instant};

use serde::{Deserialize, Serialize};

use crate::error::Error;

/// How long a reduction may read.
const PATIENCE: Duration = Duration::from_secs(20);
/// Values that are looked at together.
const LANES: usize = 64;
/// Cells of an answer at most.
pub(crate) const CELLS: u64 = 1 << 26;

/// How the values of a cell are combined.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum How {
    /// Their mean.
    #[default]
    Mean,
    /// The greatest.
    Max,
    /// The one in the middle: reads least.
    Point,
}

/// Cells of a level: its first, and how many, along x, y, z. A cell has `factor` values a side, but at the far edges.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct Region {
    /// Values a side.
    pub factor: u64,
    /// The first cell.
    pub first: [u64; 3],
    /// How many cells.
    pub size: [u64; 3],
}

impl Region {
    /// All cells, or a box of them.
    ///
    /// # Errors
    /// When it is not within the volume, or has too many cells.
    pub fn new(shape: [u64; 3], factor: u64, part: Option<[u64; 6]>) -> Result<Self, Error> {
        if !(1..=65_536).contains(&factor) {
            return Err(Error::Request(format!("invalid factor {factor}; use 1 to 65536")));
        }
        let all = shape.map(|side| side.div_ceil(factor));
        let [x, y, z, nx, ny, nz] = part.unwrap_or([0, 0, 0, all[0], all[1], all[2]]);
        let (first, size) = ([x, y, z], [nx, ny, nz]);
        let within = |i: usize| size[i] > 0 && first[i].checked_add(size[i]).is_some_and(|end| end <= all[i]);
        if !(0..3).all(within) {
            return Err(Error::Request(format!(
                "the box {first:?} + {size:?} is not within the volume of {all:?} cells"
            )));
        }
        // Sides are 2^16 at most.
        let cells: u64 = size.iter().product();
        if cells > CELLS {
            return Err(Error::Request(format!(
                "{cells} cells, more than the limit of {CELLS}; use a larger factor, or a box"
            )));
        }
        Ok(Self { factor, first, size })
    }

    fn cells(&self) -> usize {
        self.size.iter().product::<u64>() as usize
    }
}

/// Values of a level; NaN where a value is missing.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct Cells {
    /// x fastest.
    pub values: Vec<f32>,
    /// Least and greatest of the values that were read.
    pub range: Option<(f32, f32)>,
    /// How many values that were read are missing.
    pub missing: u64,
}

impl Cells {
    /// A byte for each: 0 for a missing value, 1 to 255 from `min` to `max`; the middle where these are one
    /// value. In float64: the width of a range of float32 may be infinite in it, and so may be the quotient
    /// by a tiny one.
    pub fn quantised(&self, min: f64, max: f64) -> Vec<u8> {
        let (scale, first) = if max > min { (254.0 / (max - min), 1.5) } else { (0.0, 128.0) };
        let byte = |v: f32| match v.is_nan() {
            true => 0,
            false => ((f64::from(v) - min) * scale + first).clamp(1.0, 255.0) as u8,
        };
        self.values.iter().map(|v| byte(*v)).collect()
    }
}

/// Where values come from.
pub trait Values: Sync {
    /// x, y, z.
    fn shape(&self) -> [u64; 3];
    /// Fills `values` from a place on, along x and then y.
    ///
    /// # Errors
    /// When they cannot be read.
    fn read(&self, place: [u64; 3], values: &mut [f32]) -> Result<(), Error>;
}

/// A row of cells under way: values of a column of planes and lines are put together first, all columns at a time, as processors like it.
struct Row {
    /// Along x, for each value its sum or maximum over y and z.
    columns: Vec<f64>,
    /// How many values of a column are missing.
    holes: Vec<u32>,
    lines: u32,
    seen: ValueRange,
}

/// Of all values that were read.
struct ValueRange {
    least: f32,
    greatest: f32,
    missing: u64,
}

/// The cells of a region.
///
/// # Errors
/// When values cannot be read, or it takes too long.
pub fn reduce(source: &impl Values, region: &Region, how: How) -> Result<Cells, Error> {
    let layer = (region.size[0] * region.size[1]) as usize;
    let mut values = vec![f32::NAN; region.cells()];
    let threads = std::thread::available_parallelism().map_or(1, usize::from).min(region.size[2] as usize);
    let share = (region.size[2] as usize).div_ceil(threads);
    let began = Instant::now();
    let parts = std::thread::scope(|scope| {
        let work = |(n, part)| {
            scope.spawn(move || layers(source, region, how, (n * share) as u64, part, layer, began))
        };
        let running: Vec<_> = values.chunks_mut(share * layer).enumerate().map(work).collect();
        let lost = |_| Err(Error::Request("a reading thread failed".into()));
        running.into_iter().map(|thread| thread.join().unwrap_or_else(lost)).collect::<Result<Vec<_>, _>>()
    })?;
    let (mut range, mut missing) = (None::<(f32, f32)>, 0);
    for (least, greatest, holes) in parts {
        missing += holes;
        if least <= greatest {
            let (a, b) = range.unwrap_or((least, greatest));
            range = Some((a.min(least), b.max(greatest)));
        }
    }
    Ok(Cells { values, range, missing })
}

/// Layers of cells from `first` of the region on; answers least, greatest, missing.
fn layers(
    source: &impl Values,
    region: &Region,
    how: How,
    first: u64,
    out: &mut [f32],
    layer: usize,
    began: Instant,
) -> Result<(f32, f32, u64), Error> {
    let [sx, sy, sz] = source.shape();
    let begin = region.first[0] * region.factor;
    let width = (((region.first[0] + region.size[0]) * region.factor).min(sx) - begin) as usize;
    let seen = ValueRange { least: f32::INFINITY, greatest: f32::NEG_INFINITY, missing: 0 };
    let mut row = Row { columns: vec![0.0; width], holes: vec![0; width], lines: 0, seen };
    let mut values = Vec::new();
    for (n, cells) in out.chunks_mut(layer).enumerate() {
        let (z0, z1) = span(sz, region, 2, first + n as u64, how);
        for (cy, cells) in cells.chunks_mut(region.size[0] as usize).enumerate() {
            if began.elapsed() > PATIENCE {
                return Err(Error::Slow(PATIENCE.as_secs()));
            }
            let (y0, y1) = span(sy, region, 1, cy as u64, how);
            // Whole lines lie one after the other.
            let lines = if width as u64 == sx { y1 - y0 } else { 1 };
            values.resize(width * lines as usize, 0.0);
            row.begin(how);
            for z in z0..z1 {
                for y in (y0..y1).step_by(lines as usize) {
                    source.read([begin, y, z], &mut values)?;
                    values.chunks(width).for_each(|line| row.add(line, how));
                }
            }
            row.end(cells, region.factor as usize, how);
        }
    }
    Ok((row.seen.least, row.seen.greatest, row.seen.missing))
}

/// Where the values of a cell begin and end along an axis; with [`How::Point`] the one in the middle.
fn span(side: u64, region: &Region, axis: usize, cell: u64, how: How) -> (u64, u64) {
    let begin = (region.first[axis] + cell) * region.factor;
    let end = (begin + region.factor).min(side);
    if how == How::Point { (begin + (end - begin) / 2, begin + (end - begin) / 2 + 1) } else { (begin, end) }
}

impl Row {
    fn begin(&mut self, how: How) {
        self.columns.fill(if how == How::Max { f64::NEG_INFINITY } else { 0.0 });
        self.holes.fill(0);
        self.lines = 0;
    }

    /// Adds a line of values along x.
    fn add(&mut self, line: &[f32], how: How) {
        self.lines += 1;
        if how == How::Point {
            self.columns.iter_mut().zip(line).for_each(|(column, value)| *column = f64::from(*value));
            return;
        }
        let (columns, seen) = (self.columns.as_mut_slice(), &mut self.seen);
        for (at, values) in line.chunks(LANES).enumerate() {
            let columns = &mut columns[at * LANES..][..values.len()];
            if values.iter().fold(true, |all, value| all & value.is_finite()) {
                seen.range(values);
                match how {
                    How::Max => columns.iter_mut().zip(values).for_each(|(c, v)| *c = c.max(f64::from(*v))),
                    _ => columns.iter_mut().zip(values).for_each(|(c, v)| *c += f64::from(*v)),
                }
            } else {
                let holes = &mut self.holes[at * LANES..][..values.len()];
                for ((column, hole), value) in columns.iter_mut().zip(holes).zip(values) {
                    if !value.is_finite() {
                        *hole += 1;
                        seen.missing += 1;
                        continue;
                    }
                    seen.range(&[*value]);
                    *column = if how == How::Max {
                        column.max(f64::from(*value))
                    } else {
                        *column + f64::from(*value)
                    };
                }
            }
        }
    }

    /// Makes cells of the columns.
    fn end(&mut self, cells: &mut [f32], factor: usize, how: How) {
        let columns = self.columns.chunks(factor).zip(self.holes.chunks(factor));
        for (cell, (columns, holes)) in cells.iter_mut().zip(columns) {
            let there = self.lines * columns.len() as u32 - holes.iter().sum::<u32>();
            *cell = match how {
                How::Point => self.seen.value(columns[columns.len() / 2] as f32),
                _ if there == 0 => f32::NAN,
                How::Max => columns.iter().copied().fold(f64::NEG_INFINITY, f64::max) as f32,
                How::Mean => (columns.iter().sum::<f64>() / f64::from(there)) as f32,
            };
        }
    }
}

impl ValueRange {
    /// Notes finite values.
    fn range(&mut self, values: &[f32]) {
        let less = |a: f32, b: f32| if b < a { b } else { a };
        let more = |a: f32, b: f32| if b > a { b } else { a };
        // Side by side: one chain of comparisons would wait for each before.
        let (mut least, mut greatest) = ([self.least; 8], [self.greatest; 8]);
        let (eights, rest) = values.as_chunks::<8>();
        for eight in eights {
            for n in 0..8 {
                least[n] = less(least[n], eight[n]);
                greatest[n] = more(greatest[n], eight[n]);
            }
        }
        self.least = least.iter().chain(rest).copied().fold(self.least, less);
        self.greatest = greatest.iter().chain(rest).copied().fold(self.greatest, more);
    }

    /// Notes the only value of a cell; NaN if it is missing.
    fn value(&mut self, value: f32) -> f32 {
        if value.is_finite() {
            self.range(&[value]);
            value
        } else {
            self.missing += 1;
            f32::NAN
        }
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    struct Array([u64; 3], Vec<f32>);

    impl Values for Array {
        fn shape(&self) -> [u64; 3] {
            self.0
        }

        fn read(&self, [x, y, z]: [u64; 3], values: &mut [f32]) -> Result<(), Error> {
            let place = ((z * self.0[1] + y) * self.0[0] + x) as usize;
            values.copy_from_slice(&self.1[place..place + values.len()]);
            Ok(())
        }
    }

    /// By the definition, one cell at a time.
    fn plain(array: &Array, region: &Region, how: How) -> Vec<f32> {
        let cell = |cx: u64, cy: u64, cz: u64| {
            let mut found = Vec::new();
            let [x, y, z] = [(0, cx), (1, cy), (2, cz)].map(|(i, c)| span(array.0[i], region, i, c, how));
            for z in z.0..z.1 {
                for y in y.0..y.1 {
                    for x in x.0..x.1 {
                        found.push(array.1[((z * array.0[1] + y) * array.0[0] + x) as usize]);
                    }
                }
            }
            found.retain(|v| v.is_finite());
            match how {
                _ if found.is_empty() => f32::NAN,
                How::Max => found.iter().copied().fold(f32::NEG_INFINITY, f32::max),
                _ => (found.iter().map(|v| f64::from(*v)).sum::<f64>() / found.len() as f64) as f32,
            }
        };
        let [nx, ny, nz] = region.size;
        (0..nz)
            .flat_map(|z| (0..ny).flat_map(move |y| (0..nx).map(move |x| (x, y, z))))
            .map(|(x, y, z)| cell(x, y, z))
            .collect()
    }

    #[test]
    fn bytes_keep_a_place_for_what_is_missing() {
        let cells = Cells { values: vec![f32::NAN, -5.0, 0.0, 0.5, 1.0, 9.0], range: None, missing: 1 };
        assert_eq!(cells.quantised(0.0, 1.0), [0, 1, 1, 128, 255, 255]);
        // One value is neither the least nor the greatest of anything.
        assert_eq!(cells.quantised(1.0, 1.0)[..2], [0, 128]);
    }

    #[test]
    fn tiny_and_huge_ranges_have_all_colours() {
        for least in [1e-30, f32::MIN_POSITIVE, 1e-45, 1.0, 1e30, f32::MAX] {
            let values = vec![f32::NAN, -least, 0.0, least];
            let cells = Cells { values, range: None, missing: 1 };
            assert_eq!(cells.quantised(f64::from(-least), f64::from(least)), [0, 1, 128, 255], "{least}");
        }
    }

    #[test]
    fn a_box_outside_is_refused() {
        assert!(Region::new([10, 10, 10], 3, Some([3, 3, 3, 1, 1, 1])).is_ok());
        for part in [[4, 0, 0, 1, 1, 1], [0, 0, 0, 0, 1, 1], [0, 0, 1, 1, 1, u64::MAX]] {
            assert!(Region::new([10, 10, 10], 3, Some(part)).is_err(), "{part:?}");
        }
        assert!(Region::new([10, 10, 10], 0, None).is_err());
        assert!(Region::new([1024, 1024, 1024], 1, None).is_err());
    }

    proptest! {
        #[test]
        fn it_is_what_the_definition_says(
            shape in prop::array::uniform3(1u64..12),
            factor in 1u64..6,
            how in prop::sample::select(vec![How::Mean, How::Max, How::Point]),
            seed: u32,
            cut: [u8; 6],
        ) {
            let value = |n: u64| match (n * 2_654_435_761 + u64::from(seed)) % 97 {
                0..8 => f32::NAN,
                8 => f32::INFINITY,
                n => n as f32 - 40.0,
            };
            let array = Array(shape, (0..shape.iter().product()).map(value).collect());
            let all = shape.map(|side| side.div_ceil(factor));
            let first = [0, 1, 2].map(|i| u64::from(cut[i]) % all[i]);
            let size = [0, 1, 2].map(|i| 1 + u64::from(cut[3 + i]) % (all[i] - first[i]));
            let part = [first[0], first[1], first[2], size[0], size[1], size[2]];
            for part in [None, Some(part)] {
                let region = Region::new(shape, factor, part).unwrap();
                let cells = reduce(&array, &region, how).unwrap();
                let bits = |v: &[f32]| v.iter().map(|v| v.to_bits()).collect::<Vec<_>>();
                prop_assert_eq!(bits(&cells.values), bits(&plain(&array, &region, how)));
            }
        }
    }
}
