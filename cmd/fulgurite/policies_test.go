package main

import (
	"bytes"
	"encoding/json"
	"path/filepath"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/fulgurite/fulgurite/cmd/fulgurite/internal/terminal"
	"github.com/fulgurite/fulgurite/model"
	"github.com/fulgurite/fulgurite/record"
	"github.com/fulgurite/fulgurite/spec"
	"github.com/fulgurite/fulgurite/store"
	"github.com/fulgurite/fulgurite/store/blob"
	"github.com/fulgurite/fulgurite/workers/stack"
)

// newPairDir makes a directory with run "demo", which trains a checker and a writer, and
// its version 0. The agent makes one call.
func newPairDir(t *testing.T) (dir string) {
	t.Helper()
	dir, _ = newTrainedDirOf(t, spec.Spec{
		Agent: spec.Agent{Service: &spec.Service{URL: startAskingAgent(t)}}, Policies: map[string]spec.Policy{"checker": {}, "writer": {Match: []spec.PolicyMatch{{Agent: "writer"}}}},
	})
	ctx := t.Context()
	db, err := store.Open(ctx, stack.Layout(dir).Database(), nil)
	require.NoError(t, err)
	defer func() { require.NoError(t, db.Close()) }()
	blobs, err := blob.Open(stack.Layout(dir).Blobs())
	require.NoError(t, err)
	one, err := db.Version(ctx, model.VersionID{Run: "demo", Policy: model.DefaultPolicy})
	require.NoError(t, err)
	joint := model.JointManifest{Format: model.JointManifestFormat, Policies: map[string]model.JointPart{}}
	for _, policy := range []string{"checker", "writer"} {
		v := one // both begin with the same weights
		v.Policy = policy
		_, _, err = db.PutVersion(ctx, v)
		require.NoError(t, err)
		joint.Policies[policy] = model.JointPart{Manifest: v.Manifest, Weights: v.Weights}
	}
	// newTrainedDirOf has put weights on record as version 0, so the joint version is 1.
	joint.Number = 1
	text, err := joint.Encode()
	require.NoError(t, err)
	manifest, err := blobs.Put(ctx, text)
	require.NoError(t, err)
	for _, v := range []model.Version{
		{VersionID: model.VersionID{Run: "demo", Policy: "checker", Number: 1}, Manifest: one.Manifest, Weights: one.Weights},
		{VersionID: model.VersionID{Run: "demo", Policy: "writer", Number: 1}, Manifest: one.Manifest, Weights: one.Weights},
		{VersionID: model.VersionID{Run: "demo", Policy: model.DefaultPolicy, Number: 1}, Manifest: manifest, Weights: joint.Weights()},
	} {
		_, _, err = db.PutVersion(ctx, v)
		require.NoError(t, err)
	}
	require.NoError(t, db.Promote(ctx, record.Promotion{Run: "demo", Policy: model.DefaultPolicy, DecisionID: "d", Version: 1, Previous: -1, Source: record.SourcePin, By: "ada"}))
	return dir
}

// command runs the program on a directory.
func command(t *testing.T, dir string, args ...string) (code int, out, errs string) {
	t.Helper()
	var o, e bytes.Buffer
	code = run(t.Context(), append(args, "--dir", dir), &terminal.Terminal{Out: &o, Err: &e})
	return code, o.String(), e.String()
}

func TestVersionsOfARunAndOfItsPoliciesAreListed(t *testing.T) {
	t.Parallel()
	dir := newPairDir(t)
	code, out, errs := command(t, dir, "versions", "demo")
	require.Zero(t, code, errs)
	require.Contains(t, out, "Each version has the policies checker, writer: `fulgurite versions --dir "+dir+" demo:checker` lists the versions of one.")

	weights := func(name string) (digests []string) {
		code, out, errs := command(t, dir, "versions", name, "--json")
		require.Zero(t, code, errs)
		var lines []struct {
			Weights  string `json:"weights"`
			Promoted bool   `json:"promoted"`
		}
		require.NoError(t, json.Unmarshal([]byte(out), &lines))
		for i, l := range lines {
			require.Equal(t, i == 1, l.Promoted, name)
			digests = append(digests, l.Weights)
		}
		return digests
	}
	ofRun, ofWriter := weights("demo"), weights("demo:writer")
	require.Len(t, ofRun, 2)
	require.Equal(t, []string{ofRun[0], ofRun[0]}, ofWriter)
	require.NotEqual(t, ofRun[1], ofWriter[1], "that of a joint version is of all policies")

	_, out, _ = command(t, dir, "versions", "demo:writer")
	require.Contains(t, out, "pinned")
	require.NotContains(t, out, "Each version has the policies")
	code, _, errs = command(t, dir, "versions", "demo:judge")
	require.Equal(t, exitUsage, code)
	require.Contains(t, errs, `run "demo" has no policy "judge": it has checker, writer`)
}

