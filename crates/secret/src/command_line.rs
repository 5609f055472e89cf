//! Secrets that were given as plain arguments leave the command line, which every user of the host can read: the program
//! starts itself again at once, with each in an anonymous file of its own that the new process inherits, and
//! `@/proc/self/fd/N` in its place. Same process, same name, same standard streams and signals.

use std::collections::BTreeMap;
use std::ffi::{CString, OsString};
use std::fs::File;
use std::io::{Read, Seek, Write};
use std::os::fd::{AsRawFd, OwnedFd};
use std::os::unix::ffi::{OsStrExt, OsStringExt};
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};
use std::sync::OnceLock;

use rustix::fs::MemfdFlags;
use tidecast_identity::{Access, Ticket};

use super::{COPY_KEY, FIELD_KEY, Kind, MAGNET, MAX_LEN, TICKET, TRACKER};

/// The name of the anonymous files, so that no other descriptor is taken for one.
const NAME: &str = "tidecast-secret";
/// Where a process finds a descriptor of its own.
pub(super) const FD: &str = "/proc/self/fd/";
/// The flag that takes the URL of a tracker, in its two forms.
const FLAG: &str = "--tracker";
const TRACKERS: &str = "--tracker=";
/// This many letters and digits in a row of a URL may be a passkey.
const PASSKEY: usize = 16;
/// A shorter word that begins like a ticket contains no secret (characters).
const SHORTEST: usize = 60;
/// Most secrets of one command line: each takes a descriptor.
const MOST: usize = 16;

/// The text passed by `@/proc/self/fd/N`, by that path.
static TAKEN: OnceLock<BTreeMap<String, String>> = OnceLock::new();

/// Removes secrets from the command line; to be called first in `main`. Returns in a process whose command
/// line has no secrets, or cannot be replaced.
pub fn hide() {
    let words: Vec<OsString> = std::env::args_os().collect();
    let _ = TAKEN.set(take(&words));
    let found = find(&words);
    let mut kinds: Vec<Kind> = found.iter().map(|secret| secret.kind).collect();
    kinds.sort();
    kinds.dedup();
    for kind in kinds {
        super::warn(&format!(
            "the {} is on the command line, where other users of this host can read it; use @FILE, - or {}",
            kind.name, kind.variable
        ));
    }
    if !found.is_empty()
        && let Err(error) = again(words, &found)
    {
        super::warn(&format!("cannot remove the secret from the command line: {error}"));
    }
}

/// The words of this process's command line for a child of the same program: URLs of trackers are in them again, and the
/// child takes them off as this process has.
pub fn words() -> Vec<OsString> {
    let words: Vec<OsString> = std::env::args_os().collect();
    let given = |place: usize, word: &OsString| {
        let text = word.to_str()?;
        let before = words.get(place.checked_sub(1)?)?;
        let (flag, path) = match text.strip_prefix(TRACKERS) {
            Some(path) => (TRACKERS, path.strip_prefix('@')?),
            None if before == FLAG => ("", text.strip_prefix('@')?),
            None => return None,
        };
        Some(OsString::from(format!("{flag}{}", taken(path)?)))
    };
    words.iter().enumerate().map(|(place, word)| given(place, word).unwrap_or_else(|| word.clone())).collect()
}

/// The text that an earlier self has handed over at this path.
pub(super) fn taken(path: &str) -> Option<String> {
    TAKEN.get()?.get(path).cloned()
}

/// A message that quotes the command line, as the user has given that: for a secret that [`hide`] took off, `<the key given>`
/// instead of the path that stands in its place.
pub fn shown(message: &str) -> String {
    TAKEN.get().map_or_else(|| message.to_owned(), |taken| replaced(message, taken))
}

fn replaced(message: &str, taken: &BTreeMap<String, String>) -> String {
    // The longest first: fd/3 is the start of fd/31.
    taken.iter().rev().fold(message.to_owned(), |text, (path, secret)| {
        let word = secret.trim().as_bytes();
        let kind = if is_secret_magnet(word) {
            MAGNET
        } else if is_ticket(word) {
            TICKET
        } else if secret.contains("://") {
            TRACKER
        } else {
            FIELD_KEY
        };
        text.replace(&format!("@{path}"), &format!("<the {} given>", kind.name))
    })
}

/// Reads an inherited descriptor, and closes it: no child is to have it.
fn take(words: &[OsString]) -> BTreeMap<String, String> {
    let ours = format!("/memfd:{NAME}");
    let mut all = BTreeMap::new();
    for number in words.iter().filter_map(|word| descriptor(word.as_bytes())).take(MOST) {
        let path = format!("{FD}{number}");
        let is_ours =
            std::fs::read_link(&path).is_ok_and(|to| to.as_os_str().as_bytes().starts_with(ours.as_bytes()));
        if !is_ours || all.contains_key(&path) {
            continue;
        }
        if let Ok(text) = read(&path) {
            all.insert(path, text);
            let _ = nix::unistd::close(number);
        }
    }
    all
}

