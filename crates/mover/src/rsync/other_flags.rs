//! Flags of rsync that are accepted because a copy does the same anyway, and flags that are rejected with a
//! hint to the alternative.

/// Flags that ask for the default behaviour, or have no meaning here.
pub const DONE: [(&str, Option<char>); 28] = [
    ("msgs2stderr", None),
    ("no-msgs2stderr", None),
    ("i-r", None),
    ("no-i-r", None),
    ("no-W", None),
    ("8-bit-output", Some('8')),
    ("sparse", Some('S')),
    ("partial", None),
    ("progress", None),
    ("partial-and-progress", Some('P')),
    // Blocks are sent encrypted and as fast as they are read; compression would not speed that up.
    ("compress", Some('z')),
    ("whole-file", Some('W')),
    ("no-whole-file", None),
    ("fuzzy", Some('y')),
    ("secluded-args", Some('s')),
    ("protect-args", None),
    ("old-args", None),
    ("trust-sender", None),
    ("inc-recursive", None),
    ("no-inc-recursive", None),
    ("preallocate", None),
    ("mkpath", None),
    ("no-motd", None),
    ("blocking-io", None),
    ("open-noatime", None),
    ("super", None),
    ("no-compress", None),
    // As sizes always are. Alone it asks for help, as with rsync.
    (HUMAN, Some('h')),
];
/// Its name.
pub const HUMAN: &str = "human-readable";

/// The same with a value.
pub const DONE_VALUED: [&str; 12] = [
    "zc",
    "zl",
    "stderr",
    "compress-level",
    "compress-choice",
    "compress-threads",
    "skip-compress",
    "partial-dir",
    "info",
    "debug",
    "outbuf",
    "max-alloc",
];

/// Flags that ask for other behaviour than that of a copy.
pub const REFUSED: [(&str, Option<char>, &str); 25] = [
    (
        "old-dirs",
        None,
        "directories are always copied with their contents; leave these out with --exclude '/*/*'",
    ),
    (
        "old-d",
        None,
        "directories are always copied with their contents; leave these out with --exclude '/*/*'",
    ),
    ("insecure-links", None, "symbolic links in a destination are never followed"),
    ("drop-D", None, "leave devices and pipes out with --no-D"),
    (
        "dirs",
        Some('d'),
        "directories are always copied with their contents; leave these out with --exclude '/*/*'",
    ),
    (
        "no-recursive",
        None,
        "directories are always copied with their contents; leave these out with --exclude '/*/*'",
    ),
    (
        "keep-dirlinks",
        Some('K'),
        "a symbolic link in place of a directory is replaced: another user could redirect files with it",
    ),
    ("copy-unsafe-links", None, "symbolic links are copied as links; with -L all of them are followed"),
    ("safe-links", None, "symbolic links are copied as they are; leave them out with --no-links"),
    ("munge-links", None, "symbolic links are copied as they are; leave them out with --no-links"),
    ("atimes", Some('U'), "access times are not copied"),
    ("crtimes", Some('N'), "creation times are not copied"),
    ("prune-empty-dirs", Some('m'), "empty directories are copied, too; leave them out with --exclude"),
    ("cvs-exclude", Some('C'), "no names are excluded by default; name a list with --exclude-from"),
    ("dir-filters", Some('F'), "filter files in directories are not read; name one with --exclude-from"),
    ("ipv4", Some('4'), "give an address with --address"),
    ("ipv6", Some('6'), "give an address with --address"),
    ("delete-missing-args", None, "a missing source deletes nothing; remove it at the destination"),
    ("ignore-missing-args", None, "a missing source is an error; leave it out of the command"),
    (
        "ignore-errors",
        None,
        "nothing is deleted while a source cannot be read; fix the errors that the copy reports",
    ),
    (
        "delay-updates",
        None,
        "each file gets its name as soon as it is complete; copy to a new directory and rename it",
    ),
    ("fake-super", None, "owners and devices are not stored as attributes; run the receiving end as root"),
    ("copy-devices", None, "devices are copied as devices; read one with dd"),
    ("write-devices", None, "devices are replaced, not written to; write one with dd"),
    ("list-only", None, "use --dry-run to see the changes, or ls -lR to list a directory"),
];

/// The same of flags that have a value.
pub const OTHERS: [(&str, Option<char>, &str); 26] = [
    ("confine-root", None, "a copy-server confines all requests to its --root"),
    ("log-file-format", None, "use --json to get a report of each copy"),
    ("early-input", None, "rsync daemons are not supported; write host:/path"),
    ("protocol", None, "both ends need the same release of tidecast"),
    ("checksum-seed", None, "contents are compared by SHA-256, which needs no seed"),
    ("rsync-path", None, "name the remote program with --remote-program PROGRAM"),
    ("block-size", Some('B'), "blocks have a fixed size of 4 MiB"),
    ("temp-dir", Some('T'), "unfinished files are kept in the destination, in a directory of their own"),
    ("remote-option", Some('M'), "both ends get the same options"),
    ("compare-dest", None, "copy to the directory to compare with, or to a snapshot of it (cp -al)"),
    ("copy-dest", None, "copy to a snapshot of that directory (cp -a)"),
    ("usermap", None, "set one owner for everything with --chown, or keep numeric IDs with --numeric-ids"),
    (
        "groupmap",
        None,
        "set one group for everything with --chown :GROUP, or keep numeric IDs with --numeric-ids",
    ),
    ("checksum-choice", None, "contents are compared by XXH3, with --checksum by SHA-256"),
    ("out-format", None, "use --json to get a report of each copy"),
    ("log-file", None, "redirect the report: --json 2>FILE"),
    (
        "password-file",
        None,
        "rsync daemons are not supported; give the key of a copy-server with --key @FILE",
    ),
    ("contimeout", None, "--timeout TIME bounds all waits"),
    (
        "sockopts",
        None,
        "use --congestion to choose the congestion control, --streams the number of connections",
    ),
    ("copy-as", None, "run the receiving end as that user: USER@HOST:PATH"),
    ("iconv", None, "names are copied byte for byte"),
    ("stop-after", None, "end it with timeout(1); run the same command again to resume"),
    ("stop-at", None, "end it with timeout(1); run the same command again to resume"),
    ("write-batch", None, "batch files are not written; copy to each destination"),
    ("only-write-batch", None, "batch files are not written; copy to each destination"),
    ("read-batch", None, "batch files are not read; copy from the source"),
];
