// Package evaluation analyses evaluations on record: how often a task is solved by one of
// k samples or by all of k, and whether one evaluation is better than another on the same
// tasks, with intervals and a p-value.
//
// It samples nothing and decides nothing: package workflows runs evaluations, and package
// model decides about promotions. Intervals come from resampling tasks with a fixed seed,
// so that the same record always gives the same numbers. Everything but reading the
// record is arithmetic.
package evaluation

import (
	"context"
	"errors"
	"fmt"
	"io"
	"slices"
	"strconv"
	"strings"

	"github.com/fulgurite/fulgurite/internal/readable"
	"github.com/fulgurite/fulgurite/model"
	"github.com/fulgurite/fulgurite/record"
	"github.com/fulgurite/fulgurite/spec"
	"github.com/fulgurite/fulgurite/tasks"
)

// ErrNoEvaluation is wrapped when a reference names no evaluation on record.
var ErrNoEvaluation = errors.New("no evaluation")

// ErrIncomplete is wrapped when an evaluation lacks rewards: they were removed, or its
// attempts were made by another program.
var ErrIncomplete = errors.New("rewards are missing")

// Scores reads the rewards of a version's evaluation. Its step is the number of the
// version.
type Scores interface {
	Scores(ctx context.Context, run, policy string, kind record.Kind, step int) ([]record.Score, error)
}

// Store is the part of a store that the package reads.
type Store interface {
	Run(ctx context.Context, name string) (record.Run, error)
	Evaluations(ctx context.Context, run string) ([]record.Evaluation, error)
	Attempt(ctx context.Context, a record.Address) (record.Attempt, error)
	Scores
}

// Blobs keeps content under its digest.
type Blobs interface {
	Get(ctx context.Context, digest string) ([]byte, error)
}

// Set is an evaluation on record with every reward of it.
type Set struct {
	record.Evaluation
	Spec    spec.Spec
	Tasks   []tasks.Task
	Rewards [][]float64 // by task and sample
	Greedy  bool        // whether Rewards are those at temperature 0; otherwise those are left out
	// Versions has the version of each policy by its name, if the run promotes each of several
	// alone. It is nil for other runs.
	Versions map[string]int
}

// Name returns how users write the evaluation, such as "demo@12 on test".
func (s Set) Name() string { return nameOf(s.Evaluation) }

// nameOf returns the name of an evaluation. That of one of several policies has its name.
func nameOf(e record.Evaluation) string {
	return fmt.Sprintf("%s@%d on %s", ofPolicy(e.Run, e.Policy), e.Version, e.Kind)
}

// ofPolicy returns RUN:POLICY for one of several policies, else RUN.
func ofPolicy(run, policy string) string {
	if IsOwn(policy) {
		return run
	}
	return run + ":" + policy
}

// IsOwn reports whether evaluations and promotions under this policy are of the run's own
// versions, and not of one of several policies that are promoted alone.
func IsOwn(policy string) bool {
	return policy == "" || policy == model.DefaultPolicy || policy == record.PromptsPolicy
}

// Rewards reads the rewards of an evaluation by task and sample, without those at
// temperature 0. of is the spec of the run. If rewards are missing, it returns an error that
// says which.
func Rewards(ctx context.Context, s Scores, e record.Evaluation, of spec.Spec) ([][]float64, error) {
	samples, err := samplesOf(e)
	if err != nil {
		return nil, err
	}
	return rewards(ctx, s, e, of, 0, samples)
}

// greedyRewards reads the rewards of the attempts at temperature 0, one of each task.
func greedyRewards(ctx context.Context, s Scores, e record.Evaluation, of spec.Spec) ([][]float64, error) {
	if e.Greedy == nil {
		return nil, fmt.Errorf("evaluation of %s: %w: it has no attempts at temperature 0; those on the test split do", nameOf(e), ErrIncomplete)
	}
	samples, err := samplesOf(e)
	if err != nil {
		return nil, err
	}
	return rewards(ctx, s, e, of, samples, 1)
}

// samplesOf returns how many samples each task has, without the one at temperature 0.
func samplesOf(e record.Evaluation) (int, error) {
	if e.Tasks < 1 || e.Rollouts < e.Tasks || e.Rollouts%e.Tasks != 0 {
		return 0, fmt.Errorf("evaluation of %s: %w: %d rollouts of %d tasks", nameOf(e), ErrIncomplete, e.Rollouts, e.Tasks)
	}
	return e.Rollouts / e.Tasks, nil
}

