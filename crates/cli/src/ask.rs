//! Questions to the user.

use std::io::Write as _;

/// Asks a question on the terminal. Without an answer it is not agreed.
pub(crate) fn is_agreed(question: &str) -> bool {
    let _ = write!(std::io::stderr(), "{question} [y/N] ").and_then(|()| std::io::stderr().flush());
    let mut answer = String::new();
    std::io::stdin().read_line(&mut answer).is_ok() && matches!(answer.trim(), "y" | "Y" | "yes")
}
