//! Settings of users for all programs: a configuration file (TOML), overruled by the environment,
//! `TIDECAST_*`. An empty variable counts as not set. A value from the caller itself (a flag, an option)
//! overrules both; the caller handles that.
//!
//! A value that does not parse, and in the file a name that does not exist, is an error that names its line or variable,
//! also for a command that does not need it; nothing is read from any other place. `~/` at the start of a path is the
//! home directory.
//!
//! ```
//! use tidecast::settings::Settings;
//!
//! # fn main() -> Result<(), Box<dyn std::error::Error>> {
//! # let dir = tempfile::tempdir()?;
//! let file = dir.path().join("config.toml");
//! std::fs::write(&file, "timeout = \"30s\"\n[daemon]\nlease = \"7d\"\n")?;
//!
//! let settings = Settings::load(Some(&file))?;
//! assert_eq!(settings.timeout.map(|span| span.0.as_secs()), Some(30));
//! assert!(settings.daemon.is_some_and(|table| table.lease.is_some()));
//!
//! std::fs::write(&file, "speed = 1\n")?;
//! assert!(Settings::load(Some(&file)).is_err_and(|error| error.in_full().contains("line 1")));
//! # Ok(())
//! # }
//! ```

mod checked;
mod checked_by;
mod daemon;
mod swarm;
mod values;

use std::ffi::OsStr;
use std::fs::File;
use std::io::{self, ErrorKind, Read as _};
use std::os::unix::fs::MetadataExt as _;
use std::path::{Path, PathBuf};

use rustix::fs::OFlags;
use serde::Deserialize;
use tidecast_event::{Context as _, Error, Fault as _};
use tidecast_node::Policy;
use tidecast_paths::{End, follow, refuse_planted_link, reopen, unmapped};
use tidecast_publish::Format;
use tidecast_store::Durability;
use tidecast_text::{Rate, Size, Span};

pub use self::checked::{MAX_THREADS, durability, format, piece_size, policy};
pub use self::daemon::{Requirements, Table};
use self::values::text;
pub use self::values::{Listen, Text};
use crate::state::{below_home, named};

type Result<T> = std::result::Result<T, Error>;

/// The settings of the environment and the configuration file.
#[derive(Debug, Default, Clone, PartialEq, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct Settings {
    /// Where the node's key, tickets and unfinished work are kept.
    #[serde(deserialize_with = "checked_by::path")]
    pub state_dir: Option<PathBuf>,
    /// Where to listen.
    #[serde(deserialize_with = "text")]
    pub listen: Option<Listen>,
    /// Interface or CIDR to use.
    #[serde(deserialize_with = "checked_by::net")]
    pub net: Option<String>,
    /// Trackers to announce to, and to write into manifests.
    #[serde(deserialize_with = "checked_by::tracker")]
    pub tracker: Vec<String>,
    /// Peers to connect to.
    #[serde(deserialize_with = "checked_by::peer")]
    pub peer: Vec<String>,
    /// Open, unencrypted swarms are meant.
    pub plain: Option<bool>,
    /// Manifest version to write.
    #[serde(deserialize_with = "checked_by::format")]
    pub format: Option<Format>,
    /// Piece size of manifests: a power of two from 16KiB to 512MiB.
    #[serde(deserialize_with = "checked_by::piece_size")]
    pub piece_size: Option<Size>,
    /// Names to leave out when publishing.
    #[serde(deserialize_with = "checked_by::exclude")]
    pub exclude: Vec<String>,
    /// Stay and seed this long after getting.
    #[serde(deserialize_with = "text")]
    pub seed_for: Option<Span>,
    /// Give up after this long.
    #[serde(deserialize_with = "text")]
    pub timeout: Option<Span>,
    /// How downloads are made durable.
    #[serde(deserialize_with = "checked_by::durability")]
    pub durable: Option<Durability>,
    /// The engine's policy.
    #[serde(deserialize_with = "checked_by::policy")]
    pub policy: Option<Policy>,
    /// Rate of this node's link, for the efficiency shown at the end.
    #[serde(deserialize_with = "text")]
    pub link_rate: Option<Rate>,
    /// The most that a process sends to all its peers.
    #[serde(deserialize_with = "checked_by::limit")]
    pub upload_limit: Option<Rate>,
    /// The most that a process receives from all its peers.
    #[serde(deserialize_with = "checked_by::limit")]
    pub download_limit: Option<Rate>,
    /// Where mounts keep data for the next job.
    #[serde(deserialize_with = "checked_by::path")]
    pub cache: Option<PathBuf>,
    /// Where the daemon of this host listens.
    #[serde(deserialize_with = "checked_by::path")]
    pub socket: Option<PathBuf>,
    /// How the daemon is set up; only in the file.
    pub daemon: Option<Table>,
    /// Threads to work with, at most 1024; 0 is one for each core.
    #[serde(deserialize_with = "checked_by::threads")]
    pub threads: Option<usize>,
    /// Take part in the public DHT.
    pub dht: Option<bool>,
    /// Find peers on the local network by multicast.
    pub lsd: Option<bool>,
    /// One JSON object a line on standard output.
    pub json: Option<bool>,
    /// What to log.
    #[serde(deserialize_with = "checked_by::log")]
    pub log: Option<String>,
}

