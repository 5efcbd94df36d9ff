package activities_test

import (
	"context"
	"io/fs"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/fulgurite/fulgurite/activities"
	"github.com/fulgurite/fulgurite/model"
	"github.com/fulgurite/fulgurite/model/files/checkpoint"
	"github.com/fulgurite/fulgurite/record"
	"github.com/fulgurite/fulgurite/run/retention"
	"github.com/fulgurite/fulgurite/spec"
	"github.com/fulgurite/fulgurite/store"
	"github.com/fulgurite/fulgurite/store/blob"
)

var digestForm = regexp.MustCompile(`sha256:[0-9a-f]{64}`)

// leftOver collects files, and then returns the remaining files of weights, moments and
// bases that no record names.
func (w *testEnv) leftOver() (digests []string) {
	w.t.Helper()
	collector := &retention.Collector{Store: w.store, Blobs: w.blobs, Settled: time.Nanosecond}
	require.NoError(w.t, collector.Collect(w.t.Context(), "demo"))
	named := map[string]bool{}
	require.NoError(w.t, w.store.WhileUnchanged(w.t.Context(), nil, func(manifests []string) error {
		for _, m := range manifests {
			text, err := w.blobs.Get(w.t.Context(), m)
			require.NoError(w.t, err)
			for _, d := range digestForm.FindAllString(string(text), -1) {
				named[d] = true
				has, err := w.blobs.Has(w.t.Context(), d)
				require.NoError(w.t, err)
				require.True(w.t, has, "%s of manifest %s is gone", d, m)
			}
		}
		return nil
	}))
	for _, d := range w.tensorFiles() {
		if !named[d] {
			digests = append(digests, d)
		}
	}
	return digests
}

// tensorFiles returns the blobs that a save writes as streams: safetensors as PyTorch has
// them.
func (w *testEnv) tensorFiles() (digests []string) {
	w.t.Helper()
	err := filepath.WalkDir(filepath.Join(w.dir, "blobs"), func(path string, e fs.DirEntry, err error) error {
		if err != nil || e.IsDir() || strings.HasPrefix(e.Name(), ".") || strings.Contains(e.Name(), ".") {
			return err
		}
		data, err := os.ReadFile(path)
		if err == nil && strings.Contains(string(data), `"format":"pt"`) {
			digests = append(digests, "sha256:"+e.Name())
		}
		return err
	})
	require.NoError(w.t, err)
	return digests
}

// withAdapter returns the spec of a run over a base.
func (w *testEnv) withAdapter() spec.Spec {
	s := w.several()
	s.Model.LoRA = &spec.LoRA{Rank: 2, Alpha: 4, Targets: model.LoRATargets()}
	return s
}

// The process that made a run's first version was killed at some point, and then the run
// failed. Neither a base nor weights remain.
func TestARunThatFailedBeforeItsFirstVersionLeavesNothing(t *testing.T) {
	t.Parallel()
	template := newTestEnv(t)
	template.prepare(template.withAdapter())
	wrote := 0
	for _, how := range []death{half, after} {
		for at, over := 1, false; !over; at++ {
			w := template.copied(t)
			process := &dyingProcess{testEnv: w, at: at, how: how}
			trainer := process.trainer()
			_, err := do[activities.VersionResult](t, trainer.InitPolicy, initPolicy())
			trainer.Close()
			if over = !process.dead; over {
				require.NoError(t, err)
			} else if _, err := w.version(0); err != nil {
				before := w.tensorFiles()
				wrote += len(before)
				w.collectAbandoned()
				require.ElementsMatch(t, before, w.tensorFiles(), "%s %d: the run may go on", how, at)
				require.NoError(t, w.store.FinishRun(t.Context(), "demo", record.Failed, []byte("{}")))
			}
			require.Empty(t, w.leftOver(), "%s %d", how, at)
			if over {
				require.Len(t, w.tensorFiles(), 2, "the base and the adapter")
			}
			w.discard()
		}
	}
	require.Greater(t, wrote, 6, "there was something to collect")
}

// collectAbandoned collects files like a step does, but without waiting an hour.
func (w *testEnv) collectAbandoned() {
	w.t.Helper()
	collector := &retention.Collector{Store: w.store, Blobs: w.blobs, Settled: time.Nanosecond}
	require.NoError(w.t, collector.Collect(w.t.Context(), "demo"))
}

// The base of a failed run stays as long as another run uses an equal one to make its
// first version.
func TestABaseThatAnotherRunUsesStays(t *testing.T) {
	t.Parallel()
	w := newTestEnv(t)
	w.prepare(w.withAdapter())
	a := model.Tiny(64)
	save := func(id model.VersionID) string {
		base, err := checkpoint.SaveBase(t.Context(), noting{w.blobs, w.store, id}, a, model.F32, a.Init(1).Tensor)
		require.NoError(t, err)
		return base.Digest
	}
	other := model.VersionID{Run: "other", Policy: model.DefaultPolicy}
	_, _, err := w.store.CreateRun(t.Context(), record.Run{Name: other.Run})
	require.NoError(t, err)
	demo := model.VersionID{Run: "demo", Policy: model.DefaultPolicy}
	digest := save(demo)
	require.Equal(t, digest, save(other))
	require.NoError(t, w.store.FinishRun(t.Context(), "demo", record.Failed, []byte("{}")))
	w.collectAbandoned()
	require.Equal(t, []string{digest}, w.tensorFiles(), "the other run makes its first version of it")
	require.NoError(t, w.store.FinishRun(t.Context(), "other", record.Failed, []byte("{}")))
	w.collectAbandoned()
	require.Empty(t, w.tensorFiles())
	require.Equal(t, digest, save(demo), "a retry writes it again")
}

// noting is a store of blobs that notes the files of a version, as a maker does.
type noting struct {
	*blob.Store
	store *store.Store
	id    model.VersionID
}

func (n noting) Note(ctx context.Context, digest string) error {
	return n.store.NoteFile(ctx, n.id, digest)
}
