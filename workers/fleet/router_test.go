package fleet_test

import (
	"encoding/json"
	"fmt"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"testing"

	"github.com/stretchr/testify/require"
	"go.uber.org/zap"

	"github.com/fulgurite/fulgurite/dialog"
	"github.com/fulgurite/fulgurite/model"
	"github.com/fulgurite/fulgurite/model/files/checkpoint"
	"github.com/fulgurite/fulgurite/model/sampler/upstream"
	"github.com/fulgurite/fulgurite/record"
	"github.com/fulgurite/fulgurite/workers/fleet"
)

// bundled returns the bundle of a model with 720 rows, of which the tokenizer leaves some
// without a token.
func bundled(t *testing.T) (codec dialog.Codec, bundle []byte) {
	t.Helper()
	dir := t.TempDir()
	for name, from := range map[string]string{
		"tokenizer.json": "../../model/tokenizer/testdata/qwen.json", "chat_template.jinja": "../../dialog/testdata/templates/hermes.jinja",
	} {
		text, err := os.ReadFile(from)
		require.NoError(t, err)
		require.NoError(t, os.WriteFile(filepath.Join(dir, name), text, 0o600))
	}
	require.NoError(t, os.WriteFile(filepath.Join(dir, "config.json"), []byte(`{"vocab_size": 720, "eos_token_id": 702}`), 0o600))
	codec, bundle, err := dialog.ReadCodecWith(dir, dialog.Choices{})
	require.NoError(t, err)
	return codec, bundle
}

// A server's requests leave out the ids that the codec of the run has no token for.
func TestARunsServersAreToldWhichIDsHaveNoToken(t *testing.T) {
	t.Parallel()
	var asked struct {
		LogitBias map[string]float64 `json:"logit_bias"`
	}
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if json.NewDecoder(r.Body).Decode(&asked) != nil {
			w.WriteHeader(http.StatusBadRequest)
			return
		}
		w.Header().Set("Content-Type", "application/json")
		fmt.Fprint(w, `{"choices": [{"token_ids": [5], "logprobs": {"token_logprobs": [-1]}, "finish_reason": "length"}]}`)
	}))
	t.Cleanup(server.Close)
	records := newRecords(t)
	codec, bundle := bundled(t)
	digest, err := records.Blobs.Put(t.Context(), bundle)
	require.NoError(t, err)
	require.Equal(t, dialog.TemplatePrefix+digest, codec.Name())
	spec := fmt.Sprintf(`{"model": {"codec": %q}, "sampling": {"server": {"type": "vllm", "urls": [%q], "model": "m", "versions": "none"}}}`, codec.Name(), server.URL)
	_, _, err = records.Store.CreateRun(t.Context(), record.Run{Name: "r", Spec: []byte(spec), SpecDigest: "sha256:spec"})
	require.NoError(t, err)
	router := records.Route(nil)
	t.Cleanup(router.Close)
	_, _, err = router.Sample(t.Context(), model.VersionID{Run: "r", Policy: model.DefaultPolicy}, model.DecodeRequest{Prompt: []int32{1}, MaxTokens: 1, Temperature: 1})
	require.NoError(t, err)
	unused := codec.(dialog.Sparse).Unused(720)
	require.NotZero(t, unused.Tokens())
	require.Len(t, asked.LogitBias, unused.Tokens())
	for id, bias := range asked.LogitBias {
		require.True(t, unused.Has(numberOf(t, id)), id)
		require.Equal(t, -100.0, bias)
	}
}

func numberOf(t *testing.T, text string) (n int32) {
	t.Helper()
	require.NoError(t, json.Unmarshal([]byte(text), &n))
	return n
}

func newRecords(t *testing.T) fleet.Records {
	t.Helper()
	dir := t.TempDir()
	records, err := fleet.Open(t.Context(), filepath.Join(dir, "store.db"), filepath.Join(dir, "blobs"), zap.NewNop())
	require.NoError(t, err)
	t.Cleanup(func() { require.NoError(t, records.Close()) })
	require.NoError(t, records.Store.Migrate(t.Context()))
	return records
}

