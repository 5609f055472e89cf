//! The grammar of faults: `FAULT:NODES[=VALUE][@TIME[+DURATION]]`. Invalid input ends in an error that shows
//! the correct form.

use std::str::FromStr;

use super::error::FaultError;
use super::spec::{Item, NodeFault, Selector, Spec, What};
use super::units;

/// A fault's word, an example, and its effect.
struct Form {
    word: &'static str,
    example: &'static str,
    meaning: &'static str,
    /// It may end.
    ends: bool,
}

const fn form(word: &'static str, example: &'static str, meaning: &'static str) -> Form {
    Form { word, example, meaning, ends: false }
}

const fn ending(word: &'static str, example: &'static str, meaning: &'static str) -> Form {
    Form { word, example, meaning, ends: true }
}

const FORMS: [Form; 20] = [
    form("crash", "crash:12@3s", "the program is killed; its connections are reset"),
    form("die", "die:5%@10s", "the machine loses power; its peers get no notice"),
    ending("freeze", "freeze:7@2s+5s", "the program is stopped (and resumes)"),
    ending("restart", "restart:7,nodisk@8s+2s", "the program ends and restarts, with its disk or without"),
    ending("slow", "slow:3=10mbit@1s", "the network card has another rate"),
    ending("link", "link:s0-s1=1gbit@0s", "a link between switches has another rate"),
    ending("cut", "cut:s0-s1@5s+10s", "a link drops everything without notice"),
    ending("partition", "partition:0-31|32-63@5s+10s", "the groups cannot reach each other"),
    form("corrupt", "corrupt:4", "sends corrupt blocks only"),
    form("lie", "lie:4", "claims pieces that it does not have"),
    form("withhold", "withhold:4", "accepts requests and sends nothing"),
    form("refuse", "refuse:4", "rejects every request"),
    form("closed", "closed:20%", "accepts no connections"),
    form("reset", "reset:9@1s", "its connections are reset"),
    form("clock", "clock:5+1h@3s", "its clock jumps: + forward, - back"),
    form("diskfull", "diskfull:6@2s", "its disk is full; the program ends"),
    form("join", "join:10%@5s", "joins at that time"),
    form("leave", "leave:30%@4s", "leaves with a goodbye"),
    form("lost", "lost:3=17@4s", "a piece disappears from its disk (=17: its number)"),
    form("reorder", "reorder=5ms", "messages of different connections overtake each other"),
];

/// The grammar, a line for each fault, for people.
#[must_use]
pub fn help() -> String {
    let line = |form: &Form| format!("{:<30}{}\n", form.example, form.meaning);
    let nodes = "Nodes: 3, 1,4,9, 0-31, s1 (all on that switch), 5% (of the receivers, drawn by the seed).\n";
    FORMS.iter().map(line).chain([nodes.to_owned()]).collect()
}

/// All first words.
pub(super) fn words() -> String {
    FORMS.map(|f| f.word).join(", ")
}

/// One text and the form that it should have.
#[derive(Clone, Copy)]
struct Reading<'a> {
    text: &'a str,
    form: &'static Form,
}

impl FromStr for Spec {
    type Err = FaultError;

    fn from_str(text: &str) -> Result<Self, FaultError> {
        let text = text.trim();
        let (left, when) = text.rsplit_once('@').map_or((text, None), |(left, when)| (left, Some(when)));
        let end = left.find([':', '=']).unwrap_or(left.len());
        let (word, rest) = left.split_at(end);
        let known = FORMS.iter().find(|f| f.word == word);
        let form = known.ok_or_else(|| FaultError::Unknown(shortened(text)))?;
        let reading = Reading { text, form };
        if word == "reorder" {
            let by = rest.strip_prefix('=').unwrap_or_default();
            let by = units::time(by).ok_or_else(|| reading.bad(by, "a time"))?;
            if let Some(when) = when {
                return Err(reading.bad(when, "expected here, because this fault holds for the whole run"));
            }
            return Ok(Spec { what: What::Reorder(by), at: 0, lasting: None });
        }
        let rest = rest.strip_prefix(':').unwrap_or_default();
        let what = reading.what(rest)?;
        let (at, lasting) = when.map_or(Ok((0, None)), |when| reading.when(when))?;
        Ok(Spec { what, at, lasting })
    }
}

/// As much of a text as an error repeats.
fn shortened(text: &str) -> String {
    text.chars().take(80).collect()
}

