package main

import (
	"bytes"
	"context"
	"encoding/json"
	"io"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/fulgurite/fulgurite/agent"
	"github.com/fulgurite/fulgurite/cmd/fulgurite/internal/terminal"
	"github.com/fulgurite/fulgurite/dialog"
	"github.com/fulgurite/fulgurite/model"
	"github.com/fulgurite/fulgurite/model/files/checkpoint"
	"github.com/fulgurite/fulgurite/record"
	"github.com/fulgurite/fulgurite/spec"
	"github.com/fulgurite/fulgurite/store"
	"github.com/fulgurite/fulgurite/store/blob"
	"github.com/fulgurite/fulgurite/workers/stack"
)

// newTrainedDir makes a directory with run "demo", whose agent is a, and the run's
// version 0. weights is the path of the version's weights.
func newTrainedDir(t *testing.T, a spec.Agent) (dir, weights string) {
	t.Helper()
	return newTrainedDirOf(t, spec.Spec{Agent: a})
}

func newTrainedDirOf(t *testing.T, sp spec.Spec) (dir, weights string) {
	t.Helper()
	ctx, dir := t.Context(), t.TempDir()
	db, err := store.Open(ctx, stack.Layout(dir).Database(), nil)
	require.NoError(t, err)
	require.NoError(t, db.Migrate(ctx))
	blobs, err := blob.Open(stack.Layout(dir).Blobs())
	require.NoError(t, err)
	sp.Model.Codec, sp.Tasks.Train, sp.Grader.Type = "compact", "arithmetic:train:2", "exact"
	encoded, err := json.Marshal(sp.WithDefaults())
	require.NoError(t, err)
	_, _, err = db.CreateRun(ctx, record.Run{Name: "demo", Spec: encoded})
	require.NoError(t, err)
	codec, err := dialog.Named("compact")
	require.NoError(t, err)
	architecture := model.Architecture{
		VocabSize: codec.VocabSize(), HiddenSize: 8, Layers: 1, Heads: 2, KVHeads: 1, HeadDim: 4,
		FeedForward: 8, MaxPositions: 128, RopeTheta: 10000, NormEpsilon: 1e-6,
	}
	manifest, digest, err := checkpoint.Save(ctx, blobs, model.Checkpoint{Architecture: architecture, Weights: architecture.Init(1)},
		model.Manifest{Policy: model.DefaultPolicy, Parent: -1, Codec: "compact"})
	require.NoError(t, err)
	_, _, err = db.PutVersion(ctx, model.Version{VersionID: model.VersionID{Run: "demo", Policy: model.DefaultPolicy}, Parent: -1, Manifest: manifest, Weights: digest})
	require.NoError(t, err)
	require.NoError(t, db.Close())
	weights, err = blobs.Path(digest)
	require.NoError(t, err)
	return dir, weights
}

// startAskingAgent starts an agent behind HTTP. The agent makes one model call to the URL
// that it gets, under another model's name, and answers with the name of its rollout, the
// status of the reply and its body.
func startAskingAgent(t *testing.T) (url string) {
	t.Helper()
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		var invocation agent.Invocation
		if json.NewDecoder(r.Body).Decode(&invocation) != nil {
			w.WriteHeader(http.StatusBadRequest)
			return
		}
		body := `{"model":"gpt-4o","max_tokens":4,"messages":[{"role":"user","content":"` + invocation.Input + `"}]}`
		request, err := http.NewRequestWithContext(r.Context(), http.MethodPost, invocation.BaseURL+"/chat/completions", strings.NewReader(body))
		if err != nil {
			w.WriteHeader(http.StatusInternalServerError)
			return
		}
		request.Header.Set("Authorization", "Bearer "+invocation.APIKey)
		reply, err := http.DefaultClient.Do(request)
		if err != nil {
			w.WriteHeader(http.StatusInternalServerError)
			return
		}
		defer func() { _ = reply.Body.Close() }()
		text, _ := io.ReadAll(reply.Body) // an incomplete body fails the tests below
		_ = json.NewEncoder(w).Encode(map[string]string{"result": invocation.Rollout + " " + reply.Status + " " + string(text)})
	}))
	t.Cleanup(server.Close)
	return server.URL
}

func runChat(ctx context.Context, dir string) (code int, out, errs string) {
	var o, e bytes.Buffer
	code = run(ctx, []string{"chat", "demo@0", "7+5", "--dir", dir}, &terminal.Terminal{Out: &o, Err: &e})
	return code, o.String(), e.String()
}

func TestAServiceIsAskedAsInTraining(t *testing.T) {
	t.Parallel()
	dir, _ := newTrainedDir(t, spec.Agent{Service: &spec.Service{URL: startAskingAgent(t)}})
	code, out, errs := runChat(t.Context(), dir)
	require.Zero(t, code, errs)
	require.Regexp(t, `^demo/try-0/\d+/0 200 OK \{.*"object":"chat.completion"`, out)
}

func TestAnswersDoNotSteerTheTerminal(t *testing.T) {
	t.Parallel()
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		_, _ = w.Write([]byte(`{"result": "a\u001b[2Jb\u0007\n\tc"}`)) // a partial answer fails below
	}))
	t.Cleanup(server.Close)
	dir, _ := newTrainedDir(t, spec.Agent{Service: &spec.Service{URL: server.URL}})
	for tty, want := range map[bool]string{true: "a\uFFFD[2Jb\uFFFD\n\tc\n", false: "a\x1b[2Jb\a\n\tc\n"} {
		var out, errs bytes.Buffer
		code := run(t.Context(), []string{"chat", "demo@0", "7+5", "--dir", dir}, &terminal.Terminal{Out: &out, Err: &errs, TTY: tty})
		require.Zero(t, code, errs.String())
		require.Equal(t, want, out.String())
	}
}

func TestAnAgentThatOnlyAStackCanStartIsRefusedWithAdvice(t *testing.T) {
	t.Parallel()
	dir, _ := newTrainedDir(t, spec.Agent{Temporal: &spec.Temporal{Workflow: "Booking", Queue: "desks"}})
	code, _, errs := runChat(t.Context(), dir)
	require.Equal(t, exitUsage, code)
	require.Contains(t, errs, "the agent of run demo is a workflow of your own workers (agent.temporal)")
	require.Contains(t, errs, "as model demo@0")
}

func TestAVersionThatCannotBeSampledIsSaidAtOnce(t *testing.T) {
	t.Parallel()
	dir, weights := newTrainedDir(t, spec.Agent{Service: &spec.Service{URL: startAskingAgent(t)}})
	require.NoError(t, os.Chmod(filepath.Dir(weights), 0o755))
	require.NoError(t, os.Remove(weights))
	code, out, errs := runChat(t.Context(), dir)
	require.Equal(t, exitFailed, code)
	require.Empty(t, out)
	require.Contains(t, errs, filepath.Base(weights))
}

func TestServersThatSampleTheRunAreAskedAndMissed(t *testing.T) {
	t.Parallel()
	away := httptest.NewServer(http.NotFoundHandler())
	away.Close()
	sp := spec.Spec{Agent: spec.Agent{Service: &spec.Service{URL: startAskingAgent(t)}}}
	sp.Sampling.Server = &spec.Server{Type: spec.ServerVLLM, URLs: []string{away.URL}, Model: "tiny", Directory: t.TempDir()}
	dir, _ := newTrainedDirOf(t, sp)
	code, out, errs := runChat(t.Context(), dir)
	require.Equal(t, exitFailed, code)
	require.Empty(t, out)
	require.Contains(t, errs, strings.TrimPrefix(away.URL, "http://"), "whom it asked in vain")
}
