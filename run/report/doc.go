// Package report accounts for a run: for every prompt that the stream of tasks issued,
// for every attempt, and for the promoted pointer. It trusts no counter. It reads from
// the batches themselves what was trained. What had to be trained follows from the
// stream, which depends only on the spec.
//
// The package only reads; it repairs nothing. A running run is accounted for up to its
// last finished step; later work is shown as unfinished. If a report finds faults
// ([Report.Faults]), it says where and what: a prompt that was skipped or trained twice,
// an attempt in a batch that does not count, a batch that is not the one its version was
// trained on.
package report
