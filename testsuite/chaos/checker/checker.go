// Package checker checks a run from outside. It finds out what happened to every prompt
// and every sampled token, from three sources: the sampler's own log ([ReadGenerations]),
// Temporal's histories ([History]), and the store, which it reads with plain SQL and from
// the blobs' files ([Records]). [Check] compares them with each other and with the stream
// of tasks that the seed determines. The function for that stream is taken from the
// product.
//
// A search for prompts has evidence of its own ([SearchEvidence]): the store, the result of
// the workflow, and what the reflector and the task model were asked. [CheckSearch] checks
// it, [DifferSearch] compares it with another search, and [Unnoticed] tests the two on a
// real search.
//
// A run that learns from conversations with its own versions has evidence of its own, too
// ([TrafficEvidence]): the store, the batches, and what the clients sent and got by their own
// account. [CheckTraffic] checks it, and [UnnoticedTraffic] tests that on a real run.
//
// It does not read the product's reports about itself. It does not share its types
// either, so a field that is renamed in the product is missing here.
//
// Guarantee: for each kind of loss, repetition or difference that Check can find, there
// is a test in which it happens.
package checker

import (
	"bufio"
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"strings"
	"time"
)

// Evidence is everything about one run.
type Evidence struct {
	Records     Records
	History     History
	Trained     map[int][]Trained // the attempts in the batch of each step
	Generations []Generation      // of any run
	Answers     []Answer          // of the judge, to any run
	Hangs       []Hang            // of gateways and samplers
	WorkerHangs []Hang            // of the workers that ask the judge
}

// Findings are the result of checking a run's evidence.
type Findings struct {
	Run       string `json:"run"`
	Completed bool   `json:"completed"`
	// A prompt is one sample of one task in one step. It is skipped if nothing was
	// trained in its place. It is duplicated once for each time that it was trained after
	// the first.
	Prompts           int `json:"prompts"`
	PromptsSkipped    int `json:"prompts_skipped"`
	PromptsDuplicated int `json:"prompts_duplicated"`
	PromptsReserve    int `json:"prompts_reserve"` // trained in the place of others
	PromptsFlat       int `json:"prompts_flat"`    // replaced because nothing can be learned from them

	Attempts      int `json:"attempts"`
	CallsRecorded int `json:"calls_recorded"` // sampled for the attempt that has them
	CallsReplayed int `json:"calls_replayed"` // answered from an earlier attempt's record
	// RecordedCallsSampledAgain counts generations that were requested for a call after
	// it had been recorded. SampledUnrecorded counts generations that were never
	// recorded: they were lost between sampling and commit.
	RecordedCallsSampledAgain int `json:"recorded_calls_sampled_again"`
	SampledUnrecorded         int `json:"sampled_unrecorded"`

	// Judgments counts the recorded judgments. JudgedAgain counts requests to the judge
	// for a judgment that was already recorded. JudgmentsLost counts answers of the judge
	// that were not recorded.
	Judgments     int `json:"judgments"`
	JudgedAgain   int `json:"judged_again"`
	JudgmentsLost int `json:"judgments_lost"`

	// Reflections counts the replies of a reflector that the run had made and recorded.
	// ReflectedAgain counts questions to it whose reply was already recorded, and
	// ReflectionsLost counts its replies that were not recorded.
	Reflections     int `json:"reflections,omitempty"`
	ReflectedAgain  int `json:"reflected_again,omitempty"`
	ReflectionsLost int `json:"reflections_lost,omitempty"`
	// Spent is what a search used of its budget, counted in its answers.
	Spent Budget `json:"spent,omitzero"`
	// Traffic is of a run that learns from conversations.
	Traffic *TrafficFindings `json:"traffic,omitempty"`

	// Repeated names the calls that were sampled again. Wrong describes in sentences
	// everything else that is wrong.
	Repeated []string `json:"repeated,omitempty"`
	Wrong    []string `json:"wrong,omitempty"`
}

