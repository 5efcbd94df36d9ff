package activities_test

import (
	"context"
	"fmt"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/fulgurite/fulgurite/activities"
	"github.com/fulgurite/fulgurite/dialog"
	"github.com/fulgurite/fulgurite/model"
	"github.com/fulgurite/fulgurite/record"
	"github.com/fulgurite/fulgurite/spec"
)

// PutSegment, PutBatch and UnusedFeedback are the operations of segments at which a process
// dies, besides those of blobs.
func (w dyingStore) PutSegment(ctx context.Context, in record.Segment) (s record.Segment, created bool, err error) {
	err = w.operate(func() (err error) {
		s, created, err = w.Store.PutSegment(ctx, in)
		return err
	}, nil)
	return s, created, err
}

func (w dyingStore) PutBatch(ctx context.Context, in record.Batch) (b record.Batch, created bool, err error) {
	err = w.operate(func() (err error) {
		b, created, err = w.Store.PutBatch(ctx, in)
		return err
	}, nil)
	return b, created, err
}

func (w dyingStore) UnusedFeedback(ctx context.Context, run string, kinds []record.FeedbackKind, before, after time.Time, limit int) (all []record.Feedback, err error) {
	err = w.operate(func() (err error) {
		all, err = w.Store.UnusedFeedback(ctx, run, kinds, before, after, limit)
		return err
	}, nil)
	return all, err
}

// learn makes a step of what is new: the segment, its batch and its version. done has the
// results of activities that an earlier process completed, and gets those of this one: such
// an activity is not executed again.
func learn(t *testing.T, c *activities.Coordinator, trainer *activities.Trainer, step int, done *learned) error {
	t.Helper()
	in := activities.ChooseSegmentInput{Run: "demo", Policy: model.DefaultPolicy, Step: step}
	if done.chosen == nil {
		chosen, err := do[activities.ChooseSegmentResult](t, c.ChooseSegment, in)
		if err != nil {
			return err
		}
		require.Empty(t, chosen.Reason)
		done.chosen = &chosen
	}
	if done.batch == nil {
		batch, err := do[activities.SegmentBatchResult](t, c.SegmentBatch, in)
		if err != nil {
			return err
		}
		done.batch = &batch
	}
	v, err := do[activities.VersionResult](t, trainer.TrainStep, activities.TrainStepInput{
		Run: "demo", Policy: model.DefaultPolicy, Step: step, Batch: done.batch.Batch, Parent: &done.chosen.Parent,
	})
	done.version = v
	return err
}

// learned is what the activities of a step returned.
type learned struct {
	chosen  *activities.ChooseSegmentResult
	batch   *activities.SegmentBatchResult
	version activities.VersionResult
}

// coordinatorOf returns a coordinator of a process.
func coordinatorOf(w *testEnv, s dyingStore, blobs activities.Blobs) *activities.Coordinator {
	return &activities.Coordinator{Runs: w.store, Ledger: s, Attempts: w.store, Blobs: blobs, Cluster: cluster(true), Codecs: dialog.Named, Directory: w.dir, Traffic: s, Experiments: w.store}
}

// A process dies at each operation of the three activities between a segment and its version.
// Once the segment is on record, people go on talking and judging before another process
// continues.
func TestASegmentThatIsKilledAnywhereEndsInTheSameBits(t *testing.T) {
	t.Parallel()
	template := newUse(t, func(s *spec.Spec) {
		s.Training.Passes, s.Training.Minibatches = 1, 2
	})
	for i := range 4 {
		n := template.converses(nil, fmt.Sprint("a", i), fmt.Sprint("b", i))
		template.judges(n, float64(i%2))
	}
	template.allEnded()
	undisturbed := template.copied(t)
	defer undisturbed.discard()
	var want learned
	require.NoError(t, learn(t, coordinatorOf(undisturbed, alive(undisturbed), undisturbed.blobs), undisturbed.trainer(), 1, &want))
	manifest := undisturbed.manifest(1)
	segment, err := undisturbed.store.Segment(t.Context(), "demo", model.DefaultPolicy, 1)
	require.NoError(t, err)
	stride := 1
	if testing.Short() { // only to find races
		stride = 5
	}
	for how, least := range map[death]int{half: 6, after: 14} {
		t.Run(string(how), func(t *testing.T) {
			t.Parallel()
			for at, over := 1, false; !over; at += stride {
				w := template.copied(t)
				dying := &dyingProcess{testEnv: w, at: at, how: how}
				first := dying.trainer()
				first.SaveEvery = 1
				var got learned
				err := learn(t, coordinatorOf(w, dyingStore{w.store, dying}, dyingBlobs{dying}), first, 1, &got)
				if over = !dying.dead; over {
					require.NoError(t, err)
					require.Greater(t, at, least, "operations in all")
				} else {
					require.ErrorContains(t, err, errDead.Error(), "operation %d", at)
					goOnTalking(t, w)
					second := w.trainer()
					second.SaveEvery = 1
					require.NoError(t, learn(t, coordinatorOf(w, alive(w), w.blobs), second, 1, &got), "after operation %d", at)
				}
				require.Equal(t, want, got, "after operation %d", at)
				require.Equal(t, manifest, w.manifest(1), "the moments and metrics too, after operation %d", at)
				s, err := w.store.Segment(t.Context(), "demo", model.DefaultPolicy, 1)
				require.NoError(t, err)
				require.Equal(t, segment.Feedback, s.Feedback)
				w.discard()
			}
		})
	}
}

// alive returns the store of a process that does not die.
func alive(w *testEnv) dyingStore { return dyingStore{w.store, &dyingProcess{testEnv: w}} }

// goOnTalking adds a reply and feedback to conversations that a segment has, if there is one.
func goOnTalking(t *testing.T, w *testEnv) {
	t.Helper()
	if _, err := w.store.Segment(t.Context(), "demo", model.DefaultPolicy, 1); err != nil {
		return
	}
	u := &use{testEnv: w}
	c, err := w.store.Conversation(t.Context(), "demo", 0)
	require.NoError(t, err)
	u.reply(c, "later")
	u.judges(0, -0.25)
	u.judges(1, -0.5)
}
