package main

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"net/http"
	"os"
	"os/exec"
)

// task is what theirs.py reads for a search.
type task struct {
	URL             string `json:"url"`
	Seed            uint64 `json:"seed"`
	Prompt          string `json:"prompt"`
	Train           int    `json:"train"`
	Validation      int    `json:"validation"`
	Beam            int    `json:"beam"`
	Branch          int    `json:"branch"`
	Rounds          int    `json:"rounds"`
	GradientBatch   int    `json:"gradient_batch"`
	ValidationBatch int    `json:"validation_batch"`
	Budget          int    `json:"budget"`
}

// theirs runs the other product's APO in every world and returns how its best prompts
// changed.
func (b *bench) theirs(ctx context.Context, s settings, python string) ([][]standing, error) {
	var tasks bytes.Buffer
	var served []*other
	for _, w := range b.worlds {
		from, err := b.reflector(w)
		if err != nil {
			return nil, err
		}
		defer from.Close()
		one := newOther(newRollouts(w, s.failures), from)
		served = append(served, one)
		path := fmt.Sprintf("/theirs/%d", w.seed)
		b.mux.Handle(path+"/", http.StripPrefix(path, one))
		err = json.NewEncoder(&tasks).Encode(task{
			URL: b.url + path, Seed: w.seed, Prompt: w.prompt, Train: trainItems, Validation: validationItems,
			Beam: s.beam, Branch: s.branch, Rounds: s.rounds, GradientBatch: s.gradientBatch, ValidationBatch: s.validationBatch, Budget: s.budget,
		})
		if err != nil {
			return nil, err
		}
	}
	c := exec.CommandContext(ctx, python, "bench/prompts/theirs.py")
	c.Stdin, c.Stderr = &tasks, os.Stderr
	text, err := c.Output()
	if err != nil {
		return nil, fmt.Errorf("run theirs.py: %w", err)
	}
	return readTheirs(text, served)
}

// readTheirs reads what theirs.py printed and compares its counts with ours.
func readTheirs(text []byte, served []*other) ([][]standing, error) {
	lines := json.NewDecoder(bytes.NewReader(text))
	var out [][]standing
	for i, one := range served {
		var history []standing
		if err := lines.Decode(&history); err != nil {
			return nil, fmt.Errorf("read search %d of theirs.py: %w", i, err)
		}
		if len(history) == 0 {
			return nil, fmt.Errorf("search %d of theirs.py has no prompt", i)
		}
		if last := history[len(history)-1].Rollouts; last != one.rollouts.total {
			return nil, fmt.Errorf("search %d of theirs.py counts %d rollouts, and the model made %d", i, last, one.rollouts.total)
		}
		out = append(out, history)
	}
	return out, nil
}
