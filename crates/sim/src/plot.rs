//! One picture of a comparison: how many nodes are complete when, and how busy the links are meanwhile.
//!
//! The result is one self-contained SVG that looks the same on a screen and on paper. Colours are Okabe
//! and Ito's, which colour-blind people tell apart; with more algorithms than colours, lines are dashed.

mod axis;

use std::fmt::{Display, Write};

use tidecast_swarm::Time;

use self::axis::{Scale, in_words};
use crate::outcome::Outcome;
use crate::report::{awaited, completions, is_link, seconds};

/// Page and panels, in units of a screen's pixel.
const WIDTH: f64 = 960.0;
const LEFT: f64 = 64.0;
const RIGHT: f64 = WIDTH - 28.0;
const CURVES: f64 = 320.0;
const STRIP: f64 = 64.0;
/// Places along the time axis at which a curve is drawn, at most: about one a pixel.
const POINTS: usize = 900;
/// Links shown.
const LINKS: usize = 3;

const COLOURS: [&str; 7] = ["#0072B2", "#D55E00", "#009E73", "#CC79A7", "#E69F00", "#56B4E9", "#222222"];
/// Styles that distinguish the links of a strip, and lines that use a colour for the second time.
const DASHES: [&str; LINKS] = ["", "6 3", "1.5 2.5"];
const STYLE: &str = "\
text{font-family:'Helvetica Neue',Helvetica,Arial,'Liberation Sans','DejaVu Sans',sans-serif;font-size:12px;fill:#444}\
.title{font-size:17px;font-weight:600;fill:#111}.head{font-size:13px;font-weight:600;fill:#222}\
.grid{stroke:#e4e4e4;stroke-width:1}.axis{stroke:#888;stroke-width:1}\
.curve{fill:none;stroke-width:2;stroke-linejoin:round}.use{fill:none;stroke-width:1.3;stroke-linejoin:round}\
.bound{stroke:#555;stroke-width:1.3;stroke-dasharray:5 4}";

/// Draws `runs` under a title and a line about the simulation, with the bound where there is one.
#[must_use]
pub fn svg(title: &str, subtitle: &str, runs: &[Outcome], bound: Option<Time>) -> String {
    let mut page = Page { body: String::new(), y: 34.0 };
    page.text(LEFT, page.y, "title", title);
    page.y += 21.0;
    page.text(LEFT, page.y, "", subtitle);
    page.y += 26.0;
    page.legend(runs);
    let time = time_axis(runs, bound);
    page.curves(runs, bound.map(seconds), &time);
    page.link_use(runs, &time);
    page.finish(title, subtitle)
}

/// An axis that shows the last completion of every run, and the bound. A run that never ends continues to the
/// right edge.
fn time_axis(runs: &[Outcome], bound: Option<Time>) -> Scale {
    let complete = runs.iter().filter_map(|run| completions(run).last().copied());
    let mut times: Vec<Time> = complete.chain(bound).filter(|t| t.0 > 0).collect();
    if times.is_empty() {
        times = runs.iter().map(|run| run.ended).collect();
    }
    let first = times.iter().min().copied().map_or(0.0, seconds);
    let last = times.iter().max().copied().map_or(0.0, seconds);
    Scale::of_times(first, last, (LEFT, RIGHT))
}

fn is_complete(run: &Outcome) -> bool {
    run.finished.iter().flatten().count() == awaited(run)
}

fn colour(run: usize) -> &'static str {
    COLOURS[run % COLOURS.len()]
}

fn dash(turn: usize) -> &'static str {
    DASHES[turn % DASHES.len()]
}

/// The picture so far, and the next position on the page.
struct Page {
    body: String,
    y: f64,
}

impl Page {
    /// Appends; writing to a string cannot fail.
    fn put(&mut self, what: impl Display) {
        let _ = writeln!(self.body, "{what}");
    }

    fn text(&mut self, x: f64, y: f64, class: &str, text: &str) {
        self.put(format_args!("<text x=\"{x:.1}\" y=\"{y:.1}\" class=\"{class}\">{}</text>", escaped(text)));
    }

    /// A label beside (`end`) or under (`middle`) a tick.
    fn label(&mut self, x: f64, y: f64, anchor: &str, text: &str) {
        let text = escaped(text);
        self.put(format_args!("<text x=\"{x:.1}\" y=\"{y:.1}\" text-anchor=\"{anchor}\">{text}</text>"));
    }

    fn line(&mut self, class: &str, from: (f64, f64), to: (f64, f64)) {
        self.put(format_args!(
            "<line class=\"{class}\" x1=\"{:.1}\" y1=\"{:.1}\" x2=\"{:.1}\" y2=\"{:.1}\"/>",
            from.0, from.1, to.0, to.1
        ));
    }

