// Package devserver runs a Temporal server and its Web UI inside this process,
// so that a newcomer needs neither an installation nor a network. It is the
// server's own code with SQLite behind it, and the same the `temporal` CLI, the
// Web UI and any SDK can talk to. It can also work on PostgreSQL, where a test
// wants the databases of a fleet without its containers.
//
// It is not a cluster: one process, no authorization, reachable from this
// machine alone. Fleets run a Temporal of their own and never link this package,
// which brings about 150 MB of machine code with it.
//
// Guarantees:
//
//   - With a directory, what the server acknowledged survives kill -9 of the
//     process and loss of power: it is committed to a write-ahead log that was
//     flushed to the disk. A later Start on the same directory continues every
//     workflow. Without a directory all is in memory and ends with Stop.
//   - A directory has one server at a time. A second Start, from whatever
//     process, fails with [ErrInUse] and names the process that has it; the
//     kernel lets go of the lock when its holder dies, so none is ever stale.
//   - What workers had begun that died with the server is begun again at once by
//     Recover, which the caller tells whose those were.
//   - Namespace, retention and search attributes are as the options say when
//     Start returns, also in a directory that an older program made. A search
//     attribute is only ever added.
//   - Start returns when the server answers, usually within a second, and Stop
//     returns within [StopTimeout].
//
// Temporal keeps the database connection of a stopped server until the process
// exits, and its log is filtered: while it runs warnings and worse pass, while
// it stops nothing does, since closing connections make it complain of errors
// that are none.
package devserver
