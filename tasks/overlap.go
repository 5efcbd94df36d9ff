package tasks

import (
	"fmt"
	"slices"
	"strings"

	"github.com/fulgurite/fulgurite/spec"
)

// Overlap describes the common parts of two lists of tasks.
type Overlap struct {
	// IDs are pairs of tasks with the same input, the first list's id first. Of tasks
	// about a database, the database's name counts as a part of the input.
	IDs [][2]string `json:"ids"`
	// SingleHops are the ids of single questions that questions of both are composed of.
	SingleHops []string `json:"single_hops"`
	// Databases are the databases of tasks in both lists, by name.
	Databases []string `json:"databases"`
}

// Leaks reports whether training on one list reveals answers of the other. A shared
// database alone does not.
func (o Overlap) Leaks() bool { return len(o.IDs) > 0 || len(o.SingleHops) > 0 }

// String says how much is shared.
func (o Overlap) String() string {
	var parts []string
	add := func(n int, what, example string) {
		if n > 0 {
			parts = append(parts, fmt.Sprintf("%d %s (%s)", n, what, example))
		}
	}
	if len(o.IDs) > 0 {
		add(len(o.IDs), "tasks with the same input", "ids "+o.IDs[0][0]+" and "+o.IDs[0][1])
	}
	if len(o.SingleHops) > 0 {
		add(len(o.SingleHops), "single questions", "id "+o.SingleHops[0])
	}
	if len(o.Databases) > 0 {
		add(len(o.Databases), "databases", o.Databases[0])
	}
	if len(parts) == 0 {
		return "nothing"
	}
	return strings.Join(parts, ", ")
}

// Overlaps returns the overlap of two lists of tasks, in the order of a.
func Overlaps(a, b []Task) Overlap {
	out := Overlap{IDs: [][2]string{}, SingleHops: []string{}, Databases: []string{}}
	inputs, hops, databases := map[string]string{}, map[string]bool{}, map[string]bool{}
	for _, t := range b {
		if _, known := inputs[t.question()]; !known {
			inputs[t.question()] = t.ID
		}
		for _, hop := range t.hops() {
			hops[hop] = true
		}
		databases[t.databaseName()] = true
	}
	for _, t := range a {
		if other, shared := inputs[t.question()]; shared {
			out.IDs = append(out.IDs, [2]string{t.ID, other})
		}
		for _, hop := range t.hops() {
			if hops[hop] && !slices.Contains(out.SingleHops, hop) {
				out.SingleHops = append(out.SingleHops, hop)
			}
		}
		if name := t.databaseName(); name != "" && databases[name] && !slices.Contains(out.Databases, name) {
			out.Databases = append(out.Databases, name)
		}
	}
	return out
}

// CheckLeak reports that two splits of published data sets share questions. Of other
// sources it says nothing: what their tasks share is their owner's choice.
func CheckLeak(sourceA, sourceB string, a, b []Task) error {
	for _, source := range []string{sourceA, sourceB} {
		if s, err := spec.ParseSource(source); err != nil || s.Family == "" || s.Generated() {
			return err
		}
	}
	if o := Overlaps(a, b); o.Leaks() {
		return fmt.Errorf("%s leaks into %s: they share %s; leave those tasks out of one of them", sourceA, sourceB, o)
	}
	return nil
}

// question is the question and the database that it is about.
func (t Task) question() string { return t.databaseName() + "\x00" + strings.TrimSpace(t.Input) }

func (t Task) databaseName() string {
	name, _ := t.Metadata["db_id"].(string)
	return name
}

func (t Task) hops() []string {
	list, _ := t.Metadata[metadataHops].([]any)
	var out []string
	for _, hop := range list {
		if text, ok := hop.(string); ok {
			out = append(out, text)
		}
	}
	return out
}