    /// A short line with its name; answers where the next may begin.
    fn key(&mut self, x: f64, stroke: &str, dash: &str, name: &str) -> f64 {
        let y = self.y;
        self.put(format_args!(
            "<path d=\"M{x:.1} {:.1}h24\" stroke=\"{stroke}\" stroke-width=\"2.5\" stroke-dasharray=\"{dash}\"/>",
            y - 4.0
        ));
        self.text(x + 30.0, y, "", name);
        // About a letter's width; nothing depends on it but the space between two names.
        x + 30.0 + 6.6 * name.chars().count() as f64 + 24.0
    }

    fn legend(&mut self, runs: &[Outcome]) {
        let mut x = LEFT;
        for (i, run) in runs.iter().enumerate() {
            let name = match completions(run).last() {
                Some(last) if is_complete(run) => {
                    let last = seconds(*last);
                    format!("{} {}", run.algorithm, in_words(last, last))
                }
                _ => format!("{} incomplete", run.algorithm),
            };
            if x > LEFT && x + 40.0 + 6.6 * name.chars().count() as f64 > RIGHT {
                (x, self.y) = (LEFT, self.y + 19.0);
            }
            x = self.key(x, colour(i), dash(i / COLOURS.len()), &name);
        }
        self.y += 16.0;
    }

    /// Grid and labels of the time axis for a panel of this height; words under the last one only.
    fn time_grid(&mut self, time: &Scale, top: f64, bottom: f64, words: bool) {
        for (at, text) in time.time_ticks() {
            let x = time.at(at);
            self.line("grid", (x, top), (x, bottom));
            if words {
                self.label(x, bottom + 17.0, "middle", &text);
            }
        }
        self.line("axis", (LEFT, bottom), (RIGHT, bottom));
    }

    /// The share of nodes that are complete, over time.
    fn curves(&mut self, runs: &[Outcome], bound: Option<f64>, time: &Scale) {
        self.y += 14.0;
        self.text(LEFT, self.y, "head", "Nodes complete");
        if time.is_logarithmic() {
            self.label(RIGHT, self.y, "end", "time on a logarithmic scale");
        }
        let top = self.y + 34.0;
        let bottom = top + CURVES;
        self.time_grid(time, top, bottom, true);
        for percent in [0u8, 25, 50, 75, 100] {
            let y = bottom - CURVES * f64::from(percent) / 100.0;
            if percent > 0 {
                self.line("grid", (LEFT, y), (RIGHT, y));
            }
            self.label(LEFT - 8.0, y + 4.0, "end", &format!("{percent}%"));
        }
        if let Some(bound) = bound {
            let x = time.at(bound);
            self.line("bound", (x, top - 8.0), (x, bottom));
            let text = format!("bound {}", in_words(bound, bound));
            self.label(x.clamp(LEFT + 40.0, RIGHT - 40.0), top - 12.0, "middle", &text);
        }
        // The first is drawn last, so that the algorithm named first is on top.
        for (i, run) in runs.iter().enumerate().rev() {
            self.curve(i, run, time, bottom);
        }
        self.y = bottom + 30.0;
    }

    fn curve(&mut self, i: usize, run: &Outcome, time: &Scale, bottom: f64) {
        let (times, of) = (completions(run), awaited(run).max(1) as f64);
        let height = |complete: usize| bottom - CURVES * complete as f64 / of;
        let start = times.first().map_or(0.0, |first| seconds(*first));
        let mut path = format!("M{:.1} {bottom:.1}", time.at(start));
        let every = times.len().div_ceil(POINTS).max(1);
        let last = times.len().saturating_sub(1);
        for (n, at) in times.iter().enumerate().filter(|(n, _)| n % every == 0 || *n == last) {
            let _ = write!(path, "H{:.1}V{:.1}", time.at(seconds(*at)), height(n + 1));
        }
        let colour = colour(i);
        let name = escaped(&run.algorithm);
        self.put(format_args!("<g class=\"series\" data-algorithm=\"{name}\"><title>{name}</title>"));
        if !is_complete(run) {
            let _ = write!(path, "H{:.1}", time.at(seconds(run.ended)));
        }
        let (dash, width) = (dash(i / COLOURS.len()), if i == 0 { 2.8 } else { 2.0 });
        self.put(format_args!(
            "<path class=\"curve\" stroke=\"{colour}\" stroke-dasharray=\"{dash}\" style=\"stroke-width:{width}\" d=\"{path}\"/>"
        ));
        if let Some(end) = times.last().filter(|_| is_complete(run)) {
            let (x, y) = (time.at(seconds(*end)), height(times.len()));
            self.put(format_args!("<circle cx=\"{x:.1}\" cy=\"{y:.1}\" r=\"3.5\" fill=\"{colour}\"/>"));
        }
        self.put("</g>");
    }

