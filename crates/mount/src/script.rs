//! Which programs a script starts before its own first line runs.

/// As much of a file as the kernel looks at for its `#!` line, and a bit more for the second.
const HEAD: usize = 4096;

/// The programs that the head of a script starts, in order: the interpreter of its `#!` line; the program
/// that the line passes to `env`, by name; the program that the second line executes if the first line would
/// be too long (pip and conda write `'''exec' INTERPRETER "$0" "$@"` below `#!/bin/sh`). Empty: no script.
pub fn interpreters(bytes: &[u8]) -> Vec<Vec<u8>> {
    let head = &bytes[..bytes.len().min(HEAD)];
    let mut lines = head.split(|&b| b == b'\n');
    let Some(line) = lines.next().and_then(|line| line.strip_prefix(b"#!")) else { return Vec::new() };
    let mut words = words(line);
    let mut programs: Vec<Vec<u8>> = words.next().map(<[u8]>::to_vec).into_iter().collect();
    if programs.first().is_some_and(|program| program.split(|&b| b == b'/').next_back() == Some(b"env")) {
        // Its options and assignments come first.
        let program = words.find(|word| !word.starts_with(b"-") && !word.contains(&b'='));
        programs.extend(program.map(<[u8]>::to_vec));
    }
    if let Some(exec) = lines.next().and_then(|line| line.strip_prefix(b"'''exec' ")) {
        let program = match exec.strip_prefix(b"\"") {
            Some(quoted) => quoted.split(|&b| b == b'"').next(),
            None => self::words(exec).next(),
        };
        programs.extend(program.map(<[u8]>::to_vec));
    }
    programs
}

fn words(line: &[u8]) -> impl Iterator<Item = &[u8]> {
    line.split(|b| matches!(b, b' ' | b'\t' | b'\r' | 0)).filter(|word| !word.is_empty())
}

#[cfg(test)]
mod tests {
    use super::interpreters;

    #[test]
    fn a_script_starts_its_interpreter() {
        let cases: [(&[u8], &[&str]); 10] = [
            (b"#!/bin/sh\necho", &["/bin/sh"]),
            (b"#! /opt/env/bin/python3.11 -I\n", &["/opt/env/bin/python3.11"]),
            (b"#!/usr/bin/env python3\n", &["/usr/bin/env", "python3"]),
            (b"#!/usr/bin/env -S A=1 python3 -u\n", &["/usr/bin/env", "python3"]),
            (b"#!/usr/bin/env\n", &["/usr/bin/env"]),
            (b"#!/bin/sh\n'''exec' /long/bin/python \"$0\" \"$@\"\n", &["/bin/sh", "/long/bin/python"]),
            (b"#!/bin/sh\n'''exec' \"/a b/python\" \"$0\"\n", &["/bin/sh", "/a b/python"]),
            (b"#!\n", &[]),
            (b"#", &[]),
            (b"\x7fELF", &[]),
        ];
        for (script, programs) in cases {
            let got = interpreters(script);
            let got: Vec<_> = got.iter().map(|p| String::from_utf8_lossy(p)).collect();
            assert_eq!(got, programs, "{}", String::from_utf8_lossy(script));
        }
    }
}
