//! A mount's status for people.

use serde_json::{Map, Value};
use tidecast_text::{Size, Span, count};

use crate::report::Reporter;

/// Files shown of those over which time was lost.
const SLOWEST: usize = 5;

pub(crate) fn show(status: &Map<String, Value>, reporter: &Reporter) {
    let text = |key: &str| status.get(key).and_then(Value::as_str).unwrap_or_default().to_owned();
    let number = |key: &str| status.get(key).and_then(Value::as_u64).unwrap_or_default();
    if status.contains_key("dead") {
        reporter.result(&format!(
            "{}: dead ({}); `tidecast umount` takes it away",
            text("path"),
            text("dead")
        ));
        return;
    }
    let here = number("pieces").saturating_sub(number("pieces_missing"));
    reporter.result(&format!(
        "{}: {}, {} in {}; {here} of {} pieces here",
        text("path"),
        text("name"),
        Size(number("bytes")),
        count(number("files"), "file"),
        number("pieces"),
    ));
    reporter.result(&format!(
        "  fetched {} from the origin, {} from peers; sent {}; {}",
        Size(number("from_origin")),
        Size(number("from_peers")),
        Size(number("sent")),
        count(number("connections"), "connection"),
    ));
    let requests = status.get("requests").and_then(Value::as_object).cloned().unwrap_or_default();
    let kinds = requests.iter().filter(|(_, n)| n.as_u64() > Some(0)).map(|(kind, n)| format!("{kind} {n}"));
    let kinds = kinds.collect::<Vec<_>>().join(", ");
    reporter.result(&format!(
        "  {} found its data here, {} waited, {} failed; requests: {kinds}",
        number("hits"),
        number("misses"),
        number("errors"),
    ));
    let list = |key: &str| status.get(key).and_then(Value::as_array).cloned().unwrap_or_default();
    let field = |of: &Value, key: &str| of.get(key).and_then(Value::as_str).unwrap_or_default().to_owned();
    let seconds = |of: &Value, key: &str| {
        let seconds = of.get(key).and_then(Value::as_f64).unwrap_or_default();
        Span(std::time::Duration::from_secs_f64(seconds.max(0.0)))
    };
    if status.get("trouble").is_some_and(Value::is_string) {
        reporter.result(&format!("  {}", text("trouble")));
    }
    for failed in list("failures").iter().take(SLOWEST) {
        let times = failed.get("times").and_then(Value::as_u64).unwrap_or_default();
        reporter.result(&format!(
            "  failed {}, last {} ago on {}: {}",
            count(times, "time"),
            seconds(failed, "seconds"),
            field(failed, "path"),
            field(failed, "why"),
        ));
    }
    for hold in list("waits").iter().take(SLOWEST) {
        let pid = hold.get("pid").and_then(Value::as_u64).unwrap_or_default();
        reporter.result(&format!(
            "  waits for {}: process {pid}, for {} so far",
            field(hold, "path"),
            seconds(hold, "seconds"),
        ));
    }
    for wait in list("slowest").iter().take(SLOWEST) {
        reporter.result(&format!("  {} lost over {}", seconds(wait, "seconds"), field(wait, "path")));
    }
}