    /// How busy the busiest links are, a strip for each algorithm.
    fn link_use(&mut self, runs: &[Outcome], time: &Scale) {
        let links = busiest(runs);
        if links.is_empty() {
            return;
        }
        self.y += 24.0;
        self.text(LEFT, self.y, "head", "Utilization of the busiest links");
        let mut x = LEFT + 190.0;
        for (link, dash) in links.iter().zip(DASHES) {
            let shown = if link == "n0 out" { "origin, outbound" } else { link };
            x = self.key(x, "#555", dash, shown);
        }
        for (i, run) in runs.iter().enumerate() {
            let top = self.y + 28.0;
            let bottom = top + STRIP;
            let last = i + 1 == runs.len();
            let (name, colour) = (escaped(&run.algorithm), colour(i));
            self.put(format_args!(
                "<text x=\"{LEFT}\" y=\"{:.1}\" style=\"fill:{colour};font-weight:600\">{name}</text>",
                top - 6.0
            ));
            self.time_grid(time, top, bottom, last);
            self.line("grid", (LEFT, top), (RIGHT, top));
            self.label(LEFT - 8.0, top + 4.0, "end", "100%");
            self.label(LEFT - 8.0, bottom + 4.0, "end", "0%");
            self.strip(i, run, &links, time, bottom);
            self.y = bottom;
        }
        self.y += 36.0;
    }

    fn strip(&mut self, i: usize, run: &Outcome, links: &[String], time: &Scale, bottom: f64) {
        let (name, colour) = (escaped(&run.algorithm), colour(i));
        self.put(format_args!("<g class=\"links\" data-algorithm=\"{name}\">"));
        for (turn, link) in links.iter().enumerate() {
            let Some(port) = run.ports.iter().position(|p| p.name == *link) else { continue };
            let mut steps = use_over_time(run, port);
            steps.retain(|(_, to, _)| time.at(*to) > LEFT);
            let mut path = String::new();
            for (from, to, share) in &steps {
                let pen = if path.is_empty() { 'M' } else { 'L' };
                let y = bottom - STRIP * share;
                let _ = write!(path, "{pen}{:.1} {y:.1}H{:.1}", time.at(*from), time.at(*to));
            }
            let Some((from, to)) = steps.first().zip(steps.last()).map(|(a, b)| (a.0, b.1)) else { continue };
            if turn == 0 {
                let (from, to) = (time.at(from), time.at(to));
                self.put(format_args!(
                    "<path d=\"{path}L{to:.1} {bottom:.1}H{from:.1}Z\" fill=\"{colour}\" fill-opacity=\"0.16\"/>"
                ));
            }
            let link = escaped(link);
            self.put(format_args!(
                "<path class=\"use\" data-link=\"{link}\" stroke=\"{colour}\" stroke-dasharray=\"{}\" d=\"{path}\"/>",
                dash(turn)
            ));
        }
        self.put("</g>");
    }

    fn finish(self, title: &str, subtitle: &str) -> String {
        let (title, subtitle, height, body) = (escaped(title), escaped(subtitle), self.y, self.body);
        format!(
            "<svg xmlns=\"http://www.w3.org/2000/svg\" width=\"{WIDTH}\" height=\"{height}\" \
             viewBox=\"0 0 {WIDTH} {height}\" role=\"img\">\n<title>{title}</title>\n<desc>{subtitle}</desc>\n\
             <style>{STYLE}</style>\n<rect width=\"100%\" height=\"100%\" fill=\"#fff\"/>\n{body}</svg>\n"
        )
    }
}

/// The wires to show: links between switches and the origin's, outward, by their mean use in whichever
/// run used them most.
fn busiest(runs: &[Outcome]) -> Vec<String> {
    let mut all: Vec<(String, f64)> = Vec::new();
    for run in runs {
        let length = seconds(run.ended).max(1e-9);
        for port in run.ports.iter().filter(|p| p.rate > 0 && (is_link(p) || p.name == "n0 out")) {
            let load = port.bytes as f64 / (port.rate as f64 * length);
            match all.iter_mut().find(|(name, _)| *name == port.name) {
                Some((_, most)) => *most = most.max(load),
                None => all.push((port.name.clone(), load)),
            }
        }
    }
    all.sort_by(|a, b| b.1.total_cmp(&a.1));
    all.truncate(LINKS);
    all.into_iter().map(|(name, _)| name).collect()
}

