package checker

import (
	"crypto/sha256"
	"encoding/binary"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strconv"
	"strings"
)

// Trained is an attempt from which a batch was made.
type Trained struct {
	RolloutAddress
	Attempt int
}

// ReadBatch reads the attempts of a batch from its file in a directory of blobs, and
// checks the file against its digest.
func ReadBatch(blobs, digest string) ([]Trained, error) {
	out, err := readBatch(blobs, digest)
	if err != nil {
		return nil, fmt.Errorf("read batch %s: %w", digest, err)
	}
	return out, nil
}

func readBatch(blobs, digest string) ([]Trained, error) {
	name, ok := strings.CutPrefix(digest, "sha256:")
	if !ok || len(name) != 2*sha256.Size {
		return nil, errors.New("no digest")
	}
	data, err := os.ReadFile(filepath.Join(blobs, name[:2], name))
	if err != nil {
		return nil, err
	}
	if sum := sha256.Sum256(data); hex.EncodeToString(sum[:]) != name {
		return nil, errors.New("its content is not what its name says")
	}
	// A safetensors file: the header's length, then the header.
	if len(data) < 8 || binary.LittleEndian.Uint64(data) > uint64(len(data)-8) {
		return nil, errors.New("it is cut short")
	}
	var header struct {
		Metadata map[string]string `json:"__metadata__"`
	}
	if err := json.Unmarshal(data[8:8+binary.LittleEndian.Uint64(data)], &header); err != nil {
		return nil, err
	}
	var batch struct {
		Trajectories []struct {
			Attempt string `json:"attempt"`
		} `json:"trajectories"`
	}
	if err := json.Unmarshal([]byte(header.Metadata["batch"]), &batch); err != nil {
		return nil, err
	}
	var out []Trained
	for _, t := range batch.Trajectories {
		attempt, err := parseAttempt(t.Attempt)
		if err != nil {
			return nil, err
		}
		out = append(out, attempt)
	}
	return out, nil
}

// parseAttempt reads "run/kind-step/task/sample/attempt".
func parseAttempt(s string) (Trained, error) {
	var t Trained
	parts := strings.Split(s, "/")
	if len(parts) != 5 {
		return t, fmt.Errorf("%q names no attempt", s)
	}
	kind, step, _ := strings.Cut(parts[1], "-")
	t.Kind = kind
	for i, to := range []*int{&t.Step, &t.Task, &t.Sample, &t.Attempt} {
		n, err := strconv.Atoi([]string{step, parts[2], parts[3], parts[4]}[i])
		if err != nil {
			return t, fmt.Errorf("%q names no attempt", s)
		}
		*to = n
	}
	return t, nil
}