// Sound reports whether nothing was lost, repeated or otherwise wrong.
func (f Findings) Sound() bool { return len(f.Wrong) == 0 && len(f.Repeated) == 0 }

// wrong adds a sentence.
func (f *Findings) wrong(format string, args ...any) {
	f.Wrong = append(f.Wrong, fmt.Sprintf(format, args...))
}

// Check checks a run.
func Check(e Evidence) Findings {
	f := Findings{Run: e.Records.Run, Attempts: len(e.Records.Attempts)}
	f.Completed = e.Records.Status == "completed" && e.History.Completed
	if !f.Completed {
		f.wrong("the run is %q in the store, and completed in its history: %v", e.Records.Status, e.History.Completed)
	}
	checkPrompts(&f, e)
	checkVersionChain(&f, e)
	checkCalls(&f, e)
	checkSampling(&f, e)
	checkJudgments(&f, e)
	return f
}

// checkVersionChain compares the versions with the batches: one update for each step.
func checkVersionChain(f *Findings, e Evidence) {
	r := e.Records
	for _, what := range e.History.Repeated {
		f.wrong("%s was asked for more than once", what)
	}
	checkVersions(f, e, "version", "", r.Versions, e.History.Updates)
	if r.HasCritic {
		checkVersions(f, e, "critic", "", r.Critics, e.History.CriticUpdates)
	}
	for _, name := range r.PolicyNames {
		checkVersions(f, e, "version", " of policy "+name, r.Policies[name], e.History.Updates)
	}
	if len(r.Policies) != len(r.PolicyNames) {
		f.wrong("there are versions of %d policies, the spec has %d", len(r.Policies), len(r.PolicyNames))
	}
	for _, name := range r.CriticNames {
		checkVersions(f, e, "critic", " of policy "+name, r.PolicyCritics[name], e.History.CriticUpdates)
	}
	if len(r.PolicyCritics) != len(r.CriticNames) {
		f.wrong("there are critics of %d policies, the spec has %d", len(r.PolicyCritics), len(r.CriticNames))
	}
	if n := len(r.Versions); n > 0 && e.History.Completed && e.History.Weights != r.Versions[n-1].Weights {
		f.wrong("the run returned the weights %s, its last version has %s", e.History.Weights, r.Versions[n-1].Weights)
	}
}

// checkVersions compares the versions of a policy or the critics with the batches. of follows
// their name in sentences; it is empty for those of the run.
func checkVersions(f *Findings, e Evidence, what, of string, all []Version, updates map[int]string) {
	r := e.Records
	if len(all) != r.Steps+1 {
		f.wrong("there are %d %ss%s after %d steps", len(all), what, of, r.Steps)
	}
	for i, v := range all {
		if v.Number != i {
			f.wrong("%s %d%s stands in the place of %s %d", what, v.Number, of, what, i)
			continue
		}
		if i == 0 {
			continue
		}
		if v.Batch == "" || v.Batch != r.Batches[i] || v.Batch != e.History.Batches[i] || v.Batch != updates[i] {
			f.wrong("%s %d%s was trained on %s; the store names %s, the history made %s and trained on %s",
				what, i, of, v.Batch, r.Batches[i], e.History.Batches[i], updates[i])
		}
	}
}

