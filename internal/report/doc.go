// Package report accounts for a run: what became of every prompt that the stream
// of tasks issued, of every attempt, and of the promoted pointer. It believes no
// counter. What was trained is read out of the batches themselves, and what had
// to be trained from the stream, which follows from the spec alone.
//
// It only reads, and does not repair. A run under way is accounted for up to its
// last finished step; what goes on beyond is shown as such. A report can find
// fault with a run ([Report.Faults]), and then says where and how: a prompt that
// was skipped or trained twice, an attempt in a batch that does not count, a
// batch that is not the one its version was trained on.
package report
