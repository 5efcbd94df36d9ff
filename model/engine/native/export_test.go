package native

import (
	"github.com/fulgurite/fulgurite/model"
	"github.com/fulgurite/fulgurite/model/engine/native/kvcache"
)

// KeepActivations sets how many numbers of activations a trainer's shards keep.
func KeepActivations(t model.Trainer, numbers int) {
	for _, s := range t.(*trainer).shards {
		s.keepNumbers = numbers
	}
}

// LimitLogits sets how many logits exist at once.
func LimitLogits(t model.Trainer, numbers int) {
	for _, s := range t.(*trainer).shards {
		s.logitNumbers = numbers
	}
}

// BaseBytes returns how many bytes the engine of a trainer holds for the trainer's base.
func BaseBytes(t model.Trainer) int { return 4 * len(t.(*trainer).base.held.Data()) }

// ShareNothing makes updates compute common prefixes again for each row.
func ShareNothing(t model.Trainer) { t.(*trainer).shares = false }

// ShareNothingOfCritic is ShareNothing for a critic.
func ShareNothingOfCritic(c model.Critic) { c.(critic).shares = false }

// PositionsOf returns how many positions the shards of an update with rows have.
func PositionsOf(t model.Trainer, rows []model.Row) (positions int) {
	shards, err := t.(*trainer).plan(rows, t.(*trainer).shares)
	if err != nil {
		panic(err)
	}
	for _, s := range shards {
		for _, q := range s {
			positions += q.Own
		}
	}
	return positions
}

// NewDecoderWithoutSharing returns a decoder that computes all of each prompt.
func NewDecoderWithoutSharing(e *Engine, c model.Checkpoint) (model.Decoder, error) {
	return e.newDecoderWith(c, func(b *batch) { b.alone = true })
}

// NewDecoderWithRoom returns a decoder whose memory grows by up to stay pages for
// finished requests.
func NewDecoderWithRoom(e *Engine, c model.Checkpoint, stay int) (model.Decoder, error) {
	return e.newDecoderWith(c, func(b *batch) { b.kept = kvcache.NewKept(b.pages, stay) })
}

// newDecoderWith changes a decoder before its goroutine starts.
func (e *Engine) newDecoderWith(c model.Checkpoint, change func(*batch)) (model.Decoder, error) {
	d, err := e.prepareDecoder(c)
	if err != nil {
		return nil, err
	}
	change(d.batch)
	d.Own(d.own)
	return d, nil
}

// Computed returns how many positions a decoder has computed. The decoder must have no
// requests.
func Computed(d model.Decoder) int { return d.(*decoder).computed }
