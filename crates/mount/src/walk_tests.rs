//! Paths lead where the kernel would have led them.
#![allow(clippy::unwrap_used)]

use super::*;

struct Small;

impl Tree for Small {
    fn child(&self, dir: u64, name: &[u8]) -> Option<Node<'_>> {
        let link = |to: &'static str| Some(Node::Symlink(Cow::Borrowed(to.as_bytes())));
        match (dir, name) {
            (ROOT, b"bin") => Some(Node::Dir(2)),
            (ROOT, b"lib") => Some(Node::Dir(3)),
            (ROOT, b"lib64") => link("lib"),
            (ROOT, b"top") => link("/"),
            (2, b"tool") => Some(Node::File(7)),
            (2, b"t") => link("tool"),
            (2, b"far") => link("/opt/env/lib64/deep/../libx.so.1"),
            (2, b"away") => link("../../../etc/passwd"),
            (2, b"round") => link("../../env/bin/t"),
            (2, b"loop") => link("loop"),
            (2, b"grow") => link("./grow/grow/grow"),
            (3, b"libx.so.1") => Some(Node::File(8)),
            (3, b"deep") => Some(Node::Dir(4)),
            (4, b"libx.so") => link("../libx.so.1"),
            _ => None,
        }
    }
}

#[test]
fn paths_lead_where_the_kernel_would_have_led_them() {
    let cases = [
        ("/opt/env", "/opt/env/bin/tool", Some((7, "/opt/env/bin/tool"))),
        ("/opt//./env/", "//opt/env//bin/./t", Some((7, "/opt/env/bin/tool"))),
        ("/opt/env", "/opt/env/bin/far", Some((8, "/opt/env/lib/libx.so.1"))),
        ("/opt/env", "/opt/env/lib64/deep/libx.so", Some((8, "/opt/env/lib/libx.so.1"))),
        // The parent of a symlinked directory is that of its target.
        ("/opt/env", "/opt/env/lib64/../bin/t", Some((7, "/opt/env/bin/tool"))),
        ("/opt/env", "/opt/env/../env/bin/tool", Some((7, "/opt/env/bin/tool"))),
        ("/opt/env", "/usr/../opt/env/bin/round", Some((7, "/opt/env/bin/tool"))),
        ("/", "/../bin/tool", Some((7, "/bin/tool"))),
        ("/", "/top/top/bin/t", Some((7, "/bin/tool"))),
        ("/opt/env", "/opt/env/top/bin/t", None),
        ("/opt/env", "/opt/env/bin/away", None),
        ("/opt/env", "/opt/env/bin/loop", None),
        ("/opt/env", "/opt/env/bin/grow", None),
        ("/opt/env", "/opt/env/bin", None),
        ("/opt/env", "/opt/env/bin/tool/", None),
        ("/opt/env", "/opt/env/bin/tool/..", None),
        ("/opt/env", "/opt/env/bin/none", None),
        ("/opt/env", "/opt/envy/bin/tool", None),
        ("/opt/env", "/bin/tool", None),
        ("/opt/env", "bin/tool", None),
        ("/opt/env", "", None),
    ];
    for (prefix, path, want) in cases {
        let got = find(&Small, prefix.as_bytes(), path.as_bytes());
        let got = got.map(|found| (found.file, String::from_utf8(found.path).unwrap()));
        assert_eq!(got.as_ref().map(|(file, path)| (*file, path.as_str())), want, "{path} below {prefix}");
    }
}
