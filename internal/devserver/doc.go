// Package devserver runs a Temporal server and its Web UI inside this process, so that a
// newcomer needs neither an installation nor a network. It is the server's own code on
// SQLite, so the `temporal` CLI, the Web UI and any SDK can talk to it. It can also work
// on PostgreSQL, for tests that want the databases of a fleet without its containers.
//
// It is not a cluster: it is one process without authorization, reachable only from this
// machine. Fleets run their own Temporal and never link this package, which brings about
// 150 MB of machine code with it.
//
// Guarantees:
//
//   - With a directory, what the server acknowledged survives kill -9 of the process and
//     loss of power: it is committed to a write-ahead log that was flushed to the disk. A
//     later Start on the same directory continues every workflow. Without a directory or
//     a PostgreSQL database, everything is in memory and ends with Stop.
//   - A directory has one server at a time. A second Start, from any process, fails with
//     [ErrInUse] and names the process that has the directory. The kernel releases the
//     lock when its holder dies, so a lock is never stale.
//   - Recover begins the activities again at once that workers had begun which died with the
//     server. The caller says which workers those are. A workflow task of such a worker waits
//     for its timeout, because the public API can't give it to another.
//   - When Start returns, namespace, retention and search attributes are as the options
//     say, even in a directory that an older program made. Search attributes are only
//     ever added.
//   - Start returns when the server answers, usually within a second, and Stop returns
//     within [StopTimeout].
//
// Temporal keeps the database connection of a stopped server until the process exits. Its
// log is filtered. While the server runs, only warnings and worse pass. While it stops,
// only panics pass, since closing connections make it report errors that are none.
package devserver
