package activities

// Work is how many pieces of work t has done.
func Work(t *Trainer) uint64 { return t.maker.Work() }