// rewards reads the rewards of n samples of each task, the first of which has that number.
func rewards(ctx context.Context, s Scores, e record.Evaluation, of spec.Spec, first, n int) ([][]float64, error) {
	// Prompts sample nothing, and a policy that is promoted alone samples with others: their
	// attempts have the policy of the run.
	policy := e.Policy
	if !IsOwn(policy) || policy == record.PromptsPolicy {
		policy = model.DefaultPolicy
	}
	firstTask := of.FirstTask(e.Policy, e.Tasks)
	scores, err := s.Scores(ctx, e.Run, policy, e.Kind, e.Version)
	if err != nil {
		return nil, err
	}
	out, found := make([][]float64, e.Tasks), 0
	for i := range out {
		out[i] = make([]float64, n)
	}
	for _, r := range scores {
		if task := r.Task - firstTask; task >= 0 && task < e.Tasks && r.Sample >= first && r.Sample < first+n {
			out[task][r.Sample-first] = r.Reward
			found++
		}
	}
	if found != n*e.Tasks {
		return nil, fmt.Errorf("evaluation of %s: %w: %d of %d are on record", nameOf(e), ErrIncomplete, found, n*e.Tasks)
	}
	return out, nil
}

// Find returns the evaluation that a reference means, of the default policy or, if the run
// searches for better ones, of the prompts: RUN@NUMBER means that of a version, and RUN alone
// the only evaluation of the run. RUN:POLICY@NUMBER means that of one of several policies, if
// the run promotes each alone. If there are several, split selects one; it may be empty.
func Find(ctx context.Context, s Store, reference string, split record.Kind) (record.Evaluation, error) {
	run, number, numbered := strings.Cut(reference, "@")
	whole, policy, named := strings.Cut(run, ":")
	all, err := s.Evaluations(ctx, whole)
	if err != nil {
		return record.Evaluation{}, err
	}
	if named && !slices.ContainsFunc(all, func(e record.Evaluation) bool { return !IsOwn(e.Policy) }) {
		return record.Evaluation{}, fmt.Errorf("%w %s: the policies of a run are evaluated together: leave :%s out, as in %s", ErrNoEvaluation, reference, policy, whole+strings.TrimPrefix(reference, run))
	}
	run = whole
	version := -1
	if numbered {
		if version, err = strconv.Atoi(number); err != nil || version < 0 {
			return record.Evaluation{}, fmt.Errorf("%w %q: want RUN@NUMBER, or the name of an evaluation", ErrNoEvaluation, reference)
		}
	}
	found := slices.DeleteFunc(slices.Clone(all), func(e record.Evaluation) bool {
		return named && e.Policy != policy || !named && !IsOwn(e.Policy) || version >= 0 && e.Version != version || split != "" && e.Kind != split
	})
	switch {
	case len(found) == 1:
		return found[0], nil
	case len(found) > 1:
		return found[0], fmt.Errorf("%s means several evaluations, %s: give RUN@NUMBER, and --split", reference, list(found))
	case len(all) > 0:
		return record.Evaluation{}, fmt.Errorf("%w %s%s: of run %s there are %s", ErrNoEvaluation, reference, on(split), run, list(all))
	}
	if _, err := s.Run(ctx, run); err != nil {
		return record.Evaluation{}, fmt.Errorf("run %s: %w", run, err)
	}
	return record.Evaluation{}, fmt.Errorf("%w %s: run %s has none on record", ErrNoEvaluation, reference, run)
}

func on(split record.Kind) string {
	if split == "" {
		return ""
	}
	return fmt.Sprintf(" on %s", split)
}

// list names evaluations of a run.
func list(all []record.Evaluation) string {
	const most = 8
	var names []string
	for _, e := range all[:min(most, len(all))] {
		names = append(names, nameOf(e))
	}
	if len(all) > most {
		names = append(names, fmt.Sprintf("%d more", len(all)-most))
	}
	return strings.Join(names, ", ")
}

