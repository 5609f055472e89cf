//! What becomes of what stands at the destination: one rule for `bcast` and `get`, in the same words.

/// What `--help` of bcast and get says of a destination that is there already: one rule, in the same words.
macro_rules! standing {
    () => {
        "\
What stands there already:
  The same data stays as it is. A former version (what bcast or get put there
  by this user's record, unchanged since) is replaced file by file, each at
  once: a program that has the old file open keeps it. Kinds that changed
  (file, link, directory) are replaced too. A regular file that the record
  has never known (an older copy by hand or by rsync) is replaced by bcast, and
  a line says how many; get refuses it, as others chose the names. Anything
  else, a delivered file that was edited since too, is refused before anything
  is replaced, unless --force is given; devices, pipes, sockets, mounts, and a
  directory where the whole of a file belongs always are.
  Files of a tree that the source does not have stay, and a line says how many.
  --delete removes those that the record says were put there, unchanged since;
  others stay, and a line says so; --delete --force removes them too. What was
  the same before is not recorded: it stays its owner's. Records are in
  STATE/delivered on each host."
    };
}
pub(crate) use standing;
