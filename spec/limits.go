package spec

// Limits on the size of a step. They prevent a run from failing half-way at one of
// Temporal's own limits. TestTheLargestSpecsRun of package testsuite runs steps of these
// sizes.
const (
	// maxSamples bounds the history of a group's workflow, which Temporal ends at 51,200
	// events. One sample takes up to 20 events, if the agent is a workflow.
	maxSamples = 1000
	// maxGroups bounds the history of the run. A group takes 6 to 8 events, and twice as
	// many if its task is quarantined. Steps that overlap share one history.
	maxGroups = 5000
	// maxRollouts bounds the input of AssignCredit, which Temporal refuses above 2 MiB. A
	// reward with the number of its attempt takes up to 28 bytes, a group 60.
	maxRollouts = 50000
)

// checkStep reports a step that is too large for one history or one payload of Temporal.
func (t Training) checkStep(f *Faults) {
	if t.TasksPerStep < 1 || t.SamplesPerTask < 1 || t.Lag < 0 || t.DynamicSampling < 0 {
		return // reported already
	}
	if groups := (t.TasksPerStep + t.DynamicSampling) * (1 + t.Lag); groups > maxGroups && t.TasksPerStep <= maxGroups && t.DynamicSampling <= maxGroups {
		f.add("training.tasks_per_step", "give fewer tasks a step, or less training.dynamic_sampling or training.lag",
			"%d groups at once, with those of dynamic_sampling and of the steps that overlap: Temporal's history holds %d", groups, maxGroups)
	}
	if rollouts := t.TasksPerStep * t.SamplesPerTask; rollouts > maxRollouts && t.TasksPerStep <= maxGroups && t.SamplesPerTask <= maxSamples {
		f.add("training.tasks_per_step", "give fewer tasks a step or fewer training.samples_per_task",
			"%d rollouts a step, but the rewards of at most %d pass through Temporal together", rollouts, maxRollouts)
	}
}

// Total returns how many steps a run makes over a train split of the given number of
// tasks: the steps that the spec gives, or as many as the epochs need.
func (t Training) Total(tasks int) int {
	if t.Epochs > 0 {
		return (t.Epochs*tasks + t.TasksPerStep - 1) / t.TasksPerStep
	}
	return t.Steps
}

// checkMoments checks that the engine can store the optimizer's moments in the given type.
func (s Spec) checkMoments(f *Faults) {
	if s.Training.Optimizer.Moments == MomentsInt8 && s.Model.Engine != EngineTorch {
		f.add("training.optimizer.moments", `leave it out, or give model.engine "torch"`, "engine %s keeps moments in F32", s.Model.Engine)
	}
}
