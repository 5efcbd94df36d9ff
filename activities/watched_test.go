package activities_test

import (
	"context"
	"sync"

	"github.com/fulgurite/fulgurite/activities"
	"github.com/fulgurite/fulgurite/model"
)

// made is one update in the form in which the engine saw it.
type made struct {
	rows     []model.Row
	logprobs [][]float32
	gradient [][]float32 // of the loss, by each row's log-probabilities
	entropy  [][]float32 // of the loss, by each row's entropies
	adamW    model.AdamW
}

// watched is an engine whose updates are looked at.
type watched struct {
	model.Engine
	enter func(ctx context.Context) error // before each update; nil does nothing
	row   func()                          // after each row of an update; nil does nothing

	mu   sync.Mutex
	made []made
}

// watch replaces the trainer's engine by one whose updates are recorded.
func watch(trainer *activities.Trainer, enter func(ctx context.Context) error) *watched {
	w := &watched{enter: enter}
	trainer.Engines = func(name string) (model.Engine, error) {
		e, err := engines(name)
		w.Engine = e
		return w, err
	}
	return w
}

func (w *watched) NewTrainer(c model.Checkpoint) (model.Trainer, error) {
	t, err := w.Engine.NewTrainer(c)
	return &watchedTrainer{t, w}, err
}

type watchedTrainer struct {
	model.Trainer
	*watched
}

func (w *watchedTrainer) Update(ctx context.Context, rows []model.Row, o model.Objective, a model.AdamW) (float64, error) {
	if w.enter != nil {
		if err := w.enter(ctx); err != nil {
			return 0, err
		}
	}
	seen := made{rows: rows, logprobs: make([][]float32, len(rows)), gradient: make([][]float32, len(rows)), entropy: make([][]float32, len(rows)), adamW: a}
	norm, err := w.Trainer.Update(ctx, rows, func(i int, logprobs, entropies, gradient, entropyGradient []float32) {
		o(i, logprobs, entropies, gradient, entropyGradient)
		if w.row != nil {
			w.row()
		}
		seen.logprobs[i] = append([]float32(nil), logprobs...)
		seen.gradient[i] = append([]float32(nil), gradient...)
		seen.entropy[i] = append([]float32(nil), entropyGradient...)
	}, a)
	w.mu.Lock()
	defer w.mu.Unlock()
	w.made = append(w.made, seen)
	return norm, err
}
