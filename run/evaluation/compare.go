package evaluation

import (
	"cmp"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"math"
	"math/rand/v2"
	"path/filepath"
	"reflect"
	"slices"
	"strings"

	"github.com/fulgurite/fulgurite/internal/readable"
	"github.com/fulgurite/fulgurite/model"
	"github.com/fulgurite/fulgurite/record"
	"github.com/fulgurite/fulgurite/spec"
	"github.com/fulgurite/fulgurite/tasks"
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
	Run     string `json:"run"`
	Version int    `json:"version"`
	// Policy is the policy whose version it is, if the run promotes each of several alone.
	Policy string      `json:"policy,omitempty"`
	Split  record.Kind `json:"split"`
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
	policy := s.Policy
	if IsOwn(policy) {
		policy = ""
	}
	return Side{
		Run: s.Run, Version: s.Version, Policy: policy, Split: s.Kind, Estimate: mean, Model: ModelOf(s.Spec),
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

// ModelOf names the model that the run of a spec evaluates, if it is not the run's own: a
// version of another run, or the model of a server that loads no versions.
func ModelOf(s spec.Spec) string {
	if s.Model.Version != "" {
		return s.Model.Version
	}
	if server := s.Sampling.Server; server != nil && server.Versions == spec.VersionsNone {
		return fmt.Sprintf("%s at %s", server.Model, strings.Join(server.URLs, ", "))
	}
	if s.Evaluation.Only != "" && s.Model.WarmStart == nil {
		if l := s.Model.LoRA; l != nil && l.Adapter != "" {
			return s.Model.Base + " with " + l.Adapter
		}
		return s.Model.Base
	}
	return ""
}

// graderText returns the grader of an evaluation's spec as JSON.
func graderText(s Set) string {
	text, err := json.Marshal(s.Spec.Grader)
	if err != nil {
		return s.Spec.Grader.Type
	}
	return string(text)
}

// remarks lists what differs between two comparable evaluations and may explain the
// difference of their rewards.
func remarks(a, b Set) []string {
	out := []string{}
	say := func(what string, x, y any) {
		if !reflect.DeepEqual(x, y) {
			out = append(out, fmt.Sprintf("%s: %v against %v", what, x, y))
		}
	}
	say("sampling.temperature", *a.Spec.Sampling.Temperature, *b.Spec.Sampling.Temperature)
	say("sampling.max_tokens", a.Spec.Sampling.MaxTokens, b.Spec.Sampling.MaxTokens)
	say("seed", a.Spec.Seed, b.Spec.Seed)
	say("agent.limits", a.Spec.Agent.Limits, b.Spec.Agent.Limits)
	say("evaluation.success", a.Spec.Evaluation.SuccessThreshold(), b.Spec.Evaluation.SuccessThreshold())
	for _, name := range a.Spec.PolicyNames() {
		if a.Policy != name || b.Policy != name {
			v, ok := a.Versions[name]
			if w, both := b.Versions[name]; ok && both && a.Run == b.Run {
				say("version of "+name, v, w)
			}
		}
	}
	x, y := a.Spec.Agent, b.Spec.Agent
	x.Limits, y.Limits = spec.AgentLimits{}, spec.AgentLimits{}
	if !reflect.DeepEqual(x, y) {
		out = append(out, "agent: the two ran in different ways")
	}
	if !reflect.DeepEqual(a.Spec.Grader, b.Spec.Grader) {
		out = append(out, "grader: its program lies at two paths")
	}
	return out
}

// Clusters divides tasks into those that are alike, such as all questions about one
// database. A resample then draws whole clusters, and a test flips the sign of a whole
// cluster (Miller 2024, "Adding Error Bars to Evals", arXiv:2411.00640, §2.2).
type Clusters struct {
	of    []int // by task
	sizes []int // by cluster
}

// ClustersOf divides tasks by the value of a key of their metadata. An empty key makes each
// task a cluster of its own. It is ErrIncomparable if a task lacks the key, or if all tasks
// have one value.
func ClustersOf(all []tasks.Task, key string) (Clusters, error) {
	out := Clusters{of: make([]int, len(all))}
	if key == "" {
		out.sizes = make([]int, len(all))
		for i := range all {
			out.of[i], out.sizes[i] = i, 1
		}
		return out, nil
	}
	numbers := map[string]int{}
	for i, task := range all {
		value, has := task.Metadata[key]
		if !has {
			return Clusters{}, fmt.Errorf("%w by clusters: the metadata of task %s has no %q; its keys are: %s",
				ErrIncomparable, task.ID, key, strings.Join(slices.Sorted(maps.Keys(task.Metadata)), ", "))
		}
		text := fmt.Sprint(value)
		number, known := numbers[text]
		if !known {
			number = len(numbers)
			numbers[text], out.sizes = number, append(out.sizes, 0)
		}
		out.of[i] = number
		out.sizes[number]++
	}
	if len(out.sizes) < 2 {
		return Clusters{}, fmt.Errorf("%w by clusters: %q is the same in all tasks, and one cluster has no interval", ErrIncomparable, key)
	}
	return out, nil
}

// sums returns the sums of the values of each cluster's tasks, scaled so that their mean
// over clusters is the mean over tasks.
func (c Clusters) sums(values []float64) []float64 {
	out := make([]float64, len(c.sizes))
	scale := float64(len(c.sizes)) / float64(len(c.of))
	for i, value := range values {
		out[c.of[i]] += value * scale
	}
	return out
}

// Mean returns the mean over tasks of the mean of each task's values, with its interval:
// percentiles of the means of as many clusters, drawn with replacement. values are by task; a
// task without values is left out. Without any value it returns nil.
func (c Clusters) Mean(values [][]float64) *Estimate {
	sums, sizes := make([]float64, len(c.sizes)), make([]int, len(c.sizes))
	for i, samples := range values {
		if len(samples) > 0 {
			mean, _ := MeanOf(samples)
			sums[c.of[i]] += mean
			sizes[c.of[i]]++
		}
	}
	var filled []int // the clusters with a value
	once := make([]int, len(sums))
	for i, n := range sizes {
		if n > 0 {
			filled, once[i] = append(filled, i), 1
		}
	}
	if len(filled) == 0 {
		return nil
	}
	ratio := func(times []int) float64 {
		sum, n := 0.0, 0
		for i, k := range times {
			sum += float64(k) * sums[i]
			n += k * sizes[i]
		}
		return sum / float64(n)
	}
	random := rand.New(rand.NewPCG(1, uint64(len(filled)))) // a fixed seed, so that the numbers are the same every time
	means, drawn := make([]float64, resamples), make([]int, len(sums))
	for k := range means {
		clear(drawn)
		for range filled {
			drawn[filled[random.IntN(len(filled))]]++
		}
		means[k] = ratio(drawn)
	}
	slices.Sort(means)
	return &Estimate{Mean: ratio(once), Low: percentile(means, (1-Level)/2), High: percentile(means, (1+Level)/2)}
}

// Level is the probability that an interval contains the mean over all tasks that could
// have been drawn.
const Level = 0.95

// resamples is how often the tasks are resampled for an interval. The ends of the
// interval then have an error of about a twentieth of its width.
const resamples = 2000

// MeanOf returns the mean of rewards and its standard error: the square root of their
// sample variance divided by their number, 0 for fewer than two rewards.
func MeanOf(rewards []float64) (mean, stdError float64) {
	n := float64(len(rewards))
	if n == 0 {
		return 0, 0
	}
	for _, r := range rewards {
		mean += r / n
	}
	if n == 1 {
		return mean, 0
	}
	for _, r := range rewards {
		stdError += (r - mean) * (r - mean) / (n - 1)
	}
	return mean, math.Sqrt(stdError / n)
}

// Estimate is a mean over tasks and its interval at Level. The interval consists of
// percentiles of the means of as many tasks, drawn with replacement (Efron and
// Tibshirani, An Introduction to the Bootstrap, 1993, §13.3). Tasks are drawn and not
// samples, since samples of one task are alike. If all tasks are equal, the interval has
// no width; it then tells nothing about tasks that are not among them.
type Estimate struct {
	Mean float64 `json:"mean"`
	Low  float64 `json:"low"`
	High float64 `json:"high"`
}

// estimates estimates several values of tasks that belong to n classes. counts holds the
// number of tasks in each class, and values[k][class] is the k-th value of a task of the
// class. All estimates use the same draws.
func estimates(counts []int, values [][]float64) []Estimate {
	var tasks []int // the class of each
	for class, n := range counts {
		for range n {
			tasks = append(tasks, class)
		}
	}
	out, means := make([]Estimate, len(values)), make([][]float64, len(values))
	for k, value := range values {
		out[k].Mean = mean(counts, value)
	}
	random := rand.New(rand.NewPCG(1, uint64(len(tasks)))) // a fixed seed, so that the numbers are the same every time
	drawn := make([]int, len(counts))
	for range resamples {
		clear(drawn)
		for range tasks {
			drawn[tasks[random.IntN(len(tasks))]]++
		}
		for k, value := range values {
			means[k] = append(means[k], mean(drawn, value))
		}
	}
	for k := range values {
		slices.Sort(means[k])
		out[k].Low, out[k].High = percentile(means[k], (1-Level)/2), percentile(means[k], (1+Level)/2)
	}
	return out
}

// mean returns the mean over all tasks. counts holds the number of tasks in each class,
// and values the value of each class.
func mean(counts []int, values []float64) float64 {
	sum, n := 0.0, 0
	for class, count := range counts {
		sum += float64(count) * values[class]
		n += count
	}
	return sum / float64(n)
}

// percentile returns the value below which a given part of a sorted list lies. It
// interpolates between elements.
func percentile(sorted []float64, part float64) float64 {
	at := part * float64(len(sorted)-1)
	low := int(math.Floor(at))
	high := min(low+1, len(sorted)-1)
	return sorted[low] + (at-float64(low))*(sorted[high]-sorted[low])
}
