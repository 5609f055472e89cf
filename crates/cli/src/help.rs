//! `-h` and `-V` among other short flags. clap answers them wherever they are and ends with exit code 0, so `-avh`, as
//! rsync users write it, would print the help and report success without copying anything.

use std::ffi::OsString;
use std::os::unix::ffi::OsStrExt;

use clap::error::ErrorKind;
use clap::{CommandFactory, Error};

use crate::cli::Cli;

/// The error to show instead of `error`, which clap returned for these words.
pub(crate) fn instead(error: Error, words: impl Iterator<Item = OsString>) -> Error {
    let words: Vec<OsString> = words.skip(1).take_while(|word| word != "--").collect();
    let command = || Cli::command();
    match error.kind() {
        ErrorKind::DisplayHelp => bundled(&words, b'h').map_or(error, |word| {
            let why = format!("{word}: -h prints the help and ends the command; give it alone");
            command().error(ErrorKind::ArgumentConflict, why)
        }),
        ErrorKind::DisplayVersion => bundled(&words, b'V').map_or(error, |word| {
            let why = format!("{word}: -V prints the version and ends the command; give it alone");
            command().error(ErrorKind::ArgumentConflict, why)
        }),
        // For `copy`, -h is a flag without effect, as with rsync, unless it is the only argument.
        ErrorKind::MissingRequiredArgument if words.ends_with(&["copy".into(), "-h".into()]) => {
            Cli::command().try_get_matches_from(["tidecast", "help", "copy"]).err().unwrap_or(error)
        }
        _ => error,
    }
}

/// The first word that bundles this flag with others; none if some word is the flag alone.
fn bundled(words: &[OsString], flag: u8) -> Option<String> {
    let short = |word: &&OsString| {
        let bytes = word.as_bytes();
        bytes.len() > 1 && bytes[0] == b'-' && bytes[1] != b'-' && bytes.contains(&flag)
    };
    let long: &[&str] = if flag == b'h' { &["--help", "help"] } else { &["--version"] };
    let asked = |word: &OsString| word.as_bytes() == [b'-', flag] || long.iter().any(|long| word == long);
    if words.iter().any(asked) {
        return None;
    }
    words.iter().find(short).map(|word| tidecast_text::escaped(word).to_string())
}

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests {
    use clap::Parser;

    use super::*;

    fn said(line: &str) -> Error {
        let words = || line.split_whitespace().map(OsString::from);
        instead(Cli::try_parse_from(words()).unwrap_err(), words())
    }

    #[test]
    fn help_among_other_flags_is_refused_and_alone_is_given() {
        for line in
            ["tidecast publish -vh x", "tidecast get -qh @t", "tidecast -vV", "tidecast copy -avV s d"]
        {
            assert_eq!(said(line).exit_code(), 2, "{line}");
        }
        for line in
            ["tidecast publish -h", "tidecast -h", "tidecast help copy", "tidecast copy -h", "tidecast -V"]
        {
            assert_eq!((said(line).exit_code(), said(line).use_stderr()), (0, false), "{line}");
        }
        assert!(said("tidecast copy -h").render().to_string().contains("SRC... DEST"));
        assert_eq!(said("tidecast copy -avh").exit_code(), 2, "there is nothing to copy");
        for line in
            ["tidecast copy -avh s d", "tidecast copy -h s d", "tidecast copy -aHAXSzPhEWsy --exclude -h s d"]
        {
            assert!(Cli::try_parse_from(line.split_whitespace()).is_ok(), "{line}");
        }
    }
}
