package main

import (
	"fmt"
	"slices"
	"strings"

	"github.com/fulgurite/fulgurite/spec"
)

// scenario has the special settings of a run. The runs with faults go through them in
// turn.
type scenario struct {
	name string
	// lag is training.lag.
	lag int
	// parallel makes agents hold two dialogs at once. Results that depend on the order of
	// an attempt's calls may then differ.
	parallel bool
	// dynamicSampling is training.dynamic_sampling, in groups.
	dynamicSampling int
	// critic estimates returns, for credit by turn-level GAE.
	critic bool
	// judge scores the calls.
	judge bool
	// lora trains an adapter over a frozen base.
	lora bool
	// curriculum is training.curriculum.type.
	curriculum string
}

// plain is the scenario with nothing special.
var plain = scenario{name: "plain"}

// scenariosNamed returns the scenarios with the given names, separated by commas. Without
// names it returns all but the last three.
func scenariosNamed(names string) ([]scenario, error) {
	all := []scenario{plain, {name: "judge", judge: true}, {name: "lag", lag: 1, dynamicSampling: 2, parallel: true}, {name: "critic", lag: 1, critic: true}}
	if names == "" {
		return all, nil
	}
	all = append(all, scenario{name: "lora", lora: true, critic: true},
		scenario{name: "band", curriculum: spec.CurriculumBand, lag: 1, dynamicSampling: 2}, scenario{name: "stages", curriculum: spec.CurriculumStages, lag: 1})
	var chosen []scenario
	for name := range strings.SplitSeq(names, ",") {
		i := slices.IndexFunc(all, func(c scenario) bool { return c.name == name })
		if i < 0 {
			return nil, fmt.Errorf("-scenarios %q: there are plain, judge, lag, critic, lora, band and stages", name)
		}
		chosen = append(chosen, all[i])
	}
	return chosen, nil
}
