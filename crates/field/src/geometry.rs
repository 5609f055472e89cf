//! Where a value lies: volumes, the slabs they are cut into, and the order in which values of a slab are sent.

use std::fmt;
use std::str::FromStr;

/// The most values along one axis of a volume.
pub const MAX_SIDE: u32 = 1 << 16;

/// A shape, a cut or an order that cannot be.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum Error {
    /// An axis without values, or with too many.
    #[error("invalid volume {0} x {1} x {2}: each side must be from 1 to {MAX_SIDE}")]
    Side(u32, u32, u32),
    /// Fewer planes than streams, or no stream.
    #[error("cannot cut {planes} planes into {streams} slabs; use fewer streams")]
    Streams {
        /// Planes along z.
        planes: u32,
        /// Streams asked for.
        streams: u32,
    },
    /// A slab with more values than a rank can count.
    #[error("a slab of {0} values is too large; use more streams")]
    Slab(u64),
    /// A word that is not an order of values.
    #[error("unknown order of values {0:?}; use zslab or morton")]
    Order(String),
    /// Text that is not a shape.
    #[error("invalid shape {0:?}; write three numbers, e.g. 256,256,256")]
    Shape(String),
}

/// Values along x, y and z. In memory x is fastest.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct Shape {
    nx: u32,
    ny: u32,
    nz: u32,
}

impl Shape {
    /// A shape whose sides are from 1 to [`MAX_SIDE`].
    ///
    /// # Errors
    /// [`Error::Side`].
    pub fn new(nx: u32, ny: u32, nz: u32) -> Result<Self, Error> {
        let fits = [nx, ny, nz].iter().all(|side| (1..=MAX_SIDE).contains(side));
        fits.then_some(Self { nx, ny, nz }).ok_or(Error::Side(nx, ny, nz))
    }

    /// Values along x, y and z.
    pub fn sides(&self) -> (u32, u32, u32) {
        (self.nx, self.ny, self.nz)
    }

    /// Values of a plane.
    pub fn plane(&self) -> u64 {
        u64::from(self.nx) * u64::from(self.ny)
    }

    /// Values in all.
    pub fn values(&self) -> u64 {
        self.plane() * u64::from(self.nz)
    }

    /// The slab of stream `stream` of `streams`.
    ///
    /// # Errors
    /// When there are more streams than planes, no such stream, or more values than a rank (31 bits) can count.
    pub fn slab(&self, stream: u32, streams: u32) -> Result<Slab, Error> {
        if stream >= streams || streams > self.nz {
            return Err(Error::Streams { planes: self.nz, streams });
        }
        let cut = |s: u32| (u64::from(s) * u64::from(self.nz) / u64::from(streams)) as u32;
        let (begin, end) = (cut(stream), cut(stream + 1));
        let values = self.plane() * u64::from(end - begin);
        if values >= 1 << 31 {
            return Err(Error::Slab(values));
        }
        Ok(Slab { shape: *self, begin, end })
    }
}

impl fmt::Display for Shape {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{},{},{}", self.nx, self.ny, self.nz)
    }
}

impl FromStr for Shape {
    type Err = Error;

    fn from_str(text: &str) -> Result<Self, Error> {
        let bad = || Error::Shape(text.to_owned());
        let sides: Result<Vec<u32>, _> = text.split([',', 'x']).map(|side| side.trim().parse()).collect();
        match sides.map_err(|_| bad())?.as_slice() {
            &[nx, ny, nz] => Self::new(nx, ny, nz),
            _ => Err(bad()),
        }
    }
}

/// The streams of one of `receivers`: the first one, and how many. The first receivers have one more if they do not divide.
pub fn streams_of(receiver: u32, receivers: u32, streams: u32) -> (u32, u32) {
    let (each, more) = (streams / receivers.max(1), streams % receivers.max(1));
    (receiver * each + receiver.min(more), each + u32::from(receiver < more))
}

/// Adjacent planes of a volume: the part that one stream carries.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct Slab {
    shape: Shape,
    /// z of the first plane.
    pub begin: u32,
    /// z after the last plane.
    pub end: u32,
}