// Load reads an evaluation with its spec, its tasks and its rewards: those at temperature 0
// if greedy is set, otherwise the others.
func Load(ctx context.Context, s Store, blobs Blobs, e record.Evaluation, greedy bool) (Set, error) {
	out := Set{Evaluation: e, Greedy: greedy}
	run, err := s.Run(ctx, e.Run)
	if err != nil {
		return out, fmt.Errorf("run %s: %w", e.Run, err)
	}
	if out.Spec, err = spec.Stored(run.Spec); err != nil {
		return out, fmt.Errorf("decode the spec of run %s: %w", e.Run, err)
	}
	text, err := blobs.Get(ctx, run.Splits[e.Kind].Digest)
	if err != nil {
		return out, fmt.Errorf("read the tasks of %s: %w", out.Name(), err)
	}
	if out.Tasks, err = tasks.Decode(text); err != nil {
		return out, fmt.Errorf("decode the tasks of %s: %w", out.Name(), err)
	}
	if len(out.Tasks) != e.Tasks {
		return out, fmt.Errorf("%s has %d tasks, its split has %d", out.Name(), e.Tasks, len(out.Tasks))
	}
	if greedy {
		out.Rewards, err = greedyRewards(ctx, s, e, out.Spec)
	} else {
		out.Rewards, err = Rewards(ctx, s, e, out.Spec)
	}
	if err == nil && out.Spec.Promotion.Alone {
		out.Versions, err = versionsOf(ctx, s, e, out.Spec)
	}
	return out, err
}

// versionsOf returns the versions that the attempts of an evaluation sampled from, by policy.
func versionsOf(ctx context.Context, s Store, e record.Evaluation, of spec.Spec) (map[string]int, error) {
	scores, err := s.Scores(ctx, e.Run, model.DefaultPolicy, e.Kind, e.Version)
	if err != nil {
		return nil, err
	}
	first := of.FirstTask(e.Policy, e.Tasks)
	for _, r := range scores {
		if r.Task != first {
			continue
		}
		a, err := s.Attempt(ctx, record.Address{
			RolloutID: record.RolloutID{Run: e.Run, Kind: e.Kind, Step: e.Version, Task: r.Task, Sample: r.Sample}, Attempt: r.Attempt,
		})
		if err != nil {
			return nil, fmt.Errorf("read what %s sampled from: %w", nameOf(e), err)
		}
		return a.Terms.Versions(), nil
	}
	return nil, nil
}

// Passes says how often tasks are solved by several samples. The keys of its JSON are a
// public contract.
type Passes struct {
	// Success is the least reward that counts as a success, apart from rounding.
	Success float64 `json:"success"`
	Tasks   int     `json:"tasks"`
	Samples int     `json:"samples"` // of each task
	Level   float64 `json:"level"`   // of the intervals
	// ByK holds one Pass for k = 1, 2, 4, … and for the number of samples.
	ByK []Pass `json:"by_k"`
}

// Pass holds the results for one number of samples, k.
type Pass struct {
	K int `json:"k"`
	// At is pass@k, the probability that at least one of k samples of a task succeeds.
	At Estimate `json:"pass_at_k"`
	// All is pass^k, the probability that all of k samples of a task succeed.
	All Estimate `json:"pass_hat_k"`
}

// PassesOf estimates both probabilities from the rewards of each task's samples. All
// tasks have the same number of samples. It returns nil if this number is less than two,
// or if there are no tasks.
func PassesOf(rewards [][]float64, success float64) *Passes {
	if len(rewards) == 0 || len(rewards[0]) < 2 {
		return nil
	}
	n := len(rewards[0])
	p := &Passes{Success: success, Tasks: len(rewards), Samples: n, Level: Level}
	counts := make([]int, n+1) // tasks by their number of successes
	for _, samples := range rewards {
		successes := 0
		for _, r := range samples {
			if spec.Reaches(r, success) {
				successes++
			}
		}
		counts[successes]++
	}
	var values [][]float64
	for _, k := range sizes(n) {
		p.ByK = append(p.ByK, Pass{K: k})
		at, all := make([]float64, n+1), make([]float64, n+1)
		for c := range counts {
			at[c], all[c] = PassAt(n, c, k), PassAll(n, c, k)
		}
		values = append(values, at, all)
	}
	for i, e := range estimates(counts, values) {
		if i%2 == 0 {
			p.ByK[i/2].At = e
		} else {
			p.ByK[i/2].All = e
		}
	}
	return p
}

// sizes returns the powers of 2 up to n, and n.
func sizes(n int) []int {
	var out []int
	for k := 1; k <= n; k *= 2 {
		out = append(out, k)
	}
	if !slices.Contains(out, n) {
		out = append(out, n)
	}
	return out
}

