package runstate

// Steps, for tests.
var (
	End = end
	Add = add
)
