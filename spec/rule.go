package spec

import (
	"cmp"
	"fmt"
	"maps"
	"slices"
	"strings"

	"github.com/fulgurite/fulgurite/spec/bounds"
)

func (f *Faults) number(key string, v float64, b bounds.Bounds) {
	if f.bounds != nil {
		f.bounds[key] = b
	}
	if !b.Hold(v) {
		f.add(key, "give "+cmp.Or(b.String(), "a finite number"), "%v is not possible", v)
	}
}

func (f *Faults) whole(key string, v, low, high int) {
	f.number(key, float64(v), bounds.Between(float64(low), float64(high)))
}

func (f *Faults) choice(key, v string) { f.oneOf(key, v, choices(key)) }

func (f *Faults) oneOf(key, v string, allowed []string) {
	if slices.Contains(allowed, v) {
		return
	}
	remedy := "give " + strings.Join(allowed, " or ")
	if near, ok := nearest(v, allowed); ok && len(allowed) > 1 {
		remedy = fmt.Sprintf("did you mean %s? There are %s", near, strings.Join(allowed, ", "))
	}
	f.add(key, remedy, "unknown name %q", v)
}

// unusedKey is the message of a key without an effect.
const unusedKey = "unused key"

// unused reports a key that the user wrote but that has no effect together with the other
// keys.
func (f *Faults) unused(key string, written bool, why string) {
	if written {
		f.add(key, why+": remove the key", unusedKey)
	}
}

// program checks the text of a command. It does not look for the program.
func (f *Faults) program(key string, command []string) {
	for i, argument := range command {
		if strings.ContainsRune(argument, 0) {
			f.add(fmt.Sprintf("%s[%d]", key, i), "remove it", "argument with a zero byte")
		}
	}
	if len(command) > 0 && command[0] == "" {
		f.add(key+"[0]", "give the program to run", "empty")
	}
}

// nearest returns the name that is closest to v, if one is close enough to be meant.
func nearest(v string, names []string) (string, bool) {
	best, least := "", 1+len(v)/3
	for _, name := range names {
		if d := distance(strings.ToLower(v), name); d <= least && (best == "" || d < least) {
			best, least = name, d
		}
	}
	return best, best != ""
}

// distance returns the number of insertions, deletions and replacements of bytes between a
// and b (Levenshtein 1966).
func distance(a, b string) int {
	row := make([]int, len(b)+1)
	for j := range row {
		row[j] = j
	}
	for i := range len(a) {
		diagonal := row[0]
		row[0] = i + 1
		for j := range len(b) {
			above := row[j+1]
			cost := diagonal
			if a[i] != b[j] {
				cost = 1 + min(diagonal, above, row[j])
			}
			row[j+1], diagonal = cost, above
		}
	}
	return row[len(b)]
}

// names returns names of package credit as strings.
func names[N ~string](all ...N) []string {
	out := make([]string, len(all))
	for i, n := range all {
		out[i] = string(n)
	}
	return out
}

func sortedKeys[V any](m map[string]V) []string { return slices.Sorted(maps.Keys(m)) }

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
