package activities

// Progress returns the details of t's heartbeats.
func Progress(t *Trainer) TrainerProgress { return t.progress() }
