//! `tidecast classad`: evaluates policies, to test one before a cache or a daemon gets it.

use std::io::BufRead;
use std::path::{Path, PathBuf};
use std::time::{SystemTime, UNIX_EPOCH};

use anyhow::{Context as _, anyhow};
use tidecast::event::classad::{Evaluated, Evaluation, Matched, Side};
use tidecast_classad::{Ad, Context, Expr, MAX_TEXT, Value};

use crate::failure::{Failure, Outcome};
use crate::report::{Reporter, fields_of};

/// Evaluate ClassAd expressions, or match two ads
#[derive(clap::Args, Debug)]
#[command(after_help = "\
Examples:
  tidecast classad eval '1 + 2' 'strcat(\"a\", 5)'
  tidecast classad eval --my '[TotalDisk = 100; Requirements = MY.TotalDisk > TARGET.DiskUsage]' \\
      --target cache.ad Requirements
  tidecast classad match cache.ad daemon.ad

An AD is a file, in the old or the new syntax, or the ad itself if it begins with [. Times are in UTC.")]
pub(crate) struct Args {
    #[command(subcommand)]
    action: Action,
}

#[derive(clap::Subcommand, Debug)]
enum Action {
    /// Print the value of each expression, one per line; a line that begins with ! is an error
    Eval(Eval),
    /// Test whether two ads match: exit code 0 if they do, 1 if not
    Match {
        /// First ad
        #[arg(value_name = "A")]
        left: String,
        /// Second ad
        #[arg(value_name = "B")]
        right: String,
    },
}

#[derive(clap::Args, Debug)]
struct Eval {
    /// Evaluate expressions in this ad: MY, and names without a scope
    #[arg(long, value_name = "AD")]
    my: Option<String>,
    /// Use this ad as the other side: TARGET
    #[arg(long, value_name = "AD")]
    target: Option<String>,
    /// Read expressions from standard input, one per line
    #[arg(long)]
    stdin: bool,
    /// Expressions; after -- they may begin with a minus
    #[arg(value_name = "EXPR", required_unless_present = "stdin", allow_negative_numbers = true)]
    exprs: Vec<String>,
}

pub(crate) fn run(args: &Args, reporter: &Reporter) -> Outcome {
    match &args.action {
        Action::Eval(args) => eval(args, reporter),
        Action::Match { left, right } => matches(left, right, reporter),
    }
}

/// The time of this host, and a seed of its own for `random()`.
fn context() -> Context {
    let now = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default().as_secs();
    Context { seed: rand::random(), ..Context::at(i64::try_from(now).unwrap_or(i64::MAX)) }
}

/// The ad that an argument is or names.
fn read_ad(arg: &str) -> Result<Ad, Failure> {
    if arg.trim_start().starts_with('[') {
        return Ad::parse(arg).map_err(|e| Failure::usage(anyhow!("invalid ad: {e}")));
    }
    let path = PathBuf::from(arg);
    let text = read_file(&path)?;
    Ok(Ad::parse(text).with_context(|| format!("{arg} is not a ClassAd"))?)
}

fn read_file(path: &Path) -> Result<Vec<u8>, Failure> {
    use std::io::Read;
    let file = std::fs::File::open(path).with_context(|| format!("cannot open {}", path.display()))?;
    let mut text = Vec::new();
    // One byte more than the parser accepts, so that it reports that the text is too long.
    file.take(MAX_TEXT as u64 + 1)
        .read_to_end(&mut text)
        .with_context(|| format!("cannot read {}", path.display()))?;
    Ok(text)
}

fn eval(args: &Eval, reporter: &Reporter) -> Outcome {
    let my = args.my.as_deref().map(read_ad).transpose()?.unwrap_or_default();
    let target = args.target.as_deref().map(read_ad).transpose()?;
    let context = context();
    let mut results = Vec::new();
    let mut failed = 0;
    let mut one = |text: &[u8]| {
        let value = Expr::parse(text)
            .map_err(|e| e.to_string())
            .and_then(|expr| context.evaluate(&expr, &my, target.as_ref()).map_err(|e| e.to_string()));
        failed += u64::from(value.is_err());
        reporter.result(&value.as_ref().map_or_else(|e| format!("!{e}"), ToString::to_string));
        if reporter.is_json() {
            results.push(evaluation(text, value));
        }
    };
    args.exprs.iter().for_each(|expr| one(expr.as_bytes()));
    if args.stdin {
        for line in std::io::stdin().lock().split(b'\n') {
            let line = line.context("cannot read standard input")?;
            one(line.strip_suffix(b"\r").unwrap_or(&line));
        }
    }
    let fields = fields_of(&Evaluated { results });
    if failed > 0 {
        return Err(Failure::from(anyhow!("cannot evaluate {failed} of the expressions")).with(fields));
    }
    Ok(fields)
}

fn evaluation(text: &[u8], value: Result<Value, String>) -> Evaluation {
    let expr = String::from_utf8_lossy(text).into_owned();
    match value {
        Ok(value) => {
            let kind = Some(value.type_name());
            Evaluation { expr, value: Some(value.to_string()), kind, error: None }
        }
        Err(error) => Evaluation { expr, value: None, kind: None, error: Some(error) },
    }
}

fn matches(left: &str, right: &str, reporter: &Reporter) -> Outcome {
    let (a, b) = (read_ad(left)?, read_ad(right)?);
    let context = context();
    let side = |name: &str, my: &Ad, target: &Ad| -> Result<Side, Failure> {
        let requirements = context.attribute("Requirements", my, Some(target))?.to_string();
        let rank = context.rank(my, target)?;
        reporter.result(&format!("{name}: Requirements is {requirements}, Rank is {rank}"));
        Ok(Side { requirements, rank })
    };
    let (of_a, of_b) = (side("A", &a, &b)?, side("B", &b, &a)?);
    let matched = context.symmetric_match(&a, &b)?;
    let fields = fields_of(&Matched { a: of_a, b: of_b, matched });
    if !matched {
        return Err(Failure::from(anyhow!("the two ads do not match")).with(fields));
    }
    reporter.result("the two ads match");
    Ok(fields)
}