impl Slab {
    /// The volume that it is of.
    pub fn shape(&self) -> Shape {
        self.shape
    }

    /// Values in it; fewer than 2^31.
    pub fn values(&self) -> u32 {
        (self.shape.plane() * u64::from(self.end - self.begin)) as u32
    }

    /// Place in the volume of its first value.
    pub fn offset(&self) -> u64 {
        self.shape.plane() * u64::from(self.begin)
    }

    /// Place within the slab, x fastest, of the value at `x, y, z` of the volume; `None` when it is not in this slab.
    pub fn place(&self, x: u32, y: u32, z: u32) -> Option<u32> {
        let inside = x < self.shape.nx && y < self.shape.ny && (self.begin..self.end).contains(&z);
        inside.then(|| ((z - self.begin) * self.shape.ny + y) * self.shape.nx + x)
    }

    /// Where in the volume the value at this place of the slab is.
    pub fn position(&self, place: u32) -> (u32, u32, u32) {
        let (row, x) = (place / self.shape.nx, place % self.shape.nx);
        (x, row % self.shape.ny, self.begin + row / self.shape.ny)
    }
}

/// In which order the values of a slab are sent.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Order {
    /// x fastest, then y, then z.
    Zslab,
    /// Bricks of 8 x 8 x 8 along the Z-order curve.
    Morton,
}

impl FromStr for Order {
    type Err = Error;

    fn from_str(text: &str) -> Result<Self, Error> {
        match text {
            "zslab" => Ok(Self::Zslab),
            "morton" => Ok(Self::Morton),
            _ => Err(Error::Order(text.to_owned())),
        }
    }
}

impl fmt::Display for Order {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Zslab => "zslab",
            Self::Morton => "morton",
        })
    }
}

/// Along each side of a brick.
const BRICK: u32 = 8;

/// A brick of a slab: its place on the curve, and the rank of its first value.
#[derive(Debug, Clone, Copy)]
struct Brick {
    code: u64,
    rank: u32,
}

/// The order of one slab's values: from a rank to a place and back.
#[derive(Debug, Clone)]
pub struct Ranks {
    slab: Slab,
    /// Along the curve; none with [`Order::Zslab`].
    bricks: Vec<Brick>,
}

impl Ranks {
    /// With [`Order::Morton`] it makes a table of 16 bytes for each brick.
    pub fn new(slab: Slab, order: Order) -> Self {
        let bricks = match order {
            Order::Zslab => Vec::new(),
            Order::Morton => bricks(&slab),
        };
        Self { slab, bricks }
    }

    /// The slab.
    pub fn slab(&self) -> &Slab {
        &self.slab
    }

    /// The rank of the value at `x, y, z` of the volume; `None` when it is not in this slab.
    pub fn rank(&self, x: u32, y: u32, z: u32) -> Option<u32> {
        let place = self.slab.place(x, y, z)?;
        if self.bricks.is_empty() {
            return Some(place);
        }
        let at = [x, y, z - self.slab.begin];
        let code = interleave(at.map(|side| side / BRICK));
        let brick = self.bricks.get(self.bricks.binary_search_by_key(&code, |brick| brick.code).ok()?)?;
        let (wide, high, _) = self.extent(code);
        let [x, y, z] = at.map(|side| side % BRICK);
        Some(brick.rank + (z * high + y) * wide + x)
    }

    /// The position in the volume of the value of this rank; `None` after the last.
    pub fn position(&self, rank: u32) -> Option<(u32, u32, u32)> {
        let mut found = None;
        self.runs(rank, 1, |place, _| found = Some(self.slab.position(place as u32)));
        found
    }

