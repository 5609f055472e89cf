//! Settings of the file as `serde` reads them, checked.

use std::path::PathBuf;

use serde::Deserialize;
use serde::de::{Deserializer, Error as _};
use tidecast_node::Policy;
use tidecast_publish::Format;
use tidecast_store::Durability;
use tidecast_text::{Rate, Size};

use super::checked;
use super::values::quantity;

/// A value that is written as text.
fn word<'de, D: Deserializer<'de>, T>(
    d: D,
    parse: impl FnOnce(&str) -> Result<T, String>,
) -> Result<T, D::Error> {
    parse(&String::deserialize(d)?).map_err(D::Error::custom)
}

macro_rules! values {
    ($($name:ident: $kind:ty, by $way:ident;)+) => { $(
        pub(super) fn $name<'de, D: Deserializer<'de>>(d: D) -> Result<Option<$kind>, D::Error> {
            $way(d, checked::$name).map(Some)
        }
    )+ };
}

values! {
    policy: Policy, by word;
    format: Format, by word;
    durability: Durability, by word;
    piece_size: Size, by quantity;
    limit: Rate, by quantity;
    net: String, by word;
    log: String, by word;
    path: PathBuf, by word;
}

macro_rules! lists {
    ($($name:ident)+) => { $(
        pub(super) fn $name<'de, D: Deserializer<'de>>(d: D) -> Result<Vec<String>, D::Error> {
            let all = Vec::<String>::deserialize(d)?;
            all.iter().try_for_each(|text| checked::$name(text)).map_err(D::Error::custom)?;
            Ok(all)
        }
    )+ };
}

lists! { tracker peer exclude }

pub(super) fn threads<'de, D: Deserializer<'de>>(d: D) -> Result<Option<usize>, D::Error> {
    let given = i64::deserialize(d)?;
    let threads = usize::try_from(given).ok().filter(|threads| *threads <= checked::MAX_THREADS);
    let wrong = || {
        let most = checked::MAX_THREADS;
        D::Error::custom(format!("{given} threads: use a number from 0 (one for each core) to {most}"))
    };
    threads.map(Some).ok_or_else(wrong)
}
