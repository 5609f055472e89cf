//! Checks that `docs/events.md` matches the types. `TIDECAST_BLESS=1` writes the file.
#![allow(clippy::unwrap_used)]

use std::fmt::Write as _;
use std::path::Path;

use schemars::JsonSchema;
use schemars::generate::SchemaSettings;
use serde_json::{Map, Value};
use tidecast_event::{
    Failed, Progress, Resumed, Warning, bcast, ca, cache, classad, copy, daemon, doctor, field, get, mount,
    peers, publish, revoke, seed, show, sim, status, tracker, verify,
};

const HEAD: &str = "\
# Events

The events of Tidecast's operations while they run and when they end. With `--json` the program prints each as one JSON object
on a line of standard output; field `event` has its name. The Rust API (crate `tidecast`) has the same as types.

This file is generated from the types (`crates/event`): `TIDECAST_BLESS=1 cargo test -p tidecast-event`.

The first event is `started`; only warnings about peers that do not answer come before it. The last is `done` or `error`.
Between them come `progress` (`check` while existing data is hashed), `warning` and `resumed`.

A path is a string. Bytes that are not UTF-8 are replaced by U+FFFD, and a field `..._base64` next to it has the bytes.
Sizes are bytes, rates bytes per second, times seconds. A field that is *optional* is left out where it has no meaning.
Each `done` has `seconds`. The results of `show`, `status` and other commands that only answer have it in these lines alone,
not in Rust and Python.

";

/// The program writes this field into each `done`, also of results that lack it.
const SECONDS: &str = "| `seconds` | number | Seconds since the start. |";

/// The schema of what is written, with nothing left to look up.
fn schema<T: JsonSchema>() -> Value {
    let settings = SchemaSettings::default().with(|settings| settings.inline_subschemas = true);
    settings.for_serialize().into_generator().into_root_schema_for::<T>().to_value()
}

/// Without the alternative null.
fn some(schema: &Value) -> &Value {
    let several = schema.get("anyOf").and_then(Value::as_array);
    several.and_then(|all| all.iter().find(|one| one["type"] != "null")).unwrap_or(schema)
}

fn constants(schema: &Value) -> Vec<String> {
    let one = |value: &Value| value["const"].as_str().map(|name| format!("`{name}`"));
    schema["oneOf"].as_array().into_iter().flatten().filter_map(one).collect()
}

fn type_of(schema: &Value) -> String {
    let names: Vec<&str> = match &some(schema)["type"] {
        Value::String(name) => vec![name],
        Value::Array(names) => names.iter().filter_map(Value::as_str).collect(),
        _ => Vec::new(),
    };
    let mut text = match (&some(schema)["items"], constants(some(schema))) {
        (items @ Value::Object(_), _) => format!("array of {}", type_of(items)),
        (_, constants) if !constants.is_empty() => constants.join(", "),
        _ => names.join(" or "),
    };
    if some(schema) != schema {
        text.push_str(" or null");
    }
    text
}

fn rows(schema: &Value, before: &str, out: &mut String) {
    let required = schema["required"].as_array().cloned().unwrap_or_default();
    let empty = Map::new();
    for (name, field) in schema["properties"].as_object().unwrap_or(&empty) {
        let meaning = field["description"].as_str().or(some(field)["description"].as_str());
        let meaning = meaning.unwrap_or_else(|| panic!("{before}{name} says nothing")).replace('\n', " ");
        let kind = match (required.contains(&Value::from(name.as_str())), type_of(field)) {
            (true, kind) => kind,
            // Its items may be null.
            (false, kind) if some(field)["items"].is_object() => format!("{kind}, optional"),
            // It is left out then.
            (false, kind) => format!("{}, optional", kind.trim_end_matches(" or null")),
        };
        writeln!(out, "| `{before}{name}` | {kind} | {meaning} |").unwrap();
        rows(some(field), &format!("{before}{name}."), out);
        rows(&some(field)["items"], &format!("{before}{name}[]."), out);
    }
}

fn event<T: JsonSchema>(level: &str, name: &str, out: &mut String) {
    let schema = schema::<T>();
    let what = schema["description"].as_str().unwrap().replace('\n', " ");
    writeln!(out, "{level} `{name}`\n\n{what}\n\n| field | type | meaning |\n|---|---|---|").unwrap();
    if name == "done" && schema["properties"]["seconds"].is_null() {
        writeln!(out, "{SECONDS}").unwrap();
    }
    rows(&schema, "", out);
    out.push('\n');
}

fn command<S: JsonSchema, D: JsonSchema>(name: &str, out: &mut String) {
    writeln!(out, "## {name}\n").unwrap();
    event::<S>("###", "started", out);
    event::<D>("###", "done", out);
}

