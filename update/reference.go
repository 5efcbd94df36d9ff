package update

import (
	"context"
	"fmt"

	"github.com/fulgurite/fulgurite/internal/memory"
	"github.com/fulgurite/fulgurite/model"
)

// reference is the frozen policy that a KL penalty compares the trained one with:
// version 0 of its run. It stays in memory between the steps of a run that needs it,
// beside the policy that is trained, until the first step of one that does not.
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
	m.reference.drop()              // before the next one is made: both may not fit in memory
	c, err := m.loadWeights(ctx, v) // nothing will be trained
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

// newRowScorer makes what scores of c, which takes less than a trainer where the engine
// knows how.
func newRowScorer(engine model.Engine, c model.Checkpoint) (model.RowScorer, error) {
	if e, ok := engine.(model.ScoringEngine); ok {
		return e.NewRowScorer(c)
	}
	t, err := engine.NewTrainer(c)
	if err != nil {
		return nil, err // or a nil trainer would be a scorer
	}
	return t, nil
}
