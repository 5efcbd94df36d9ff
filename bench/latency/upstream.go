package main

import (
	"context"
	"encoding/json"
	"fmt"
	"net/http"
	"strings"
	"time"

	"github.com/fulgurite/fulgurite/dialog"
	"github.com/fulgurite/fulgurite/model"
	"github.com/fulgurite/fulgurite/model/sampler/remote"
)

// answer is the constant answer of the upstream.
const answer = "twenty tokens long.."

// canned is a sampler that takes a fixed time and always gives the same reply. The tokens
// arrive evenly spread over the delay, the last one at its end.
type canned struct{ delay time.Duration }

var _ remote.Sampler = canned{}

func (c canned) Sample(ctx context.Context, _ model.VersionID, r model.DecodeRequest) (model.Completion, string, error) {
	codec := dialog.Compact()
	tokens := append(codec.Encode(answer), codec.Stop()[0])
	out := model.Completion{Tokens: tokens, Logprobs: make([]float32, len(tokens)), Finish: "stop"}
	err := c.pace(ctx, len(tokens), r.Emit != nil, func(i int) { r.Emit(tokens[i], 0) })
	return out, "canned", err
}

func (canned) Publish(context.Context, model.VersionID) error { return nil }

// pace spreads n pieces evenly over the delay, or only waits for its end.
func (c canned) pace(ctx context.Context, n int, pieces bool, piece func(int)) error {
	begin := time.Now()
	wait := func(until time.Duration) error {
		timer := time.NewTimer(time.Until(begin.Add(until)))
		defer timer.Stop()
		select {
		case <-timer.C:
			return nil
		case <-ctx.Done():
			return ctx.Err()
		}
	}
	if !pieces {
		return wait(c.delay)
	}
	for i := range n {
		if err := wait(c.delay * time.Duration(i+1) / time.Duration(n)); err != nil {
			return err
		}
		piece(i)
	}
	return nil
}

// upstream serves the sampler in two ways: by token ids, for the gateway, and as OpenAI's
// chat completions, for the other targets.
func upstream(delay time.Duration) http.Handler {
	sampler := canned{delay}
	mux := http.NewServeMux()
	mux.Handle("/", remote.NewServer(sampler, nil))
	mux.HandleFunc("POST /v1/chat/completions", func(w http.ResponseWriter, r *http.Request) {
		var in struct {
			Stream bool `json:"stream"`
		}
		if err := json.NewDecoder(r.Body).Decode(&in); err != nil {
			http.Error(w, err.Error(), http.StatusBadRequest)
			return
		}
		if in.Stream {
			sampler.stream(w, r)
			return
		}
		if sampler.pace(r.Context(), 1, false, nil) == nil {
			w.Header().Set("Content-Type", "application/json")
			fmt.Fprintf(w, `{"id":"chatcmpl-1","object":"chat.completion","created":1,"model":"canned","choices":[{"index":0,"message":{"role":"assistant","content":%q},"finish_reason":"stop"}],"usage":{"prompt_tokens":10,"completion_tokens":20,"total_tokens":30}}`, answer)
		}
	})
	return mux
}

func (c canned) stream(w http.ResponseWriter, r *http.Request) {
	w.Header().Set("Content-Type", "text/event-stream")
	out := http.NewResponseController(w)
	chunk := func(delta, finish string) {
		fmt.Fprintf(w, "data: {\"id\":\"chatcmpl-1\",\"object\":\"chat.completion.chunk\",\"created\":1,\"model\":\"canned\",\"choices\":[{\"index\":0,\"delta\":%s,\"finish_reason\":%s}]}\n\n", delta, finish)
		_ = out.Flush()
	}
	letters := strings.Split(answer, "")
	if c.pace(r.Context(), len(letters), true, func(i int) { chunk(fmt.Sprintf(`{"role":"assistant","content":%q}`, letters[i]), "null") }) == nil {
		chunk("{}", `"stop"`)
		fmt.Fprint(w, "data: [DONE]\n\n")
	}
}