// PassAt returns the unbiased estimate of pass@k from n samples of a task, of which c
// succeeded: 1 − C(n−c, k) / C(n, k), for 1 ≤ k ≤ n and 0 ≤ c ≤ n (Chen et al. 2021,
// "Evaluating Large Language Models Trained on Code", arXiv:2107.03374, §2.1). It is
// computed as a product, since the coefficients are too large for a float64.
func PassAt(n, c, k int) float64 { return 1 - among(n, n-c, k) }

// PassAll returns the unbiased estimate of pass^k from n samples of a task, of which c
// succeeded: C(c, k) / C(n, k), for 1 ≤ k ≤ n and 0 ≤ c ≤ n (Yao et al. 2024, "τ-bench",
// arXiv:2406.12045, §3).
func PassAll(n, c, k int) float64 { return among(n, c, k) }

// among returns C(m, k) / C(n, k): the probability that k of n samples, drawn without
// replacement, are all among a given m of them.
func among(n, m, k int) float64 {
	p := 1.0
	for i := range k {
		p *= float64(max(0, m-i)) / float64(n-i)
	}
	return p
}

// maxChanges is how many tasks a text lists; the JSON has all.
const maxChanges = 10

// page writes the lines of a text.
type page struct{ readable.Lines }

// String returns the mean and its interval.
func (e Estimate) String() string { return fmt.Sprintf("%.3f [%.3f, %.3f]", e.Mean, e.Low, e.High) }

// WriteText writes a table for people. Each line begins with indent.
func (p *Passes) WriteText(w io.Writer, indent string) error {
	out := &page{readable.Lines{W: w}}
	out.Line("%s%s × %s, success is a reward of at least %g; intervals of %g %%, by resampling tasks",
		indent, readable.Count(p.Tasks, "task"), readable.Count(p.Samples, "sample"), p.Success, 100*p.Level)
	out.Line("%s%4s  %-22s  %-22s", indent, "k", "pass@k, one of k", "pass^k, all of k")
	for _, k := range p.ByK {
		out.Line("%s%4d  %-22s  %-22s", indent, k.K, k.At, k.All)
	}
	return out.Err
}

// WriteText writes the comparison for people.
func (c Comparison) WriteText(w io.Writer) error {
	p := &page{readable.Lines{W: w}}
	whose := "tasks'"
	if c.Cluster != "" {
		whose = fmt.Sprintf("%d clusters'", c.Clusters)
	}
	p.Line("A  %s", c.A)
	p.Line("B  %s", c.B)
	p.Line("\nB − A over %s: %+.3f, %g %% interval [%+.3f, %+.3f], standard error %.3f",
		c.over(), c.Difference.Mean, 100*c.Level, c.Difference.Low, c.Difference.High, c.StdError)
	p.Line("p = %.3g, two-sided, by flipping the signs of the %s differences", c.PValue, whose)
	p.Line("B is better on %s, worse on %d, equal on %d", readable.Count(c.Wins, "task"), c.Losses, c.Ties)
	for _, r := range c.Remarks {
		p.Line("differs too: %s", r)
	}
	if changed := c.Wins + c.Losses; changed > 0 {
		p.Line("\n%8s  %8s  %8s  task", "A", "B", "B − A")
		for _, t := range c.ByTask[:min(changed, maxChanges)] {
			p.Line("%8.3f  %8.3f  %+8.3f  %s", t.A, t.B, t.Difference, t.ID)
		}
		if changed > maxChanges {
			p.Line("  … and %d more; --json has all", changed-maxChanges)
		}
	}
	return p.Err
}

// over says what the difference is a mean of.
func (c Comparison) over() string {
	text := readable.Count(c.Tasks, "task") + " × " + readable.Count(c.Samples, "sample")
	if c.Greedy {
		text = readable.Count(c.Tasks, "task") + " at temperature 0"
	}
	if c.Cluster != "" {
		text += fmt.Sprintf(" in %d clusters by %s", c.Clusters, c.Cluster)
	}
	return text
}

// String names the side and its mean with its interval.
func (s Side) String() string {
	text := fmt.Sprintf("%s@%d on %s: %.3f [%.3f, %.3f]", ofPolicy(s.Run, s.Policy), s.Version, s.Split, s.Mean, s.Low, s.High)
	if s.Model != "" {
		text += " (" + s.Model + ")"
	}
	if s.Pass != nil {
		k := s.Pass.ByK[len(s.Pass.ByK)-1]
		text += fmt.Sprintf(", pass@%d %.3f, pass^%d %.3f", k.K, k.At.Mean, k.K, k.All.Mean)
	}
	return text
}