/// How the text of an environment variable becomes a TOML value.
enum Kind {
    Text,
    Flag,
    Number,
    List,
}

/// Every setting. A test holds this to the fields of [`Settings`].
const KEYS: &[(&str, Kind)] = &[
    ("state_dir", Kind::Text),
    ("cache", Kind::Text),
    ("socket", Kind::Text),
    ("listen", Kind::Text),
    ("net", Kind::Text),
    ("tracker", Kind::List),
    ("peer", Kind::List),
    ("plain", Kind::Flag),
    ("format", Kind::Text),
    ("piece_size", Kind::Text),
    ("exclude", Kind::List),
    ("seed_for", Kind::Text),
    ("timeout", Kind::Text),
    ("durable", Kind::Text),
    ("policy", Kind::Text),
    ("link_rate", Kind::Text),
    ("upload_limit", Kind::Text),
    ("download_limit", Kind::Text),
    ("threads", Kind::Number),
    ("dht", Kind::Flag),
    ("lsd", Kind::Flag),
    ("json", Kind::Flag),
    ("log", Kind::Text),
];

const PREFIX: &str = "TIDECAST_";
/// The variable that names the file.
const CONFIG: &str = "TIDECAST_CONFIG";

impl Settings {
    /// Environment and file together. `file` is the one that the user named, if any; the usual one may be
    /// absent.
    ///
    /// # Errors
    /// Whatever is wrong in either, and where; of kind [`Kind::Usage`](crate::Kind::Usage).
    pub fn load(file: Option<&Path>) -> Result<Self> {
        read(file).map_err(|error| Error::new(tidecast_event::Kind::Usage, error))
    }

    /// Where the node's key and tickets are kept: `flag` if the caller names a place.
    ///
    /// # Errors
    /// When there is no home directory to put them by default.
    pub fn state_dir(&self, flag: Option<&Path>) -> Result<PathBuf> {
        named(flag.or(self.state_dir.as_deref()))
    }
}

fn read(file: Option<&Path>) -> Result<Settings> {
    let env = std::env::vars_os().filter_map(|(k, v)| Some((k.into_string().ok()?, v)));
    let mut env: Vec<(String, std::ffi::OsString)> = env.filter(|(k, _)| k.starts_with(PREFIX)).collect();
    env.sort();
    let named = match file {
        Some(file) => Some(file.to_owned()),
        None => {
            let set = env.iter().find(|(k, v)| k == CONFIG && !v.is_empty());
            set.map(|(_, v)| config_file(v)).transpose()?
        }
    };
    let set = from_env(env)?;
    let (path, must_exist) = match named {
        Some(path) => (path, true),
        None => match usual_file() {
            Some(path) => (path, false),
            None => return Ok(set),
        },
    };
    match read_file(&path, must_exist) {
        Ok(text) => from_file(&text).with_context(|| format!("in {}", path.display())).map(|f| over(f, set)),
        // A service, or su, may start this process with the HOME of another user, which must not be used.
        Err(e) if !must_exist && matches!(e.kind(), ErrorKind::NotFound | ErrorKind::PermissionDenied) => {
            Ok(set)
        }
        Err(e) => Err(e).with_context(|| format!("cannot read the configuration {}", path.display())),
    }
}

/// The file that the environment names.
fn config_file(value: &OsStr) -> Result<PathBuf> {
    match value.to_str() {
        Some(text) => checked::path(text).map_err(|why| Error::usage(format!("{CONFIG}: {why}"))),
        None => Ok(value.into()),
    }
}

