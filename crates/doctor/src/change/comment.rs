//! Texts in comments of a script.

/// `text` on one line, for a comment: a control character could end the comment and begin a command.
pub(super) fn comment(text: &str) -> String {
    text.chars().flat_map(|c| if c.is_control() { c.escape_default().collect() } else { vec![c] }).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_shell_reads_back_each_word() {
        for word in
            ["eth0", "", "a b", "a'b", "$(reboot)", "`x`", "\"", "\\", "-rf", "*", "x;y", "é", "#", "~"]
        {
            let command = format!("printf %s {}", tidecast_text::quote(word));
            let out = std::process::Command::new("sh").args(["-c", &command]).output().unwrap();
            assert_eq!(String::from_utf8(out.stdout).unwrap(), word);
        }
    }

    #[test]
    fn a_comment_stays_on_its_line() {
        assert_eq!(comment("a\nreboot\t\u{7f}é"), "a\\nreboot\\t\\u{7f}é");
    }
}