/// N of a word with `@/proc/self/fd/N`.
fn descriptor(word: &[u8]) -> Option<i32> {
    let mark = [b"@", FD.as_bytes()].concat();
    let at = word.windows(mark.len()).position(|part| part == mark)? + mark.len();
    let digits: Vec<u8> = word.get(at..)?.iter().copied().take_while(u8::is_ascii_digit).collect();
    std::str::from_utf8(&digits).ok()?.parse().ok()
}

/// The contents of an inherited descriptor.
pub(super) fn read_descriptor(number: i32) -> std::io::Result<String> {
    read(&format!("{FD}{number}"))
}

fn read(path: &str) -> std::io::Result<String> {
    let mut text = String::new();
    File::open(path)?.take(MAX_LEN as u64).read_to_string(&mut text)?;
    Ok(text)
}

/// A secret on a command line: in which word, and from where to where.
#[derive(Debug, PartialEq, Eq)]
struct Secret {
    word: usize,
    from: usize,
    to: usize,
    kind: Kind,
}

/// Commands that take secrets; after the `--` of the last is a command of the user's.
const COMMANDS: [&[u8]; 7] = [b"get", b"mount", b"show", b"revoke", b"copy", b"field", b"run"];

/// All secrets of a command line of ours.
fn find(words: &[OsString]) -> Vec<Secret> {
    let mut all = Vec::new();
    let words: Vec<&[u8]> = words.iter().map(|word| word.as_bytes()).collect();
    let command = words.iter().skip(1).find(|word| COMMANDS.contains(word));
    let is_run = command.is_some_and(|word| *word == b"run");
    let own = words.iter().position(|word| is_run && *word == b"--").unwrap_or(words.len());
    let words = words.get(..own).unwrap_or_default();
    for (place, word) in words.iter().enumerate().skip(1) {
        let before = words.get(place - 1).copied().unwrap_or_default();
        let found = if before == b"--key" && is_plain(word) {
            Some((0, word.len(), key_of(words)))
        } else if let Some(key) = word.strip_prefix(b"--key=") {
            is_plain(key).then(|| (word.len() - key.len(), word.len(), key_of(words)))
        } else if before == FLAG.as_bytes() && has_passkey(word) {
            Some((0, word.len(), TRACKER))
        } else if let Some(url) = word.strip_prefix(TRACKERS.as_bytes()).filter(|url| has_passkey(url)) {
            Some((word.len() - url.len(), word.len(), TRACKER))
        } else if is_secret_magnet(word) {
            Some((0, word.len(), MAGNET))
        } else if let Some((from, to)) = key_in_url(word) {
            Some((from, to, COPY_KEY))
        } else {
            let from = word
                .iter()
                .position(|b| *b == b'=')
                .filter(|_| word.starts_with(b"--"))
                .map_or(0, |at| at + 1);
            is_ticket(word.get(from..).unwrap_or_default()).then_some((from, word.len(), TICKET))
        };
        all.extend(found.map(|(from, to, kind)| Secret { word: place, from, to, kind }));
    }
    all.truncate(MOST);
    all
}

/// Only `copy` has other keys than those of fields.
fn key_of(words: &[&[u8]]) -> Kind {
    if words.contains(&&b"copy"[..]) { COPY_KEY } else { FIELD_KEY }
}

/// A secret itself, not where it is.
fn is_plain(text: &[u8]) -> bool {
    !text.is_empty() && text != b"-" && !text.starts_with(b"@")
}

/// The key in `tidecast://KEY@host`, if there is one.
fn key_in_url(word: &[u8]) -> Option<(usize, usize)> {
    let scheme = b"tidecast://";
    let rest = word.strip_prefix(scheme)?;
    let server = rest.split(|byte| *byte == b'/').next()?;
    let end = server.iter().rposition(|byte| *byte == b'@')?;
    is_plain(server.get(..end)?).then_some((scheme.len(), scheme.len() + end))
}

/// Whether the URL of a tracker names a user: by a name and password, or by a passkey in its path or query.
fn has_passkey(url: &[u8]) -> bool {
    let Some(at) = url.windows(3).position(|part| part == b"://") else { return false };
    let rest = url.get(at + 3..).unwrap_or_default();
    let is_part = |byte: &u8| byte.is_ascii_alphanumeric() || b"-_.~%".contains(byte);
    let mut parts = rest.split(|byte| b"/?".contains(byte));
    parts.next().is_some_and(|host| host.contains(&b'@'))
        || parts.any(|part| part.split(|byte| !is_part(byte)).any(|part| part.len() >= PASSKEY))
}

