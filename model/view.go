package model

import "context"

// Viewer is a Trainer or a Critic that shows its state without copying it.
type Viewer interface {
	// View is like Checkpoint, but the result may be the trainer's own memory: read it
	// only, until the next Update or Close.
	View() Checkpoint
}

// Saver is a Trainer or a Critic whose state is not in this process, so that a copy of it
// may be impossible to get.
type Saver interface {
	// Save is like Checkpoint, or returns the reason why there is no checkpoint.
	Save(ctx context.Context) (Checkpoint, error)
}
