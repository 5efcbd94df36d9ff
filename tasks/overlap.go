package tasks

import (
	"fmt"
	"slices"
	"strings"

	"github.com/fulgurite/fulgurite/spec"
)

// Overlap describes what two lists of tasks have in common.
type Overlap struct {
	// IDs are pairs of ids of tasks with the same input, the first list's id first. For
	// tasks about a database, the database's name is part of the input.
	IDs [][2]string `json:"ids"`
	// SingleHops are the single questions that are part of questions in both lists.
	SingleHops []SharedHop `json:"single_hops"`
	// Databases are the databases of tasks in both lists, by name.
	Databases []string `json:"databases"`
	// Tasks are the ids of all tasks of each list that leak into the other.
	Tasks [2][]string `json:"tasks"`
}

// SharedHop is a single question, and the tasks of each list that are composed of it.
type SharedHop struct {
	ID    string      `json:"id"`
	Tasks [2][]string `json:"tasks"`
}

// Leaks reports whether training on one list reveals answers of the other. A shared
// database alone does not.
func (o Overlap) Leaks() bool { return len(o.IDs) > 0 || len(o.SingleHops) > 0 }

// String returns how much is shared, and the first tasks of each list.
func (o Overlap) String() string {
	var leaks []string
	if n := len(o.IDs); n > 0 {
		leaks = append(leaks, counted(n, "task")+" with the same input")
	}
	if n := len(o.SingleHops); n > 0 {
		var ids []string
		for _, hop := range o.SingleHops {
			ids = append(ids, hop.ID)
		}
		leaks = append(leaks, fmt.Sprintf("%s (%s)", counted(n, "single question"), someOf(ids, 0)))
	}
	var parts []string
	if len(leaks) > 0 {
		parts = append(parts, fmt.Sprintf("%s: %s of the first, %s of the second", strings.Join(leaks, " and "), named(o.Tasks[0]), named(o.Tasks[1])))
	}
	if n := len(o.Databases); n > 0 {
		parts = append(parts, fmt.Sprintf("%s (%s)", counted(n, "database"), someOf(o.Databases, 0)))
	}
	if len(parts) == 0 {
		return "nothing"
	}
	return strings.Join(parts, "; ")
}

// counted returns a number of things: "1 task", "2 tasks".
func counted(n int, thing string) string {
	if n == 1 {
		return "1 " + thing
	}
	return fmt.Sprintf("%d %ss", n, thing)
}

// named names the first of several tasks.
func named(ids []string) string {
	if len(ids) == 1 {
		return "task " + ids[0]
	}
	return "tasks " + someOf(ids, 0)
}

// Overlaps returns the overlap of two lists of tasks, in the order of a.
func Overlaps(a, b []Task) Overlap {
	out := Overlap{IDs: [][2]string{}, SingleHops: []SharedHop{}, Databases: []string{}, Tasks: [2][]string{leaking(a, b), leaking(b, a)}}
	inputs, hops, databases := map[string]string{}, map[string][]string{}, map[string]bool{}
	for _, t := range b {
		if _, known := inputs[t.question()]; !known {
			inputs[t.question()] = t.ID
		}
		for _, hop := range t.hops() {
			hops[hop] = append(hops[hop], t.ID)
		}
		databases[t.databaseName()] = true
	}
	at := map[string]int{} // index in out.SingleHops by id
	for _, t := range a {
		if other, shared := inputs[t.question()]; shared {
			out.IDs = append(out.IDs, [2]string{t.ID, other})
		}
		for _, hop := range t.hops() {
			if hops[hop] == nil {
				continue
			}
			i, known := at[hop]
			if !known {
				i, at[hop] = len(out.SingleHops), len(out.SingleHops)
				out.SingleHops = append(out.SingleHops, SharedHop{ID: hop, Tasks: [2][]string{nil, hops[hop]}})
			}
			out.SingleHops[i].Tasks[0] = append(out.SingleHops[i].Tasks[0], t.ID)
		}
		if name := t.databaseName(); name != "" && databases[name] && !slices.Contains(out.Databases, name) {
			out.Databases = append(out.Databases, name)
		}
	}
	return out
}

// leaking returns the ids of the tasks in a that share a question with a task in b.
func leaking(a, b []Task) []string {
	asked, out := map[string]bool{}, []string{}
	for _, t := range b {
		for _, key := range t.questions() {
			asked[key] = true
		}
	}
	for _, t := range a {
		if slices.ContainsFunc(t.questions(), func(key string) bool { return asked[key] }) {
			out = append(out, t.ID)
		}
	}
	return out
}

// CheckLeak returns an error if two splits of published data sets share questions. It
// ignores other sources: their owner decides what their tasks may share.
func CheckLeak(sourceA, sourceB string, a, b []Task) error {
	for _, source := range []string{sourceA, sourceB} {
		if s, err := spec.ParseSource(source); err != nil || s.Family == "" || s.Generated() {
			return err
		}
	}
	if o := Overlaps(a, b); o.Leaks() {
		return fmt.Errorf("%s leaks into %s: they share %s; `fulgurite tasks SPEC --write DIR` writes splits without those tasks", sourceA, sourceB, o)
	}
	return nil
}

// question returns the question together with the name of its database.
func (t Task) question() string { return t.databaseName() + "\x00" + strings.TrimSpace(t.Input) }

func (t Task) databaseName() string {
	name, _ := t.Metadata["db_id"].(string)
	return name
}

func (t Task) hops() []string {
	list, _ := t.Metadata[metadataHops].([]any)
	var out []string
	for _, hop := range list {
		if text, ok := hop.(string); ok && !slices.Contains(out, text) {
			out = append(out, text)
		}
	}
	return out
}
