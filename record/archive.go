package record

import "time"

// HistoriesPolicy stands in place of a policy where a file with archived histories is noted
// before it is stored. No policy has this name, since it is not one of a spec.
const HistoriesPolicy = "histories/"

// Archive says where the histories of a run are kept after Temporal has deleted them.
type Archive struct {
	Run string
	// Finished is when the run that was archived ended, zero if it was under way. A run that
	// was reset since has another end.
	Finished time.Time
	// Digest names the blob, and Bytes is its size. Digest is empty if there was no history
	// left to archive.
	Digest string
	Bytes  int64
	// Histories counts the executions of workflows in the archive, and Events theirs.
	Histories int
	Events    int64
	Archived  time.Time
	// Removed is zero unless the blob is being removed.
	Removed time.Time
}
