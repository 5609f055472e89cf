//! Events of `field send`, `field recv`, `field sync` and `field view`, and what people are told of them.

pub mod receive;
pub mod send;
pub mod sync;
pub mod view;

/// A share of one as people read it.
fn percent(share: f64) -> String {
    format!("{:.2}%", share * 100.0)
}
