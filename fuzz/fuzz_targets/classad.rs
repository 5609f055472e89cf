//! Any bytes as an expression and as an ad in both syntaxes. What must hold: no panic; what was read is written and
//! read back as the same; evaluations end, and a match is symmetric.
#![no_main]

use libfuzzer_sys::fuzz_target;
use tidecast_classad::{Ad, Context, Expr};

fuzz_target!(|text: &[u8]| {
    let mut context = Context::at(1_700_000_000);
    context.limits.steps = 20_000;
    let ad = Ad::parse(text);
    if let Ok(ad) = &ad {
        assert_eq!(Ad::parse_new(ad.to_string()).as_ref(), Ok(ad));
        if let Ok(old) = ad.to_old() {
            assert_eq!(Ad::parse_old(&old).map(|back| back.to_string()), Ok(ad.to_string()));
        }
        for (name, _) in ad.iter() {
            let _ = context.attribute(name.as_str(), ad, Some(ad)).map(|value| value.to_string());
        }
        assert_eq!(context.symmetric_match(ad, ad), context.consents(ad, ad));
    }
    if let Ok(expr) = Expr::parse(text) {
        assert_eq!(Expr::parse(expr.to_string()).as_ref(), Ok(&expr));
        let my = ad.unwrap_or_default();
        let _ = context.evaluate(&expr, &my, Some(&my)).map(|value| value.to_string());
    }
    let _ = Expr::parse_old(text);
});
