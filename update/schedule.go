package update

import (
	"math"

	"github.com/fulgurite/fulgurite/model"
	"github.com/fulgurite/fulgurite/spec"
)

// adamW returns the optimizer of one step. Under a linear or cosine schedule, the
// learning rate falls from its full value at step 1 to FinalFraction of it at the last
// step.
func adamW(o spec.Optimizer, step, steps int) model.AdamW {
	progress := 0.0
	if steps > 1 {
		progress = float64(step-1) / float64(steps-1)
	}
	scale := 1.0
	switch o.Schedule {
	case spec.ScheduleLinear:
		scale = 1 - progress*(1-o.FinalFraction)
	case spec.ScheduleCosine:
		scale = o.FinalFraction + (1-o.FinalFraction)*0.5*(1+math.Cos(math.Pi*progress))
	}
	return model.AdamW{
		LearningRate: o.LearningRate * scale, Beta1: o.Beta1, Beta2: o.Beta2, Epsilon: o.Epsilon,
		WeightDecay: o.WeightDecay, ClipNorm: o.ClipNorm,
	}
}

// The schedule of a warm start: linear warm-up, then cosine decay to a twentieth.
const (
	warmUpUpdates   = 20
	warmStartFinish = 0.05
)

// warmAdamW returns the optimizer of warm-start update u of n, counted from 0.
func warmAdamW(w spec.WarmStart, o spec.Optimizer, u, n int) model.AdamW {
	rise := math.Min(1, float64(u+1)/warmUpUpdates)
	fall := warmStartFinish + (1-warmStartFinish)*0.5*(1+math.Cos(math.Pi*float64(u)/float64(n)))
	return model.AdamW{
		LearningRate: w.LearningRate * rise * fall, Beta1: o.Beta1, Beta2: o.Beta2, Epsilon: o.Epsilon,
		WeightDecay: o.WeightDecay, ClipNorm: o.ClipNorm,
	}
}
