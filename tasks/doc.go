// Package tasks has what agents attempt: the tasks of a split, the sources that they are
// read from, and the graders that turn an answer into a reward.
//
// A source of tasks is a JSONL file, a published data set, a program or a generator
// ([Open], [OpenSplit]). A run keeps an immutable snapshot of the tasks ([Encode]).
// Everything later refers to a task by its index in the snapshot; package stream defines
// their order. The package also reads demonstrations for a warm start
// ([OpenDemonstrations]).
//
// It doesn't run agents, stores nothing, and makes no environment: a task is an input
// and, for the graders that compare, an answer that no agent sees.
//
// Guarantees: a source with any fault gives no tasks, but an error that names each bad
// line. Snapshots, orders and generated tasks are the same on every machine. A reward is
// always finite.
package tasks
