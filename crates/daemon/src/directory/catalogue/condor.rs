//! The collector of an HTCondor pool, used through HTCondor's own tools, with the rights and the settings of
//! this host.

use std::io::Write as _;
use std::process::{Command, Stdio};

use tidecast_classad::{Ad, Expr, Value};

use super::entry::{Catalogue, CatalogueError, Entry, LIFETIME, Visit, failed, peer};

/// A tool takes no longer, seconds: beyond that it is ended.
const TOOL: &str = "20";

/// The collector that this host is configured for.
pub(super) struct Condor;

impl Catalogue for Condor {
    fn visit<'a>(&'a self, entry: &'a Entry) -> Visit<'a, Vec<String>> {
        Box::pin(async {
            let mut ad = entry.ad.clone();
            ad.insert("ClassAdLifetime", Expr::from(Value::from(i64::from(LIFETIME))));
            let ad = ad.to_old().map_err(failed)?;
            tool(&["condor_advertise", "UPDATE_AD_GENERIC", "-"], ad).await?;
            let constraint = "CachedServer =?= true && TidecastAddresses isnt undefined";
            let ask =
                ["condor_status", "-any", "-constraint", constraint, "-af", "Name", "TidecastAddresses"];
            Ok(peers(&tool(&ask, String::new()).await?))
        })
    }

    fn leave<'a>(&'a self, name: &'a str) -> Visit<'a, ()> {
        Box::pin(async move {
            let mut ad = Ad::new();
            let mut set = |name: &str, value: Expr| drop(ad.insert(name, value));
            set("MyType", Expr::from(Value::from("Query")));
            set("TargetType", Expr::from(Value::from("Generic")));
            let ours = format!("Name == {} && CachedServer =?= true", Value::from(name));
            set("Requirements", Expr::parse(ours).map_err(failed)?);
            let ad = ad.to_old().map_err(failed)?;
            tool(&["condor_advertise", "INVALIDATE_ADS_GENERIC", "-"], ad).await.map(|_| ())
        })
    }
}

/// Runs one of HTCondor's tools; its output.
async fn tool(words: &[&str], input: String) -> Result<String, CatalogueError> {
    let words: Vec<String> = ["timeout", TOOL].iter().chain(words).map(|&word| word.to_owned()).collect();
    let run = move || -> Result<String, CatalogueError> {
        let name = words.get(2).cloned().unwrap_or_default();
        let because = |why: &dyn std::fmt::Display| failed(format!("{name}: {why}"));
        let mut child = Command::new("timeout")
            .args(&words[1..])
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .stderr(Stdio::piped())
            .spawn()
            .map_err(|e| because(&e))?;
        // It reads all of it before it prints anything.
        if let Some(mut stdin) = child.stdin.take() {
            // A tool that ends without reading reports its error below.
            let _ = stdin.write_all(input.as_bytes());
        }
        let done = child.wait_with_output().map_err(|e| because(&e))?;
        if done.status.success() {
            return Ok(String::from_utf8_lossy(&done.stdout).into_owned());
        }
        let said = String::from_utf8_lossy(&done.stderr);
        Err(because(&format!("{}: {}", done.status, said.lines().last().unwrap_or("no error message"))))
    };
    tokio::task::spawn_blocking(run).await.map_err(failed)?
}

/// A daemon a line: its name, and its addresses.
fn peers(text: &str) -> Vec<String> {
    let daemon = |line: &str| {
        let (name, addresses) = line.split_once(char::is_whitespace)?;
        peer(name, addresses.trim())
    };
    text.lines().filter_map(daemon).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_no_daemon_is_passed_over() {
        let text = "head 10.0.0.1:6980,[::1]:6980\nnode1 undefined\n\nbad=name 10.0.0.1:1\nnode2 10.0.0.2:70000\nlonely\n";
        assert_eq!(peers(text), ["head=10.0.0.1:6980,[::1]:6980"]);
    }
}
