//! A command line with placeholders: `ip netns exec {host} {command}`.
//!
//! Pure; no shell reads it. Words are split at white space outside of quotes and backslashes, as in a shell.

use tidecast_text::{UnclosedQuote, quote, quote_program, split};

use crate::hosts::Host;

/// Maximum number of words, and maximum length in bytes.
const MAX_WORDS: usize = 256;
const MAX_TEXT: usize = 16_384;

/// A command line in which `{host}`, `{address}`, `{port}` (of ssh) and `{command}` are filled in.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Template {
    words: Vec<String>,
    /// The command is in quotes: one word, which a shell will read.
    for_shell: bool,
}

/// Why a template cannot be used.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum TemplateError {
    /// No words, or too many.
    #[error("a launch command must have 1 to {MAX_WORDS} words")]
    Words,
    /// A quote that is not closed, or a backslash at the end.
    #[error(transparent)]
    Quote(#[from] UnclosedQuote),
    /// Without `{command}` the worker would not be started.
    #[error("{{command}} is missing: it becomes the worker's command, as in 'ssh {{host}} \"{{command}}\"'")]
    NoCommand,
    /// A shell takes the program for the whole command.
    #[error("the shell after -c reads one word: quote the command, as in \"sh -c '{{command}}'\"")]
    NotOneWord,
}

impl std::str::FromStr for Template {
    type Err = TemplateError;

    fn from_str(text: &str) -> Result<Self, TemplateError> {
        let words = split(text)?;
        if words.is_empty() || words.len() > MAX_WORDS || text.len() > MAX_TEXT {
            return Err(TemplateError::Words);
        }
        if !words.iter().any(|word| word.contains("{command}")) {
            return Err(TemplateError::NoCommand);
        }
        let for_shell = text.contains("\"{command}\"") || text.contains("'{command}'");
        if !for_shell && words.windows(2).any(|pair| pair == ["-c", "{command}"]) {
            return Err(TemplateError::NotOneWord);
        }
        Ok(Self { words, for_shell })
    }
}

impl Template {
    /// The words for one host. A word `{command}` becomes the words of the command; in quotes, or inside a longer word, the
    /// command is quoted for a shell, which will read it.
    #[must_use]
    pub fn fill(&self, host: &Host, command: &[String]) -> Vec<String> {
        let mut words = Vec::new();
        for word in &self.words {
            if word == "{command}" && !self.for_shell {
                words.extend_from_slice(command);
            } else {
                let arguments = command.iter().skip(1).map(|w| quote(w));
                let program = command.iter().take(1).map(|program| quote_program(program));
                let quoted = program.chain(arguments).collect::<Vec<_>>().join(" ");
                let port = host.port.unwrap_or(22).to_string();
                words.push(blanks(
                    word,
                    &[
                        ("{host}", &host.name),
                        ("{address}", host.reach()),
                        ("{port}", &port),
                        ("{command}", &quoted),
                    ],
                ));
            }
        }
        words
    }
}

/// Fills all placeholders in one pass, so that inserted values are not expanded again.
fn blanks(word: &str, values: &[(&str, &str)]) -> String {
    let mut out = String::new();
    let mut rest = word;
    while let Some(at) = rest.find('{') {
        let (before, tail) = rest.split_at(at);
        out.push_str(before);
        match values.iter().find(|(name, _)| tail.starts_with(name)) {
            Some((name, value)) => {
                out.push_str(value);
                rest = &tail[name.len()..];
            }
            None => {
                out.push('{');
                rest = &tail[1..];
            }
        }
    }
    out + rest
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;
    use proptest::prelude::*;

    fn fill(template: &str) -> Vec<String> {
        let host = Host { address: Some("10.0.0.1".into()), ..Host::named("n1") };
        let command = ["/opt/my tools/tidecast", "worker", "it's {host}"].map(str::to_owned);
        template.parse::<Template>().unwrap().fill(&host, &command)
    }

    #[test]
    fn words_of_the_command_stay_words() {
        let words = fill("ip netns exec lab.{host} {command}");
        assert_eq!(
            words,
            ["ip", "netns", "exec", "lab.n1", "/opt/my tools/tidecast", "worker", "it's {host}"]
        );
    }

    #[test]
    fn for_a_shell_the_command_is_quoted() {
        let words = fill("ssh -o 'A B' {address} \"exec {command}\" {x}");
        let command = "exec '/opt/my tools/tidecast' worker 'it'\\''s {host}'";
        assert_eq!(words, ["ssh", "-o", "A B", "10.0.0.1", command, "{x}"]);
        for template in ["rsh {address} \"{command}\"", "rsh {address} '{command}'"] {
            assert_eq!(fill(template), ["rsh", "10.0.0.1", command.strip_prefix("exec ").unwrap()]);
        }
    }

    #[test]
    fn mistakes() {
        let bad = |text: &str| text.parse::<Template>().unwrap_err();
        assert_eq!(bad(""), TemplateError::Words);
        assert_eq!(bad("ssh {host}"), TemplateError::NoCommand);
        assert_eq!(bad("ssh 'x {command}"), TemplateError::Quote(UnclosedQuote));
        assert_eq!(bad("ssh {command} \\"), TemplateError::Quote(UnclosedQuote));
        assert_eq!(bad("sh -c {command}"), TemplateError::NotOneWord);
        assert!(
            "sh -c '{command}'".parse::<Template>().is_ok()
                && "sh -c 'exec {command}'".parse::<Template>().is_ok()
        );
    }

    proptest! {
        #[test]
        fn no_text_makes_it_panic(text in "\\PC{0,40}") {
            if let Ok(template) = text.parse::<Template>() {
                let _ = template.fill(&Host::named("n"), &["x".into()]);
            }
        }
    }
}
