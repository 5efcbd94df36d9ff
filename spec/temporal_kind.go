package spec

// Kind says what the agent is to Temporal.
func (t Temporal) Kind() string {
	if t.Activity != "" {
		return "an activity"
	}
	return "a workflow"
}
