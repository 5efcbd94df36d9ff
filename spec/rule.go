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

// unused reports a key that the user wrote but that has no effect together with the other
// keys.
func (f *Faults) unused(key string, written bool, why string) {
	if written {
		f.add(key, why+": remove the key", "unused key")
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
