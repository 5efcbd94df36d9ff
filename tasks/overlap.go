package tasks

import (
	"errors"
	"fmt"
	"slices"
	"strings"

	"github.com/fulgurite/fulgurite/spec"
)

// Overlap describes what two lists of tasks have in common.
type Overlap struct {
	// IDs are pairs of ids of tasks that ask the same question, the first list's id first.
	// A question counts together with its database and its context.
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
	asked, hops, databases := map[string]string{}, map[string][]string{}, map[string]bool{}
	for _, t := range b {
		for _, key := range t.asks() {
			if _, known := asked[key]; !known {
				asked[key] = t.ID
			}
		}
		for _, hop := range t.hops() {
			hops[hop] = append(hops[hop], t.ID)
		}
		databases[t.databaseName()] = true
	}
	at := map[string]int{} // index in out.SingleHops by id
	for _, t := range a {
		if other, shared := firstOf(asked, t.asks()); shared {
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

// firstOf returns the value of the first key that a map has.
func firstOf(values map[string]string, keys []string) (string, bool) {
	for _, key := range keys {
		if value, ok := values[key]; ok {
			return value, true
		}
	}
	return "", false
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

// CheckLeak compares two splits. What they share is an error if both are of published
// data sets, which promise that their splits are apart. Otherwise it is a warning, because
// the owner of a file, a program or a directory decides what splits may share. The warning
// is empty if they share nothing.
func CheckLeak(sourceA, sourceB string, a, b []Task) (warning string, err error) {
	o := Overlaps(a, b)
	if !o.Leaks() {
		return "", nil
	}
	text := fmt.Sprintf("%s leaks into %s: they share %s; `fulgurite tasks SPEC --write DIR` writes splits without those tasks", sourceA, sourceB, o)
	apart, err := promised(sourceA, sourceB)
	if err != nil {
		return "", err
	}
	if apart {
		return "", errors.New(text)
	}
	return text, nil
}

// promised reports whether the owner of both sources promises that they are apart.
func promised(sources ...string) (bool, error) {
	for _, source := range sources {
		s, err := spec.ParseSource(source)
		if err != nil || !slices.Contains(spec.DataSets(), s.Family) {
			return false, err
		}
	}
	return true, nil
}

// Silent names the tasks that say nothing, as those of a program do whose library has no
// prompt for them. It returns "" if all tasks have an input.
func Silent(list []Task) string {
	var ids []string
	for _, t := range list {
		if strings.TrimSpace(t.Input) == "" {
			ids = append(ids, t.ID)
		}
	}
	switch len(ids) {
	case 0:
		return ""
	case 1:
		return "task " + ids[0] + " has an empty input"
	}
	return fmt.Sprintf("%s have an empty input: %s", counted(len(ids), "task"), someOf(ids, 0))
}

// Duplicates describes the tasks of one list that ask what an earlier one asks.
type Duplicates struct {
	// IDs are pairs of ids: of the later task, and of the first one that asks the same.
	IDs [][2]string `json:"ids"`
	// Answers are those pairs whose answers differ.
	Answers [][2]string `json:"answers"`
}

// Repeats returns the duplicates in a list of tasks, in the order of the list. Tasks that
// only share a single question of theirs are no duplicates.
func Repeats(list []Task) Duplicates {
	out := Duplicates{IDs: [][2]string{}, Answers: [][2]string{}}
	first := map[string]Task{}
	for _, t := range list {
		keys, repeats := t.asks(), false
		for _, key := range keys {
			earlier, known := first[key]
			if !known {
				first[key] = t
				continue
			}
			if repeats {
				continue
			}
			repeats = true
			out.IDs = append(out.IDs, [2]string{t.ID, earlier.ID})
			if differ(t.Answer, earlier.Answer) {
				out.Answers = append(out.Answers, [2]string{t.ID, earlier.ID})
			}
		}
	}
	return out
}

// differ reports whether two answers are different texts. JSON objects are not compared:
// they are the notes of a program, which may number its tasks in them.
func differ(a, b string) bool {
	if a == "" || b == "" || strings.HasPrefix(strings.TrimSpace(a), "{") {
		return false
	}
	return folded(canonical(a)) != folded(canonical(b))
}

// Any reports whether there are duplicates.
func (d Duplicates) Any() bool { return len(d.IDs) > 0 }

// String returns how many tasks ask again, and the first of them.
func (d Duplicates) String() string {
	if !d.Any() {
		return "no task repeats another's question"
	}
	verb := "repeat the questions of others"
	if len(d.IDs) == 1 {
		verb = "repeats the question of another"
	}
	text := fmt.Sprintf("%s %s: %s", counted(len(d.IDs), "task"), verb, pairsOf(d.IDs))
	if n := len(d.Answers); n > 0 {
		text += fmt.Sprintf("; %d with another answer: %s", n, pairsOf(d.Answers))
	}
	return text
}

// pairsOf names the first of several pairs.
func pairsOf(pairs [][2]string) string {
	var out []string
	for _, pair := range pairs {
		out = append(out, fmt.Sprintf("%s (as %s)", pair[0], pair[1]))
	}
	return someOf(out, 0)
}
