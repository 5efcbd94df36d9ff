package update

import (
	"context"
	"fmt"

	"github.com/fulgurite/fulgurite/internal/memory"
	"github.com/fulgurite/fulgurite/model"
)

// reference is the frozen policy that a KL penalty compares the trained policy with:
// version 0 of its run. It stays in memory, in addition to the policy that is trained,
// until the first step of a run that does not need it.
type reference struct {
	scorer   model.RowScorer
	manifest string
}

func (r *reference) drop() {
	if r.scorer != nil {
		r.scorer.Close()
	}
	*r = reference{}
}

// loadReference loads the reference for the step that makes version id.
func (m *Maker) loadReference(ctx context.Context, id model.VersionID, engine model.Engine) (model.RowScorer, error) {
	first := id
	first.Number = 0
	v, err := m.Versions.Version(ctx, first)
	if err != nil {
		return nil, fmt.Errorf("read the reference %s: %w", first, err)
	}
	if m.reference.scorer != nil && m.reference.manifest == v.Manifest {
		return m.reference.scorer, nil
	}
	m.reference.drop()              // before the next one is loaded, because both may not fit in memory
	c, err := m.loadWeights(ctx, v) // the reference is not trained
	if err != nil {
		return nil, fmt.Errorf("load the reference %s: %w", first, unreadable(err, id))
	}
	scorer, err := newRowScorer(engine, c)
	if err != nil {
		return nil, engineError(fmt.Errorf("reference %s: engine %s: %w", first, engine.Name(), err))
	}
	m.reference = reference{scorer, v.Manifest}
	m.work.Add(1)
	memory.Dropped(size(c)) // the engine has copied it
	return scorer, nil
}

// newRowScorer returns a scorer of rows with the weights of c. If the engine has one, it
// takes less memory than a trainer.
func newRowScorer(engine model.Engine, c model.Checkpoint) (model.RowScorer, error) {
	if e, ok := engine.(model.ScoringEngine); ok {
		return e.NewRowScorer(c)
	}
	t, err := engine.NewTrainer(c)
	if err != nil {
		return nil, err // an interface that holds a nil trainer would not be nil
	}
	return t, nil
}
