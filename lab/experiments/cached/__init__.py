"""The experiments of the HTCondor CacheD's paper: jobs that stage in a BLAST database on many nodes."""
