//! Results of expressions, line by line as HTCondor 25.14 evaluated them (the end-to-end tests ask HTCondor's own
//! library again, and many more), and intended differences of this crate.
#![allow(clippy::unwrap_used, missing_docs)]

use tidecast_classad::{Ad, Context, EvalError, Expr, Limits, Value};

const NOW: i64 = 1_700_000_000;

fn ad(text: &str) -> Ad {
    Ad::parse(text).unwrap()
}

fn value_in(expr: &str, my: &Ad) -> String {
    Context::at(NOW).evaluate(&Expr::parse(expr).unwrap(), my, None).unwrap().to_string()
}

fn value(expr: &str) -> String {
    value_in(expr, &Ad::new())
}

#[test]
fn expressions_evaluate_as_htcondor_has_it() {
    let (my, target) = (ad(include_str!("fixtures/my.ad")), ad(include_str!("fixtures/target.ad")));
    let context = Context::at(NOW);
    let mut lines = 0;
    for line in include_str!("fixtures/htcondor-25.14.tsv").lines() {
        let (expr, expected) = line.split_once('\t').unwrap();
        let parsed = Expr::parse(expr).unwrap_or_else(|e| panic!("{expr}: {e}"));
        let got = context.evaluate(&parsed, &my, Some(&target)).unwrap();
        assert_eq!(got.to_string(), expected, "{expr}");
        lines += 1;
    }
    assert!(lines > 700, "the list is complete");
}