/// Whether a magnet link has a tracker of such a URL.
fn is_secret_magnet(word: &[u8]) -> bool {
    let Some(Ok(text)) = word
        .get(..8)
        .filter(|head| head.eq_ignore_ascii_case(b"magnet:?"))
        .map(|_| std::str::from_utf8(word))
    else {
        return false;
    };
    text.split(['?', '&']).filter_map(|part| part.split_once('=')).any(|(name, url)| {
        let is_tracker = name == "tr" || name.starts_with("tr.");
        let url =
            ["%3A:", "%2F/", "%3F?", "%3D=", "%26&", "%40@"].iter().fold(url.to_owned(), |url, code| {
                let (code, plain) = code.split_at(3);
                url.replace(code, plain).replace(&code.to_ascii_lowercase(), plain)
            });
        is_tracker && has_passkey(url.as_bytes())
    })
}

/// A ticket that admits its holder to a private swarm, or a word that may be a damaged one; not a file of
/// that name.
fn is_ticket(word: &[u8]) -> bool {
    let Ok(text) = std::str::from_utf8(word) else { return false };
    let text = text.trim_start();
    let begins = ["tidecast1", "tidecastjoin1", "tidegroup1"]
        .iter()
        .any(|with| text.get(..with.len()).is_some_and(|head| head.eq_ignore_ascii_case(with)));
    let is_open = || text.parse::<Ticket>().is_ok_and(|ticket| matches!(ticket.access, Access::Open));
    begins && text.len() >= SHORTEST && !is_open() && !Path::new(text).exists()
}

/// Starts this program again; comes back only with an error.
fn again(mut words: Vec<OsString>, found: &[Secret]) -> std::io::Result<()> {
    let mut kept = Vec::new();
    for secret in found {
        let Some(word) = words.get_mut(secret.word) else { continue };
        let bytes = word.as_bytes();
        let part = |range: std::ops::Range<usize>| bytes.get(range).unwrap_or_default();
        let file = anonymous(part(secret.from..secret.to), MemfdFlags::empty())?;
        let place = format!("@{FD}{}", file.as_raw_fd());
        let new = [part(0..secret.from), place.as_bytes(), part(secret.to..bytes.len())].concat();
        *word = OsString::from_vec(new);
        kept.push(file);
    }
    let text = |word: OsString| CString::new(word.into_vec()).map_err(std::io::Error::other);
    let words = words.into_iter().map(text).collect::<std::io::Result<Vec<_>>>()?;
    let error = nix::unistd::execv(&text(program().into_os_string())?, &words).err();
    drop(kept);
    Err(error.map_or_else(|| std::io::Error::other("exec returned"), Into::into))
}

/// This program: by its name, which then is that of the process, unless another file has it now.
fn program() -> PathBuf {
    let own = PathBuf::from("/proc/self/exe");
    let id = |path: &Path| std::fs::metadata(path).map(|meta| (meta.dev(), meta.ino())).ok();
    match std::fs::read_link(&own) {
        Ok(named) if id(&named).is_some() && id(&named) == id(&own) => named,
        _ => own,
    }
}