// checkCalls compares each call with the version that it should have come from, and
// each replayed call with the record.
func checkCalls(f *Findings, e Evidence) {
	type version struct {
		policy string
		number int
	}
	weights := map[version]string{}
	for policy, versions := range e.Records.sampled() {
		for _, v := range versions {
			weights[version{policy, v.Number}] = strings.TrimPrefix(v.Weights, "sha256:")
		}
	}
	asked := map[RolloutAddress]int{} // the version that a rollout was to sample from
	for _, g := range e.History.Issued {
		for i := range g.Samples {
			asked[RolloutAddress{g.Kind, g.Step, g.Task, i}] = g.Version
		}
	}
	type key struct {
		RolloutAddress
		attempt int
		seed    uint64
	}
	recorded := map[key]Call{}
	for _, c := range e.Records.Calls {
		recorded[key{c.RolloutAddress, c.Attempt, c.Seed}] = c
	}
	for _, c := range e.Records.Calls {
		where := fmt.Sprintf("call %d of %s-%d/%d/%d/%d", c.Seq, c.Kind, c.Step, c.Task, c.Sample, c.Attempt)
		if strings.TrimPrefix(c.Weights, "sha256:") != weights[version{c.Policy, c.Version}] {
			f.wrong("%s was sampled with %s, which is not version %d of policy %s", where, c.Weights, c.Version, c.Policy)
		}
		if v, ok := asked[c.RolloutAddress]; ok && v != c.Version {
			f.wrong("%s was sampled from version %d instead of %d", where, c.Version, v)
		}
		if c.ReplayedFrom == 0 {
			f.CallsRecorded++
			continue
		}
		f.CallsReplayed++
		from, ok := recorded[key{c.RolloutAddress, c.ReplayedFrom, c.Seed}]
		if !ok || c.ReplayedFrom >= c.Attempt || !equal(c.Tokens, from.Tokens) {
			f.wrong("%s is not what attempt %d recorded", where, c.ReplayedFrom)
		}
	}
}

// sampled returns the versions that calls are sampled from, by policy.
func (r Records) sampled() map[string][]Version {
	if len(r.PolicyNames) > 0 {
		return r.Policies
	}
	return map[string][]Version{mainPolicy: r.Versions}
}

// Differ lists how a run's outcome differs from that of another: the weights of each
// version and critic of each policy, the evaluations, the promoted version. None may differ.
func Differ(a, b Records) []string {
	var out []string
	if len(a.Versions) != len(b.Versions) || len(a.Versions) == 0 || len(a.Critics) != len(b.Critics) {
		out = append(out, fmt.Sprintf("%s has %d versions and %d critics, %s %d and %d", a.Run, len(a.Versions), len(a.Critics), b.Run, len(b.Versions), len(b.Critics)))
	}
	pairs := map[string][2][]Version{"version": {a.Versions, b.Versions}, "critic": {a.Critics, b.Critics}}
	for _, name := range a.PolicyNames {
		pairs["version of policy "+name] = [2][]Version{a.Policies[name], b.Policies[name]}
	}
	for _, name := range a.CriticNames {
		one, other := a.PolicyCritics[name], b.PolicyCritics[name]
		if len(one) != len(other) {
			out = append(out, fmt.Sprintf("%s has %d critics of policy %s, %s %d", a.Run, len(one), name, b.Run, len(other)))
		}
		pairs["critic of policy "+name] = [2][]Version{one, other}
	}
	for what, pair := range pairs {
		for i := range min(len(pair[0]), len(pair[1])) {
			if one, other := pair[0][i].Weights, pair[1][i].Weights; one != other {
				out = append(out, fmt.Sprintf("%s %d of %s is %s, of %s %s", what, i, a.Run, one, b.Run, other))
			}
		}
	}
	if fmt.Sprint(a.Evaluations) != fmt.Sprint(b.Evaluations) {
		out = append(out, fmt.Sprintf("evaluations of %s: %v, of %s: %v", a.Run, a.Evaluations, b.Run, b.Evaluations))
	}
	if a.Promoted != b.Promoted {
		out = append(out, fmt.Sprintf("%s promoted version %d, %s version %d", a.Run, a.Promoted, b.Run, b.Promoted))
	}
	return out
}

// Progress counts all rows of the kinds that a run adds. The number grows with each piece
// of recorded work.
func (d *Database) Progress(ctx context.Context) (int64, error) {
	var n int64
	err := d.db.QueryRowContext(ctx, `SELECT (SELECT COUNT(*) FROM calls) + (SELECT COUNT(*) FROM attempts)
+ (SELECT COUNT(*) FROM attempts WHERE ended > 0) + (SELECT COUNT(*) FROM versions) + (SELECT COUNT(*) FROM batches)
+ (SELECT COUNT(*) FROM steps) + (SELECT COUNT(*) FROM judgments) + (SELECT COUNT(*) FROM search_answers) + (SELECT COUNT(*) FROM reflections)
+ (SELECT COUNT(*) FROM segments) + (SELECT COUNT(*) FROM feedback) + (SELECT COUNT(*) FROM evaluations) + (SELECT COUNT(*) FROM runs WHERE finished > 0)`).Scan(&n)
	return n, err
}

