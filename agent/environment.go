package agent

import (
	"encoding/json"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strconv"
)

// taskVariable is the most bytes of FULGURITE_TASK; a longer task is on
// standard input only, since Linux refuses variables of 128 KiB.
const taskVariable = 96 << 10

// environment returns all variables that a command sees, sorted by name. Only PATH is the
// worker's. Between attempts at a rollout, only the attempt's address (in URLs) and its
// key differ. The job's own variables take precedence.
func environment(job Job, home string, task []byte) []string {
	vars := map[string]string{}
	tables := []map[string]string{baseVariables(home), modelClients(job), tracers(job), privacy(), lightning(job), ownVariables(job, home, task), job.Environment}
	if job.BaseURL == "" { // a grader has no model
		tables = []map[string]string{baseVariables(home), privacy(), job.Environment}
	}
	for _, table := range tables {
		maps.Copy(vars, table)
	}
	env := make([]string, 0, len(vars))
	for _, name := range slices.Sorted(maps.Keys(vars)) {
		env = append(env, name+"="+vars[name])
	}
	return env
}

// baseVariables returns the variables that programs expect on any machine.
func baseVariables(home string) map[string]string {
	return map[string]string{
		"PATH":   searchPath(),
		"HOME":   home,
		"TMPDIR": filepath.Join(home, "tmp"),
		"LANG":   "C.UTF-8",
		"TZ":     "UTC",
		// Python then orders sets and dictionaries of strings alike in each attempt.
		"PYTHONHASHSEED": "0",
	}
}

// modelClients returns the variables in which clients look for their model.
func modelClients(job Job) map[string]string {
	return map[string]string{
		"OPENAI_BASE_URL":           job.BaseURL,
		"OPENAI_API_BASE":           job.BaseURL, // older clients and LangChain
		"OPENAI_API_KEY":            job.Key,
		"OPENAI_MODEL_NAME":         job.model(),
		"OPENAI_DEFAULT_MODEL":      job.model(), // OpenAI's Agents SDK
		"OPENAI_CHAT_MODEL_ID":      job.model(), // Semantic Kernel
		"OPENAI_RESPONSES_MODEL_ID": job.model(), // Semantic Kernel
		"ANTHROPIC_BASE_URL":        job.root(),  // its clients add /v1
		"ANTHROPIC_API_KEY":         job.Key,
	}
}

// tracers returns the variables in which instrumentations look for where to send spans.
// Only spans are accepted, so exporters are told not to send the rest.
func tracers(job Job) map[string]string {
	return map[string]string{
		"OTEL_EXPORTER_OTLP_ENDPOINT":        job.spansURL(), // exporters add /v1/traces
		"OTEL_EXPORTER_OTLP_TRACES_ENDPOINT": job.spansURL() + "/v1/traces",
		"OTEL_EXPORTER_OTLP_PROTOCOL":        "http/protobuf",
		"OTEL_EXPORTER_OTLP_HEADERS":         "Authorization=Bearer%20" + job.Key,
		"OTEL_RESOURCE_ATTRIBUTES":           "fulgurite.rollout=" + job.Address.String(),
		"OTEL_METRICS_EXPORTER":              "none",
		"OTEL_LOGS_EXPORTER":                 "none",
		"TRACELOOP_BASE_URL":                 job.spansURL(),
		"TRACELOOP_API_KEY":                  job.Key,
	}
}

// privacy returns variables that keep frameworks from telling third parties about a
// training run.
func privacy() map[string]string {
	return map[string]string{
		"OPENAI_AGENTS_DISABLE_TRACING":            "1",
		"CLAUDE_CODE_DISABLE_NONESSENTIAL_TRAFFIC": "1",
		"CREWAI_DISABLE_TELEMETRY":                 "true",
		"TRACELOOP_TELEMETRY":                      "false",
		"DO_NOT_TRACK":                             "1",
	}
}

// ownVariables returns the variables that only agents for Fulgurite know.
func ownVariables(job Job, home string, task []byte) map[string]string {
	vars := map[string]string{
		"FULGURITE_ROLLOUT":    job.Address.RolloutID.String(),
		"FULGURITE_HOME":       home,
		"FULGURITE_REWARD_URL": job.rewardURL(),
		"FULGURITE_EVENT_URL":  job.eventURL(),
	}
	if len(task) <= taskVariable {
		vars["FULGURITE_TASK"] = string(task)
	}
	return vars
}

// searchPath returns the path in which programs are found: the worker's own.
func searchPath() string {
	if p := os.Getenv("PATH"); p != "" {
		return p
	}
	return "/usr/local/bin:/usr/bin:/bin"
}

// lightning returns the variables of Agent Lightning 1.0, so that an agent that was
// written for it runs unchanged: the model's address, the key, and the URL for the
// reward. Such an agent reads its task as the fields of one JSON object.
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