func TestAPolicyIsExportedAndAsked(t *testing.T) {
	t.Parallel()
	dir := newPairDir(t)
	files := filepath.Join(t.TempDir(), "out")
	code, out, errs := command(t, dir, "export", "demo:writer@promoted", files)
	require.Zero(t, code, errs)
	require.Contains(t, out, "demo:writer@1 (sha256:")
	require.FileExists(t, filepath.Join(files, "model.safetensors"))

	code, out, errs = command(t, dir, "chat", "demo:checker@1", "7+5")
	require.Zero(t, code, errs)
	require.Contains(t, out, "200 OK")
	for _, args := range [][]string{{"export", "demo@1", files}, {"chat", "demo", "7+5"}} {
		code, _, errs = command(t, dir, args...)
		require.Equal(t, exitUsage, code, args)
		require.Contains(t, errs, "version demo@1 has several policies: name one, such as demo:checker@1 or demo:writer@1", args)
	}
	code, _, errs = command(t, dir, "compare", "demo:writer@0", "demo:writer@1")
	require.Equal(t, exitUsage, code)
	require.Contains(t, errs, "the policies of a run are evaluated together: leave :writer out, as in demo@0")
}

func TestPoliciesAreCompleted(t *testing.T) {
	t.Parallel()
	dir := newPairDir(t)
	require.Equal(t, []string{"demo:checker", "demo:writer"}, completed(t, "chat", "--dir", dir, "demo:"))
	require.Equal(t, []string{"demo:writer"}, completed(t, "export", "--dir", dir, "demo:w"))
	require.Equal(t, []string{"demo:writer@promoted", "demo:writer@newest", "demo:writer@0", "demo:writer@1"}, completed(t, "export", "--dir", dir, "demo:writer@"))
	require.Equal(t, []string{""}, completed(t, "export", "--dir", dir, "away:"))
}

func TestRunsShowsWhatIsPromotedOfEachPolicy(t *testing.T) {
	t.Parallel()
	sp := spec.Spec{Policies: map[string]spec.Policy{"checker": {}, "writer": {Match: []spec.PolicyMatch{{Agent: "writer"}}}}}
	sp.Promotion.Alone = true
	dir, _ := newTrainedDirOf(t, sp)
	_, out, _ := command(t, dir, "runs")
	require.NotContains(t, out, "promoted", "nothing is yet")
	ctx := t.Context()
	db, err := store.Open(ctx, stack.Layout(dir).Database(), nil)
	require.NoError(t, err)
	for policy, version := range map[string]int{"checker": 4, "writer": 2} {
		require.NoError(t, db.Promote(ctx, record.Promotion{Run: "demo", Policy: policy, DecisionID: "d", Version: version, Previous: -1}))
	}
	require.NoError(t, db.FinishRun(ctx, "demo", record.Failed, record.Failure{Error: "the disk is full"}.Result()))
	require.NoError(t, db.Close())
	code, out, errs := command(t, dir, "runs")
	require.Zero(t, code, errs)
	require.Contains(t, out, "  promoted checker@4, writer@2; the disk is full\n")
	code, out, errs = command(t, dir, "runs", "--json")
	require.Zero(t, code, errs)
	var listed []struct {
		Promoted *int           `json:"promoted"`
		Policies map[string]int `json:"policies"`
	}
	require.NoError(t, json.Unmarshal([]byte(out), &listed))
	require.Len(t, listed, 1)
	require.Nil(t, listed[0].Promoted, "no joint version is")
	require.Equal(t, map[string]int{"checker": 4, "writer": 2}, listed[0].Policies)
}
