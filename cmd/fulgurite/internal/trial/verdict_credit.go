package trial

import (
	"fmt"
	"maps"
	"slices"
	"strings"

	"github.com/fulgurite/fulgurite/credit/attribution"
	"github.com/fulgurite/fulgurite/internal/readable"
)

// credited looks at the batch.
func (v *verdict) credited() error {
	if v.step == nil || v.spec.Trainable() != nil {
		return nil
	}
	moved := false
	for _, c := range v.eachCall() {
		moved = moved || c.Advantage != nil && *c.Advantage != 0
	}
	if v.trained() == 0 {
		v.problem("no token of the %s would be trained: %s", readable.Count(v.calls, "call"), v.untrained())
		return nil
	}
	if v.input.Samples == 1 && v.spec.Training.SamplesPerTask > 1 {
		v.warning("with one sample of each task there is nothing to compare rewards with: leave out --samples 1")
		return nil
	}
	if moved || v.tooFew() {
		return v.alone(false)
	}
	silent, err := v.step.NeverTeaches()
	if err != nil {
		return err
	}
	if silent {
		return v.alone(true)
	}
	if len(v.Problems) == 0 {
		v.warning("no group has rewards that differ, so all advantages are 0: relative to its own mean nothing is better or worse; " +
			"use tasks that the model solves sometimes, more samples, or a warm start")
	}
	return v.alone(false)
}

// trained counts the tokens that would be trained.
func (v *verdict) trained() int {
	n := 0
	for _, c := range v.eachCall() {
		n += c.Trained
	}
	return n
}

// untrained returns why the first call without trained tokens is not trained.
func (v *verdict) untrained() string {
	for _, c := range v.eachCall() {
		if c.Untrained != "" {
			return c.Untrained
		}
	}
	return "all replies are empty"
}

// alone warns of agents that have calls in only one attempt of their group, so that there
// is nothing to compare them with. silent is true if no rewards could give an advantage.
func (v *verdict) alone(silent bool) error {
	if !v.spec.Credit.PerAgent {
		switch c := v.spec.Credit; {
		case silent && c.TrainAgents != "":
			v.problem("credit.train_agents %q matches calls of only one attempt in each group, so there is nothing to compare them with: all advantages are 0 whatever the rewards are", c.TrainAgents)
		case silent:
			v.problem("all advantages are 0 whatever the rewards are: look at credit.mean, credit.std and training.samples_per_task")
		}
		return nil
	}
	groups, err := v.step.Agents()
	if err != nil {
		return err
	}
	var single []string
	agents := 0
	for _, g := range groups {
		agents += len(g)
		for _, name := range slices.Sorted(maps.Keys(g)) {
			if g[name] == 1 {
				single = append(single, name)
			}
		}
	}
	text := fmt.Sprintf("%d of %d agents (%s) have calls in only one attempt of their group", len(single), agents, shortList(single))
	if advice := v.naming(single); advice != "" {
		text += "; " + advice
	}
	switch {
	case silent:
		v.problem("credit.per_agent compares each agent with itself, and all advantages are 0 whatever the rewards are: %s", text)
	case len(single) > 0:
		v.warning("credit.per_agent compares each agent with itself: %s", text)
	}
	return nil
}

// naming says how to give the agents in single stable names, if their names are digests
// of their instructions.
func (v *verdict) naming(single []string) string {
	for _, c := range v.eachCall() {
		if c.By == string(attribution.Instructions) && slices.Contains(single, c.Agent) {
			return "they are told apart by their instructions, which differ in each attempt: " +
				"let the agent put its name into its base URL (…/n/NAME/v1 in place of …/v1), or name what differs, such as a time, under replay.ignore"
		}
	}
	return ""
}

// shortList names up to three of many.
func shortList(names []string) string {
	const shown = 3
	if len(names) <= shown {
		return strings.Join(names, ", ")
	}
	return fmt.Sprintf("%s and %d more", strings.Join(names[:shown], ", "), len(names)-shown)
}
