package upstream

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"os"
	"path/filepath"

	"github.com/fulgurite/fulgurite/model"
)

// directoryOf is where a version lies for the servers to read.
func (s *Sampler) directoryOf(v model.VersionID) string {
	return filepath.Join(s.options.Directory, versionName(v))
}

// versionName is what a version is called at a server.
func versionName(v model.VersionID) string {
	if v.Policy == "" || v.Policy == model.DefaultPolicy {
		return fmt.Sprintf("%s-v%d", v.Run, v.Number)
	}
	return fmt.Sprintf("%s-%s-v%d", v.Run, v.Policy, v.Number)
}

// nameOf is the model's name in requests for a version. Version 0 of an adapter is
// the model without one.
func (s *Sampler) nameOf(v model.VersionID) string {
	if s.options.Versions == Adapters && v.Number > 0 {
		return versionName(v)
	}
	return s.options.Model
}

// expected is the version that a reply has to name, if it names one.
func (s *Sampler) expected(v model.VersionID) string {
	if s.options.Versions == Reload {
		return versionName(v)
	}
	return ""
}

// loadVersion has a replica load a version and returns the digest of its weights.
func (s *Sampler) loadVersion(ctx context.Context, at *replica, v model.VersionID) (weights string, err error) {
	if s.options.Versions == Adapters {
		return s.loadAdapter(ctx, at, v)
	}
	directory := s.directoryOf(v)
	if weights, err = s.options.Write(ctx, v, directory); err != nil {
		return "", fmt.Errorf("write %s: %w", directory, err)
	}
	return weights, s.protocol.load(ctx, s, at, versionName(v), directory)
}

// loadAdapter loads an adapter that an external trainer left in the directory.
func (s *Sampler) loadAdapter(ctx context.Context, at *replica, v model.VersionID) (string, error) {
	if v.Number == 0 {
		return "server:" + s.options.Model, nil
	}
	directory := s.directoryOf(v)
	config, err := os.ReadFile(filepath.Join(directory, "adapter_config.json"))
	if errors.Is(err, os.ErrNotExist) {
		return "", fmt.Errorf("%w: there is no adapter in %s: the trainer has to leave adapter_config.json and adapter_model.safetensors there", ErrVersion, directory)
	}
	if err != nil {
		return "", fmt.Errorf("read adapter: %w", err)
	}
	file, err := os.ReadFile(filepath.Join(directory, "adapter_model.safetensors"))
	if err != nil {
		return "", fmt.Errorf("read adapter: %w", err)
	}
	sum := sha256.Sum256(append(config, file...))
	return "sha256:" + hex.EncodeToString(sum[:]), s.protocol.load(ctx, s, at, versionName(v), directory)
}