/// Each with its reason in the README.
#[test]
fn what_is_not_as_htcondor_has_it() {
    for (expr, expected) in [
        (r#"relTime("5.5")"#, r#"relTime("05.5")"#),
        (r#"isRelTime(relTime("1+00:00:01"))"#, "true"),
        (r#"relTime(strcat("5")) + relTime(1)"#, r#"relTime("06")"#),
        (r#"absTime(strcat("2020-01-01"))"#, r#"absTime("2020-01-01T00:00:00-00:00")"#),
        (r#"relTime("x")"#, "error"),
        (r#"absTime("x")"#, "error"),
        ("random(0)", "error"),
        ("absTime(0, -1)", r#"absTime("1969-12-31T23:59:59-00:00")"#),
        (r#"replaceAll("x*", "abc", "-")"#, r#""-a-b-c-""#),
        (r#"listToArgs({""}, 1)"#, "error"),
        ("9223372036854775808", "9223372036854775807"),
        ("-99999999999999999999", "-9223372036854775808"),
        (r#"split("a").x"#, "{ error }"),
        (r#"userHome("root")"#, "undefined"),
    ] {
        assert_eq!(value(expr), expected, "{expr}");
    }
}

#[test]
fn a_leading_zero_makes_no_octal() {
    assert_eq!(value("010 + 007"), "17");
    assert_eq!(value("eval(relTime(-5))"), "-5", "it is written -05");
    assert_eq!(value("eval(\"08\")"), "error");
}

#[test]
fn the_context_is_all_that_an_evaluation_knows() {
    let context = Context { utc_offset: 3600, ..Context::at(NOW) };
    let my = Ad::new();
    let value = |expr: &str| context.evaluate(&Expr::parse(expr).unwrap(), &my, None).unwrap().to_string();
    assert_eq!(value("time()"), "1700000000");
    assert_eq!(value("CurrentTime"), "1700000000");
    assert_eq!(value("absTime()"), r#"absTime("2023-11-14T23:13:20+01:00")"#);
    assert_eq!(value("currentTime()"), value("absTime()"));
    assert_eq!(value("timezoneOffset()"), r#"relTime("01:00:00")"#);
    assert_eq!(value("dayTime()"), r#"relTime("23:13:20")"#);
    assert_eq!(value("getHours(absTime(0, 0))"), "1");
    assert_eq!(value(r#"formatTime(0, "%H:%M %z")"#), r#""01:00 +0100""#);
    assert_eq!(value(r#"absTime("2020-01-01T00:00:00")"#), r#"absTime("2020-01-01T00:00:00+01:00")"#);
    assert_eq!(value("time(1)"), "error");
    assert_eq!(value("random()"), value("random()"), "one seed, one number");
    assert_eq!(value("random() == random()"), "false", "but the next is another");
    let other = Context { seed: 1, ..context };
    assert_ne!(
        other.evaluate(&Expr::parse("random()").unwrap(), &my, None).unwrap().to_string(),
        value("random()")
    );
}

#[test]
fn random_numbers_are_below_what_is_asked() {
    let mut seen = [false; 5];
    for seed in 0..200 {
        let context = Context { seed, ..Context::at(NOW) };
        let value = |expr: &str| context.evaluate(&Expr::parse(expr).unwrap(), &Ad::new(), None).unwrap();
        seen[usize::try_from(value("random(5)").as_int().unwrap()).unwrap()] = true;
        let real = value("random(2.5)").as_real().unwrap();
        assert!((0.0..2.5).contains(&real));
    }
    assert_eq!(seen, [true; 5]);
}

#[test]
fn times_are_read_in_many_forms() {
    for (text, expected) in [
        ("2020-06-15T12:34:56Z", "2020-06-15T12:34:56-00:00"),
        ("2020-06-15T12:34:56+05:30", "2020-06-15T12:34:56+05:30"),
        ("2020-06-15T12:34:56-0530", "2020-06-15T12:34:56-05:30"),
        ("2020-06-15 12:34:56 z ", "2020-06-15T12:34:56-00:00"),
        ("20200615123456", "2020-06-15T12:34:56-00:00"),
        ("x2020y02z03", "2020-02-03T00:00:00-00:00"),
        ("2020", "2019-12-31T00:00:00-00:00"),
        ("2020-13-45T25:61:61", "2021-02-15T02:02:01-00:00"),
        ("1960-02-29", "1960-02-29T00:00:00-00:00"),
    ] {
        assert_eq!(value(&format!("absTime(\"{text}\")")), format!("absTime(\"{expected}\")"), "{text}");
    }
    for text in ["", "99", "1-1-1", "2020-1-1", "2020-06-15T12:34:56.789", "2020-06-15T12:34:56+01:3"] {
        assert_eq!(value(&format!("absTime(\"{text}\")")), "error", "{text}");
    }
    for (text, expected) in [
        ("", "00"),
        ("5", "05"),
        ("-5", "-05"),
        ("1:05", "01:05"),
        ("1:02:03", "01:02:03"),
        ("2+01:02:03.25", "2+01:02:03.25"),
        ("-2d 1h 2m 3s", "-2+01:02:03"),
        ("90061", "1+01:01:01"),
    ] {
        assert_eq!(value(&format!("relTime(\"{text}\")")), format!("relTime(\"{expected}\")"), "{text}");
    }
}

#[test]
fn regular_expressions_know_what_they_do_not_know() {
    for pattern in [
        "(?=a)",
        "(?<=a)b",
        "(a)\\\\1",
        "(?>a)",
        "(a)(?1)",
        "\\\\K",
        "\\\\h",
        "\\\\R",
        "\\\\N",
        "\\\\Z",
        "\\\\p{L}",
        "\\\\cA",
        "\\\\e",
        "\\\\07",
        "\\\\o{101}",
        "(?#a)a",
        "\\\\é",
        "[\\\\e]",
        "[\\\\07]",
    ] {
        assert_eq!(value(&format!("regexp(\"{pattern}\", \"aab\")")), "error", "{pattern}");
    }
    assert_eq!(value(r#"regexp("(?i)A.\\d", "xay5")"#), "true");
    assert_eq!(value(r#"regexp("[é]", "é")"#), "error", "a class is of bytes");
}

/// The results are those of HTCondor 25.14.1 (the Python module `classad2`).
#[test]
fn regular_expressions_are_those_of_pcre() {
    for (pattern, target, expected) in [
        (r"[a&&b]", r"&", "true"),
        (r"[a&&b]", r"a", "true"),
        (r"[a&&b]", r"c", "false"),
        (r"[a~~b]", r"~", "true"),
        (r"[0--9]", r"-", "error"),
        (r"[--/]", r".", "true"),
        (r"[!--]", r"*", "true"),
        (r"[a--]", r"-", "error"),
        (r"[a-z--/]", r".", "true"),
        (r"[a-c-e]", r"-", "true"),
        (r"[a-c-e]", r"d", "false"),
        (r"[a-]", r"-", "true"),
        (r"[\\w-]", r"-", "true"),
        (r"[a-\\d]", r"5", "error"),
        (r"[\\d-z]", r"y", "error"),
        (r"[[:digit:]-z]", r"5", "error"),
        (r"[]a]", r"]", "true"),
        (r"[^]a]", r"]", "false"),
        (r"[^&&]", r"&", "false"),
        (r"[[a]", r"[", "true"),
        (r"[[a]]", r"a]", "true"),
        (r"[[a]]", r"[", "false"),
        (r"[\\]&&b]", r"&", "true"),
        (r"[\\&&b]", r"&", "true"),
        (r"[[:alpha:]&&[:digit:]]", r"5", "true"),
        (r"[[:alpha:]&&[:digit:]]", r"&", "true"),
        (r"[[:^alpha:]]", r"5", "true"),
        (r"[[:foo:]]", r"f", "error"),
        (r"[:alpha:]", r"a", "error"),
        (r"[[.a.]]", r"a", "error"),
        (r"[a[:x]b]", r"[b]", "true"),
        (r"\\[a&&b", r"[a&&b", "true"),
        (r"[\\x41-\\x43]", r"B", "true"),
        (r"\\x9!", r"\t!", "true"),
        (r"[\\b]", r"\b", "true"),
        (r"\\<a", r"<a", "true"),
        (r"\\v", r"\n", "true"),
        (r"[\\v]", r"a", "false"),
        (r"\\u0041", r"A", "error"),
    ] {
        let expr = format!("regexp(\"{pattern}\", \"{target}\")");
        assert_eq!(value(&expr), expected, "{expr}");
    }
    // With the option x, blanks are ignored outside of classes only, and a bracket in a comment begins no class.
    for (pattern, target) in
        [("[a b]", " "), (r"a# [&&\nb", "ab"), ("[#]", "#"), (r"(?x)a# [&&\n(?-x: [#])", "a #")]
    {
        let expr = format!("regexp(\"{pattern}\", \"{target}\", \"x\")");
        assert_eq!(value(&expr), "true", "{expr}");
    }
}

#[test]
fn evaluations_end() {
    let limits = |f: fn(&mut Limits)| {
        let mut context = Context::at(NOW);
        f(&mut context.limits);
        context
    };
    let run = |context: &Context, my: &str, expr: &str| {
        context.evaluate(&Expr::parse(expr).unwrap(), &ad(my), None)
    };
    let usual = Context::at(NOW);
    // Doubling a string forty times, and evaluating two to the power of forty nodes.
    let double: String = (0..40).map(|i| format!("s{} = strcat(s{i}, s{i});", i + 1)).collect();
    assert_eq!(run(&usual, &format!("[s0 = \"0123456789\"; {double}]"), "s40"), Err(EvalError::TooLarge));
    let twice: String = (0..40).map(|i| format!("n{} = n{i} + n{i};", i + 1)).collect();
    assert_eq!(run(&usual, &format!("[n0 = 1; {twice}]"), "n40"), Err(EvalError::TooManySteps));
    let chain: String = (0..1000).map(|i| format!("c{i} = c{} + 1;", i + 1)).collect();
    assert_eq!(run(&usual, &format!("[{chain} c1000 = 0]"), "c0"), Err(EvalError::TooDeep));
    assert_eq!(run(&usual, &format!("[{chain} c1000 = 0]"), "c900"), Ok(Value::Int(100)));
    assert_eq!(run(&limits(|l| l.steps = 10), "[]", "1+1+1+1+1+1+1+1+1+1+1"), Err(EvalError::TooManySteps));
    assert_eq!(run(&limits(|l| l.depth = 3), "[]", "((((1))))"), Err(EvalError::TooDeep));
    assert_eq!(run(&limits(|l| l.size = 5), "[]", "strcat(\"abc\", \"def\")"), Err(EvalError::TooLarge));
    // eval() of an expression that evaluates it again.
    assert_eq!(run(&usual, "[a = eval(\"a\")]", "a"), Ok(Value::Undefined));
    assert_eq!(run(&usual, "[a = \"eval(a)\"]", "eval(a)"), Err(EvalError::TooDeep));
}

#[test]
fn values_are_what_they_say() {
    let my = ad(r#"[i = 1; r = 2.5; s = "x"; b = true; l = {1}; a = [x = 1]]"#);
    let attribute = |name| Context::at(0).attribute(name, &my, None).unwrap();
    assert_eq!(
        (attribute("I").as_int(), attribute("i").as_real(), attribute("i").as_bool()),
        (Some(1), Some(1.0), Some(true))
    );
    assert_eq!((attribute("r").as_real(), attribute("r").as_int()), (Some(2.5), None));
    assert_eq!((attribute("s").as_str(), attribute("s").as_bool()), (Some("x"), None));
    assert_eq!(attribute("b").as_bool(), Some(true));
    assert!(matches!(attribute("l"), Value::List(items) if items.len() == 1));
    assert!(matches!(attribute("a"), Value::Ad(ad) if ad.get("X").is_some()));
    assert_eq!(attribute("nope"), Value::Undefined);
}
