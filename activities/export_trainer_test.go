package activities

// Work is how many pieces of work t has done.
func (t *Trainer) Work() uint64 { return t.work.Load() }
