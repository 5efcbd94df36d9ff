package spec

// Limits on the size of a step, so that no run fails at one of Temporal's limits
// half-way. testsuite's TestTheLargestSpecsRun runs these shapes.
const (
	// mostSamples bounds the history of a group's workflow, which Temporal ends at
	// 51,200 events: a sample takes up to 20, of an agent that is a workflow.
	mostSamples = 1000
	// mostGroups bounds the history of the run: a group takes 6 to 8 events, and twice
	// as many if its task is quarantined. Steps that overlap share one history.
	mostGroups = 5000
	// mostRollouts bounds the input of AssignCredit, which Temporal refuses at 2 MiB: a
	// reward and the number of its attempt take up to 28 bytes, a group 60.
	mostRollouts = 50000
)

// checkStep reports a step that one history can't hold.
func (t Training) checkStep(f *Faults) {
	if t.TasksPerStep < 1 || t.SamplesPerTask < 1 || t.Lag < 0 || t.DynamicSampling < 0 {
		return // reported already
	}
	if groups := (t.TasksPerStep + t.DynamicSampling) * (1 + t.Lag); groups > mostGroups && t.TasksPerStep <= mostGroups && t.DynamicSampling <= mostGroups {
		f.add("training.tasks_per_step", "give fewer tasks a step, or less training.dynamic_sampling or training.lag",
			"%d groups at once, with those of dynamic_sampling and of the steps that overlap: Temporal's history holds %d", groups, mostGroups)
	}
	if rollouts := t.TasksPerStep * t.SamplesPerTask; rollouts > mostRollouts && t.TasksPerStep <= mostGroups && t.SamplesPerTask <= mostSamples {
		f.add("training.tasks_per_step", "give fewer tasks a step or fewer training.samples_per_task",
			"%d rollouts a step: at most %d, whose rewards pass through Temporal together", rollouts, mostRollouts)
	}
}

// Total is how many steps a run makes over a train split of the given size: the
// steps asked for, or as many as the epochs need.
func (t Training) Total(tasks int) int {
	if t.Epochs > 0 {
		return (t.Epochs*tasks + t.TasksPerStep - 1) / t.TasksPerStep
	}
	return t.Steps
}

// checkMoments checks what keeps the optimizer's moments.
func (s Spec) checkMoments(f *Faults) {
	if s.Training.Optimizer.Moments == MomentsInt8 && s.Model.Engine != EngineTorch {
		f.add("training.optimizer.moments", `leave it out, or give model.engine "torch"`, "engine %s keeps moments in F32", s.Model.Engine)
	}
}
