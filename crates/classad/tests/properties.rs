//! Properties of every expression.
#![allow(clippy::unwrap_used, missing_docs)]

use proptest::collection::vec;
use proptest::prelude::*;
use tidecast_classad::{Ad, Binary, Call, Context, Expr, Name, Unary, Value};

fn name() -> impl Strategy<Value = Name> {
    prop_oneof![
        "[a-c]".prop_map(|s| Name::new(&s)),
        Just("MY").prop_map(Name::from),
        Just("TARGET").prop_map(Name::from),
        Just("parent").prop_map(Name::from),
        "(true|is|x y|é|\\PC{1,5})".prop_filter("no NUL", |s| !s.contains('\0')).prop_map(|s| Name::new(&s)),
    ]
}

fn literal() -> impl Strategy<Value = Value> {
    let bytes = vec(1u8..=255, 0..6).prop_map(|bytes| Value::Str(bytes.into()));
    prop_oneof![
        Just(Value::Undefined),
        Just(Value::Error),
        any::<bool>().prop_map(Value::Bool),
        any::<i64>().prop_map(Value::Int),
        (-3i64..70).prop_map(Value::Int),
        any::<f64>().prop_filter("a number", |r| !r.is_nan()).prop_map(Value::Real),
        bytes,
        "[a-c ,1]{0,6}".prop_map(|s| Value::from(s.as_str())),
    ]
}

const FUNCTIONS: [&str; 24] = [
    "strcat",
    "substr",
    "sum",
    "min",
    "member",
    "split",
    "join",
    "size",
    "ifThenElse",
    "eval",
    "regexp",
    "replaceAll",
    "regexps",
    "evalInEachContext",
    "countMatches",
    "unparse",
    "unresolved",
    "formatTime",
    "splitTime",
    "absTime",
    "relTime",
    "quantize",
    "mergeEnvironment",
    "nosuch",
];

const OPERATORS: [Binary; 21] = [
    Binary::Or,
    Binary::And,
    Binary::BitOr,
    Binary::BitXor,
    Binary::BitAnd,
    Binary::Equal,
    Binary::NotEqual,
    Binary::Is,
    Binary::Isnt,
    Binary::Less,
    Binary::LessOrEqual,
    Binary::Greater,
    Binary::GreaterOrEqual,
    Binary::ShiftLeft,
    Binary::ShiftRight,
    Binary::ShiftRightUnsigned,
    Binary::Add,
    Binary::Subtract,
    Binary::Multiply,
    Binary::Divide,
    Binary::Modulus,
];

fn paren(expr: Expr) -> Expr {
    match expr {
        Expr::Literal(_) | Expr::Paren(_) | Expr::List(_) | Expr::Ad(_) | Expr::Call(_) => expr,
        other => Expr::Paren(Box::new(other)),
    }
}

/// Trees as the parser makes them: parentheses wherever it needs them.
fn expr() -> impl Strategy<Value = Expr> {
    let attr = (name(), any::<bool>()).prop_map(|(name, absolute)| Expr::Attr { base: None, name, absolute });
    let leaf = prop_oneof![literal().prop_map(Expr::Literal), attr];
    leaf.prop_recursive(5, 40, 4, |inner| {
        let operand = inner.clone().prop_map(paren);
        let unary = proptest::sample::select(vec![Unary::Plus, Unary::Minus, Unary::Not, Unary::BitNot]);
        prop_oneof![
            (unary, operand.clone()).prop_map(|(o, e)| Expr::Unary(o, Box::new(e))),
            (operand.clone(), proptest::sample::select(OPERATORS.to_vec()), operand.clone())
                .prop_map(|(a, o, b)| Expr::Chain(Box::new(a), vec![(o, b)].into())),
            (operand.clone(), operand.clone(), operand.clone()).prop_map(|(a, b, c)| Expr::Chain(
                Box::new(a),
                vec![(Binary::Add, b), (Binary::Subtract, c)].into()
            )),
            (operand.clone(), inner.clone(), inner.clone())
                .prop_map(|(a, b, c)| Expr::Ternary(Box::new([a, b, c]))),
            vec(operand.clone(), 2..4).prop_map(|all| Expr::Elvis(all.into())),
            (operand.clone(), inner.clone()).prop_map(|(a, b)| Expr::Subscript(Box::new([a, b]))),
            (operand, name()).prop_map(|(a, name)| Expr::Attr {
                base: Some(Box::new(a)),
                name,
                absolute: false
            }),
            (proptest::sample::select(FUNCTIONS.to_vec()), vec(inner.clone(), 0..4))
                .prop_map(|(f, args)| Expr::Call(Call::new(f, args))),
            vec(inner.clone(), 0..4).prop_map(|items| Expr::List(items.into())),
            vec((name(), inner), 0..4).prop_map(|attrs| Expr::Ad(attrs.into_iter().collect())),
        ]
    })
}

fn ad() -> impl Strategy<Value = Ad> {
    vec((name(), expr()), 0..6).prop_map(|attrs| attrs.into_iter().collect())
}

/// The values of `&&` and `||`: false, undefined, error, true.
fn truth() -> impl Strategy<Value = Expr> {
    prop_oneof![Just(Value::Bool(false)), Just(Value::Undefined), Just(Value::Error), Just(Value::Bool(true))]
        .prop_map(Expr::Literal)
}

fn value(expr: &Expr) -> Value {
    Context::at(0).evaluate(expr, &Ad::new(), None).unwrap()
}

