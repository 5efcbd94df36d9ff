package main

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"sync"
	"time"
)

// server is a running server of llama.cpp or vLLM that decodes.
type server struct {
	url   string // without a path
	model string
}

// decodes measures n requests at once. used returns the processor time and the memory
// that the server has used so far. It is nil if the server's processes are not known.
func (s server) decodes(ctx context.Context, vocabulary, n int, used func() (time.Duration, int64)) (f figure, err error) {
	one := func() error {
		var wg sync.WaitGroup
		errs := make([]error, n)
		for i := range n {
			wg.Go(func() { errs[i] = s.complete(ctx, tokens(vocabulary, i, prompt), i) })
		}
		wg.Wait()
		return errors.Join(errs...)
	}
	if used == nil {
		f.Tokens, _, err = rate(n*reply, one, func() time.Duration { return 0 })
		return f, err
	}
	f.Tokens, f.Processor, err = rate(n*reply, one, func() time.Duration {
		processor, _ := used()
		return processor
	})
	_, f.Peak = used()
	return f, err
}

// complete asks for a reply, which has to have all of its tokens.
func (s server) complete(ctx context.Context, prompt []int32, seed int) error {
	body, err := json.Marshal(map[string]any{
		"model": s.model, "prompt": prompt, "max_tokens": reply, "temperature": 1, "seed": seed,
		// The names below are those of the two servers. With these values both sample
		// from the whole distribution.
		"ignore_eos": true, "cache_prompt": false, "samplers": []string{"temperature"}, "top_k": 0,
	})
	if err != nil {
		return err
	}
	request, err := http.NewRequestWithContext(ctx, http.MethodPost, s.url+"/v1/completions", bytes.NewReader(body))
	if err != nil {
		return err
	}
	request.Header.Set("Content-Type", "application/json")
	response, err := http.DefaultClient.Do(request)
	if err != nil {
		return err
	}
	defer func() { _ = response.Body.Close() }() // only read
	text, err := io.ReadAll(response.Body)
	if err != nil {
		return err
	}
	var answer struct {
		Usage struct {
			Completion int `json:"completion_tokens"`
		} `json:"usage"`
	}
	if err := json.Unmarshal(text, &answer); err != nil || response.StatusCode != http.StatusOK || answer.Usage.Completion != reply {
		return fmt.Errorf("%s answers %s, want a completion of %d tokens: %.300s", s.url, response.Status, reply, text)
	}
	return nil
}
