package evaluation

import (
	"cmp"
	"errors"
	"fmt"
	"math"
	"path/filepath"
	"reflect"
	"slices"

	"github.com/fulgurite/fulgurite/internal/readable"
	"github.com/fulgurite/fulgurite/model"
	"github.com/fulgurite/fulgurite/spec"
	"github.com/fulgurite/fulgurite/tasks"
	"github.com/fulgurite/fulgurite/trace"
)

// ErrIncomparable is wrapped when two evaluations differ in their tasks, in their
// grading, or in the number of samples of each task.
var ErrIncomparable = errors.New("can't be compared")

// Comparison is a paired comparison of two evaluations, task by task. The keys of its
// JSON are a public contract.
type Comparison struct {
	A       Side `json:"a"`
	B       Side `json:"b"`
	Tasks   int  `json:"tasks"`
	Samples int  `json:"samples"` // of each task, on either side
	// Difference is the mean over tasks of B's reward less A's, with its interval of
	// Level; StdError is its standard error. Both are by cluster.
	Difference Estimate `json:"difference"`
	Level      float64  `json:"level"`
	StdError   float64  `json:"std_error"`
	// Cluster is the key of the tasks' metadata by whose value tasks are alike, and Clusters
	// the number of its values. Without a key each task is a cluster.
	Cluster  string `json:"cluster,omitempty"`
	Clusters int    `json:"clusters"`
	// Greedy says that the rewards are of the attempts at temperature 0.
	Greedy bool `json:"greedy,omitempty"`
	// PValue is of the two-sided sign-flip test: how likely a difference at least as
	// large, in either direction, would be if A and B were alike. It flips whole clusters.
	PValue float64 `json:"p_value"`
	// Wins counts the tasks on which B earns more than A, and Losses those on which B
	// earns less.
	Wins   int `json:"wins"`
	Losses int `json:"losses"`
	Ties   int `json:"ties"`
	// ByTask holds all tasks, those that changed most first.
	ByTask []TaskChange `json:"by_task"`
	// Remarks say what else differs between the two, such as the temperature.
	Remarks []string `json:"remarks"`
}

// Side is one of the evaluations.
type Side struct {
	Run     string     `json:"run"`
	Version int        `json:"version"`
	Split   trace.Kind `json:"split"`
	// Estimate is the mean reward with its interval of the comparison's Level, by cluster.
	Estimate
	// Model is the evaluated version or server, if it is not a version of the run itself.
	Model string  `json:"model,omitempty"`
	Pass  *Passes `json:"pass,omitempty"`
}

// TaskChange has the mean rewards of a task on both sides, over its samples.
type TaskChange struct {
	ID         string  `json:"id"`
	A          float64 `json:"a"`
	B          float64 `json:"b"`
	Difference float64 `json:"difference"` // b − a
}

// Compare compares evaluation b with evaluation a. Tasks with one value of the metadata's key
// cluster are alike; without a key all are apart.
func Compare(a, b Set, cluster string) (Comparison, error) {
	if why := incomparable(a, b); why != "" {
		return Comparison{}, fmt.Errorf("%s and %s %w: %s", a.Name(), b.Name(), ErrIncomparable, why)
	}
	by, err := ClustersOf(a.Tasks, cluster)
	if err != nil {
		return Comparison{}, fmt.Errorf("%s and %s %w", a.Name(), b.Name(), err)
	}
	c := Comparison{
		A: a.side(by), B: b.side(by), Tasks: len(a.Rewards), Samples: len(a.Rewards[0]), Level: Level, Remarks: remarks(a, b),
		Cluster: cluster, Clusters: len(by.sizes), Greedy: a.Greedy,
	}
	before, after := a.means(), b.means()
	// The promotion's test is one-sided. Twice the smaller p-value of both directions is
	// that of a two-sided test.
	up, err := model.DecidePaired(b.Version, a.Version, by.sums(after), by.sums(before), 0, 1)
	if err != nil {
		return c, err
	}
	down, err := model.DecidePaired(a.Version, b.Version, by.sums(before), by.sums(after), 0, 1)
	if err != nil {
		return c, err
	}
	c.StdError, c.PValue = up.StdError, min(1, 2*min(up.PValue, down.PValue))
	differences := make([][]float64, c.Tasks)
	for i := range before {
		d := change(before[i], after[i])
		differences[i] = []float64{d}
		c.ByTask = append(c.ByTask, TaskChange{a.Tasks[i].ID, before[i], after[i], d})
		switch {
		case d > 0:
			c.Wins++
		case d < 0:
			c.Losses++
		default:
			c.Ties++
		}
	}
	c.Difference = *by.Mean(differences)
	slices.SortStableFunc(c.ByTask, func(x, y TaskChange) int { return cmp.Compare(math.Abs(y.Difference), math.Abs(x.Difference)) })
	return c, nil
}

// change returns b − a, and 0 if the two differ only by the rounding of sums.
func change(a, b float64) float64 {
	if d := b - a; math.Abs(d) > 1e-12*max(math.Abs(a), math.Abs(b)) {
		return d
	}
	return 0
}

// means returns the mean rewards of the tasks.
func (s Set) means() []float64 {
	out := make([]float64, len(s.Rewards))
	for i, samples := range s.Rewards {
		for _, r := range samples {
			out[i] += r / float64(len(samples))
		}
	}
	return out
}

func (s Set) side(by Clusters) Side {
	mean := *by.Mean(s.Rewards)
	if mean.Mean = s.Mean; s.Greedy { // as it was recorded, to the bit
		mean.Mean = *s.Evaluation.Greedy
	}
	return Side{
		Run: s.Run, Version: s.Version, Split: s.Kind, Estimate: mean, Model: ModelOf(s.Spec),
		Pass: PassesOf(s.Rewards, s.Spec.Evaluation.SuccessThreshold()),
	}
}

// withoutPaths returns a grader without the place of its program, which may lie at another
// path on another machine.
func withoutPaths(g spec.Grader) spec.Grader {
	g.Directory, g.Command = "", slices.Clone(g.Command)
	for i, word := range g.Command {
		if filepath.IsAbs(word) {
			g.Command[i] = filepath.Base(word)
		}
	}
	return g
}

// incomparable returns why two evaluations cannot be compared, and "" if they can.
func incomparable(a, b Set) string {
	if len(a.Tasks) != len(b.Tasks) {
		return fmt.Sprintf("%s against %d", readable.Count(len(a.Tasks), "task"), len(b.Tasks))
	}
	for i, task := range a.Tasks {
		switch part := tasks.Difference(task, b.Tasks[i]); part {
		case "":
		case "id":
			return fmt.Sprintf("other tasks: number %d is %s against %s", i, task.ID, b.Tasks[i].ID)
		default:
			return fmt.Sprintf("other tasks: number %d is %s in both, with other content: %s", i, task.ID, part)
		}
	}
	if a.Greedy != b.Greedy {
		return "the attempts at temperature 0 of one and the others of the other"
	}
	if !reflect.DeepEqual(withoutPaths(a.Spec.Grader), withoutPaths(b.Spec.Grader)) {
		return fmt.Sprintf("other graders: %s against %s", graderText(a), graderText(b))
	}
	if x, y := len(a.Rewards[0]), len(b.Rewards[0]); x != y {
		return fmt.Sprintf("%s of each task against %d; evaluate again with --samples", readable.Count(x, "sample"), y)
	}
	return ""
}
