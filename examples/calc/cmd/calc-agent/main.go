// Command calc-agent is the calculator agent as a program. It reads a task as
// JSON from standard input, asks the model at OPENAI_BASE_URL with the key in
// OPENAI_API_KEY, and prints the answer as its last line. CALC_MAX_TURNS limits
// how often it asks for one task.
package main

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"os/signal"
	"strconv"
	"syscall"

	"github.com/fulgurite/fulgurite/examples/calc/calculator"
)

func main() {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	err := run(ctx, os.Stdin, os.Stdout)
	stop()
	if err != nil {
		fmt.Fprintln(os.Stderr, "calc-agent:", err)
		os.Exit(1)
	}
}

func run(ctx context.Context, in io.Reader, out io.Writer) error {
	var task struct {
		Input string `json:"input"`
	}
	if err := json.NewDecoder(in).Decode(&task); err != nil {
		return fmt.Errorf("read task: %w", err)
	}
	baseURL := os.Getenv("OPENAI_BASE_URL")
	if baseURL == "" {
		return errors.New("OPENAI_BASE_URL is not set")
	}
	turns := 0
	if text := os.Getenv("CALC_MAX_TURNS"); text != "" {
		var err error
		if turns, err = strconv.Atoi(text); err != nil || turns < 1 {
			return fmt.Errorf("CALC_MAX_TURNS is %q: want a whole number from 1", text)
		}
	}
	agent := calculator.Agent{
		Client: calculator.Connect(baseURL, os.Getenv("OPENAI_API_KEY")),
		Model:  os.Getenv("OPENAI_MODEL_NAME"), MaxTurns: turns,
	}
	answer, err := agent.Solve(ctx, task.Input)
	if err != nil {
		return err
	}
	_, err = fmt.Fprintln(out, answer)
	return err
}
