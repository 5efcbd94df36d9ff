package spec

import (
	"fmt"
	"slices"
	"strconv"
	"strings"
)

// Arithmetic is the family of generated tasks.
const Arithmetic = "arithmetic"

// Source is where tasks or demonstrations come from: a file, or a generator.
// The generator's text is "arithmetic:<split>[:<count>]" for tasks, and
// "arithmetic" for demonstrations. A file of such a name is written "./arithmetic".
type Source struct {
	Path   string // of the file; empty for a generator
	Family string // of the generator; empty for a file
	Split  string // "train", "gate" or "test"; empty for demonstrations
	Count  int    // of tasks; 0 leaves it to the family
}

// ParseSource reads the text of a source. It doesn't look for the file.
func ParseSource(text string) (Source, error) {
	parts := strings.Split(text, ":")
	if parts[0] != Arithmetic {
		return Source{Path: text}, nil
	}
	source := Source{Family: parts[0]}
	if len(parts) > 3 {
		return source, fmt.Errorf(`generator %q has more than "arithmetic:<split>:<count>"`, text)
	}
	if len(parts) > 1 {
		source.Split = parts[1]
		if splits := []string{"train", "gate", "test"}; !slices.Contains(splits, source.Split) {
			return source, fmt.Errorf("generator %q has no split %q: want %s", text, source.Split, strings.Join(splits, ", "))
		}
	}
	if len(parts) > 2 {
		count, err := strconv.Atoi(parts[2])
		if err != nil || count < 1 {
			return source, fmt.Errorf("generator %q: the count %q is no whole number of at least 1", text, parts[2])
		}
		source.Count = count
	}
	return source, nil
}

// sameTasks reports whether two sources surely share tasks.
func sameTasks(a, b string) bool {
	x, errX := ParseSource(a)
	y, errY := ParseSource(b)
	if errX != nil || errY != nil {
		return false
	}
	return x.Path == y.Path && x.Family == y.Family && x.Split == y.Split
}

// source checks the text of a source; of demonstrations it takes no split.
func (f *Faults) source(key, text string, demonstrations bool) {
	if text == "" {
		return
	}
	source, err := ParseSource(text)
	switch {
	case err != nil:
		f.add(key, `a generator is "arithmetic:<split>" or "arithmetic:<split>:<count>"`, "%v", err)
	case demonstrations && source.Split != "":
		f.add(key, `give "arithmetic"`, "demonstrations always come from the train split")
	case !demonstrations && source.Family != "" && source.Split == "":
		split := strings.TrimPrefix(key, "tasks.")
		f.add(key, fmt.Sprintf(`give "%s:%s"`, text, split), "%q names no split", text)
	}
}
