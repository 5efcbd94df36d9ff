package main

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"strconv"
	"strings"
	"sync"

	"github.com/rogpeppe/go-internal/testscript"

	"github.com/fulgurite/fulgurite/cmd/fulgurite/internal/state"
)

// users are people who talk with a served version and say what they think of it:
//
//	users MODEL FIRST COUNT LIKED
//
// User number FIRST and those after it say hello, one conversation each. They give a thumb up
// to a reply with the text LIKED in it, or without it if LIKED begins with "!", and a thumb
// down to any other. If LIKED begins with "=", they correct each reply to the text after that,
// and like none. It prints how many liked what they got.
func users(ts *testscript.TestScript, neg bool, args []string) {
	if neg || len(args) != 4 {
		ts.Fatalf("usage: users MODEL FIRST COUNT LIKED")
	}
	at, err := (&state.Flags{Dir: ts.Getenv("FULGURITE_DIR")}).Addresses()
	ts.Check(err)
	first, err := strconv.Atoi(args[1])
	ts.Check(err)
	count, err := strconv.Atoi(args[2])
	ts.Check(err)
	var wait sync.WaitGroup
	var mu sync.Mutex
	pleased := 0
	var failure error
	turns := make(chan struct{}, 8)
	for i := range count {
		turns <- struct{}{}
		wait.Go(func() {
			defer func() { <-turns }()
			ok, err := talkOnce(at.Gateway, args[0], first+i, args[3])
			mu.Lock()
			defer mu.Unlock()
			if failure == nil {
				failure = err
			}
			if ok {
				pleased++
			}
		})
	}
	wait.Wait()
	ts.Check(failure)
	fmt.Fprintf(ts.Stdout(), "%d of %d liked it\n", pleased, count)
}

// talkOnce has one conversation, and reports whether the user liked it. The user's number is
// the seed, so that what is said does not change from test to test.
func talkOnce(gateway, model string, number int, liked string) (bool, error) {
	user := fmt.Sprintf("user-%d", number)
	var reply struct {
		ID      string `json:"id"`
		Choices []struct {
			Message struct {
				Content string `json:"content"`
			} `json:"message"`
		} `json:"choices"`
	}
	ask := map[string]any{"model": model, "user": user, "max_tokens": 8, "seed": number, "messages": []map[string]string{{"role": "user", "content": "hello"}}}
	if err := postJSON(gateway+"/chat/completions", ask, &reply); err != nil {
		return false, err
	}
	if corrected, ok := strings.CutPrefix(liked, "="); ok {
		return false, postJSON(gateway+"/feedback", map[string]any{"reply": reply.ID, "corrected_text": corrected, "user": user}, nil)
	}
	thumb := "down"
	text, without := strings.CutPrefix(liked, "!")
	if strings.Contains(reply.Choices[0].Message.Content, text) != without {
		thumb = "up"
	}
	err := postJSON(gateway+"/feedback", map[string]any{"reply": reply.ID, "thumb": thumb, "user": user}, nil)
	return thumb == "up", err
}

// postJSON posts a value, and decodes what came back.
func postJSON(url string, in, out any) error {
	body, err := json.Marshal(in)
	if err != nil {
		return err
	}
	request, err := http.NewRequestWithContext(context.Background(), http.MethodPost, url, bytes.NewReader(body))
	if err != nil {
		return err
	}
	request.Header.Set("Content-Type", "application/json")
	response, err := http.DefaultClient.Do(request)
	if err != nil {
		return err
	}
	defer func() { _ = response.Body.Close() }()
	text, err := io.ReadAll(response.Body)
	if err == nil && response.StatusCode/100 != 2 {
		err = fmt.Errorf("%s: %s: %s", url, response.Status, text)
	}
	if err == nil && out != nil {
		err = json.Unmarshal(text, out)
	}
	return err
}