/// From, to, and the share of its capacity that a port used meanwhile.
fn use_over_time(run: &Outcome, port: usize) -> Vec<(f64, f64, f64)> {
    let Some(rate) = run.ports.get(port).map(|p| p.rate as f64).filter(|rate| *rate > 0.0) else {
        return Vec::new();
    };
    let so_far = |(at, bytes): &(Time, Vec<u64>)| Some((seconds(*at), *bytes.get(port)?));
    let points: Vec<(f64, u64)> = run.samples.iter().filter_map(so_far).collect();
    let steps = points.windows(2).filter_map(|pair| match pair {
        [(from, before), (to, after)] if to > from => {
            let share = after.saturating_sub(*before) as f64 / (rate * (to - from));
            Some((*from, *to, share.min(1.0)))
        }
        _ => None,
    });
    steps.collect()
}

/// A stranger's text as XML: no markup, no control characters.
fn escaped(text: &str) -> String {
    let mut out = String::with_capacity(text.len());
    for c in text.chars() {
        match c {
            '&' => out.push_str("&amp;"),
            '<' => out.push_str("&lt;"),
            '>' => out.push_str("&gt;"),
            '"' => out.push_str("&quot;"),
            c if c.is_control() || matches!(c, '\u{fffe}' | '\u{ffff}') => out.push(' '),
            c => out.push(c),
        }
    }
    out
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::report::sample;

    fn run(algorithm: &str, n: u32) -> Outcome {
        Outcome { algorithm: algorithm.into(), ..sample(n) }
    }

    /// Elements in the order they open; fails where they do not close in order.
    fn elements(xml: &str) -> Vec<&str> {
        let (mut open, mut all) = (Vec::new(), Vec::new());
        for part in xml.split('<').skip(1) {
            let (tag, text) = part.split_once('>').unwrap_or_else(|| panic!("open tag: {part}"));
            assert!(!text.contains('>'), "{part}");
            let name = tag.split([' ', '/']).find(|w| !w.is_empty()).unwrap_or_default();
            if tag.starts_with('/') {
                assert_eq!(open.pop(), Some(name), "{part}");
                continue;
            }
            assert!(tag.matches('"').count() % 2 == 0, "{tag}");
            all.push(tag);
            if !tag.ends_with('/') {
                open.push(name);
            }
        }
        assert!(open.is_empty(), "{open:?}");
        all
    }

    #[test]
    fn every_run_and_the_bound_are_drawn() {
        let runs: Vec<Outcome> = (0..9).map(|i| run(&format!("way{i}"), 10 + i)).collect();
        let drawn = svg("1 MB to 10 nodes", "single:11@1gbit", &runs, Some(Time(5_000_000_000)));
        let all = elements(&drawn);
        let holds = |what: &str| all.iter().filter(|tag| tag.contains(what)).count();
        for run in &runs {
            assert_eq!(holds(&format!("class=\"series\" data-algorithm=\"{}\"", run.algorithm)), 1);
            assert_eq!(holds(&format!("class=\"links\" data-algorithm=\"{}\"", run.algorithm)), 1);
        }
        assert_eq!((holds("class=\"bound\""), holds("class=\"curve\"")), (1, 9));
        assert_eq!(holds("data-link=\"s0-s1\""), 9, "the busiest link in each strip");
        assert!(drawn.contains("bound 5 s"), "{drawn}");
        assert!(!drawn.contains("NaN") && !drawn.contains("inf"), "{drawn}");
    }

    #[test]
    fn odd_runs_are_drawn_too() {
        let mut never = run("never", 4);
        never.finished = vec![None; 4];
        let mut half = run("half", 4);
        half.finished[3] = None;
        let mut empty = run("empty", 0);
        (empty.samples, empty.ports) = (vec![], vec![]);
        for runs in [&[never][..], &[half], &[empty], &[]] {
            let drawn = svg("", "", runs, None);
            elements(&drawn);
            assert!(!drawn.contains("NaN") && !drawn.contains("inf"), "{drawn}");
        }
    }

    #[test]
    fn names_cannot_break_out() {
        let drawn = svg("<script>alert(1)</script>", "a & b\u{1b}[2J", &[run("\"/><x>", 3)], None);
        assert!(!elements(&drawn).iter().any(|tag| tag.starts_with("script") || *tag == "x"));
        assert!(!drawn.chars().any(|c| c.is_control() && c != '\n'));
    }

    #[test]
    fn the_size_of_the_picture_does_not_grow_with_the_cluster() {
        let drawn = svg("", "", &[run("tidecast", 100_000)], None);
        assert!(drawn.len() < 60_000, "{}", drawn.len());
    }
}
