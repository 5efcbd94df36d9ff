package spec

// Total is how many steps a run makes over a train split of the given size: the
// steps asked for, or as many as the epochs need.
func (t Training) Total(tasks int) int {
	if t.Epochs > 0 {
		return (t.Epochs*tasks + t.TasksPerStep - 1) / t.TasksPerStep
	}
	return t.Steps
}
