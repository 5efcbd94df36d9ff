package results

import (
	"cmp"
	"context"
	"encoding/json"
	"fmt"
	"maps"
	"slices"

	"github.com/fulgurite/fulgurite/cmd/fulgurite/internal/state"
	"github.com/fulgurite/fulgurite/cmd/fulgurite/internal/terminal"
	"github.com/fulgurite/fulgurite/internal/readable"
	"github.com/fulgurite/fulgurite/run/provenance"
)

// Provenance is `fulgurite provenance`.
type Provenance struct {
	Version  string            `arg:"" help:"The version: RUN@NUMBER, RUN@promoted, RUN@newest, each also with RUN:POLICY."`
	Tasks    bool              `help:"List the tasks instead, with how much each was trained on." xor:"list"`
	Attempts bool              `help:"List the attempts instead, those of the latest step first." xor:"list"`
	Calls    bool              `help:"List the calls instead, those of the latest step first." xor:"list"`
	JSON     bool              `help:"Print JSON; a list is one array, which is written as it is read." name:"json"`
	Records  state.RecordFlags `embed:""`
}

// provenanceTask is a task of the list of tasks.
type provenanceTask struct {
	Task     string `json:"task"`
	Attempts int    `json:"attempts"`
	Calls    int    `json:"calls"`
	Tokens   int    `json:"tokens"`
	First    string `json:"first_step"` // as RUN, step N
	Last     string `json:"last_step"`
}

// Outputs returns what the command prints as JSON.
func (*Provenance) Outputs() []any {
	return []any{provenance.Provenance{}, []provenanceTask{}, []provenance.Attempt{}, []provenance.Call{}}
}

// Run walks from the version to the first one.
func (c *Provenance) Run(ctx context.Context, s *state.Flags, t *terminal.Terminal) error {
	records, err := s.OpenRecords(ctx, t, c.Records)
	if err != nil {
		return err
	}
	defer records.Close()
	v, err := records.Catalog.Find(ctx, c.Version)
	if err != nil {
		return err
	}
	walker := provenance.Walker{Store: records.Store, Blobs: records.Blobs}
	list := lines{t: t, json: c.JSON}
	tasks := map[string]*provenanceTask{}
	var visit func(provenance.Step) error
	switch {
	case c.Tasks:
		visit = func(step provenance.Step) error { addTasks(tasks, step); return nil }
	case c.Attempts:
		visit = func(step provenance.Step) error { return list.attempts(step) }
	case c.Calls:
		visit = func(step provenance.Step) error { return list.calls(step) }
	}
	p, err := walker.Of(ctx, v.VersionID, visit)
	if err != nil {
		return err
	}
	switch {
	case c.Tasks:
		for _, id := range slices.Sorted(maps.Keys(tasks)) {
			one := tasks[id]
			if err := list.add(one, "%s  %s, %d calls, %d tokens, from %s to %s", id, readable.Count(one.Attempts, "attempt"), one.Calls, one.Tokens, one.First, one.Last); err != nil {
				return err
			}
		}
		return list.end()
	case c.Attempts || c.Calls:
		return list.end()
	case c.JSON:
		return t.JSON(p)
	}
	printProvenance(t, p)
	return nil
}

// addTasks counts the attempts of a step by task. Steps come with the latest first.
func addTasks(all map[string]*provenanceTask, step provenance.Step) {
	at := fmt.Sprintf("%s, step %d", step.Run, step.Step)
	for _, a := range step.Attempts {
		one, ok := all[a.Task]
		if !ok {
			one = &provenanceTask{Task: a.Task, Last: at}
			all[a.Task] = one
		}
		one.First = at
		one.Attempts, one.Calls, one.Tokens = one.Attempts+1, one.Calls+len(a.Calls), one.Tokens+a.Tokens
	}
}

// lines writes a list item by item: as lines, or as one array of JSON.
type lines struct {
	t    *terminal.Terminal
	json bool
	n    int
}

func (l *lines) add(item any, format string, args ...any) error {
	defer func() { l.n++ }()
	if !l.json {
		l.t.Printf("%s\n", terminal.Escape(fmt.Sprintf(format, args...)))
		return nil
	}
	text, err := json.Marshal(item)
	if err != nil {
		return fmt.Errorf("encode item %d: %w", l.n, err)
	}
	before := ",\n"
	if l.n == 0 {
		before = "[\n"
	}
	l.t.Printf("%s%s", before, text)
	return nil
}

func (l *lines) end() error {
	switch {
	case l.json && l.n == 0:
		l.t.Printf("[]\n")
	case l.json:
		l.t.Printf("\n]\n")
	}
	return nil
}

func (l *lines) attempts(step provenance.Step) error {
	for _, a := range step.Attempts {
		rest := ""
		if a.LeftOut != "" {
			rest = ", left out: " + a.LeftOut
		}
		if err := l.add(a, "%s  step %d, task %s, reward %.4g, %d calls, %d tokens%s", a.Attempt, a.Step, a.Task, a.Reward, len(a.Calls), a.Tokens, rest); err != nil {
			return err
		}
	}
	return nil
}

func (l *lines) calls(step provenance.Step) error {
	for _, a := range step.Attempts {
		for _, c := range a.Calls {
			if err := l.add(c, "%s  call %d, %d tokens", c.Attempt, c.Call, c.Tokens); err != nil {
				return err
			}
		}
	}
	return nil
}

func printProvenance(t *terminal.Terminal, p provenance.Provenance) {
	t.Printf("Version %s, weights %s\n", p.Version, p.Weights)
	t.Printf("  made of %s: %s on %s, %s, %s\n", readable.Count(p.Steps, "step"), readable.Count(p.Attempts, "attempt"), readable.Count(p.Tasks, "task"), readable.Count(p.Calls, "call"), readable.Count(p.Tokens, "trained token"))
	if p.Forgotten > 0 {
		t.Printf("  of %s the batch was removed with a task, so what else they had is not known\n", readable.Count(p.Forgotten, "step"))
	}
	for _, part := range p.Parts {
		t.Printf("\n%s, policy %s, up to version %d\n", part.Run, part.Policy, part.Version)
		if part.Gone != "" {
			t.Printf("  %s\n", terminal.Escape(part.Gone))
			continue
		}
		t.Printf("  spec          %s\n", part.SpecDigest)
		t.Printf("  engine        %s\n", part.Engine)
		for _, f := range part.Fingerprints {
			t.Printf("  numerics      %s\n", f)
		}
		for _, kind := range slices.Sorted(maps.Keys(part.Splits)) {
			split := part.Splits[kind]
			t.Printf("  %-12s  %s, %s\n", string(kind)+" split", readable.Count(split.Count, "task"), split.Digest)
		}
		t.Printf("  trained on    %s: %s on %s, %s, %s\n", readable.Count(part.Steps, "step"), readable.Count(part.Attempts, "attempt"), readable.Count(part.Tasks, "task"), readable.Count(part.Calls, "call"), readable.Count(part.Tokens, "token"))
		if part.Forgotten > 0 {
			t.Printf("  forgotten     %s\n", readable.Count(part.Forgotten, "step"))
		}
		if part.Judge != "" {
			t.Printf("  judge         %s, %s\n", terminal.Escape(part.Judge), readable.Count(part.Judgments, "judgment"))
		}
		if part.Reflector != "" {
			t.Printf("  reflector     %s, %s\n", terminal.Escape(part.Reflector), readable.Count(part.Reflections, "reflection"))
		}
		t.Printf("  version 0     %s\n", terminal.Escape(cmp.Or(part.Source, "unknown")))
	}
}
