package store_test

import (
	"context"
	"fmt"
	"os"
	"path/filepath"

	"github.com/fulgurite/fulgurite/record"
	"github.com/fulgurite/fulgurite/store"
)

// An attempt begins, its calls are appended as they are sampled, it is sealed with a
// reward and read back for training.
func Example() {
	if err := recordAndRead(context.Background()); err != nil {
		panic(err)
	}
	// Output:
	// demo/train-1/7/0/1 completed 1
	// [1 2] [3 4] [-0.5 -0.25]
}

func recordAndRead(ctx context.Context) error {
	directory, err := os.MkdirTemp("", "store")
	if err != nil {
		return err
	}
	defer func() { _ = os.RemoveAll(directory) }()
	s, err := store.Open(ctx, filepath.Join(directory, "runs.db"), nil)
	if err != nil {
		return err
	}
	defer func() { _ = s.Close() }()
	if err := s.Migrate(ctx); err != nil {
		return err
	}

	rollout := record.RolloutID{Run: "demo", Kind: record.Train, Step: 1, Task: 7, Sample: 0}
	address, err := s.BeginAttempt(ctx, rollout, "sum", record.Terms{Policy: "main", Codec: "compact"}, "hash of its key")
	if err != nil {
		return err
	}
	call := record.Call{
		Address: address, Parent: -1, ID: "chatcmpl-1", Key: "hash of the request", Policy: "main",
		Prompt: []int32{1, 2}, Completion: []int32{3, 4}, Logprobs: []float32{-0.5, -0.25}, Temperature: 1,
	}
	if err := s.AppendCall(ctx, &record.Exchange{Call: call}); err != nil {
		return err
	}
	reward := 1.0
	if err := s.SealAttempt(ctx, record.Attempt{Address: address, Outcome: record.OutcomeCompleted, Reward: &reward}); err != nil {
		return err
	}

	trajectories, err := s.Trajectories(ctx, []record.Address{address})
	if err != nil {
		return err
	}
	one := trajectories[0]
	fmt.Println(one.Address, one.Outcome, *one.Reward)
	fmt.Println(one.History[0].Prompt, one.History[0].Completion, one.History[0].Logprobs)
	return nil
}
