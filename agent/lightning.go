package agent

import (
	"encoding/json"
	"maps"
	"strconv"
)

// lightning are the variables of Agent Lightning 1.0, so that an agent which was
// written for it runs as it is: where the model is, the key, and where the reward is
// posted. Its tasks reach an agent as the fields of one JSON object.
func lightning(job Job) map[string]string {
	vars := map[string]string{
		"AGL_OPENAI_BASE_URL": job.BaseURL,
		"AGL_KEY":             job.Key,
		"AGL_EVENT_URL":       job.eventURL(),
		"AGL_ROLLOUT_ID":      job.Address.RolloutID.String(),
		"AGL_ATTEMPT_ID":      strconv.Itoa(job.Address.Attempt),
		"AGL_MODEL_NAME":      job.model(),
	}
	fields := map[string]any{}
	maps.Copy(fields, job.Task.Metadata)
	fields["id"], fields["input"] = job.Task.ID, job.Task.Input
	// A task that was read from JSON can be written as JSON.
	if text, err := json.Marshal(fields); err == nil && len(text) <= taskVariable {
		vars["AGL_TASK_INPUT"] = string(text)
	}
	return vars
}