fn op(a: &Expr, operator: Binary, b: &Expr) -> Expr {
    Expr::Paren(Box::new(Expr::Chain(Box::new(a.clone()), vec![(operator, b.clone())].into())))
}

fn not(a: &Expr) -> Expr {
    Expr::Unary(Unary::Not, Box::new(a.clone()))
}

proptest! {
    #[test]
    fn expressions_are_read_as_they_were_written(expr in expr()) {
        let text = expr.to_string();
        prop_assert_eq!(Expr::parse(&text).map_err(|e| TestCaseError::fail(format!("{text}: {e}")))?, expr);
    }

    #[test]
    fn ads_are_read_as_they_were_written(ad in ad()) {
        prop_assert_eq!(&Ad::parse_new(ad.to_string()).unwrap(), &ad);
        if let Ok(old) = ad.to_old() {
            let back = Ad::parse_old(&old).unwrap();
            prop_assert_eq!(back.to_string(), ad.to_string());
        }
    }

    #[test]
    fn no_text_is_too_much(text in vec(any::<u8>(), 0..80)) {
        for parsed in [Expr::parse(&text), Expr::parse_old(&text)].into_iter().flatten() {
            let _ = Context::at(0).evaluate(&parsed, &Ad::new(), None);
        }
        let _ = Ad::parse(&text).map(|ad| (ad.to_string(), ad.to_old()));
    }

    #[test]
    fn nor_is_what_looks_like_an_expression(text in "[-+*/%<>=!&|^~?:;,.(){}\\[\\]\"'a-c01e \\\\]{0,40}") {
        if let Ok(expr) = Expr::parse(&text) {
            prop_assert_eq!(&Expr::parse(expr.to_string()).unwrap(), &expr);
            let _ = Context::at(0).evaluate(&expr, &Ad::new(), None);
        }
    }

    #[test]
    fn evaluating_ends_and_repeats(expr in expr(), my in ad(), target in ad()) {
        let context = Context::at(1_700_000_000);
        let first = context.evaluate(&expr, &my, Some(&target));
        let again = context.evaluate(&expr, &my, Some(&target));
        prop_assert_eq!(first.map(|v| v.to_string()), again.map(|v| v.to_string()));
        let _ = context.symmetric_match(&my, &target);
    }

    #[test]
    fn values_are_written_as_expressions_of_them(expr in expr()) {
        let Ok(v) = Context::at(0).evaluate(&expr, &Ad::new(), None) else { return Ok(()) };
        // Lists and ads may have names in them that mean something else elsewhere.
        if !matches!(v, Value::List(_) | Value::Ad(_)) {
            let back = value(&Expr::parse(v.to_string()).unwrap());
            prop_assert_eq!(back.to_string(), v.to_string());
        }
    }

    #[test]
    fn the_laws_of_the_logic(a in truth(), b in truth(), c in truth()) {
        use Binary::{And, Or};
        // De Morgan's.
        prop_assert_eq!(value(&not(&op(&a, And, &b))), value(&op(&not(&a), Or, &not(&b))));
        // Associative, and each decides by its own value alone.
        for operator in [And, Or] {
            prop_assert_eq!(value(&op(&op(&a, operator, &b), operator, &c)), value(&op(&a, operator, &op(&b, operator, &c))));
            let decides = Expr::Literal(Value::Bool(operator == Or));
            let neutral = Expr::Literal(Value::Bool(operator == And));
            prop_assert_eq!(value(&op(&decides, operator, &a)), value(&decides));
            prop_assert_eq!(value(&op(&neutral, operator, &a)), value(&a));
            prop_assert_eq!(value(&op(&a, operator, &neutral)), value(&a));
            prop_assert_eq!(value(&op(&a, operator, &a)), value(&a));
        }
        prop_assert_eq!(value(&not(&not(&a))), value(&a));
        // =?= always knows.
        prop_assert_eq!(value(&op(&a, Binary::Is, &b)), Value::Bool(value(&a) == value(&b)));
        prop_assert_eq!(value(&op(&a, Binary::Isnt, &b)), value(&not(&op(&a, Binary::Is, &b))));
    }

    #[test]
    fn comparing_strings_does_not_mind_their_case(a in "[a-cA-C]{0,3}", b in "[a-cA-C]{0,3}") {
        let of = |operator, a: &str, b: &str| value(&op(&Expr::from(Value::from(a)), operator, &Expr::from(Value::from(b))));
        prop_assert_eq!(of(Binary::Equal, &a, &b), Value::Bool(a.eq_ignore_ascii_case(&b)));
        prop_assert_eq!(of(Binary::Is, &a, &b), Value::Bool(a == b));
        prop_assert_eq!(of(Binary::Less, &a, &b), Value::Bool(a.to_lowercase() < b.to_lowercase()));
    }

    #[test]
    fn integers_wrap_around(a in any::<i64>(), b in any::<i64>()) {
        let of = |operator| value(&op(&Expr::from(Value::from(a)), operator, &Expr::from(Value::from(b))));
        prop_assert_eq!(of(Binary::Add), Value::Int(a.wrapping_add(b)));
        prop_assert_eq!(of(Binary::Multiply), Value::Int(a.wrapping_mul(b)));
        prop_assert_eq!(of(Binary::Modulus), if b == 0 { Value::Error } else { Value::Int(a.wrapping_rem(b)) });
    }
}
