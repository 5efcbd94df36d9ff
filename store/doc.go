// Package store is the record of runs: the runs themselves, the sampled tokens, the
// rewards, the versions made from them and the promoted version. It is the only place with
// SQL. Weights, batches and task snapshots are too large for it and are in package blob.
//
// A store is an SQLite file (one machine, the default) or a PostgreSQL database (fleets).
// Both give the same guarantees:
//
//   - An acknowledged write survives kill -9 of any process. Writes that end a piece of
//     work (a sealed attempt, a version, a promotion: all but calls, events and the
//     agent's own rewards) also survive loss of power, together with every write that the
//     same process had acknowledged before.
//   - Every write has a natural key. Writing the same thing again changes nothing and
//     succeeds. Writing another thing under the same key returns [trace.ErrConflict].
//     Where two executors may have worked at the same time (runs, versions, batches), it
//     returns what is on record instead.
//   - An attempt is fenced by the next attempt at its rollout and by its seal: from the
//     moment that BeginAttempt or SealAttempt returns, no call, event or agent's reward
//     is added to the fenced attempt ([trace.ErrFenced]).
//   - A pinned pointer is moved by hand only. A decision about a candidate either moved
//     the pointer or is on record as one that did not, never both.
//   - A call is stored as what it adds to its parent; its bodies ([trace.Exchange]) are
//     stored separately from its tokens. So an attempt's storage grows linearly with its
//     new text, however many turns repeat it. Calls are read back complete, and bodies
//     exactly as they were written: each has a digest, and reading a damaged one returns
//     [ErrBodies].
//   - Reading tokens reads no body. Bodies are read one attempt at a time, and reading
//     those of one call reads no more than twice its own bytes.
//   - A call records when its commit began; if it was not sampled, which attempt's record
//     answered it; and where an attempt's requests began to differ from earlier ones.
//
// The store does not check the meaning of its rows: the writer has to make sure that a
// version's blobs exist and that a promotion is justified. If a context ends during a
// write, the write may or may not be on record; repeat it to find out.
//
// Text is kept as valid UTF-8 without NUL, which PostgreSQL requires; other bytes become
// U+FFFD. Requests and responses are kept byte by byte. Tokens are unsigned LEB128
// varints of their 32 bits, and log-probabilities are IEEE 754 single precision,
// little-endian: both are exact. Times are kept to the nanosecond and are read back in
// UTC.
package store
