// Package store is the record of runs: who ran, the sampled tokens, the rewards, the
// versions made from them and the promoted one. It is the only place with SQL. Weights,
// batches and task snapshots are too large for it and live in package blob.
//
// A store is an SQLite file (one machine, the default) or a PostgreSQL database
// (fleets). Both keep the same promises:
//
// - An acknowledged write survives kill -9 of any process. What ends a piece of work (a
// sealed attempt, a version, a promotion, everything but calls, events and the agent's
// own rewards) also survives loss of power, and with it every write that the same process
// had acknowledged before.
//   - Every write has a natural key. Writing the same thing again changes
//     nothing and succeeds; writing another thing under the key is
//     [trace.ErrConflict], or returns what is there where two executors may
//     have worked at once (runs, versions, batches).
//   - An attempt is fenced by the next attempt at its rollout and by its seal:
//     from the moment that BeginAttempt or SealAttempt returns, no call, event
//     or agent's reward is added to the earlier one ([trace.ErrFenced]).
//   - A pinned pointer is moved by hand only, and a decision about a candidate
//     either moved the pointer or is on record as one that did not, never both.
//   - A call is kept as what it adds to its parent: its tokens, and apart from them
//     its bodies ([trace.Exchange]). So an attempt's storage grows linearly with what
//     is said in it, however many turns repeat it. What is read back is whole, and
//     bodies are read as they were written: each has a digest, or reading them is
//     [ErrBodies].
//   - Reading tokens reads no body. Bodies are read one attempt at a time, and reading
//     those of one call reads no more than twice its own bytes.
//   - A call says when its commit began, which attempt's record answered it if it
//     was not sampled, and from where on an attempt's requests were others.
//
// It does not check the meaning of its rows: the writer is responsible for the existence
// of a version's blobs and the wisdom of a promotion. When a context ends while a write
// is under way, the write may or may not be on record; ask again.
//
// Text is kept as valid UTF-8 without NUL, which PostgreSQL insists on; other
// bytes become U+FFFD. Requests and responses are kept byte by byte. Tokens are
// unsigned LEB128 varints of their 32 bits, log-probabilities IEEE 754 single
// precision, little-endian: both are exact. Times are kept to the nanosecond
// and come back in UTC.
package store
