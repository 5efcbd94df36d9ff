package credit

// runningDecay is how much of a running baseline a new reward leaves (SPIRAL,
// arXiv:2506.24119).
const runningDecay = 0.95

// AllAgents is the key of Plan.Baselines for all agents together; OfAgent that of one.
const AllAgents = "all"

// OfAgent is the key of an agent's baseline.
func OfAgent(name string) string { return "agent " + name }

// runs reports whether the plan compares rewards with running baselines.
func (p Plan) runs() bool { return p.Normalization.Mean == Running }

// against is the plan with one of its baselines.
func (p Plan) against(key string) Plan {
	p.Normalization.baseline = p.Baselines[key]
	return p
}

// follow is a baseline after a batch: each attempt with a trained call changes it in
// its turn,
//
//	b ← 0.95·b + 0.05·R
//
// where R is the reward and what the trained calls earned.
func (b batch) follow(baseline float64) float64 {
	for _, t := range b.paths {
		if len(t.trained) > 0 {
			baseline = runningDecay*baseline + (1-runningDecay)*(t.reward+t.earned())
		}
	}
	return baseline
}
