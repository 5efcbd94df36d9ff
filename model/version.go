package model

import (
	"context"
	"errors"
	"fmt"
	"time"
)

// DefaultPolicy is the policy's name unless a spec trains several.
const DefaultPolicy = "main"

// VersionID names a version: number v is the policy after v steps.
type VersionID struct {
	Run    string `json:"run"`
	Policy string `json:"policy"`
	Number int    `json:"number"`
}

// String returns, for example, "demo@12", or "demo/critic@3" for a policy other than the
// default one.
func (v VersionID) String() string {
	if v.Policy == DefaultPolicy || v.Policy == "" {
		return fmt.Sprintf("%s@%d", v.Run, v.Number)
	}
	return fmt.Sprintf("%s/%s@%d", v.Run, v.Policy, v.Number)
}

// Version is an immutable state of a policy. Digests are "sha256:<hex>" names of blobs;
// docs/formats.md describes their content.
type Version struct {
	VersionID
	Parent   int    `json:"parent"`   // -1 for version 0
	Manifest string `json:"manifest"` // blob with the Manifest's JSON
	Weights  string `json:"weights"`  // blob with the safetensors of the weights
	Batch    string `json:"batch,omitempty"`
	// Scores is the blob with the trainer's Scores for the tokens of the batch. It is
	// empty for version 0, for critics and for other trainers.
	Scores      string             `json:"scores,omitempty"`
	Fingerprint string             `json:"fingerprint"`
	Metrics     map[string]float64 `json:"metrics,omitempty"`
	Created     time.Time          `json:"created"`
	// Begun is when the process that made the version began, Work how long the parts of
	// its work took. An earlier process that was killed is in neither.
	Begun time.Time `json:"begun,omitzero"`
	Work  Work      `json:"work,omitzero"`
	// Collected is when the version's files were deleted to save space; zero while they
	// are kept. The row, its metrics and its manifest stay.
	Collected time.Time `json:"collected,omitzero"`
}

// Work is how long the parts of making a version took.
type Work struct {
	Load      time.Duration `json:"load,omitempty"`      // reading the parent, unless it was in memory
	Score     time.Duration `json:"score,omitempty"`     // of the batch, by the reference or the parent
	Gradient  time.Duration `json:"gradient,omitempty"`  // forward and backward passes; all of the updates if the engine does not say more
	Optimizer time.Duration `json:"optimizer,omitempty"` // the updates without their gradients
	Save      time.Duration `json:"save,omitempty"`      // writing files, those of updates on the way too
}

// ErrCollected is returned when the files of a version were deleted to save space.
var ErrCollected = errors.New("the version was collected, its weights are gone")

// Sampler answers for any version of any run, and loads it if needed.
type Sampler interface {
	// Sample also returns the digest of the weights that sampled.
	Sample(ctx context.Context, version VersionID, r DecodeRequest) (c Completion, weights string, err error)
}
