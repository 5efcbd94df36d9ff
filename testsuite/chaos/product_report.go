package main

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"os/exec"
	"path/filepath"

	"github.com/fulgurite/fulgurite/testsuite/chaos/checker"
)

// productReport is the part of the output of `fulgurite report RUN --json` that can be
// compared with the checker's figures. In this report a prompt is a task with all its
// samples.
type productReport struct {
	Prompts struct {
		Issued      int `json:"issued"`
		Refills     int `json:"refills"`
		Quarantined int `json:"quarantined"`
		Flat        int `json:"flat_samples"`
		Trained     int `json:"trained"`
		Skipped     int `json:"skipped"`
		Duplicated  int `json:"duplicated"`
	} `json:"prompts"`
	Attempts struct {
		Total int `json:"total"`
		Calls struct {
			Recorded int `json:"recorded"`
			Sampled  int `json:"sampled"`
			Replayed int `json:"replayed"`
		} `json:"calls"`
	} `json:"attempts"`
}

// compareProduct lists where the product's own report differs from the findings. The
// command exits with 1 if it finds fault itself.
func (s *suite) compareProduct(ctx context.Context, e checker.Evidence, f checker.Findings) ([]string, error) {
	var a productReport
	sound := true
	err := s.retry(ctx, "ask the product for its report", func(ctx context.Context) error {
		command := exec.CommandContext(ctx, filepath.Join(s.bin, "fulgurite"), "report", f.Run, "--json", "--store", s.fleet.Store, "--blobs", s.fleet.Blobs)
		out, err := command.Output()
		var exit *exec.ExitError
		if errors.As(err, &exit) && json.Valid(out) {
			sound, err = false, nil
		}
		if err != nil {
			if exit != nil {
				return fmt.Errorf("%w: %s", err, exit.Stderr)
			}
			return err
		}
		return json.Unmarshal(out, &a)
	})
	if err != nil {
		return nil, err
	}
	return a.differences(e, f, sound), nil
}

// differences lists the figures that differ.
func (a productReport) differences(e checker.Evidence, f checker.Findings, sound bool) []string {
	var out []string
	for _, figure := range []struct {
		name             string
		product, checker int
	}{
		{"prompts issued", a.Prompts.Issued * e.Records.Samples, f.Prompts},
		{"prompts quarantined", a.Prompts.Quarantined, len(e.Records.Quarantined)},
		{"prompts replaced because they were flat", a.Prompts.Flat, f.PromptsFlat},
		{"prompts skipped", a.Prompts.Skipped, f.PromptsSkipped},
		{"prompts duplicated", a.Prompts.Duplicated, f.PromptsDuplicated},
		{"attempts", a.Attempts.Total, f.Attempts},
		{"calls recorded", a.Attempts.Calls.Recorded, f.CallsRecorded + f.CallsReplayed},
		{"calls sampled", a.Attempts.Calls.Sampled, f.CallsRecorded},
		{"calls replayed", a.Attempts.Calls.Replayed, f.CallsReplayed},
	} {
		if figure.product != figure.checker {
			out = append(out, fmt.Sprintf("%s of %s: the product reports %d, the evidence says %d", figure.name, f.Run, figure.product, figure.checker))
		}
	}
	if !sound && len(f.Wrong) == 0 {
		out = append(out, fmt.Sprintf("the product finds fault with %s, the evidence does not", f.Run))
	}
	return out
}