/// An anonymous file in memory, readable by this user alone. Without [`MemfdFlags::CLOEXEC`] all children inherit it.
pub(super) fn anonymous(text: &[u8], flags: MemfdFlags) -> std::io::Result<OwnedFd> {
    let mut file = File::from(rustix::fs::memfd_create(NAME, flags)?);
    rustix::fs::fchmod(&file, rustix::fs::Mode::from_raw_mode(0o600))?;
    file.write_all(text)?;
    file.rewind()?;
    Ok(file.into())
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;

    fn found(line: &str) -> Vec<(String, &'static str)> {
        let words: Vec<OsString> = line.split(' ').map(OsString::from).collect();
        let part = |secret: &Secret| {
            let word = words.get(secret.word).unwrap().to_str().unwrap();
            (word.get(secret.from..secret.to).unwrap().to_owned(), secret.kind.variable)
        };
        find(&words).iter().map(part).collect()
    }

    #[test]
    fn secrets_are_found_in_all_their_forms() {
        let ticket = format!("tidecast1{}", "a".repeat(100));
        let one = |variable| vec![(ticket.clone(), variable)];
        assert_eq!(found(&format!("tidecast get {ticket} --to d")), one("TIDECAST_TICKET"));
        assert_eq!(found(&format!("tidecast run -q {ticket} -- echo {ticket}")), one("TIDECAST_TICKET"));
        assert_eq!(found(&format!("tidecast get --to run -- {ticket}")), one("TIDECAST_TICKET"));
        let upper = ticket.to_uppercase();
        assert_eq!(found(&format!("tidecast show {upper}")), [(upper.clone(), "TIDECAST_TICKET")]);
        let key = |variable| vec![("k1".to_owned(), variable)];
        assert_eq!(found("tidecast field send a --key k1"), key("TIDECAST_FIELD_KEY"));
        assert_eq!(found("tidecast field recv --key=k1"), key("TIDECAST_FIELD_KEY"));
        assert_eq!(found("tidecast copy --key k1 a tidecast://h/"), key("TIDECAST_COPY_KEY"));
        assert_eq!(found("tidecast copy a tidecast://k1@[::1]:7/x@y"), key("TIDECAST_COPY_KEY"));
        assert_eq!(found("tidecast copy --to-memory -- tidecast://k1@h/x"), key("TIDECAST_COPY_KEY"));
        let both = found("tidecast copy tidecast://k1@a,b/x tidecast://k2@c/");
        assert_eq!(both.iter().map(|(text, _)| text.as_str()).collect::<Vec<_>>(), ["k1", "k2"]);
    }

    #[test]
    fn passkeys_of_trackers_are_found() {
        let one = |url: &str| vec![(url.to_owned(), "TIDECAST_TRACKER")];
        for url in [
            "https://t.example/0123456789abcdef0123456789abcdef/announce",
            "http://t.example/announce.php?passkey=0123456789abcdef&x=1",
            "http://me:pass@t.example/announce",
            "udp://t.example:1/a/0123456789abcdef",
        ] {
            assert_eq!(found(&format!("tidecast seed m.torrent d --tracker {url}")), one(url), "{url}");
            assert_eq!(found(&format!("tidecast mount --tracker={url} m d")), one(url), "{url}");
            assert_eq!(found(&format!("tidecast run m --tracker x -- p --tracker {url}")), [], "{url}");
            let coded = url.replace(':', "%3a").replace('/', "%2F").replace('?', "%3F").replace('@', "%40");
            let magnet = format!("magnet:?xt=urn:btih:00&tr=udp://a:1&tr.1={coded}");
            assert_eq!(
                found(&format!("tidecast get {magnet} --to d")),
                [(magnet.clone(), "TIDECAST_TICKET")]
            );
        }
    }

    #[test]
    fn places_of_secrets_are_none() {
        for line in [
            "tidecast get m --tracker http://head:6969/announce --tracker=udp://averylonghostname.example.org:1/announce",
            "tidecast get magnet:?xt=urn:btih:0123456789abcdef0123456789abcdef01234567&tr=http%3A%2F%2Fa.b%2Fannounce",
            "tidecast get m --tracker @tracker --tracker=@tracker",
            "tidecast get m --to http://t.example/0123456789abcdef0123456789abcdef/announce",
            "tidecast get @ticket --to d",
            "tidecast get - --to d",
            "tidecast get tidecast1... --to d",
            "tidecast field send a --key @field.key",
            "tidecast field send a --key -",
            "tidecast field send a --key=@field.key",
            "tidecast copy tidecast://@key@h/a tidecast://-@h/b",
            "tidecast copy tidecast://h/a b",
            "tidecast cache get tidecast://head/nt@2/x@y",
            "tidecast run @t -- prog --key abc tidecast://k@h/",
        ] {
            assert_eq!(found(line), [], "{line}");
        }
    }

    #[test]
    fn messages_do_not_show_what_stands_in_place_of_a_secret() {
        let taken = |number: u32, text: &str| (format!("{FD}{number}"), text.to_owned());
        let all = BTreeMap::from([taken(3, "abc"), taken(31, "http://t/0123456789abcdef0123/announce")]);
        let told = replaced("'@/proc/self/fd/3' and '@/proc/self/fd/31', not '@/proc/self/fd/4'", &all);
        assert_eq!(told, "'<the key given>' and '<the tracker URL given>', not '@/proc/self/fd/4'");
    }

    #[test]
    fn a_descriptor_is_found_in_its_word() {
        assert_eq!(descriptor(b"@/proc/self/fd/12"), Some(12));
        assert_eq!(descriptor(b"tidecast://@/proc/self/fd/3@host/x"), Some(3));
        assert_eq!(descriptor(b"--key=@/proc/self/fd/4"), Some(4));
        assert_eq!(descriptor(b"@/proc/self/fd/x"), None);
        assert_eq!(descriptor(b"@key"), None);
    }
}
