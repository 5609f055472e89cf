//! Errors with their causes, on one line.

use std::error::Error;
use std::io;

/// An error and its causes: `cannot read the key k: permission denied`. A cause that the text already contains is left out.
#[must_use]
pub fn with_causes(error: &dyn Error) -> String {
    let (mut text, mut next) = (error.to_string(), error.source());
    while let Some(cause) = next {
        let said = cause.to_string();
        if !text.contains(&said) {
            text = format!("{text}: {said}");
        }
        next = cause.source();
    }
    text
}

/// The reason why a program did not start: `cannot start srun: not in PATH`. For ssh it names the package to install.
#[must_use]
pub fn start_error(program: &str, error: &io::Error) -> String {
    match (error.kind(), program) {
        (io::ErrorKind::NotFound, "ssh") => {
            "cannot start ssh: not in PATH; install it (Debian: openssh-client, RHEL: openssh-clients)".into()
        }
        (io::ErrorKind::NotFound, _) if !program.contains('/') => {
            format!("cannot start {program}: not in PATH")
        }
        _ => format!("cannot start {program}: {error}"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_missing_program_is_named() {
        let missing = io::Error::from(io::ErrorKind::NotFound);
        assert!(start_error("ssh", &missing).contains("openssh-client"));
        assert_eq!(start_error("srun", &missing), "cannot start srun: not in PATH");
        assert_eq!(start_error("/x/ssh", &missing), format!("cannot start /x/ssh: {missing}"));
    }
}
