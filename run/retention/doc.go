// Package retention deletes files that are no longer needed: weights, moments and
// canaries. There are three kinds of such files. First, those of versions that a run no
// longer keeps, according to training.keep; their rows, metrics and manifests stay, and
// the row records when the files were deleted. Second, whatever the spec says, those of
// saved updates from which no trainer continues any more. Third, files that were written
// for a version but never became part of one, because their writer died or the run
// failed. Among these is the base of a run that never had a version.
//
// # What is never deleted
//
// The package keeps:
//
//   - Version 0, which is the base of the other versions and the reference of a KL
//     penalty.
//   - The newest version, from which the next one is made, and those from which rollouts
//     of a run with a lag still sample.
//   - The promoted version and the one promoted before it, pinned or not.
//   - Versions to which a running attempt is bound, and those that wait for a decision.
//   - Files that a version of any run, or saved progress that counts, needs. Progress no
//     longer counts when later updates were saved or the version exists.
//   - The base of adapters, which version 0 names.
//
// # Why it is safe
//
// A version is marked first, and its files are deleted later. If a process dies in
// between, the next collection deletes the files. While a version is being marked, no
// version of the policy can be promoted, and a marked version can't be promoted at all.
// While files are deleted, no version can be recorded, and a version is recorded only if
// all of its files exist. So a run that makes the same weights at that moment either
// records its row first, which protects the files, or is told to write the files again.
//
// Superseded progress is noted in the transaction that supersedes it, and forgotten after
// its files were deleted. A process that saves equal updates at that moment may find them
// missing later, and then makes them again. Collecting twice at the same time, or again,
// changes nothing.
//
// A file with tensors is noted before it is stored, for the version for which it is
// written. The version's row removes the note. A file that is noted for a version that is
// being made is needed, however old it is. The version is no longer being made when it is
// recorded or its run has ended. An hour later the file is deleted, unless a manifest or
// another version that is being made needs it. If the run is retried then, or a process
// resumes that had been stopped, it writes the file again, or is told that the file is
// gone when it records its row.
//
// A collection is part of the activity that records a step. It does not appear in the
// history of a workflow, so histories of earlier runs can still be replayed.
package retention
