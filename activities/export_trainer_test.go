package activities

// Progress is what t's heartbeats carry.
func Progress(t *Trainer) TrainerProgress { return t.progress() }