    /// Calls `each` with the place within the slab and the length of every run of consecutive values, in
    /// order: together the `count` values from `rank` on, or as many as there are.
    #[inline]
    pub fn runs(&self, rank: u32, count: u32, mut each: impl FnMut(usize, usize)) {
        let count = count.min(self.slab.values().saturating_sub(rank));
        if count == 0 {
            return;
        }
        if self.bricks.is_empty() {
            return each(rank as usize, count as usize);
        }
        let from = self.bricks.partition_point(|brick| brick.rank <= rank).saturating_sub(1);
        let (mut rank, mut left) = (rank, count);
        for brick in self.bricks.get(from..).unwrap_or_default() {
            let (wide, high, deep) = self.extent(brick.code);
            let mut within = rank - brick.rank;
            let size = wide * high * deep;
            let corner = deinterleave(brick.code).map(|side| side * BRICK);
            while within < size && left > 0 {
                let (row, x) = (within / wide, within % wide);
                let length = (wide - x).min(left);
                let (y, z) = (corner[1] + row % high, corner[2] + row / high);
                let place = (z * self.slab.shape.ny + y) * self.slab.shape.nx + corner[0] + x;
                each(place as usize, length as usize);
                within += length;
                left -= length;
            }
            if left == 0 {
                return;
            }
            rank = brick.rank + size;
        }
    }

    /// Values of the brick with this code along x, y and z.
    #[inline]
    fn extent(&self, code: u64) -> (u32, u32, u32) {
        let [bx, by, bz] = deinterleave(code);
        let clip = |brick: u32, side: u32| (side - brick * BRICK).min(BRICK);
        (
            clip(bx, self.slab.shape.nx),
            clip(by, self.slab.shape.ny),
            clip(bz, self.slab.end - self.slab.begin),
        )
    }
}

/// The bricks of a slab along the curve.
fn bricks(slab: &Slab) -> Vec<Brick> {
    let sides = [slab.shape.nx, slab.shape.ny, slab.end - slab.begin];
    let [nx, ny, nz] = sides.map(|side| side.div_ceil(BRICK));
    let mut bricks = Vec::with_capacity(nx as usize * ny as usize * nz as usize);
    for z in 0..nz {
        for y in 0..ny {
            bricks.extend((0..nx).map(|x| Brick { code: interleave([x, y, z]), rank: 0 }));
        }
    }
    bricks.sort_unstable_by_key(|brick| brick.code);
    let mut rank = 0;
    for brick in &mut bricks {
        brick.rank = rank;
        let [bx, by, bz] = deinterleave(brick.code);
        let size: u32 = [(bx, sides[0]), (by, sides[1]), (bz, sides[2])]
            .iter()
            .map(|(b, side)| (side - b * BRICK).min(BRICK))
            .product();
        rank += size;
    }
    bricks
}

/// The Z-order code: bit i of x, y and z are its bits 3i, 3i + 1 and 3i + 2.
fn interleave(sides: [u32; 3]) -> u64 {
    let spread = |side: u32| {
        let mut bits = u64::from(side) & 0x1f_ffff;
        bits = (bits | bits << 32) & 0x001f_0000_0000_ffff;
        bits = (bits | bits << 16) & 0x001f_0000_ff00_00ff;
        bits = (bits | bits << 8) & 0x100f_00f0_0f00_f00f;
        bits = (bits | bits << 4) & 0x10c3_0c30_c30c_30c3;
        (bits | bits << 2) & 0x1249_2492_4924_9249
    };
    spread(sides[0]) | spread(sides[1]) << 1 | spread(sides[2]) << 2
}

