package credit

// runningDecay is the weight of a running baseline beside a new reward (SPIRAL,
// arXiv:2506.24119).
const runningDecay = 0.95

// AllAgents is the key of Plan.Baselines for all agents together; OfAgent that of one.
const AllAgents = "all"

// OfAgent is the key of an agent's baseline.
func OfAgent(name string) string { return "agent " + name }

// running reports whether the plan compares rewards with running baselines.
func (p Plan) running() bool { return p.Normalization.Mean == Running }

// withBaseline is the plan with one of its baselines.
func (p Plan) withBaseline(key string) Plan {
	p.Normalization.baseline = p.Baselines[key]
	return p
}

// updated is a baseline after a batch: each attempt with a trained call changes it, one
// after the other,
//
//	b ← 0.95·b + 0.05·R
//
// where R is the reward and what the trained calls earned.
func (b batch) updated(baseline float64) float64 {
	for _, t := range b.paths {
		if len(t.trained) > 0 {
			baseline = runningDecay*baseline + (1-runningDecay)*(t.reward+t.earned())
		}
	}
	return baseline
}
