//! Flags of rsync that ask for what is done anyway, and such as are refused with what to do instead.

/// What is done anyway, or has no meaning here.
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
    // Streams of encrypted blocks: what can be compressed is read no quicker than it is sent.
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

/// What asks for something else than a copy does.
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
    ("insecure-links", None, "links that others plant in a destination are never followed"),
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
        "a link in the place of a directory is replaced: whoever may plant one would say where files go",
    ),
    ("copy-unsafe-links", None, "symbolic links are copied as links, or with -L all as what they lead to"),
    ("safe-links", None, "symbolic links are copied as they are; leave them out with --no-links"),
    ("munge-links", None, "symbolic links are copied as they are; leave them out with --no-links"),
    ("atimes", Some('U'), "times of access are not copied"),
    ("crtimes", Some('N'), "times of creation are not copied"),
    ("prune-empty-dirs", Some('m'), "empty directories are copied, too; leave them out with --exclude"),
    ("cvs-exclude", Some('C'), "there is no list of what is left out by itself; name it with --exclude-from"),
    ("dir-filters", Some('F'), "filter files in directories are not read; name one with --exclude-from"),
    ("ipv4", Some('4'), "give an address with --address"),
    ("ipv6", Some('6'), "give an address with --address"),
    ("delete-missing-args", None, "a source that is missing deletes nothing; remove it at the destination"),
    ("ignore-missing-args", None, "a source that is missing is an error; leave it out of the command"),
    ("ignore-errors", None, "nothing is deleted while a source cannot be read; mend what the copy names"),
    (
        "delay-updates",
        None,
        "each file gets its name as soon as it is whole; copy to a new directory, and rename that",
    ),
    ("fake-super", None, "owners and devices are not stored as attributes; run the receiving end as root"),
    ("copy-devices", None, "devices are copied as devices; read one with dd"),
    ("write-devices", None, "devices are replaced, not written to; write one with dd"),
    ("list-only", None, "nothing is only listed; --dry-run says what a copy would do, ls -lR what there is"),
];

/// The same of flags that have a value.
pub const OTHERS: [(&str, Option<char>, &str); 26] = [
    ("confine-root", None, "a copy-server keeps what is asked of it below its --root"),
    ("log-file-format", None, "what a copy does is said by --json"),
    ("early-input", None, "a daemon of rsync is not reached; write host:/path"),
    ("protocol", None, "both ends need the same release of tidecast"),
    ("checksum-seed", None, "contents are compared by SHA-256, which needs none"),
    ("rsync-path", None, "what tidecast is called there is said by --remote-program PROGRAM"),
    ("block-size", Some('B'), "blocks have 4 MiB"),
    ("temp-dir", Some('T'), "unfinished files are kept in the destination, in a directory of their own"),
    ("remote-option", Some('M'), "both ends have the same options"),
    ("compare-dest", None, "copy to the directory that is compared with, or a snapshot of it (cp -al)"),
    ("copy-dest", None, "copy to a snapshot of that directory (cp -a)"),
    ("usermap", None, "give everything to one owner with --chown, or keep numbers with --numeric-ids"),
    (
        "groupmap",
        None,
        "give everything to one group with --chown :GROUP, or keep numbers with --numeric-ids",
    ),
    ("checksum-choice", None, "contents are compared by XXH3, those of --checksum by SHA-256"),
    ("out-format", None, "what a copy does is said by --json"),
    ("log-file", None, "redirect what is said: --json 2>FILE"),
    (
        "password-file",
        None,
        "a daemon of rsync is not reached; the key of a copy-server is given by --key @FILE",
    ),
    ("contimeout", None, "--timeout TIME bounds all waits"),
    ("sockopts", None, "congestion control is chosen by --congestion, streams by --streams"),
    ("copy-as", None, "run the receiving end as that user: USER@HOST:PATH"),
    ("iconv", None, "names are copied byte for byte"),
    ("stop-after", None, "end it with timeout(1); the same command goes on"),
    ("stop-at", None, "end it with timeout(1); the same command goes on"),
    ("write-batch", None, "no file of changes is written; copy to each destination"),
    ("only-write-batch", None, "no file of changes is written; copy to each destination"),
    ("read-batch", None, "no file of changes is read; copy from the source"),
];
