package activities

import (
	"context"

	"github.com/fulgurite/fulgurite/agent"
	"github.com/fulgurite/fulgurite/dialog"
	"github.com/fulgurite/fulgurite/model"
	"github.com/fulgurite/fulgurite/record"
	"github.com/fulgurite/fulgurite/spec"
	"github.com/fulgurite/fulgurite/trace"
)

// Runs keeps runs. CreateRun returns the run that stands under the name, and
// whether this call made it.
type Runs interface {
	CreateRun(ctx context.Context, r record.Run) (record.Run, bool, error)
	Run(ctx context.Context, name string) (record.Run, error)
	FinishRun(ctx context.Context, name string, status record.Status, result []byte) error
}

// Ledger keeps what a run produced. Every Put returns what stands under the
// natural key.
type Ledger interface {
	PutBatch(ctx context.Context, b record.Batch) (record.Batch, bool, error)
	PutStep(ctx context.Context, s record.Step) error
	PutEvaluation(ctx context.Context, e record.Evaluation) error
	Promote(ctx context.Context, p record.Promotion) error
}

// Versions keeps versions. PutVersion returns the version that stands under its
// id, and whether this call made it.
type Versions interface {
	PutVersion(ctx context.Context, v model.Version) (model.Version, bool, error)
	Version(ctx context.Context, id model.VersionID) (model.Version, error)
}

// Attempts keeps attempts at rollouts.
type Attempts interface {
	BeginAttempt(ctx context.Context, id trace.RolloutID, taskID string, terms trace.Terms, keyHash string) (trace.Address, error)
	SealAttempt(ctx context.Context, a trace.Attempt) error
	Attempt(ctx context.Context, a trace.Address) (trace.Attempt, error)
	PutReward(ctx context.Context, r trace.Reward) error
	Rewards(ctx context.Context, a trace.Address) ([]trace.Reward, error)
	Trajectories(ctx context.Context, addresses []trace.Address) ([]trace.Trajectory, error)
}

// Blobs keeps content under its digest.
type Blobs interface {
	Put(ctx context.Context, data []byte) (digest string, err error)
	Get(ctx context.Context, digest string) ([]byte, error)
}

// Codecs finds a codec by its name in a spec.
type Codecs func(name string) (dialog.Codec, error)

// Publisher makes a version ready to be sampled.
type Publisher interface {
	Publish(ctx context.Context, v model.VersionID) error
}

// Cluster tells what a Temporal cluster has registered.
type Cluster interface {
	HasSearchAttributes(ctx context.Context) (bool, error)
}

// Launchers makes the launcher that a spec asks for.
type Launchers interface {
	Launcher(s spec.Spec) (agent.Launcher, error)
}
