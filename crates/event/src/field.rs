//! Events of `field send`, `field recv`, `field sync` and `field view`, and their texts for people.

pub mod receive;
pub mod send;
pub mod sync;
pub mod view;

/// A share from 0 to 1 as a percentage.
fn percent(share: f64) -> String {
    format!("{:.2}%", share * 100.0)
}
