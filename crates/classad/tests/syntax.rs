//! Both syntaxes, read and written.
#![allow(clippy::unwrap_used, missing_docs)]

use tidecast_classad::{Ad, Expr, MAX_NESTING, MAX_TEXT, Value};

#[test]
fn what_is_written_is_read_as_the_same() {
    for (text, written) in [
        ("1+2*3", "1 + 2 * 3"),
        ("(1+2)*3", "(1 + 2) * 3"),
        ("a =?= b", "a is b"),
        ("a=!=b", "a isnt b"),
        ("- 5", "- 5"),
        ("-5", "-5"),
        ("2 - -3", "2 - -3"),
        ("- -5", "--5"),
        ("- - 5", "- - 5"),
        ("- .5.y", "- 5.000000000000000E-01.y"),
        ("- 5[0]", "- 5[0]"),
        ("- 5 ?: x.y", "- 5 ?: x.y"),
        ("-5[0]", "-5[0]"),
        ("-x", "-x"),
        ("!x==6", "!x == 6"),
        ("x ? : 2", "x ?: 2"),
        ("a?:b?:c", "a ?: b ?: c"),
        ("x ? 1 : y ? 2 : 3", "x ? 1 : y ? 2 : 3"),
        ("{ }", "{  }"),
        ("[b=1;;A=2;]", "[ A = 2; b = 1 ]"),
        ("'x'", "x"),
        ("'no such'", "'no such'"),
        ("x.'true'.'y'", "x.'true'.y"),
        (".x.y[0]", ".x.y[0]"),
        ("1 // a comment", "1"),
        ("1 /* a\ncomment */ + 2", "1 + 2"),
        (r#""a" "b""#, r#""ab""#),
        ("\"\\x\\101\\n\\377\\38\"", "\"xA\\n\\377\\0038\""),
        ("\"é\"", "\"\\303\\251\""),
        ("1e3", "1.000000000000000E+03"),
        ("-.5e331", "-1E+999"),
        ("0.30000000000000004", "3.0000000000000004E-01"),
        ("TRUE && Undefined", "true && undefined"),
        ("f ( 1 , 2 )", "f(1,2)"),
        ("1 >>> 2 >> 3 << 4", "1 >>> 2 >> 3 << 4"),
    ] {
        let expr = Expr::parse(text).unwrap_or_else(|e| panic!("{text}: {e}"));
        assert_eq!(expr.to_string().replace("  ", " ").replace("{ }", "{  }"), written, "{text}");
        assert_eq!(Expr::parse(expr.to_string()).unwrap(), expr, "{text}");
    }
}

#[test]
fn what_is_no_expression_is_refused_where_it_is_wrong() {
    for (text, line, column) in [
        ("", 1, 1),
        ("1 +", 1, 4),
        ("1 2", 1, 3),
        ("018", 1, 1),
        ("0x10", 1, 1),
        ("10K", 1, 1),
        ("1.", 1, 1),
        ("1e+", 1, 1),
        ("5.x", 1, 1),
        ("{1,2,}", 1, 6),
        ("f(,)", 1, 3),
        ("a = b", 1, 3),
        ("1 =! 2", 1, 3),
        ("x.true", 1, 3),
        ("is", 1, 1),
        ("1\n+ @", 2, 3),
        ("\"abc", 1, 1),
        ("\"\\0\"", 1, 3),
        ("/* no end", 1, 1),
        ("[a = 1 b = 2]", 1, 8),
        ("[;]", 1, 2),
        ("[a = ]", 1, 6),
        ("x ?: - 3", 1, 6),
        ("'\\377'", 1, 1),
        ("a ? b", 1, 6),
        ("#", 1, 1),
    ] {
        let error = Expr::parse(text).unwrap_err();
        assert_eq!((error.line, error.column), (line, column), "{text}: {error}");
    }
}

#[test]
fn precedence() {
    for (text, same) in [
        ("1 + 2 ?: 3", "1 + (2 ?: 3)"),
        ("-u ?: 3", "-(u ?: 3)"),
        ("1 < 2 == true", "(1 < 2) == true"),
        ("1 | 2 ^ 3 & 4", "1 | (2 ^ (3 & 4))"),
        ("a || b && c", "a || (b && c)"),
        ("a && b | c", "a && (b | c)"),
        ("1 - 2 - 3", "(1 - 2) - 3"),
        ("1 << 2 + 3", "1 << (2 + 3)"),
        ("a == b < c", "a == (b < c)"),
        ("!a && b", "(!a) && b"),
        ("a ? b : c ? d : e", "a ? b : (c ? d : e)"),
        ("a || b ? c : d", "(a || b) ? c : d"),
    ] {
        let mut plain = same.replace(['(', ')'], "");
        plain.retain(|c| c != ' ');
        assert_eq!(plain, text.replace(' ', ""));
        let value = |text: &str| {
            let my = Ad::parse("[a = true; b = false; c = 6; d = 1; e = 3]").unwrap();
            tidecast_classad::Context::at(0).evaluate(&Expr::parse(text).unwrap(), &my, None).unwrap()
        };
        assert_eq!(value(text), value(same), "{text}");
    }
}

#[test]
fn old_ads() {
    let text = "# a job\n\nMyType = \"Job\"\r\n  Cmd = \"C:\\dir\\\"quoted\\\"\"\nEnds = \"in\\\"\nD = A is 1\nF={1,2}\n\
                G = [ a = 1; b = \"q\\n\" ]\nX.Y = f(1;2)\nJ = A ?: 3\nE3=1e20";
    let ad = Ad::parse(text).unwrap();
    assert_eq!(
        ad.get("cmd"),
        Some(&Expr::from(Value::from(r#"C:\dir\"quoted""#.replace("\\\"", "\"").as_str())))
    );
    assert_eq!(ad.get("ends"), Some(&Expr::from(Value::from("in\\"))));
    assert_eq!(ad.len(), 9);
    let old = ad.to_old().unwrap();
    assert!(
        old.contains("D = A =?= 1\n") && old.contains("E3 = 1E+20\n") && old.contains("b = \"q\\n\""),
        "{old}"
    );
    assert_eq!(Ad::parse_old(&old).unwrap(), ad);
    assert_eq!(Ad::parse(ad.to_string()).unwrap(), ad, "and in the new one");
}

#[test]
fn old_ads_are_refused_where_they_are_wrong() {
    for (text, line, column) in [
        ("A = 1\nB 2\n", 2, 1),
        ("A = 1; B = 2", 1, 6),
        ("A =\n", 1, 4),
        ("A B = 1", 1, 1),
        ("A = 1 # no", 1, 7),
    ] {
        let error = Ad::parse_old(text).unwrap_err();
        assert_eq!((error.line, error.column), (line, column), "{text}: {error}");
    }
}

#[test]
fn what_the_old_syntax_cannot_say_is_not_said_wrong() {
    for text in [r#"[a = "two\nlines"]"#, r#"[a = strcat("ends in \\", "x")]"#, r#"['a b' = 1]"#] {
        let ad = Ad::parse(text).unwrap();
        let error = ad.to_old().unwrap_err();
        assert!(error.to_string().contains("old"), "{error}");
        assert_eq!(Ad::parse(ad.to_string()).unwrap(), ad);
    }
}

#[test]
fn ads_can_be_changed() {
    let mut ad = Ad::parse("[b = 1; Requirements = b > TARGET.x]").unwrap();
    let before = ad.clone();
    assert_eq!(ad.insert("B", Value::from(2)), Some(Expr::from(Value::from(1))));
    assert_eq!(ad.insert("a", Expr::parse("b * 2").unwrap()), None);
    assert_eq!(ad.remove("REQUIREMENTS").map(|e| e.to_string()).as_deref(), Some("b > TARGET.x"));
    assert_eq!(ad.remove("nope"), None);
    assert_eq!(ad.to_string(), "[ a = b * 2; b = 2 ]");
    assert_eq!(before.len(), 2, "a copy does not change");
    let names: Vec<_> = ad.iter().map(|(name, _)| name.as_str()).collect();
    assert_eq!(names, ["a", "b"]);
    let made: Ad = [("x", Value::from("y\0z")), ("X", Value::from(1.5))].into_iter().collect();
    assert_eq!(made.to_string(), "[ x = 1.500000000000000E+00 ]");
    assert_eq!(Value::from("y\0z"), Value::from("y"), "no string has a NUL");
}

#[test]
fn nesting_is_bounded_and_chains_are_not() {
    let nested =
        |n: usize, open: &str, close: &str| Expr::parse(format!("{}1{}", open.repeat(n), close.repeat(n)));
    for (open, close) in
        [("(", ")"), ("{", "}"), ("[a=", "]"), ("f(", ")"), ("!", ""), ("1 ? 1 : ", ""), ("x[", "]")]
    {
        assert!(nested(MAX_NESTING / 2, open, close).is_ok(), "{open}");
        let error = nested(MAX_NESTING + 1, open, close).unwrap_err();
        assert!(error.reason.contains("deep"), "{open}: {error}");
        assert!(nested(100_000, open, close).is_err(), "{open}");
    }
    assert!(Expr::parse(format!("x{}", ".y".repeat(100_000))).is_err());
    assert!(Expr::parse(format!("x{}", "[0]".repeat(100_000))).is_err());
    let long = Expr::parse(format!("0{}", "+1".repeat(100_000))).unwrap();
    let value = tidecast_classad::Context::at(0).evaluate(&long, &Ad::new(), None);
    assert_eq!(value, Ok(Value::Int(100_000)));
    assert!(Expr::parse(vec![b' '; MAX_TEXT + 1]).is_err());
}

#[test]
fn several_ads_come_in_either_syntax_and_nothing_beside_them() {
    let names = |text: &str| -> Vec<usize> { Ad::parse_all(text).unwrap().iter().map(Ad::len).collect() };
    assert_eq!(names("[ a = \"]\" ] [] // [\n[ a = 1; b = [ c = 2 ] ]"), [1, 0, 2]);
    assert_eq!(names("a = 1\nb = 2\n\n \n# no ad\n\na = \"[\"\r\n\r\nc = 3"), [2, 1, 1]);
    assert_eq!(names(" \n"), []);
    for (bad, line) in
        [("[ a = 1 ]\n x", 2), ("[ a = 1 ] ]", 1), ("a = 1\n\nb = 2\nc", 4), ("a\n[ b = 1 ]", 1)]
    {
        assert_eq!(Ad::parse_all(bad).unwrap_err().line, line, "{bad}");
    }
}