// vLLM refuses an adapter with rows of tokens, so it is never sent one.
func TestAVersionWithRowsOfTokensIsNotServedByVLLM(t *testing.T) {
	t.Parallel()
	asked := 0
	server := httptest.NewServer(http.HandlerFunc(func(http.ResponseWriter, *http.Request) { asked++ }))
	t.Cleanup(server.Close)
	records := newRecords(t)
	spec := fmt.Sprintf(`{"model": {"lora": {}}, "sampling": {"server": {"type": "vllm", "urls": [%q], "model": "m", "versions": "adapters", "directory": %q}}}`, server.URL, t.TempDir())
	_, _, err := records.Store.CreateRun(t.Context(), record.Run{Name: "r", Spec: []byte(spec), SpecDigest: "sha256:spec"})
	require.NoError(t, err)
	a := model.Tiny(40)
	base, err := checkpoint.SaveBase(t.Context(), records.Blobs, a, model.F32, a.Init(1).Tensor)
	require.NoError(t, err)
	c := model.Checkpoint{Architecture: a, Adapter: &model.Adapter{LoRA: model.LoRA{Rank: 2, Alpha: 4, Targets: []string{"q_proj"}, Tokens: []int32{7}}, Base: base}}
	c.Weights, err = c.Adapter.Init(a, 1)
	require.NoError(t, err)
	id := model.VersionID{Run: "r", Policy: model.DefaultPolicy}
	manifest, weights, err := checkpoint.Save(t.Context(), records.Blobs, c, model.Manifest{Policy: id.Policy, Parent: -1, Codec: dialog.CompactName})
	require.NoError(t, err)
	_, _, err = records.Store.PutVersion(t.Context(), model.Version{VersionID: id, Parent: -1, Manifest: manifest, Weights: weights})
	require.NoError(t, err)
	router := records.Route(nil)
	t.Cleanup(router.Close)
	_, _, err = router.Sample(t.Context(), id, model.DecodeRequest{Prompt: []int32{1}, MaxTokens: 1, Temperature: 1})
	require.ErrorIs(t, err, upstream.ErrVersion)
	require.ErrorContains(t, err, "version r@0 trains rows of tokens (model.lora.trainable_tokens)")
	require.Zero(t, asked)
}

// pair creates a run that trains two policies, with version 1, and returns its records.
func pair(t *testing.T, sampling string) fleet.Records {
	t.Helper()
	ctx, records := t.Context(), newRecords(t)
	spec := fmt.Sprintf(`{"model": {"codec": "compact", "lora": {}}, "sampling": %s, "policies": {"checker": {}, "writer": {"match": [{"agent": "writer"}]}}}`, sampling)
	_, _, err := records.Store.CreateRun(ctx, record.Run{Name: "pair", Spec: []byte(spec), SpecDigest: "sha256:spec", Status: record.Running})
	require.NoError(t, err)
	a := model.Tiny(40)
	base, err := checkpoint.SaveBase(ctx, records.Blobs, a, model.F32, a.Init(1).Tensor)
	require.NoError(t, err)
	joint := model.JointManifest{Format: model.JointManifestFormat, Number: 1, Policies: map[string]model.JointPart{}}
	put := func(policy, manifest, weights string) {
		_, _, err := records.Store.PutVersion(ctx, model.Version{VersionID: ofPair(policy), Manifest: manifest, Weights: weights})
		require.NoError(t, err)
	}
	for i, policy := range []string{"checker", "writer"} {
		c := model.Checkpoint{Architecture: a, Adapter: &model.Adapter{LoRA: model.LoRA{Rank: 2, Alpha: 4, Targets: []string{"q_proj"}}, Base: base}}
		c.Weights, err = c.Adapter.Init(a, uint64(i))
		require.NoError(t, err)
		manifest, weights, err := checkpoint.Save(ctx, records.Blobs, c, model.Manifest{Policy: policy, Number: 1, Codec: dialog.CompactName})
		require.NoError(t, err)
		put(policy, manifest, weights)
		joint.Policies[policy] = model.JointPart{Manifest: manifest, Weights: weights}
	}
	text, err := joint.Encode()
	require.NoError(t, err)
	manifest, err := records.Blobs.Put(ctx, text)
	require.NoError(t, err)
	put(model.DefaultPolicy, manifest, joint.Weights())
	return records
}

