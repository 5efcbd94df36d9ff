package model

// Progress is how far the updates towards a version have come: a state from which its
// trainer may go on. It is not a version. A trainer that begins anew arrives at the same
// weights.
type Progress struct {
	VersionID
	// Basis is a digest of everything that decides the updates, so that nobody
	// goes on from a state that other numbers led to.
	Basis    string
	Updates  int    // made of those that the version takes
	Manifest string // blob of the state after them
}
