package tasks

import (
	"fmt"
	"path/filepath"

	"github.com/fulgurite/fulgurite/spec"
	"github.com/fulgurite/fulgurite/tasks/harbor"
)

const (
	// MetadataHarbor is the key in a task's metadata for its directory in Harbor's
	// format.
	MetadataHarbor = "harbor"
	// metadataDigest is the key for the digest of the directory's content when it was
	// read.
	metadataDigest = "digest"
	// metadataEnvironment is the key for the digest of the environment alone. The same
	// instruction in another environment is another task.
	metadataEnvironment = "environment_digest"
)

// readHarbor reads the tasks of a directory in Harbor's format. A task's id is its path there,
// its input the instruction.
func readHarbor(directory string, how spec.Harbored) ([]Task, error) {
	list, err := harbor.List(directory, harbor.Options{Container: how.Container, Reward: how.Reward})
	if err != nil {
		return nil, err
	}
	out := make([]Task, len(list))
	for i, one := range list {
		if len(one.Name) > longestID {
			return nil, fmt.Errorf("task %s: its path has %d bytes; at most %d are allowed", one.Name, len(one.Name), longestID)
		}
		digest, err := one.Digest()
		if err != nil {
			return nil, fmt.Errorf("task %s: %w", one.Name, err)
		}
		environment, err := one.EnvironmentDigest()
		if err != nil {
			return nil, fmt.Errorf("task %s: %w", one.Name, err)
		}
		out[i] = Task{ID: one.Name, Input: one.Instruction, Metadata: map[string]any{
			MetadataHarbor: one.Directory, metadataDigest: digest, metadataEnvironment: environment,
		}}
	}
	return out, nil
}

// HarborTask reads the directory of a task in Harbor's format again. The error wraps
// ErrAnswer if the metadata names no directory. It wraps harbor.ErrMachine if the
// directory is not on this machine, or has changed since the task was read.
func HarborTask(id string, metadata map[string]any) (harbor.Task, error) {
	directory, ok := metadata[MetadataHarbor].(string)
	if !ok || !filepath.IsAbs(directory) {
		return harbor.Task{}, fmt.Errorf("task %s: %w: metadata.%s must be the absolute path of a directory in Harbor's format", id, ErrAnswer, MetadataHarbor)
	}
	t, err := harbor.Read(directory)
	if err != nil {
		return t, fmt.Errorf("task %s: %w: %w", id, harbor.ErrMachine, err)
	}
	t.Name = id
	want, _ := metadata[metadataDigest].(string)
	got, err := t.Digest()
	if err != nil {
		return t, fmt.Errorf("task %s: %w: %w", id, harbor.ErrMachine, err)
	}
	if want != "" && got != want {
		return t, fmt.Errorf("task %s: %w: the files in %s differ from those that the run began with: restore them", id, harbor.ErrMachine, directory)
	}
	return t, nil
}
