//! Sizes, durations and rates of the command line.

pub(crate) use tidecast_text::{Rate, Size, Span, bytes_per_second, count};