func ofPair(policy string) model.VersionID {
	return model.VersionID{Run: "pair", Policy: policy, Number: 1}
}

func TestAJointVersionIsPublishedPolicyByPolicy(t *testing.T) {
	t.Parallel()
	both := []model.VersionID{ofPair("writer"), ofPair("checker")}
	request := model.DecodeRequest{Prompt: []int32{1}, MaxTokens: 1, Temperature: 1}
	for name, ready := range map[string]func(*fleet.Router) error{
		"published": func(r *fleet.Router) error { return r.Publish(t.Context(), ofPair(model.DefaultPolicy)) },
		"preloaded": func(r *fleet.Router) error { return r.Preload(t.Context()) },
	} {
		router := pair(t, `{}`).RouteLocally(1)
		t.Cleanup(router.Close)
		require.NoError(t, ready(router), name)
		require.Equal(t, both, router.Loaded(), "both are in memory, since they have one number")
		for _, v := range both {
			_, weights, err := router.Sample(t.Context(), v, request)
			require.NoError(t, err)
			require.NotEmpty(t, weights)
		}
		_, _, err := router.Sample(t.Context(), ofPair(model.DefaultPolicy), request)
		require.ErrorIs(t, err, model.ErrJoint)
		require.ErrorContains(t, err, "name one, such as pair:checker@1 or pair:writer@1")
		require.ElementsMatch(t, both, router.Loaded())
	}
}

func TestACollectedJointVersionIsNotPublished(t *testing.T) {
	t.Parallel()
	records := pair(t, `{}`)
	require.NoError(t, records.Store.MarkCollected(t.Context(), "pair", model.DefaultPolicy, func(h record.Holdings) []int { return h.Versions }))
	router := records.RouteLocally(1)
	t.Cleanup(router.Close)
	require.NoError(t, router.Publish(t.Context(), ofPair(model.DefaultPolicy)))
	require.NoError(t, router.Preload(t.Context()))
	require.Empty(t, router.Loaded())
}

func TestVLLMLoadsTheAdapterOfEachPolicy(t *testing.T) {
	t.Parallel()
	var loaded []string
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		w.Header().Set("Content-Type", "application/json")
		switch r.URL.Path {
		case "/v1/load_lora_adapter":
			var body struct {
				Name string `json:"lora_name"`
			}
			if json.NewDecoder(r.Body).Decode(&body) == nil {
				loaded = append(loaded, body.Name)
			}
		case "/metrics":
			fmt.Fprint(w, "vllm:lora_requests_info{max_lora=\"1\"} 1\n")
		default:
			fmt.Fprint(w, `{"data": []}`)
		}
	}))
	t.Cleanup(server.Close)
	directory := t.TempDir()
	records := pair(t, fmt.Sprintf(`{"server": {"type": "vllm", "urls": [%q], "model": "m", "versions": "adapters", "directory": %q}}`, server.URL, directory))
	router := records.Route(nil)
	t.Cleanup(router.Close)
	err := router.Publish(t.Context(), ofPair(model.DefaultPolicy))
	require.ErrorContains(t, err, "with training.lag 0 and 2 policies it has to from 2: start it with --max-loras 2")
	err = router.Publish(t.Context(), ofPair("writer"))
	require.ErrorContains(t, err, "--max-loras 2")
	require.Len(t, loaded, 2)
	require.Regexp(t, `^pair\+checker-v1-[0-9a-f]{12}$`, loaded[0])
	require.Regexp(t, `^pair\+writer-v1-[0-9a-f]{12}$`, loaded[1])
}
