//! Lists of hosts of topologies: `login,rack[0-1]node[001-032,040]`.

use tidecast_text::hostlist::{self, ListError};

use super::super::epoch::MAX_MEMBERS;
use super::error::Wrong;

/// All names of a list, in order. Each word of it is there: an empty one is half of something.
pub(super) fn expand(list: &str) -> Result<Vec<String>, Wrong> {
    if list.is_empty() || list.starts_with(',') || list.ends_with(',') || list.contains(",,") {
        return Err(Wrong::List);
    }
    hostlist::names(list, MAX_MEMBERS).map_err(|why| match why {
        ListError::TooMany(_) => Wrong::Many,
        _ => Wrong::List,
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lists() {
        let names = |list| expand(list).map(|names| names.join(" "));
        assert_eq!(names("a,b[1-3,008]c"), Ok("a b1c b2c b3c b008c".into()));
        assert_eq!(names("r[0-1]n[09-10]"), Ok("r0n09 r0n10 r1n09 r1n10".into()));
        assert_eq!(names("n[098-101]"), Ok("n098 n099 n100 n101".into()));
        assert_eq!(names("n[0-8/4]!n4"), Ok("n0 n8".into()));
        for bad in ["", "a,", "a[", "a]", "a[]", "a[2-1]", "a[x]", "a[1-]", "a[[1]]", "a[1-2-3]", "!a"] {
            assert_eq!(names(bad), Err(Wrong::List), "{bad}");
        }
        for many in ["a[1-200001]", "a[0-999]b[0-999]", "a[0-9]b[0-9]c[0-9]d[0-9]e[0-9]f[0-9]"] {
            assert_eq!(names(many), Err(Wrong::Many), "{many}");
        }
    }
}
