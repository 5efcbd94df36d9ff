package native

import (
	"github.com/fulgurite/fulgurite/model"
	"github.com/fulgurite/fulgurite/model/native/kvcache"
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

// BaseBytes is what the engine of a trainer holds of its base.
func BaseBytes(t model.Trainer) int { return 4 * len(t.(*trainer).base.held.Data()) }

// ShareNothing has updates compute what rows have in common for each of them.
func ShareNothing(t model.Trainer) { t.(*trainer).shares = false }

// ShareNothingOfCritic is ShareNothing for a critic.
func ShareNothingOfCritic(c model.Critic) { c.(critic).shares = false }

// PositionsOf is how many positions the shards of an update of rows have.
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

// ShareNothingOfDecoder has a decoder compute all of each prompt.
func ShareNothingOfDecoder(d model.Decoder) { d.(*decoder).alone = true }

// KeepPages sets for how many pages of finished requests the memory of a decoder grows,
// before its first.
func KeepPages(d model.Decoder, stay int) {
	d.(*decoder).kept = kvcache.NewKept(d.(*decoder).pages, stay)
}

// Computed is how many positions a decoder without requests has computed.
func Computed(d model.Decoder) int { return d.(*decoder).computed }
