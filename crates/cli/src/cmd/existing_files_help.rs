//! The help text about existing files at the destination: one rule for `bcast` and `get`, in the same words.

/// The paragraph of `--help` of bcast and get about existing files at the destination.
macro_rules! existing_files_help {
    () => {
        "\
Existing files at the destination:
  Files with the same data are kept. Delivered files (recorded for this user
  when bcast or get wrote them, and unchanged since) are replaced one by one,
  each atomically: a program that has the old file open keeps reading it. If a
  name changed its kind (file, link, directory), it is replaced too. A regular
  file that is not in the record (a copy by hand or by rsync) is replaced by
  bcast, which prints how many; get rejects it, because its names come from
  the publisher. Everything else, including a delivered file that was edited
  since, is rejected before any file is replaced, unless --force is given.
  Devices, pipes, sockets, mounts, and a directory in place of a published
  single file are always rejected.
  Files of a tree that the source does not have are kept, and their number is
  printed. --delete removes delivered files that are unchanged since; other
  files are kept and counted; --delete --force removes them too. Files that
  had the same data before are not recorded as delivered. Records are in
  STATE/delivered on each host."
    };
}
pub(crate) use existing_files_help;