/// The text of a configuration file. One that the user has not named must be a file of this user or of root, and so must each
/// link to it: root may have the HOME of another user.
fn read_file(path: &Path, is_named: bool) -> io::Result<String> {
    if is_named {
        return std::fs::read_to_string(path);
    }
    let me = rustix::process::geteuid().as_raw();
    let is_known = |owner: u32| [0, me].contains(&owner) || Some(owner) == unmapped();
    let found =
        follow(path, &mut |step| match step.owner.filter(|owner| step.is_link && !is_known(*owner)) {
            Some(_) => Err(ErrorKind::PermissionDenied.into()),
            None => refuse_planted_link(step),
        })?;
    let found = match found {
        End::Other(found) => found,
        End::Dir(_) => return Err(ErrorKind::PermissionDenied.into()),
        End::Missing(_) => return Err(ErrorKind::NotFound.into()),
    };
    // A planted pipe makes no process wait.
    let mut file = File::from(reopen(&found, OFlags::RDONLY | OFlags::NONBLOCK | OFlags::NOCTTY)?);
    let meta = file.metadata()?;
    if !meta.is_file() || ![0, me].contains(&meta.uid()) {
        return Err(ErrorKind::PermissionDenied.into());
    }
    let mut text = String::new();
    file.read_to_string(&mut text)?;
    Ok(text)
}

fn usual_file() -> Option<PathBuf> {
    below_home("XDG_CONFIG_HOME", ".config").map(|dir| dir.join("tidecast/config.toml"))
}

fn from_env(env: Vec<(String, std::ffi::OsString)>) -> Result<Settings> {
    let mut table = toml::Table::new();
    for (name, value) in env {
        let value = value.into_string().ok().with_context(|| format!("{name} is not UTF-8"))?;
        let key = name.trim_start_matches(PREFIX).to_ascii_lowercase();
        // Other programs of the project use the prefix too.
        let Some((key, kind)) = KEYS.iter().find(|(k, _)| *k == key && !value.is_empty()) else { continue };
        let value = match kind {
            Kind::Text => toml::Value::String(value),
            Kind::List => {
                let items = value.split(',').map(str::trim).filter(|s| !s.is_empty());
                toml::Value::Array(items.map(|s| toml::Value::String(s.into())).collect())
            }
            Kind::Number => {
                toml::Value::Integer(value.parse().with_context(|| format!("{name} is not a number"))?)
            }
            Kind::Flag => toml::Value::Boolean(match value.as_str() {
                "1" | "true" | "yes" => true,
                "0" | "false" | "no" => false,
                _ => return Err(Error::usage(format!("{name} is {value:?}; use true or false"))),
            }),
        };
        // One at a time, so that the error names the variable.
        let one = toml::Table::from_iter([((*key).to_owned(), value.clone())]);
        one.try_into::<Settings>().map_err(|e| Error::usage(format!("{name}: {}", e.message())))?;
        table.insert((*key).to_owned(), value);
    }
    table.try_into().fault()
}

/// The error with its place, in one line.
fn placed(error: &toml::de::Error, text: &str) -> Error {
    let what = error.message().trim_end();
    let Some(before) = error.span().and_then(|span| text.get(..span.start)) else {
        return Error::usage(what);
    };
    let start = before.rfind('\n').map_or(0, |at| at + 1);
    let (line, column) = (before.matches('\n').count() + 1, before[start..].chars().count() + 1);
    let wrong = text[start..].lines().next().unwrap_or_default().trim();
    Error::usage(format!("line {line}, column {column}, `{wrong}`: {what}"))
}

fn from_file(text: &str) -> Result<Settings> {
    toml::from_str(text).map_err(|e| placed(&e, text))
}

