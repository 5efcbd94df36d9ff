package main

import (
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"os"
	"regexp"
	"strings"

	"github.com/fulgurite/fulgurite/agent"
	"github.com/fulgurite/fulgurite/prompts/reflector"
)

// sorterAgent is an agent that sorts words. The first word of a task is its kind, which the
// agent knows if its prompt "sorter" names it. It asks no model.
func sorterAgent() {
	var task agent.Task
	err := json.NewDecoder(os.Stdin).Decode(&task)
	if err == nil {
		var prompt string
		if prompt, err = promptOf("sorter"); err == nil {
			kind, _, _ := strings.Cut(task.Input, " ")
			if !strings.Contains(prompt, kind) {
				kind = "unknown"
			}
			fmt.Println(kind)
			return
		}
	}
	fmt.Fprintln(os.Stderr, err)
	os.Exit(1)
}

// promptOf asks the gateway for the text of a prompt.
func promptOf(name string) (string, error) {
	request, err := http.NewRequest(http.MethodGet, os.Getenv("OPENAI_BASE_URL")+"/prompts/"+name, nil)
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
		err = fmt.Errorf("%s: %s", response.Status, text)
	}
	return string(text), err
}

// shownPrompt finds the prompt that a reflector is shown.
var shownPrompt = regexp.MustCompile(`(?s)<prompt>\n(.*?)\n</prompt>`)

// hintingReflector is a reflector that adds to a prompt the first of its arguments that the
// prompt lacks. Its first reply in a directory is of no use. It writes a line to the file
// "asked" for each question.
func hintingReflector() {
	var q reflector.Question
	err := json.NewDecoder(os.Stdin).Decode(&q)
	if err == nil {
		err = hint(q)
	}
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
}

func hint(q reflector.Question) error {
	asked, err := os.OpenFile("asked", os.O_APPEND|os.O_CREATE|os.O_WRONLY, 0o644)
	if err != nil {
		return err
	}
	at, err := asked.Seek(0, io.SeekEnd)
	if err == nil {
		_, err = fmt.Fprintln(asked, q.Try)
	}
	if err = errors.Join(err, asked.Close()); err != nil {
		return err
	}
	if at == 0 {
		fmt.Println("I would rather not.")
		return nil
	}
	shown := shownPrompt.FindStringSubmatch(q.User)
	if shown == nil {
		return errors.New("the question shows no prompt")
	}
	for _, word := range os.Args[1:] {
		if !strings.Contains(shown[1], word) {
			fmt.Printf("```\n%s\nThere are %s.\n```\n", shown[1], word)
			return nil
		}
	}
	fmt.Printf("```\n%s\nBe brief.\n```\n", shown[1])
	return nil
}