fn document() -> String {
    let mut out = HEAD.to_owned();
    out.push_str("## All commands\n\n");
    event::<Progress>("###", "progress`, `check", &mut out);
    event::<Warning>("###", "warning", &mut out);
    event::<Resumed>("###", "resumed", &mut out);
    event::<Failed>("###", "error", &mut out);
    out.push_str("The fields of `done` that were reached follow those of `error`.\n\n");
    command::<get::Started, get::Done>("`get`", &mut out);
    command::<seed::Started, seed::Done>("`seed` of one manifest, `share`", &mut out);
    command::<seed::Started, seed::ManyDone>("`seed` of several manifests", &mut out);
    command::<publish::Started, publish::Done>("`publish`", &mut out);
    command::<verify::Started, verify::Done>("`verify`", &mut out);
    command::<doctor::Started, doctor::Done>("`doctor`", &mut out);
    command::<copy::Started, copy::Done>("`copy`", &mut out);
    out.push_str(
        "With `--to-memory`, one line for each entry that arrives, between `started` and `done`:\n\n",
    );
    event::<copy::File>("###", "file", &mut out);
    event::<copy::Block>("###", "block", &mut out);
    event::<copy::Symlink>("###", "symlink", &mut out);
    event::<copy::Link>("###", "link", &mut out);
    event::<copy::Other>("###", "directory`, `special", &mut out);
    event::<copy::Copied>("###", "copied", &mut out);
    command::<copy::Serving, copy::Served>("`copy-server`", &mut out);
    out.push_str("## `bcast`\n\n");
    event::<bcast::Started>("###", "started", &mut out);
    event::<bcast::Waiting>("###", "waiting", &mut out);
    event::<bcast::Open>("###", "open", &mut out);
    event::<bcast::Done>("###", "done", &mut out);
    out.push_str("## `doctor --peers`\n\n");
    event::<peers::Started>("###", "started", &mut out);
    event::<peers::Path>("###", "path", &mut out);
    event::<peers::Done>("###", "done", &mut out);
    out.push_str("## `cache create`\n\n");
    event::<cache::Created>("###", "done", &mut out);
    out.push_str("## `cache get`\n\n");
    event::<cache::Got>("###", "done", &mut out);
    command::<field::send::Started, field::send::Done>("`field send`", &mut out);
    event::<field::send::Progress>("###", "progress`, of `field send", &mut out);
    command::<field::receive::Started, field::receive::Done>("`field recv`", &mut out);
    event::<field::receive::Session>("###", "session", &mut out);
    event::<field::receive::Step>("###", "step", &mut out);
    event::<field::receive::Progress>("###", "progress`, of `field recv", &mut out);
    command::<field::sync::Started, field::sync::Done>("`field sync`", &mut out);
    event::<field::sync::Go>("###", "go", &mut out);
    command::<field::view::Started, field::view::Done>("`field view`", &mut out);
    out.push_str("## `revoke`\n\n");
    event::<revoke::Done>("###", "done", &mut out);
    out.push_str("## `mount`\n\n");
    event::<mount::Mounted>("###", "done", &mut out);
    out.push_str("## `umount`\n\n");
    event::<mount::Unmounted>("###", "done", &mut out);
    out.push_str("## `status`\n\n");
    event::<status::Shown>("###", "done", &mut out);
    command::<daemon::Started, daemon::Done>("`daemon`", &mut out);
    command::<tracker::Started, tracker::Done>("`tracker`", &mut out);
    answers(&mut out);
    format!("{}\n", out.trim_end())
}

/// Of commands that do nothing but answer: their one event is `done`.
fn answers(out: &mut String) {
    let mut answer = |name: &str, event: fn(&str, &str, &mut String)| {
        writeln!(out, "## {name}\n").unwrap();
        event("###", "done", out);
    };
    answer("`cache show`, `extend`, `pin`, `unpin`, `rm`", event::<cache::CacheInfo>);
    answer("`cache ls`", event::<cache::Listed>);
    answer("`cache replicate`", event::<cache::Replicated>);
    answer("`cache where`", event::<cache::Holders>);
    answer("`cache history`", event::<cache::History>);
    answer("`daemon init`", event::<daemon::Initialized>);
    answer("`admin`", event::<daemon::Status>);
    answer("`admin` with `--all` or `--host`", event::<daemon::CommandResults>);
    answer("`admin fsck`", event::<daemon::Checked>);
    answer("`show` of a manifest", event::<show::Shown>);
    answer("`show` of a ticket", event::<show::Ticket>);
    answer("`ca init`", event::<ca::Made>);
    answer("`ca issue`", event::<ca::Issued>);
    answer("`ca invite`", event::<ca::Invited>);
    answer("`ca revoke`", event::<ca::Revoked>);
    answer("`ca show` of an authority", event::<ca::Shown>);
    answer("`ca show` of this node", event::<ca::Node>);
    answer("`classad eval`", event::<classad::Evaluated>);
    answer("`classad match`", event::<classad::Matched>);
    answer("`sim --print-topology`", event::<sim::Topology>);
    command::<sim::Started, sim::Done>("`sim`", out);
    command::<sim::SoakStarted, sim::Soaked>("`sim --seeds`", out);
}