/// Values of `top` overrule those of `base`.
fn over(base: Settings, top: Settings) -> Settings {
    let pick = |a: Vec<String>, b: Vec<String>| if a.is_empty() { b } else { a };
    Settings {
        state_dir: top.state_dir.or(base.state_dir),
        cache: top.cache.or(base.cache),
        socket: top.socket.or(base.socket),
        daemon: top.daemon.or(base.daemon),
        listen: top.listen.or(base.listen),
        net: top.net.or(base.net),
        tracker: pick(top.tracker, base.tracker),
        peer: pick(top.peer, base.peer),
        plain: top.plain.or(base.plain),
        format: top.format.or(base.format),
        piece_size: top.piece_size.or(base.piece_size),
        exclude: pick(top.exclude, base.exclude),
        seed_for: top.seed_for.or(base.seed_for),
        timeout: top.timeout.or(base.timeout),
        durable: top.durable.or(base.durable),
        policy: top.policy.or(base.policy),
        link_rate: top.link_rate.or(base.link_rate),
        upload_limit: top.upload_limit.or(base.upload_limit),
        download_limit: top.download_limit.or(base.download_limit),
        threads: top.threads.or(base.threads),
        dht: top.dht.or(base.dht),
        lsd: top.lsd.or(base.lsd),
        json: top.json.or(base.json),
        log: top.log.or(base.log),
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;

    fn env(pairs: &[(&str, &str)]) -> Result<Settings> {
        from_env(pairs.iter().map(|(k, v)| ((*k).to_owned(), (*v).into())).collect())
    }

    #[test]
    fn the_environment_sets_every_kind() {
        let s = env(&[
            ("TIDECAST_LISTEN", "10.0.0.1:7000"),
            ("TIDECAST_PIECE_SIZE", "1MiB"),
            ("TIDECAST_PLAIN", "true"),
            ("TIDECAST_THREADS", "3"),
            ("TIDECAST_TIMEOUT", "30s"),
            ("TIDECAST_TRACKER", "http://a/announce, udp://b:1"),
        ])
        .unwrap();
        assert_eq!(s.listen.unwrap().addr(), "10.0.0.1:7000".parse().unwrap());
        assert_eq!(s.piece_size, Some(Size(1 << 20)));
        assert_eq!((s.plain, s.threads), (Some(true), Some(3)));
        assert_eq!(s.tracker, ["http://a/announce", "udp://b:1"]);
    }

    #[test]
    fn variables_of_other_programs_are_passed_over() {
        assert_eq!(env(&[("TIDECAST_LAB", "x"), ("TIDECAST_CONFIG", "y")]).unwrap(), Settings::default());
    }

    #[test]
    fn the_environment_overrules_the_file() {
        let set = env(&[
            ("TIDECAST_NET", "eth0"),
            ("TIDECAST_FORMAT", ""),
            ("TIDECAST_PEER", "a:1"),
            ("TIDECAST_DHT", "false"),
            ("TIDECAST_LSD", ""),
        ]);
        let file = from_file(
            "net = \"ib0\"\nformat = \"v2\"\npeer = [\"b:2\"]\ndht = true\nlsd = true\n\
             timeout = 5\npiece_size = 65536\n",
        );
        let s = over(file.unwrap(), set.unwrap());
        assert_eq!(s.net.as_deref(), Some("eth0"));
        assert_eq!(
            s.format,
            Some(Format::Exactly(tidecast_metainfo::Version::V2)),
            "an empty variable is not set"
        );
        assert_eq!(s.peer, ["a:1"]);
        assert_eq!((s.dht, s.lsd), (Some(false), Some(true)));
        assert_eq!(s.timeout.unwrap().0.as_secs(), 5);
        assert_eq!(s.piece_size, Some(Size(65_536)));
    }

    #[test]
    fn mistakes_are_told_with_their_place() {
        let told = |r: Result<Settings>, parts: &[&str]| {
            let e = r.unwrap_err().in_full();
            assert!(parts.iter().all(|p| e.contains(p)), "{e}");
        };
        told(env(&[("TIDECAST_TIMEOUT", "soon")]), &["TIDECAST_TIMEOUT", "soon"]);
        told(env(&[("TIDECAST_PLAIN", "maybe")]), &["TIDECAST_PLAIN"]);
        told(env(&[("TIDECAST_THREADS", "x")]), &["TIDECAST_THREADS"]);
        for (key, wrong) in [
            ("durable", "maybe"),
            ("format", "v9"),
            ("policy", "nosuch"),
            ("piece_size", "64KB"),
            ("piece_size", "1GiB"),
            ("upload_limit", "1bit"),
            ("net", "10.0.0.0/99"),
            ("exclude", "a[b"),
            ("tracker", "nowhere"),
            ("peer", "a:b:c"),
            ("log", "tidecast=loud"),
            ("state_dir", "~ada/x"),
            ("cache", "~ada/x"),
            ("socket", "~ada/x"),
        ] {
            let variable = format!("TIDECAST_{}", key.to_ascii_uppercase());
            told(env(&[(variable.as_str(), wrong)]), &[format!("{variable}: ").as_str()]);
            let is_list = KEYS.iter().any(|(k, kind)| *k == key && matches!(kind, Kind::List));
            let value = if is_list { format!("[{wrong:?}]") } else { format!("{wrong:?}") };
            let line = format!("{key} = {value}");
            told(from_file(&format!("lsd = true\n{line}\n")), &["line 2, column ", line.as_str()]);
        }
        told(from_file("[daemon]\ndir = \"~ada/x\"\n"), &["line 2", "write the whole path"]);
        for threads in ["-1", "1025", "99999999999999999999"] {
            told(env(&[("TIDECAST_THREADS", threads)]), &["TIDECAST_THREADS"]);
        }
        told(from_file("threads = 5000"), &["line 1", "5000", "1024"]);
        assert_eq!(env(&[("TIDECAST_THREADS", "0")]).unwrap().threads, Some(0));
        told(from_file("speed = 1"), &["speed"]);
        told(from_file("timeout = \"soon\""), &["soon"]);
        told(from_file("timeout = [1]"), &["array"]);
        told(from_file("net = "), &["line 1"]);
        let text = "lsd = true\n[daemon]\nname = \"x\"\nrequirements = \"MY.TotalDisk >\"\n";
        told(
            from_file(text),
            &["line 4, column 16, `requirements = \"MY.TotalDisk >\"`: ", "unexpected end"],
        );
        for senseless in
            ["'\"text\"'", "'TARGET.DiskUsage + \"x\"'", "'no_such_function(3)'", "'regexp(\"(\", Owner)'"]
        {
            let text = format!("[daemon]\nrequirements = {senseless}\n");
            told(from_file(&text), &["line 2", "can never be true or false"]);
        }
        for fine in ["true", "TARGET.Custom > 3", "MY.FreeDisk > 2 * TARGET.DiskUsage && Owner =!= \"guest\""]
        {
            assert!(from_file(&format!("[daemon]\nrequirements = '{fine}'\n")).is_ok(), "{fine}");
        }
    }

    #[test]
    fn every_setting_has_a_variable_and_overrules() {
        // One value that parses for each; if a key is missing from a list, the results differ.
        let value = |key: &str, kind: &Kind| match (key, kind) {
            ("listen", _) => "\"0.0.0.0:1\"",
            ("format", _) => "\"v2\"",
            ("durable", _) => "\"batched\"",
            ("policy", _) => "\"classic\"",
            ("tracker", _) => "[\"http://a/b\"]",
            ("peer", _) => "[\"a:1\"]",
            ("piece_size", _) => "\"1MiB\"",
            ("seed_for" | "timeout", _) => "\"1s\"",
            ("link_rate" | "upload_limit" | "download_limit", _) => "\"1gbit\"",
            (_, Kind::Text) => "\"x\"",
            (_, Kind::Flag) => "true",
            (_, Kind::Number) => "1",
            (_, Kind::List) => "[\"x\"]",
        };
        let text: String = KEYS.iter().map(|(k, kind)| format!("{k} = {}\n", value(k, kind))).collect();
        let all = from_file(&text).unwrap();
        assert_eq!(over(Settings::default(), all.clone()), all);
        assert_eq!(over(all.clone(), Settings::default()), all);
        let fields = format!("{all:?}");
        // The table [daemon] is the file's alone.
        assert!(fields.matches("None").count() == 1 && fields.contains("daemon: None"), "{fields}");
        assert!(!fields.contains("[]"), "{fields}");
        let variables: Vec<(String, String)> = KEYS
            .iter()
            .map(|(k, kind)| {
                let bare = value(k, kind).trim_matches(['"', '[', ']']).to_owned();
                (format!("TIDECAST_{}", k.to_ascii_uppercase()), bare)
            })
            .collect();
        let pairs: Vec<(&str, &str)> = variables.iter().map(|(k, v)| (k.as_str(), v.as_str())).collect();
        assert_eq!(env(&pairs).unwrap(), all);
    }

    #[test]
    fn places_to_listen() {
        let addr = |s: &str| s.parse::<Listen>().map(|l| l.addr().to_string());
        assert_eq!(addr("10.0.0.1:5").unwrap(), "10.0.0.1:5");
        assert_eq!(addr("[::1]:5").unwrap(), "[::1]:5");
        assert_eq!(addr("::1").unwrap(), "[::1]:0");
        assert_eq!(addr(":6881").unwrap(), "[::]:6881");
        assert_eq!(addr("6881").unwrap(), "[::]:6881");
        assert!(addr("").is_err() && addr("host:1").is_err() && addr("1.2.3.4:99999").is_err());
    }
}
