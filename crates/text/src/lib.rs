//! Text formats for people and shells: one parser and one printer of each.
//!
//! Pure: no I/O, and no dependency on the rest of the workspace.

mod causes;
mod escape;
mod host;
pub mod hostlist;
mod meminfo;
mod percent;
mod quantity;
mod shell;
mod table;
pub mod units;

pub use causes::{start_error, with_causes};
pub use escape::{Escaped, escaped, escaped_bytes};
pub use host::{Host, HostError};
pub use meminfo::meminfo;
pub use percent::{percent_decode, percent_encode};
pub use quantity::{Rate, Size, Span, bytes_per_second, count, grouped};
pub use shell::{UnclosedQuote, quote, quote_program, split};
pub use table::aligned;