#[test]
fn the_document_is_what_the_types_say() {
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../docs/events.md");
    let text = document();
    if std::env::var_os("TIDECAST_BLESS").is_some() {
        std::fs::write(&path, &text).unwrap();
    }
    let there = std::fs::read_to_string(&path).unwrap_or_default();
    assert!(there == text, "docs/events.md is out of date: TIDECAST_BLESS=1 cargo test -p tidecast-event");
}

#[test]
fn each_done_has_seconds_and_bytes_of_paths_are_optional() {
    let text = document();
    for part in text.split("### ").filter(|part| part.starts_with("`done`")) {
        assert!(part.contains("\n| `seconds` | number | "), "{part}");
    }
    let is_of_bytes = |line: &&str| line.contains("_base64` |") || line.contains("_hex` |");
    for line in text.lines().filter(is_of_bytes) {
        assert!(line.contains(", optional | "), "{line}");
    }
}

#[test]
fn events_are_the_lines_of_the_program() {
    let progress = Progress { seconds: 1.5, bytes: 3, total: 5, ..Progress::default() };
    let started = verify::Started { command: "verify", manifest: "m".into(), path: "p".into() };
    let line = |event: verify::Event| serde_json::to_string(&event).unwrap();
    assert_eq!(
        line(verify::Event::Started(started)),
        r#"{"event":"started","command":"verify","manifest":"m","path":"p"}"#
    );
    assert_eq!(
        line(verify::Event::Check(progress)),
        r#"{"event":"check","seconds":1.5,"stage":"check","bytes":3,"total":5,"pieces":0,"pieces_total":0,"rate":0}"#
    );
    assert_eq!(
        line(verify::Event::Warning(Warning::unanswered("h:1", "refused"))),
        r#"{"event":"warning","message":"peer h:1: refused","peer":"h:1","reason":"refused"}"#
    );
    let failed = Failed { code: 3, kind: "cut off", message: "m".into(), seconds: 0.25 };
    assert_eq!(
        line(verify::Event::Error(failed)),
        r#"{"event":"error","code":3,"kind":"cut off","message":"m","seconds":0.25}"#
    );
}

#[test]
fn news_have_names_of_their_own() {
    let waiting = bcast::Waiting { hosts: Vec::new(), queued: 2, launchers: Vec::new(), said: "x".into() };
    let line = serde_json::to_string(&bcast::Event::News(bcast::News::Waiting(waiting))).unwrap();
    assert_eq!(line, r#"{"event":"waiting","hosts":[],"queued":2,"launchers":[],"said":"x"}"#);
    let hosts = Some(bcast::Hosts { hosts: 3, hosts_done: 1, hosts_failed: 0 });
    let progress = Progress { stage: tidecast_event::Stage::Bcast, hosts, ..Progress::default() };
    let line = serde_json::to_string(&bcast::Event::Progress(progress)).unwrap();
    assert!(line.ends_with(r#""rate":0,"hosts":3,"hosts_done":1,"hosts_failed":0}"#), "{line}");
}

#[test]
fn a_path_that_is_no_utf8_has_its_bytes_beside_it() {
    use std::os::unix::ffi::OsStrExt as _;
    let bad = std::ffi::OsStr::from_bytes(b"a\xff");
    let started = publish::Started { command: "publish", path: bad.into() };
    let text = serde_json::to_string(&started).unwrap();
    assert_eq!(text, "{\"command\":\"publish\",\"path\":\"a\u{fffd}\",\"path_base64\":\"Yf8=\"}");
    let block = copy::Block { path: bad.into(), number: 1, at: "/m/1".into(), offset: 0, bytes: 2 };
    assert_eq!(
        serde_json::to_string(&copy::Arrived::Block(block)).unwrap(),
        "{\"event\":\"block\",\"path\":\"a\u{fffd}\",\"path_hex\":\"61ff\",\"number\":1,\"at\":\"/m/1\",\"offset\":0,\"bytes\":2}"
    );
    let done = verify::Done { left_out: vec!["b".into(), bad.into()], ..Default::default() };
    let value = serde_json::to_value(&done).unwrap();
    assert_eq!(value["left_out_base64"], serde_json::json!([null, "Yf8="]));
}
