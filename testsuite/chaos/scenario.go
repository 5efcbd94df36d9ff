package main

import (
	"fmt"
	"slices"
	"strings"
)

// course is what is special about a run. The disturbed ones take their turns.
type course struct {
	name string
	// lag is training.lag.
	lag int
	// parallel agents have two conversations at once. What depends on the order of an
	// attempt's calls is then not promised to be the same.
	parallel bool
	// flat is training.dynamic_sampling: so many groups of a step are replaced if
	// nothing can be learned from them.
	flat int
	// critic estimates returns, for credit by turn-level GAE.
	critic bool
	// judge scores the calls.
	judge bool
}

// plain is the course that others are measured by.
var plain = course{name: "plain"}

// coursesNamed are those whose names are given, separated by commas, or all.
func coursesNamed(names string) ([]course, error) {
	all := []course{plain, {name: "judge", judge: true}, {name: "lag", lag: 1, flat: 2, parallel: true}, {name: "critic", lag: 1, critic: true}}
	if names == "" {
		return all, nil
	}
	var chosen []course
	for name := range strings.SplitSeq(names, ",") {
		i := slices.IndexFunc(all, func(c course) bool { return c.name == name })
		if i < 0 {
			return nil, fmt.Errorf("-courses %q: there are plain, judge, lag and critic", name)
		}
		chosen = append(chosen, all[i])
	}
	return chosen, nil
}
