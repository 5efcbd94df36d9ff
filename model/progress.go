package model

// Progress is how far the updates towards a version have come: a state from which the
// version's trainer may continue. It is not a version. A trainer that starts from the
// beginning arrives at the same weights.
type Progress struct {
	VersionID
	// Basis is a digest of everything that decides the updates, so that no trainer
	// continues from a state that other inputs led to.
	Basis    string
	Updates  int    // how many of the version's updates are made
	Manifest string // blob of the state after them
}
