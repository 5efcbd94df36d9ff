package torch

import (
	"context"
	"time"

	"github.com/fulgurite/fulgurite/model"
)

// PID returns the process id of the engine's program.
func (e *Engine) PID() int { return e.process.about.PID }

// RankPID returns the process id of a rank of the engine's program.
func (e *Engine) RankPID(rank int) int { return e.process.ranks[rank].cmd.Process.Pid }

// Dir returns the directory of the engine's program.
func (e *Engine) Dir() string { return e.process.dir }

// SetLimit sets how long the program may show no progress from now on.
func (e *Engine) SetLimit(d time.Duration) { e.process.limit = d }

// SetGrace sets how long ranks may wait for one that has an error.
func (e *Engine) SetGrace(d time.Duration) { e.process.grace = d }

// Damage sends rank 1 a pass that it can't read, and all other ranks one that they can.
func Damage(t model.Trainer, rows []model.Row) error {
	of := t.(*trainer)
	passes, err := spread(of.of.Architecture, rows, of.tokens, of.ranks)
	if err != nil {
		return err
	}
	passes[0][1].arrays = passes[0][1].arrays[1:]
	return of.forward(context.Background(), passes[0], rows, false, make([][]float32, len(rows)), make([][]float32, len(rows)))
}

// InBF16 makes the program compute products in bfloat16 on a CPU, as it does on a GPU.
func (o Options) InBF16() Options {
	o.products = "bfloat16"
	return o
}

// SetTokens sets the largest number of tokens in one pass of a trainer.
func SetTokens(t model.Trainer, n int) { t.(*trainer).tokens = n }

// TooLittle returns the advice of a request that ran out of so many bytes of memory.
func (r Room) TooLittle(memory int64) string { return r.tooLittle(memory) }