// Midway counts the open attempts of a run whose last call was recorded after a time.
// Attempts of killed workers stay open, so the time tells which agents are at work.
func (d *Database) Midway(ctx context.Context, run string, after time.Time) (int, error) {
	var n int
	err := d.db.QueryRowContext(ctx, `SELECT COUNT(*) FROM attempts a WHERE a.run = $1 AND a.outcome = '' AND EXISTS (SELECT 1 FROM calls c
WHERE c.run = a.run AND c.kind = a.kind AND c.step = a.step AND c.task = a.task AND c.sample = a.sample AND c.attempt = a.attempt AND c.recorded > $2)`,
		run, after.UnixNano()).Scan(&n)
	return n, err
}

// TriedAgain counts the attempts, but for first ones, that began after a time.
func (d *Database) TriedAgain(ctx context.Context, run string, earliestRequest time.Time) (int, error) {
	var n int
	err := d.db.QueryRowContext(ctx, `SELECT COUNT(*) FROM attempts WHERE run = $1 AND attempt > 1 AND begun > $2`, run, earliestRequest.UnixNano()).Scan(&n)
	return n, err
}

// Leases counts the processes of a role that others may take for alive.
func (d *Database) Leases(ctx context.Context, role string) (int, error) {
	var n int
	err := d.db.QueryRowContext(ctx, `SELECT COUNT(*) FROM leases WHERE role = $1 AND expires > $2`, role, time.Now().UnixNano()).Scan(&n)
	return n, err
}

// RecordedAgain counts the calls of all runs that an earlier attempt has on record
// too, and that were not answered from there.
func (d *Database) RecordedAgain(ctx context.Context) (int, error) {
	var n int
	err := d.db.QueryRowContext(ctx, `SELECT COUNT(*) FROM calls a WHERE a.attempt > 1 AND a.replayed_from = 0 AND EXISTS (SELECT 1 FROM calls c
WHERE c.run = a.run AND c.kind = a.kind AND c.step = a.step AND c.task = a.task AND c.sample = a.sample AND c.attempt < a.attempt AND c.seed = a.seed)`).Scan(&n)
	return n, err
}

// Generation is a line of the sampler's log. It describes what was sampled, whether or
// not the reply reached anyone.
type Generation struct {
	ID       string    `json:"id"`
	Run      string    `json:"run"`
	Version  int       `json:"version"`
	Seed     uint64    `json:"seed,string"`
	Tokens   []int32   `json:"tokens"`
	Weights  string    `json:"weights"`
	Started  time.Time `json:"started"`
	Finished time.Time `json:"finished"`
}

// ReadGenerations reads a sampler's log. A line is written with one system call,
// so that even a killed sampler leaves none in part.
func ReadGenerations(r io.Reader) ([]Generation, error) {
	var all []Generation
	lines := bufio.NewReader(r)
	for n := 1; ; n++ {
		line, err := lines.ReadBytes('\n')
		if errors.Is(err, io.EOF) && len(line) == 0 {
			return all, nil
		}
		if err != nil && !errors.Is(err, io.EOF) {
			return nil, fmt.Errorf("read generations: %w", err)
		}
		d := json.NewDecoder(bytes.NewReader(line))
		var g Generation
		if err := d.Decode(&g); err != nil {
			return nil, fmt.Errorf("read generation in line %d: %w", n, err)
		}
		if g.Run == "" || g.ID == "" || len(g.Tokens) == 0 || g.Started.IsZero() {
			return nil, fmt.Errorf("read generation in line %d: it lacks its run, id, tokens or time", n)
		}
		all = append(all, g)
	}
}
