package upstream

import (
	"context"
	"fmt"
	"path/filepath"

	"github.com/fulgurite/fulgurite/model"
)

// directoryOf returns the directory in which a version lies for the servers to read.
func (s *Sampler) directoryOf(v model.VersionID) string {
	return filepath.Join(s.options.Directory, versionName(v))
}

// versionName returns a version's name at a server.
func versionName(v model.VersionID) string {
	if v.Policy == "" || v.Policy == model.DefaultPolicy {
		return fmt.Sprintf("%s-v%d", v.Run, v.Number)
	}
	return fmt.Sprintf("%s-%s-v%d", v.Run, v.Policy, v.Number)
}

// expected returns the version that a reply has to name; empty if replies name none.
func (s *Sampler) expected(v model.VersionID) string {
	if s.options.Versions == Reload {
		return versionName(v)
	}
	return ""
}

// loadVersion makes a replica load a version in place of another.
func (s *Sampler) loadVersion(ctx context.Context, at *replica, v model.VersionID) (served, error) {
	directory := s.directoryOf(v)
	weights, err := s.options.Write(ctx, v, directory)
	if err != nil {
		return served{}, fmt.Errorf("write %s: %w", directory, err)
	}
	return served{s.options.Model, weights}, s.protocol.load(ctx, s, at, versionName(v), directory)
}
