package model

import "context"

// Viewer is a Trainer or a Critic that shows its state without copying it.
type Viewer interface {
	// View is Checkpoint, but what it returns may be the trainer's own memory: it is
	// for reading, until the next Update or Close.
	View() Checkpoint
}

// Saver is a Trainer or a Critic whose state is not in this process, so that a copy of it
// may be impossible to get.
type Saver interface {
	// Save is Checkpoint, or the reason why there is none.
	Save(ctx context.Context) (Checkpoint, error)
}
