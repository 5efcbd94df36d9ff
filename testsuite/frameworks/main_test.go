package main

import (
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"os"
	"strconv"
	"strings"
	"testing"
)

// The test binary is also the program that walks, and the shim it runs under.
func TestMain(m *testing.M) {
	if play := os.Getenv("PLAY"); play != "" {
		if err := walker(play); err != nil {
			fmt.Fprintln(os.Stderr, err)
			os.Exit(1)
		}
		return
	}
	os.Exit(m.Run())
}

// walker asks one question in the way that play says and prints the raw reply.
func walker(play string) error {
	var task struct{ Input string }
	if err := json.NewDecoder(os.Stdin).Decode(&task); err != nil {
		return err
	}
	question := map[string]any{"model": "any", "messages": []map[string]string{{"role": "user", "content": task.Input}}}
	switch play {
	case "streamed":
		question["stream"] = true
	case "forgetful": // each process says something else
		question["messages"] = []map[string]string{{"role": "user", "content": task.Input + strconv.Itoa(os.Getpid())}}
	case "wrong":
		question["messages"] = "none"
	}
	text, err := ask(question)
	if err != nil {
		return err
	}
	if play == "careless" { // asks twice and looks at neither reply
		question["messages"] = "none"
		_, _ = ask(question)
	}
	fmt.Println(strings.Contains(text, "Rivers run."))
	return nil
}

func ask(question map[string]any) (string, error) {
	body, err := json.Marshal(question)
	if err != nil {
		return "", err
	}
	request, err := http.NewRequest(http.MethodPost, os.Getenv("OPENAI_BASE_URL")+"/chat/completions", strings.NewReader(string(body)))
	if err != nil {
		return "", err
	}
	request.Header.Set("Authorization", "Bearer "+os.Getenv("OPENAI_API_KEY"))
	response, err := http.DefaultClient.Do(request)
	if err != nil {
		return "", err
	}
	defer func() { _ = response.Body.Close() }()
	text, err := io.ReadAll(response.Body)
	if err == nil && response.StatusCode != http.StatusOK {
		err = fmt.Errorf("status %d: %s", response.StatusCode, text)
	}
	return string(text), err
}
