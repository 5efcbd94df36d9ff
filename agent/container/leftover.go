package container

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"os"
	"strings"
)

// The labels of containers of attempts.
const (
	labelAttempt = "fulgurite.attempt" // its address
	labelHome    = "fulgurite.home"    // its home, whose lock is held while the container is needed
	labelMachine = "fulgurite.host"    // the machine that has the home: several may use one daemon
)

// Labels returns the labels of an attempt's container, each as NAME=VALUE.
func Labels(attempt, home string) []string {
	return []string{labelAttempt + "=" + attempt, labelHome + "=" + home, labelMachine + "=" + machine()}
}

// Name returns the name of the containers of attempts with a home. Since only one attempt
// has the home at a time, at most one container has the name.
func Name(home string) string {
	digest := sha256.Sum256([]byte(home))
	return "fulgurite-" + hex.EncodeToString(digest[:8])
}

// Remove removes the container with a name or an ID, also while it runs. It is no error if
// there is none.
func (e Engine) Remove(ctx context.Context, name string) error {
	if _, err := output(ctx, e.Program, "rm", "--force", "--volumes", name); err != nil && !strings.Contains(strings.ToLower(err.Error()), "no such container") {
		return fmt.Errorf("remove container %s: %w", name, err)
	}
	return nil
}

// RemoveAbandoned removes the containers of attempts of this machine whose home nobody
// uses any more, and returns their attempts. A worker that was killed together with its
// shims, or a machine that was switched off, may leave some.
func (e Engine) RemoveAbandoned(ctx context.Context, inUse func(home string) bool) (attempts []string, err error) {
	list, err := output(ctx, e.Program, "ps", "--all", "--quiet", "--no-trunc", "--filter", "label="+labelAttempt, "--filter", "label="+labelMachine+"="+machine())
	if err != nil {
		return nil, fmt.Errorf("list containers: %w", err)
	}
	for _, id := range strings.Fields(list) {
		const format = `{{index .Config.Labels "` + labelHome + `"}}` + "\n" + `{{index .Config.Labels "` + labelAttempt + `"}}`
		text, failure := output(ctx, e.Program, "container", "inspect", "--format", format, id)
		if failure != nil {
			continue // it has just been removed
		}
		home, attempt, _ := strings.Cut(strings.TrimSpace(text), "\n")
		if inUse(home) {
			continue
		}
		if failure := e.Remove(ctx, id); failure != nil {
			err = errors.Join(err, failure)
			continue
		}
		attempts = append(attempts, attempt)
	}
	return attempts, err
}

// machine returns the name of this machine. All machines without a name count as one.
func machine() string {
	name, err := os.Hostname()
	if err != nil {
		return "unknown"
	}
	return name
}
