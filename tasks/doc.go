// Package tasks has what agents attempt: the tasks of a split, where they come
// from, and the graders that turn an answer into a reward.
//
// A source of tasks is a JSONL file or a generator ([Open]). Whatever it is, a
// run keeps an immutable snapshot of it ([Encode]), and everything later names a
// task by its index there; package stream says in which order. The package also
// reads demonstrations for a warm start ([OpenDemonstrations]).
//
// It doesn't run agents, keeps nothing, and makes no environment: a task is an
// input and, for the graders that compare, an answer that no agent sees.
//
// Guarantees: a source with any fault yields no tasks at all but an error that names each
// bad line; snapshots, orders and generated tasks are the same on every machine; and a
// reward is always finite.
package tasks
