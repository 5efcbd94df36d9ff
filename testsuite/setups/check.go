package main

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"path/filepath"
	"slices"
	"strings"
)

// check runs a setup and lists what differs from its claims.
func (env *testEnv) check(ctx context.Context, s setup) (wrong []string, err error) {
	dir := filepath.Join(env.dir, "setups", s.name)
	if err := s.write(dir, env.addresses); err != nil {
		return nil, err
	}
	expect := func(command string, got commandResult, code int, words []string) {
		if got.code != code {
			wrong = append(wrong, fmt.Sprintf("%s ended with %d, want %d:\n%s", command, got.code, code, got.text))
			return
		}
		for _, word := range words {
			if !strings.Contains(got.text, word) {
				wrong = append(wrong, fmt.Sprintf("%s does not say %q:\n%s", command, word, got.text))
			}
		}
	}
	planned, err := env.command(ctx, dir, "plan", "spec.yaml")
	if err != nil {
		return nil, err
	}
	if len(s.refused) > 0 {
		expect("plan", planned, 2, s.refused)
		return wrong, nil
	}
	expect("plan", planned, 0, nil)
	tried, err := env.command(ctx, dir, append([]string{"try", "spec.yaml"}, s.args...)...)
	if err != nil {
		return nil, err
	}
	code, words := 0, slices.Concat(s.stopped, s.printed)
	if len(s.stopped) > 0 {
		code, words = 1, append(words, "This would stop learning:")
	}
	expect("try", tried, code, words)
	if s.train == "" {
		return wrong, nil
	}
	text, err := env.checkTraining(ctx, dir, s)
	if text != "" {
		wrong = append(wrong, text)
	}
	return wrong, err
}

// checkTraining trains a setup and returns what differs from its claims.
func (env *testEnv) checkTraining(ctx context.Context, dir string, s setup) (wrong string, err error) {
	if err := env.startStack(ctx); err != nil {
		return "", err
	}
	got, err := env.command(ctx, dir, "train", "spec.yaml", "--name", s.name, "--dir", env.state())
	if err != nil {
		return "", err
	}
	if s.train == trainingFails {
		if got.code != 1 {
			return fmt.Sprintf("train ended with %d, want 1:\n%s", got.code, got.text), nil
		}
		for _, word := range s.because {
			if !strings.Contains(got.text, word) {
				return fmt.Sprintf("train does not say %q:\n%s", word, got.text), nil
			}
		}
		return "", nil
	}
	if got.code != 0 {
		return fmt.Sprintf("train ended with %d, want 0:\n%s", got.code, got.text), nil
	}
	listed, err := env.command(ctx, dir, "versions", s.name, "--json", "--dir", env.state())
	if err != nil {
		return "", err
	}
	weights, err := weightsOf(listed.text)
	if err != nil {
		return "", fmt.Errorf("read versions: %w: %s", err, listed.text)
	}
	if same := weights[0] == weights[1]; same != (s.train == learnsNothing) {
		return fmt.Sprintf("claimed is that it %s, but versions 0 and 1 have weights %s and %s", s.train, weights[0], weights[1]), nil
	}
	return "", nil
}

// weightsOf returns the digests of the weights of versions 0 and 1.
func weightsOf(listed string) ([2]string, error) {
	var out [2]string
	var versions []struct {
		Version int    `json:"version"`
		Weights string `json:"weights"`
	}
	if err := json.Unmarshal([]byte(listed), &versions); err != nil {
		return out, err
	}
	for _, v := range versions {
		if v.Version < len(out) {
			out[v.Version] = v.Weights
		}
	}
	if out[0] == "" || out[1] == "" {
		return out, errors.New("no versions 0 and 1")
	}
	return out, nil
}
