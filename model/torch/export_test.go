package torch

import (
	"time"

	"github.com/fulgurite/fulgurite/model"
)

// PID is the process id of the engine's program, and Dir its directory.
func (e *Engine) PID() int { return e.process.about.PID }

// Dir is the directory of the engine's program.
func (e *Engine) Dir() string { return e.process.dir }

// SetLimit is how long the program may show no progress from now on.
func (e *Engine) SetLimit(d time.Duration) { e.process.limit = d }

// SetTokens is the most tokens of one pass of a trainer.
func SetTokens(t model.Trainer, n int) { t.(*trainer).tokens = n }
