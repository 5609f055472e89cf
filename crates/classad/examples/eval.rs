//! Evaluates expressions, a line each, and prints their values: `eval [MY [TARGET]] < expressions`.

use std::io::{BufRead, Write};

use tidecast_classad::{Ad, Context, Expr};

fn main() -> Result<(), Box<dyn std::error::Error>> {
    let mut ads = std::env::args().skip(1).map(Ad::parse);
    let my = ads.next().transpose()?.unwrap_or_default();
    let target = ads.next().transpose()?;
    let context = Context::at(1_700_000_000);
    let mut out = std::io::BufWriter::new(std::io::stdout().lock());
    for line in std::io::stdin().lock().lines() {
        match Expr::parse(line?) {
            Ok(expr) => match context.evaluate(&expr, &my, target.as_ref()) {
                Ok(value) => writeln!(out, "{value}")?,
                Err(error) => writeln!(out, "!{error}")?,
            },
            Err(error) => writeln!(out, "?{error}")?,
        }
    }
    Ok(())
}
