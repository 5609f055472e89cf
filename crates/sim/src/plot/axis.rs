//! Scales and their ticks: from seconds to places on the page, and back to words for people.

/// A scale along the page, linear from 0 or logarithmic.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(super) struct Scale {
    /// Values at the ends.
    values: (f64, f64),
    /// Places of the ends.
    places: (f64, f64),
    logarithmic: bool,
}

/// Beyond this ratio of the slowest to the fastest, a linear axis would squeeze the fast ones.
const SQUEEZED: f64 = 12.0;
/// Ticks on an axis, at most.
const TICKS: usize = 9;

impl Scale {
    /// From 0 to `end`.
    pub(super) fn linear(end: f64, places: (f64, f64)) -> Self {
        Scale { values: (0.0, end.max(1e-9)), places, logarithmic: false }
    }

    /// The axis for runs that end between `first` and `last` seconds.
    pub(super) fn of_times(first: f64, last: f64, places: (f64, f64)) -> Self {
        if first > 0.0 && last / first > SQUEEZED {
            return Scale { values: (first * 0.7, last * 1.15), places, logarithmic: true };
        }
        Scale::linear(last * 1.04, places)
    }

    /// The position of `value`; values outside are moved to the nearer end.
    pub(super) fn at(&self, value: f64) -> f64 {
        let (from, to) = self.values;
        let value = value.clamp(from, to);
        let part = if self.logarithmic { (value / from).ln() / (to / from).ln() } else { value / to };
        self.places.0 + part * (self.places.1 - self.places.0)
    }

    /// True where equal ratios are equally far apart.
    pub(super) fn is_logarithmic(&self) -> bool {
        self.logarithmic
    }

    /// Round times between the ends, few enough to read, with their labels.
    pub(super) fn time_ticks(&self) -> Vec<(f64, String)> {
        let (from, to) = self.values;
        if self.logarithmic {
            // Each in a unit of its own: seconds below a minute, minutes below an hour.
            let scale = |t: f64| if t < 60.0 { t } else { t.max(if t < 3600.0 { 150.0 } else { 9000.0 }) };
            let apart = (self.places.1 - self.places.0) / 12.0;
            let mut ticks: Vec<(f64, String)> = Vec::new();
            for t in round_times().filter(|t| (from..=to).contains(t)) {
                if ticks.last().is_none_or(|(before, _)| self.at(t) - self.at(*before) > apart) {
                    ticks.push((t, in_words(t, scale(t))));
                }
            }
            return ticks;
        }
        let step = round_times().find(|step| to / step <= TICKS as f64 - 1.0).unwrap_or(to);
        (0..TICKS).map(|i| i as f64 * step).filter(|t| *t <= to).map(|t| (t, in_words(t, to))).collect()
    }
}

/// Times that people think in, seconds: 1, 2, 5 of each power of ten, halves and thirds of minutes, hours, days.
fn round_times() -> impl Iterator<Item = f64> {
    let decades = (-9..=1).flat_map(|power| [1.0, 2.0, 5.0].map(|digit| digit * 10f64.powi(power)));
    let short = decades.filter(|t| *t < 15.0);
    let minutes = [20.0, 30.0].into_iter().chain([1.0, 2.0, 5.0, 10.0, 20.0, 30.0].map(|m| m * 60.0));
    let hours = [1.0, 2.0, 5.0, 12.0, 24.0].map(|h| h * 3600.0);
    let days = (0..6).flat_map(|power| [2.0, 5.0, 10.0].map(|digit| digit * 86_400.0 * 10f64.powi(power)));
    short.chain(minutes).chain(hours).chain(days)
}

/// `t` seconds in the unit that suits `scale` seconds: `20 s`, `1.5 min`.
pub(super) fn in_words(t: f64, scale: f64) -> String {
    let (unit, length) = match scale {
        s if s < 1e-3 => ("µs", 1e-6),
        s if s < 1.0 => ("ms", 1e-3),
        s if s < 150.0 => ("s", 1.0),
        s if s < 9000.0 => ("min", 60.0),
        s if s < 3.0 * 86_400.0 => ("h", 3600.0),
        _ => ("d", 86_400.0),
    };
    if t == 0.0 {
        return "0".to_owned();
    }
    let value = t / length;
    let digits = if value < 9.995 { 2 } else { usize::from(value < 99.95) };
    let text = format!("{value:.digits$}");
    let short = if digits > 0 { text.trim_end_matches('0').trim_end_matches('.') } else { &text };
    format!("{short} {unit}")
}

#[cfg(test)]
mod tests {
    use super::*;

    fn labels(scale: &Scale) -> Vec<String> {
        scale.time_ticks().into_iter().map(|(_, text)| text).collect()
    }

    #[test]
    fn ticks_are_round_and_few() {
        let labels_to = |end| labels(&Scale::linear(end, (0.0, 1.0)));
        assert_eq!(labels_to(100.0), ["0", "20 s", "40 s", "60 s", "80 s", "100 s"].map(str::to_owned)[..]);
        assert_eq!(labels_to(600.0), ["0", "2 min", "4 min", "6 min", "8 min", "10 min"]);
        for end in (-6..8).map(|power| 3.7 * 10f64.powi(power)) {
            let ticks = labels_to(end);
            assert!((3..=TICKS).contains(&ticks.len()), "{end}: {ticks:?}");
        }
    }

    #[test]
    fn far_apart_is_logarithmic() {
        let scale = Scale::of_times(10.0, 3600.0, (0.0, 100.0));
        assert!(scale.logarithmic);
        let ticks = labels(&scale);
        let has = |text: &str| ticks.iter().any(|tick| tick == text);
        assert!(has("10 s") && has("1 min") && has("1 h") && ticks.len() <= 12, "{ticks:?}");
        assert!(!Scale::of_times(10.0, 60.0, (0.0, 100.0)).logarithmic);
        assert!(!Scale::of_times(0.0, 60.0, (0.0, 100.0)).logarithmic);
    }

    #[test]
    fn places_stay_on_the_page() {
        for scale in [Scale::linear(10.0, (50.0, 150.0)), Scale::of_times(1.0, 1000.0, (50.0, 150.0))] {
            for value in [-1.0, 0.0, 0.5, 10.0, 1e9] {
                assert!((50.0..=150.0).contains(&scale.at(value)), "{value} {scale:?}");
            }
            assert!(scale.at(2.0) < scale.at(3.0));
        }
    }

    #[test]
    fn times_in_words() {
        assert_eq!(in_words(0.0, 5.0), "0");
        assert_eq!(in_words(21.048, 21.048), "21 s");
        assert_eq!(in_words(8.376, 8.376), "8.38 s");
        assert_eq!(in_words(200.0, 200.0), "3.33 min");
        assert_eq!(in_words(0.0005, 0.0005), "500 µs");
    }
}
