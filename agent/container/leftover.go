package container

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"syscall"
)

// The labels of containers of attempts.
const (
	labelAttempt = "fulgurite.attempt" // its address
	labelHome    = "fulgurite.home"    // its home, whose lock is held while the container is needed
	labelScratch = "fulgurite.scratch" // device and inode of the directory with the home and the lock
	labelMachine = "fulgurite.host"    // the machine that has the home
	labelBoot    = "fulgurite.boot"    // when the kernel of that machine was started
)

// Labels returns the labels of an attempt's container, each as NAME=VALUE. A container of
// no attempt has none: it has to end by itself.
func Labels(attempt, home string) ([]string, error) {
	if attempt == "" {
		return nil, nil
	}
	scratch, err := identity(filepath.Dir(home))
	if err != nil {
		return nil, fmt.Errorf("label the container of %s: %w", attempt, err)
	}
	return []string{
		labelAttempt + "=" + attempt, labelHome + "=" + home, labelScratch + "=" + scratch, labelMachine + "=" + machine(), labelBoot + "=" + boot(),
	}, nil
}

// Name returns the name of the containers of attempts with a home. Since only one attempt
// has the home at a time, at most one container is needed under that name. Homes of the
// same path in different mount namespaces, such as two services' own /tmp, have different
// names.
func Name(home string) (string, error) {
	scratch, err := identity(filepath.Dir(home))
	if err != nil {
		return "", fmt.Errorf("name the container of a home: %w", err)
	}
	digest := sha256.Sum256([]byte(scratch + " " + home))
	return "fulgurite-" + hex.EncodeToString(digest[:8]), nil
}

// Remove removes the container with a name or an ID, also while it runs. It is no error if
// there is none.
func (p Podman) Remove(ctx context.Context, name string) error {
	if _, err := p.answer(ctx, "rm", "--force", "--volumes", name); err != nil && !strings.Contains(strings.ToLower(err.Error()), "no such container") {
		return fmt.Errorf("remove container %s: %w", name, err)
	}
	return nil
}

// RemoveAbandoned removes the containers of attempts of this machine whose home nobody
// uses any more, and returns their attempts. A worker that was killed together with its
// shims, or a machine that was switched off, may leave some. It leaves those alone whose
// home it can't see: another service may have a /tmp of its own.
func (p Podman) RemoveAbandoned(ctx context.Context, inUse func(home string) bool) (attempts []string, err error) {
	list, err := p.answer(ctx, "ps", "--all", "--quiet", "--no-trunc", "--filter", "label="+labelAttempt, "--filter", "label="+labelMachine+"="+machine())
	if err != nil {
		return nil, fmt.Errorf("list containers: %w", err)
	}
	for _, id := range strings.Fields(list) {
		text, failure := p.answer(ctx, "container", "inspect", "--format", "{{json .Config.Labels}}", id)
		if failure != nil {
			continue // it has just been removed
		}
		var labels map[string]string
		if failure := json.Unmarshal([]byte(text), &labels); failure != nil {
			err = errors.Join(err, fmt.Errorf("read labels of container %s: %w", id, failure))
			continue
		}
		if !abandoned(labels, inUse) {
			continue
		}
		if failure := p.Remove(ctx, id); failure != nil {
			err = errors.Join(err, failure)
			continue
		}
		attempts = append(attempts, labels[labelAttempt])
	}
	return attempts, err
}

// abandoned reports whether nobody needs a container of this machine with these labels any
// more. Nothing of an earlier start of the machine still runs.
func abandoned(labels map[string]string, inUse func(home string) bool) bool {
	if labels[labelBoot] != boot() {
		return true
	}
	home := labels[labelHome]
	scratch, err := identity(filepath.Dir(home))
	return err == nil && scratch == labels[labelScratch] && !inUse(home)
}

// identity returns the device and the inode of a directory. Two directories of the same
// path in different mount namespaces have different ones.
func identity(directory string) (string, error) {
	var stat syscall.Stat_t
	if err := syscall.Stat(directory, &stat); err != nil {
		return "", fmt.Errorf("identify %s: %w", directory, err)
	}
	return fmt.Sprintf("%d:%d", stat.Dev, stat.Ino), nil
}

// machine returns the name of this machine. All machines without a name count as one.
func machine() string {
	name, err := os.Hostname()
	if err != nil {
		return "unknown"
	}
	return name
}

// boot returns what identifies this start of the machine's kernel, or "" where the kernel
// does not say.
func boot() string {
	text, err := os.ReadFile("/proc/sys/kernel/random/boot_id")
	if err != nil {
		return ""
	}
	return strings.TrimSpace(string(text))
}
