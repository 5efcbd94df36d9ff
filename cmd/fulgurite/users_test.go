package main

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"os"
	"strconv"
	"strings"
	"sync"
)

// users are people who talk with a served version and say what they think of it:
//
//	users GATEWAY MODEL FIRST COUNT LIKED
//
// User number FIRST and those after it say hello, one conversation each. They give a thumb up
// to a reply with the text LIKED in it, and a thumb down to any other. The last line says how
// many liked the reply of which version.
func users() {
	if err := talk(os.Args[1:]); err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
}

func talk(args []string) error {
	gateway, model, liked := args[0], args[1], args[4]
	first, err := strconv.Atoi(args[2])
	if err != nil {
		return err
	}
	count, err := strconv.Atoi(args[3])
	if err != nil {
		return err
	}
	var wait sync.WaitGroup
	var mu sync.Mutex
	pleased := 0
	var failure error
	turns := make(chan struct{}, 8)
	for i := range count {
		turns <- struct{}{}
		wait.Go(func() {
			defer func() { <-turns }()
			ok, err := talkOnce(gateway, model, fmt.Sprintf("user-%d", first+i), liked)
			mu.Lock()
			defer mu.Unlock()
			if err != nil && failure == nil {
				failure = err
			}
			if ok {
				pleased++
			}
		})
	}
	wait.Wait()
	if failure == nil {
		fmt.Printf("%d of %d liked it\n", pleased, count)
	}
	return failure
}

// talkOnce has one conversation, and reports whether the user liked it.
func talkOnce(gateway, model, user, liked string) (bool, error) {
	var reply struct {
		ID      string `json:"id"`
		Choices []struct {
			Message struct {
				Content string `json:"content"`
			} `json:"message"`
		} `json:"choices"`
	}
	ask := map[string]any{"model": model, "user": user, "max_tokens": 8, "messages": []map[string]string{{"role": "user", "content": "hello"}}}
	if err := postJSON(gateway+"/v1/chat/completions", ask, &reply); err != nil {
		return false, err
	}
	thumb := "down"
	if strings.Contains(reply.Choices[0].Message.Content, liked) {
		thumb = "up"
	}
	err := postJSON(gateway+"/v1/feedback", map[string]any{"reply": reply.ID, "thumb": thumb, "user": user}, nil)
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
	if err == nil && response.StatusCode != http.StatusOK {
		err = fmt.Errorf("%s: %s: %s", url, response.Status, text)
	}
	if err == nil && out != nil {
		err = json.Unmarshal(text, out)
	}
	return err
}
