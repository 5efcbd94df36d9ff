package main

import (
	"context"
	"fmt"
	"io"
	"net/http"
	"os"
	"strconv"
	"strings"

	"github.com/sashabaranov/go-openai"

	"github.com/fulgurite/fulgurite/examples/calc/calculator"
)

// scriptedAgent is an agent that does what its arguments say, in their order: "ask TEXT"
// makes a model call, "post JSON" gives a reward, "print TEXT" writes a line, "fill N TEXT"
// writes one with N bytes before the text, and "exit N" ends it. "repeat" writes the last reply. In a post, ID stands for the id of the last call. An argument
// that begins with "N: " is for sample N only, one with "N+: " for sample N and those
// after it. What the model or the gateway refuses goes to standard error.
func scriptedAgent() {
	at := strings.Split(os.Getenv("FULGURITE_ROLLOUT"), "/")
	sample, err := strconv.Atoi(at[len(at)-1])
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(2)
	}
	last, said := "", ""
	for _, argument := range os.Args[1:] {
		if who, rest, ok := strings.Cut(argument, ": "); ok {
			number, later := strings.CutSuffix(who, "+")
			if n, err := strconv.Atoi(number); err == nil {
				if argument = rest; n != sample && (!later || sample < n) {
					continue
				}
			}
		}
		verb, text, _ := strings.Cut(argument, " ")
		switch verb {
		case "ask":
			reply, err := calculator.Connect(os.Getenv("OPENAI_BASE_URL"), os.Getenv("OPENAI_API_KEY")).CreateChatCompletion(context.Background(), openai.ChatCompletionRequest{
				Messages: []openai.ChatCompletionMessage{{Role: openai.ChatMessageRoleUser, Content: text}},
			})
			if err != nil {
				fmt.Fprintln(os.Stderr, err)
			}
			last, said = reply.ID, ""
			if len(reply.Choices) > 0 {
				said = reply.Choices[0].Message.Content
			}
		case "post":
			if err := giveReward(strings.ReplaceAll(text, "ID", last)); err != nil {
				fmt.Fprintln(os.Stderr, err)
			}
		case "repeat":
			fmt.Println(said)
		case "print":
			fmt.Println(text)
		case "fill":
			number, end, _ := strings.Cut(text, " ")
			n, _ := strconv.Atoi(number)
			fmt.Println(strings.Repeat("x", n) + " " + end)
		case "exit":
			code, _ := strconv.Atoi(text)
			os.Exit(code)
		}
	}
}

// giveReward posts a reward of the attempt.
func giveReward(body string) error {
	request, err := http.NewRequest(http.MethodPost, os.Getenv("FULGURITE_REWARD_URL"), strings.NewReader(body))
	if err != nil {
		return err
	}
	request.Header.Set("Authorization", "Bearer "+os.Getenv("OPENAI_API_KEY"))
	response, err := http.DefaultClient.Do(request)
	if err != nil {
		return err
	}
	defer func() { _ = response.Body.Close() }()
	if text, _ := io.ReadAll(response.Body); response.StatusCode != http.StatusOK {
		return fmt.Errorf("%s: %s", response.Status, text)
	}
	return nil
}