/// Back from [`interleave`].
fn deinterleave(code: u64) -> [u32; 3] {
    let gather = |code: u64| {
        let mut bits = code & 0x1249_2492_4924_9249;
        bits = (bits | bits >> 2) & 0x10c3_0c30_c30c_30c3;
        bits = (bits | bits >> 4) & 0x100f_00f0_0f00_f00f;
        bits = (bits | bits >> 8) & 0x001f_0000_ff00_00ff;
        bits = (bits | bits >> 16) & 0x001f_0000_0000_ffff;
        ((bits | bits >> 32) & 0x1f_ffff) as u32
    };
    [gather(code), gather(code >> 1), gather(code >> 2)]
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn slabs_are_those_of_the_paper() {
        let shape: Shape = "1024,1024,1024".parse().unwrap();
        let slab = shape.slab(31, 32).unwrap();
        assert_eq!((slab.begin, slab.end, slab.values()), (992, 1024, 1024 * 1024 * 32));
        assert_eq!(shape.slab(0, 1).unwrap().values(), 1 << 30);
        assert!(Shape::new(2048, 2048, 2048).unwrap().slab(0, 1).is_err(), "2^33 values have no ranks");
        for wrong in ["", "1,2", "0,1,1", "1,2,3,4", "65537,1,1", "a,b,c", "-1,2,3"] {
            assert!(wrong.parse::<Shape>().is_err(), "{wrong}");
        }
        assert!(shape.slab(0, 1025).is_err());
        assert!(shape.slab(4, 4).is_err());
    }

    #[test]
    fn bricks_follow_the_curve() {
        let ranks = Ranks::new(Shape::new(16, 16, 32).unwrap().slab(1, 2).unwrap(), Order::Morton);
        // Brick by brick: x, then y, then z; within one, x is fastest.
        assert_eq!(ranks.rank(0, 0, 16), Some(0));
        assert_eq!(ranks.rank(1, 0, 16), Some(1));
        assert_eq!(ranks.rank(0, 1, 16), Some(8));
        assert_eq!(ranks.rank(8, 0, 16), Some(512));
        assert_eq!(ranks.rank(0, 8, 16), Some(1024));
        assert_eq!(ranks.rank(0, 0, 24), Some(2048));
        assert_eq!(ranks.rank(0, 0, 15), None, "another slab's");
        assert_eq!(ranks.position(512 * 7), Some((8, 8, 24)));
        assert_eq!(ranks.position(512 * 8), None);
    }

    #[test]
    fn receivers_have_neighbouring_streams() {
        let all: Vec<_> = (0..3).map(|receiver| streams_of(receiver, 3, 32)).collect();
        assert_eq!(all, [(0, 11), (11, 11), (22, 10)]);
    }

    proptest! {
        #[test]
        fn slabs_are_all_of_the_volume(nz in 1u32..500, streams in 1u32..500) {
            prop_assume!(streams <= nz);
            let shape = Shape::new(3, 2, nz).unwrap();
            let mut next = 0;
            for stream in 0..streams {
                let slab = shape.slab(stream, streams).unwrap();
                prop_assert_eq!(slab.begin, next);
                prop_assert!(slab.end > slab.begin);
                next = slab.end;
            }
            prop_assert_eq!(next, nz);
        }

        #[test]
        fn every_value_has_one_rank(
            nx in 1u32..20, ny in 1u32..20, nz in 1u32..20, streams in 1u32..4, morton: bool, count in 1u32..100,
        ) {
            prop_assume!(streams <= nz);
            let shape = Shape::new(nx, ny, nz).unwrap();
            let order = if morton { Order::Morton } else { Order::Zslab };
            let ranks = Ranks::new(shape.slab(streams - 1, streams).unwrap(), order);
            let mut seen = vec![false; ranks.slab().values() as usize];
            let mut rank = 0;
            while rank < ranks.slab().values() {
                let mut next = rank;
                ranks.runs(rank, count, |place, length| {
                    for (place, seen) in (place as u32..).zip(&mut seen[place..place + length]) {
                        assert!(!std::mem::replace(seen, true), "twice");
                        let (x, y, z) = ranks.slab().position(place);
                        assert_eq!(ranks.rank(x, y, z), Some(next));
                        assert_eq!(ranks.position(next), Some((x, y, z)));
                        next += 1;
                    }
                });
                prop_assert_eq!(next, (rank + count).min(ranks.slab().values()));
                rank = next;
            }
            prop_assert!(seen.iter().all(|seen| *seen));
        }

        #[test]
        fn codes_go_back(x in 0u32..1 << 21, y in 0u32..1 << 21, z in 0u32..1 << 21) {
            prop_assert_eq!(deinterleave(interleave([x, y, z])), [x, y, z]);
        }
    }
}
