package record

// RunOrder is an order of runs.
type RunOrder string

// The orders of runs.
const (
	NewestRuns  RunOrder = ""
	OldestRuns  RunOrder = "oldest"
	RunsByName  RunOrder = "name"
	LongestRuns RunOrder = "took" // what is under way counts until now
)

// RunQuery selects runs.
type RunQuery struct {
	Word      string // that the name contains, in small or capital letters; "" selects all
	Status    Status // "" selects all
	Otherwise bool   // only runs that have ended, and not completed
	Order     RunOrder
	From      int // runs that are skipped
	Most      int
}
