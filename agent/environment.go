package agent

import (
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strings"
)

// taskVariable is the most bytes of FULGURITE_TASK; a longer task is on
// standard input only, since Linux refuses variables of 128 KiB.
const taskVariable = 96 << 10

// environment is everything a command sees: nothing of the worker's but PATH,
// and nothing that differs between attempts at a rollout but the attempt's
// address (in URLs) and key. Variables are sorted.
func environment(job Job, home string, task []byte) []string {
	vars := map[string]string{
		// What a program expects of any machine.
		"PATH":   searchPath(),
		"HOME":   home,
		"TMPDIR": filepath.Join(home, "tmp"),
		"LANG":   "C.UTF-8",
		"TZ":     "UTC",
		// Python's sets and dictionaries of strings in one order in each attempt.
		"PYTHONHASHSEED": "0",

		// Model calls, by the names that clients know.
		"OPENAI_BASE_URL":      job.BaseURL,
		"OPENAI_API_BASE":      job.BaseURL, // older clients and LangChain
		"OPENAI_API_KEY":       job.Key,
		"OPENAI_MODEL_NAME":    job.model(),
		"OPENAI_DEFAULT_MODEL": job.model(),
		"ANTHROPIC_BASE_URL":   strings.TrimSuffix(job.BaseURL, "/v1"), // its clients add /v1
		"ANTHROPIC_API_KEY":    job.Key,

		// Nothing about a training run is told to third parties.
		"OPENAI_AGENTS_DISABLE_TRACING":            "1",
		"CLAUDE_CODE_DISABLE_NONESSENTIAL_TRAFFIC": "1",

		"FULGURITE_ROLLOUT":    job.Address.RolloutID.String(),
		"FULGURITE_REWARD_URL": job.rewardURL(),
		"FULGURITE_EVENT_URL":  job.eventURL(),
	}
	if len(task) <= taskVariable {
		vars["FULGURITE_TASK"] = string(task)
	}
	maps.Copy(vars, job.Environment)
	env := make([]string, 0, len(vars))
	for _, name := range slices.Sorted(maps.Keys(vars)) {
		env = append(env, name+"="+vars[name])
	}
	return env
}

// searchPath is where programs are found: the worker's own.
func searchPath() string {
	if p := os.Getenv("PATH"); p != "" {
		return p
	}
	return "/usr/local/bin:/usr/bin:/bin"
}
