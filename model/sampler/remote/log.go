package remote

import (
	"context"
	"crypto/rand"
	"encoding/json"
	"fmt"
	"os"
	"sync"
	"time"

	"github.com/fulgurite/fulgurite/model"
)

// Generation is one line of a Log: what was sampled, for which run and version, and when.
type Generation struct {
	ID           string    `json:"id"` // unique to this generation
	Run          string    `json:"run"`
	Policy       string    `json:"policy"`
	Version      int       `json:"version"`
	Seed         uint64    `json:"seed,string"`
	PromptTokens []int32   `json:"prompt_tokens"`
	Tokens       []int32   `json:"tokens"`
	Weights      string    `json:"weights"`
	Started      time.Time `json:"started"`
	Finished     time.Time `json:"finished"`
}

// Log is a sampler that logs what another sampler samples. It appends one line of JSON to
// a file for each completed generation, before the caller gets the completion. It serves
// external checks of a run; the product itself never reads it. Several processes may
// append to one file.
type Log struct {
	Sampler

	mu   sync.Mutex
	file *os.File
}

// OpenLog returns a log that appends to the file at path, which it makes if it is absent.
func OpenLog(path string, sampler Sampler) (*Log, error) {
	f, err := os.OpenFile(path, os.O_WRONLY|os.O_CREATE|os.O_APPEND, 0o644)
	if err != nil {
		return nil, fmt.Errorf("open generation log: %w", err)
	}
	return &Log{Sampler: sampler, file: f}, nil
}

// Sample implements model.Sampler. If a completion can't be logged, Sample returns an
// error in place of it.
func (l *Log) Sample(ctx context.Context, v model.VersionID, r model.DecodeRequest) (model.Completion, string, error) {
	started := time.Now()
	c, weights, err := l.Sampler.Sample(ctx, v, r)
	if err != nil {
		return c, weights, err
	}
	line, err := json.Marshal(Generation{
		ID: rand.Text(), Run: v.Run, Policy: v.Policy, Version: v.Number, Seed: r.Seed, PromptTokens: r.Prompt, Tokens: c.Tokens,
		Weights: weights, Started: started.UTC(), Finished: time.Now().UTC(),
	})
	if err == nil {
		err = l.write(append(line, '\n'))
	}
	if err != nil {
		return model.Completion{}, "", fmt.Errorf("log generation: %w", err)
	}
	return c, weights, nil
}

// write appends a line with one system call, so that lines of several processes
// don't mix.
func (l *Log) write(line []byte) error {
	l.mu.Lock()
	defer l.mu.Unlock()
	_, err := l.file.Write(line)
	return err
}

// Close closes the file; the sampler stays open.
func (l *Log) Close() error { return l.file.Close() }
