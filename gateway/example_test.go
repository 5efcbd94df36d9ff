package gateway_test

import (
	"context"
	"encoding/json"
	"fmt"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strings"

	"github.com/fulgurite/fulgurite/gateway"
	"github.com/fulgurite/fulgurite/model"
	"github.com/fulgurite/fulgurite/model/tokenizer"
	"github.com/fulgurite/fulgurite/record"
	"github.com/fulgurite/fulgurite/store"
)

// An agent asks under the base URL of its attempt. The call is on record, token by token,
// when its reply arrives.
func Example() {
	if err := askAndRead(context.Background()); err != nil {
		panic(err)
	}
	// Output:
	// 200 OK 5
	// prompt: 6 tokens, completion: "5", log-probabilities: [-0.5 -0.25]
}

func askAndRead(ctx context.Context) error {
	directory, err := os.MkdirTemp("", "gateway")
	if err != nil {
		return err
	}
	defer func() { _ = os.RemoveAll(directory) }()
	journal, err := store.Open(ctx, filepath.Join(directory, "runs.db"), nil)
	if err != nil {
		return err
	}
	defer func() { _ = journal.Close() }()
	if err := journal.Migrate(ctx); err != nil {
		return err
	}

	// A worker begins the attempt. Its terms decide which version answers, and how.
	rollout := record.RolloutID{Run: "demo", Kind: record.Train, Step: 3, Task: 17, Sample: 2}
	terms := record.Terms{Policy: "main", Version: 2, Codec: "compact", Temperature: 1, MaxTokens: 8}
	address, err := journal.BeginAttempt(ctx, rollout, "sum", terms, hash("sk-secret"))
	if err != nil {
		return err
	}

	server := httptest.NewServer(gateway.New(gateway.Config{Journal: journal, Sampler: five{}}))
	defer server.Close()
	baseURL := server.URL + "/r/" + address.String() + "/v1"
	if err := callModel(ctx, baseURL, "sk-secret"); err != nil {
		return err
	}

	calls, err := journal.Calls(ctx, address)
	if err != nil {
		return err
	}
	for _, c := range calls {
		text := tokenizer.Bytes{}.Decode(c.Completion[:1])
		fmt.Printf("prompt: %d tokens, completion: %q, log-probabilities: %v\n", len(c.Prompt), text, c.Logprobs)
	}
	return nil
}

// callModel is the agent: it knows the base URL and the key of its attempt, and no more.
func callModel(ctx context.Context, baseURL, key string) error {
	body := strings.NewReader(`{"model":"any","messages":[{"role":"user","content":"2+3"}]}`)
	request, err := http.NewRequestWithContext(ctx, http.MethodPost, baseURL+"/chat/completions", body)
	if err != nil {
		return err
	}
	request.Header.Set("Authorization", "Bearer "+key)
	response, err := http.DefaultClient.Do(request)
	if err != nil {
		return err
	}
	defer func() { _ = response.Body.Close() }()
	var reply struct {
		Choices []struct{ Message struct{ Content string } }
	}
	if err := json.NewDecoder(response.Body).Decode(&reply); err != nil {
		return err
	}
	fmt.Println(response.Status, reply.Choices[0].Message.Content)
	return nil
}

// five is a sampler that answers every prompt with "5".
type five struct{}

func (five) Sample(context.Context, model.VersionID, model.DecodeRequest) (model.Completion, string, error) {
	tokens := append(tokenizer.Bytes{}.Encode("5"), tokenizer.End)
	return model.Completion{Tokens: tokens, Logprobs: []float32{-0.5, -0.25}, Finish: "stop"}, "sha256:of the weights", nil
}