impl Reading<'_> {
    fn bad(&self, part: &str, wanted: &'static str) -> FaultError {
        let (text, part) = (shortened(self.text), shortened(part));
        FaultError::Part { text, part, wanted, example: self.form.example }
    }

    fn when(&self, when: &str) -> Result<(u64, Option<u64>), FaultError> {
        let time = |t: &str| units::time(t).ok_or_else(|| self.bad(t, "a time (500ms, 3s, 2m, 1h30m)"));
        let Some((at, lasting)) = when.split_once('+') else { return Ok((time(when)?, None)) };
        if !self.form.ends {
            return Err(FaultError::Endless { text: shortened(self.text), example: self.form.example });
        }
        Ok((time(at)?, Some(time(lasting)?)))
    }

    fn what(&self, rest: &str) -> Result<What, FaultError> {
        if let Some((_, verb)) = NodeFault::WORDS.iter().find(|(word, _)| *word == self.form.word) {
            return Ok(What::Do(*verb, self.who(rest)?));
        }
        match self.form.word {
            "restart" => {
                let kept = rest.strip_suffix(",nodisk");
                Ok(What::Restart { who: self.who(kept.unwrap_or(rest))?, disk: kept.is_none() })
            }
            "slow" => {
                let (who, rate) = self.rate(rest)?;
                Ok(What::Slow { who: self.who(who)?, rate })
            }
            "link" => {
                let (ends, rate) = self.rate(rest)?;
                let (a, b) = self.link(ends)?;
                Ok(What::Link { a, b, rate })
            }
            "cut" => {
                let (a, b) = self.link(rest)?;
                Ok(What::Link { a, b, rate: 0 })
            }
            "partition" => {
                rest.split('|').map(|g| self.who(g)).collect::<Result<_, _>>().map(What::Partition)
            }
            "clock" => self.clock(rest),
            _ => self.lost(rest),
        }
    }

    fn who(&self, text: &str) -> Result<Selector, FaultError> {
        if text.ends_with('%') {
            let share = units::share(text).map(Selector::Share);
            return share.ok_or_else(|| self.bad(text, "a share of the nodes (5%, at most 100%)"));
        }
        let item = |item| self.item(item);
        text.split(',').map(item).collect::<Result<_, _>>().map(Selector::Named)
    }

    fn item(&self, text: &str) -> Result<Item, FaultError> {
        let bad = || self.bad(text, "a node (3), a range of them (0-31) or a switch (s1)");
        if text.starts_with(|c: char| c.is_ascii_alphabetic()) {
            return self.switch(text).map(Item::Switch);
        }
        let number = |n: &str| n.bytes().all(|b| b.is_ascii_digit()).then(|| n.parse::<u32>().ok()).flatten();
        let (first, last) = text.split_once('-').unwrap_or((text, text));
        let (first, last) = number(first).zip(number(last)).ok_or_else(bad)?;
        if first > last {
            return Err(self.bad(text, "a range, because its first node comes after its last"));
        }
        Ok(Item::Nodes(first..=last))
    }

    fn switch(&self, name: &str) -> Result<String, FaultError> {
        let good = name.starts_with(|c: char| c.is_ascii_alphabetic())
            && name.len() <= 64
            && name.bytes().all(|b| b.is_ascii_alphanumeric());
        good.then(|| name.to_owned()).ok_or_else(|| self.bad(name, "the name of a switch (s1)"))
    }

    fn link(&self, ends: &str) -> Result<(String, String), FaultError> {
        let wanted = "a link, named by its switches (s0-s1; for nodes, partition:3 cuts them off)";
        let (a, b) = ends.split_once('-').ok_or_else(|| self.bad(ends, wanted))?;
        match (self.switch(a), self.switch(b)) {
            (Ok(a), Ok(b)) => Ok((a, b)),
            _ => Err(self.bad(ends, wanted)),
        }
    }

    /// `NODES=RATE`.
    fn rate<'t>(&self, rest: &'t str) -> Result<(&'t str, u64), FaultError> {
        let (who, rate) = rest.split_once('=').unwrap_or((rest, ""));
        let rate =
            units::rate(rate).ok_or_else(|| self.bad(rate, "a rate (10mbit, 1.5gbit, or 0bit: none)"))?;
        Ok((who, rate))
    }

    /// `NODES+TIME` or `NODES-TIME`; the unit distinguishes a jump back from a range.
    fn clock(&self, rest: &str) -> Result<What, FaultError> {
        let bad = || self.bad(rest, "nodes with a jump, + or - and a time with its unit (5+1h, 0-31-10s)");
        let sign = rest.rfind(['+', '-']).ok_or_else(bad)?;
        let (who, jump) = rest.split_at(sign);
        let by = jump.get(1..).filter(|t| t.ends_with(|c: char| c.is_ascii_alphabetic()));
        let by = by.and_then(units::time).ok_or_else(bad)?;
        Ok(What::Clock { who: self.who(who)?, by, back: jump.starts_with('-') })
    }

    /// `NODES` or `NODES=PIECE`.
    fn lost(&self, rest: &str) -> Result<What, FaultError> {
        let (who, piece) = rest.split_once('=').map_or((rest, None), |(who, piece)| (who, Some(piece)));
        let number = |p: &str| p.parse().map_err(|_| self.bad(p, "the number of a piece"));
        Ok(What::Lost { who: self.who(who)?, piece: piece.map(number).transpose()? })
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]

    use proptest::prelude::*;

    use super::*;

    fn read(text: &str) -> Spec {
        text.parse().unwrap()
    }

    #[test]
    fn every_example_of_the_help_is_read_and_given_back() {
        for form in &FORMS {
            let spec = read(form.example);
            assert_eq!(read(&spec.to_string()), spec, "{}", form.example);
            assert!(help().contains(form.example));
        }
        let words: Vec<_> = FORMS.iter().map(|f| f.word).collect();
        assert!(NodeFault::WORDS.iter().all(|(word, _)| words.contains(word)));
    }

    #[test]
    fn what_is_written_is_meant() {
        let one = |n| Selector::Named(vec![Item::Nodes(n..=n)]);
        let spec = read("freeze:7@2s+500ms");
        assert_eq!(spec.what, What::Do(NodeFault::Freeze, one(7)));
        assert_eq!((spec.at, spec.lasting), (2_000_000_000, Some(500_000_000)));
        let items = vec![Item::Nodes(1..=1), Item::Nodes(4..=9), Item::Switch("s1".into())];
        assert_eq!(read("crash:1,4-9,s1").what, What::Do(NodeFault::Crash, Selector::Named(items)));
        assert_eq!(read("restart:7,nodisk@8s").what, What::Restart { who: one(7), disk: false });
        assert_eq!(read("die:0.5%").what, What::Do(NodeFault::Die, Selector::Share(5_000)));
        let range = Selector::Named(vec![Item::Nodes(0..=31)]);
        let back = What::Clock { who: range, by: 10_000_000_000, back: true };
        assert_eq!(read("clock:0-31-10s@1s").what, back);
        assert_eq!(read("link:a-b=0bit"), read("cut:a-b"));
        assert_eq!(read("lost:3=17@4s").what, What::Lost { who: one(3), piece: Some(17) });
        assert_eq!(read("reorder=5ms").to_string(), "reorder=5ms");
    }

    #[test]
    fn errors_teach() {
        let says = |text: &str, word: &str| {
            let error = text.parse::<Spec>().unwrap_err().to_string();
            assert!(error.contains(word), "{text}: {error}");
        };
        says("explode:3", "crash, die, freeze");
        says("", "crash:3@2s");
        says("crash", "crash:12@3s");
        says("crash:3@soon", "500ms");
        says("crash:9-3", "comes after its last");
        says("crash:3@1s+2s", "has no end");
        says("die:200%", "at most 100%");
        says("slow:3@1s", "10mbit");
        says("cut:3", "partition:3");
        says("clock:5@1s", "5+1h");
        says("clock:5-10@1s", "with its unit");
        says("reorder=5ms@3s", "whole run");
        says("lost:3=x", "number of a piece");
        says("crash:-1", "range");
        says("partition:0-3|", "a node");
    }

    fn who() -> impl Strategy<Value = Selector> {
        let item = prop_oneof![
            (0..5000_u32, 0..100_u32).prop_map(|(a, n)| Item::Nodes(a..=a + n)),
            "[a-z][a-z0-9]{0,5}".prop_filter("reserved", |n| n != "nodisk").prop_map(Item::Switch),
        ];
        prop_oneof![
            prop::collection::vec(item, 1..4).prop_map(Selector::Named),
            (1..=1_000_000_u32).prop_map(Selector::Share)
        ]
    }

    fn what() -> impl Strategy<Value = What> {
        let time = 0..400_000_000_000_000_u64;
        let rate = 8_000..1_000_000_000_000_u64;
        let name = || "[a-z][a-z0-9]{0,5}";
        prop_oneof![
            (prop::sample::select(NodeFault::WORDS.to_vec()), who())
                .prop_map(|((_, verb), who)| What::Do(verb, who)),
            (who(), any::<bool>()).prop_map(|(who, disk)| What::Restart { who, disk }),
            (who(), rate.clone()).prop_map(|(who, rate)| What::Slow { who, rate }),
            (name(), name(), prop_oneof![Just(0), rate]).prop_map(|(a, b, rate)| What::Link { a, b, rate }),
            prop::collection::vec(who(), 1..4).prop_map(What::Partition),
            (who(), time.clone(), any::<bool>()).prop_map(|(who, by, back)| What::Clock { who, by, back }),
            (who(), any::<Option<u32>>()).prop_map(|(who, piece)| What::Lost { who, piece }),
            time.prop_map(What::Reorder),
        ]
    }

    proptest! {
        #[test]
        fn what_is_shown_is_read_back(
            what in what(), at in 0..400_000_000_000_000_u64, lasting in any::<Option<u32>>(),
        ) {
            let ends = matches!(what, What::Do(NodeFault::Freeze, _) | What::Restart { .. } | What::Slow { .. })
                || matches!(what, What::Link { .. } | What::Partition(_));
            let at = if matches!(what, What::Reorder(_)) { 0 } else { at };
            let lasting = lasting.filter(|_| ends).map(u64::from);
            let spec = Spec { what, at, lasting };
            prop_assert_eq!(spec.to_string().parse::<Spec>(), Ok(spec.clone()), "{}", spec);
        }

        #[test]
        fn no_text_makes_it_panic(
            noise in "\\PC{0,40}", word in prop::sample::select(FORMS.map(|f| f.word).to_vec()), rest in "[:=@+|,%0-9a-z.-]{0,30}",
        ) {
            for text in [noise, format!("{word}{rest}"), format!("{word}:{rest}")] {
                if let Err(error) = text.parse::<Spec>() {
                    prop_assert!(!error.to_string().is_empty());
                }
            }
        }
    }
}
