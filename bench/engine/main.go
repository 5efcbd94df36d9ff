// Command engine measures the native engine on a language model as people have it, beside
// PyTorch: tokens a second and peak memory of scoring, of updates of all weights and of an
// adapter, and of decoding for 1, 8 and 32 requests at once.
//
//	go run ./bench/engine -base DIR
//	go run ./bench/engine -base DIR -python /path/to/venv/bin/python
//	go run ./bench/engine -base DIR -precision q8_0 -only decode -server http://127.0.0.1:8080
//
// Each figure is of a process of its own, with two threads by default. Scores and updates
// are of 16 rows of 128 tokens, the mean of some after the first; decoding makes 64 tokens
// after prompts of 64, prompts included in the time. Python needs torch and transformers,
// and peft for the adapter (torch_engine.py). With a precision the base of adapters is held
// so, and decoding is through an adapter over it, too. A server, llama.cpp's or vLLM's, runs
// already, with as many threads and room for 32 requests at once, and has the model in the
// precision that it is to be compared in:
//
//	fulgurite export RUN@0 out --format gguf --type q8_0
//	llama-server --model out/model-q8_0.gguf --threads 2 --threads-batch 2 --parallel 32 --ctx-size 8192 --port 8080
package main

import (
	"context"
	_ "embed"
	"encoding/json"
	"errors"
	"flag"
	"fmt"
	"os"
	"os/exec"
	"os/signal"
	"path/filepath"
	"strconv"
	"strings"

	"github.com/fulgurite/fulgurite/model"
	"github.com/fulgurite/fulgurite/model/hf"
)

//go:embed torch_engine.py
var script []byte

// figure is what one process says of itself.
type figure struct {
	Tokens float64 `json:"tokens"` // a second
	Peak   int64   `json:"peak"`   // bytes
}

func main() {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt)
	err := run(ctx)
	stop()
	if err != nil {
		fmt.Fprintln(os.Stderr, "engine:", err)
		os.Exit(1)
	}
}

func run(ctx context.Context) (err error) {
	base := flag.String("base", "", "directory of the model, as Hugging Face lays it out")
	python := flag.String("python", "", "Python with torch and transformers, to be measured beside")
	threads := flag.Int("threads", 2, "threads of each process")
	rank := flag.Int("rank", 8, "rank of the adapter")
	precision := flag.String("precision", "", "how the base of adapters is held: f32, bf16 or q8_0; decoding then goes through one")
	address := flag.String("server", "", "address of a server that decodes the same model, to be measured beside")
	name := flag.String("model", "default", "the model's name at the server")
	only := flag.String("only", "", "kinds of work that begin so, for example decode")
	work := flag.String("work", "", "what this process measures; by default it starts others for all")
	flag.Parse()
	if *base == "" {
		return errors.New("-base names no model")
	}
	if *work != "" {
		return measure(ctx, *base, *work, *threads, *rank, model.Precision(*precision))
	}
	config, err := hf.OpenDirectory(*base)
	if err != nil {
		return err
	}
	vocabulary := config.Architecture.VocabSize
	if err := config.Close(); err != nil {
		return err
	}
	fmt.Println("| | native, tokens/s | PyTorch, tokens/s | server, tokens/s | native, peak MB | PyTorch, peak MB |")
	fmt.Println("| --- | ---: | ---: | ---: | ---: | ---: |")
	dir, err := os.MkdirTemp("", "engine-")
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, os.RemoveAll(dir)) }()
	file := filepath.Join(dir, "torch_engine.py")
	if err := os.WriteFile(file, script, 0o600); err != nil {
		return err
	}
	for _, work := range []string{"score", "update", "adapter", "decode 1", "decode 8", "decode 32"} {
		if !strings.HasPrefix(work, *only) {
			continue
		}
		ours, err := start(ctx, os.Args[0], "-base", *base, "-threads", strconv.Itoa(*threads), "-rank", strconv.Itoa(*rank), "-precision", *precision, "-work", work)
		if err != nil {
			return fmt.Errorf("%s: %w", work, err)
		}
		var theirs figure
		if *python != "" {
			if theirs, err = start(ctx, *python, file, *base, work, strconv.Itoa(*threads), strconv.Itoa(*rank)); err != nil {
				return fmt.Errorf("%s with PyTorch: %w", work, err)
			}
		}
		served := 0.0
		if number, ok := strings.CutPrefix(work, "decode "); ok && *address != "" {
			n, err := strconv.Atoi(number)
			if err == nil {
				served, err = server{*address, *name}.decodes(ctx, vocabulary, n)
			}
			if err != nil {
				return fmt.Errorf("%s by the server: %w", work, err)
			}
		}
		fmt.Printf("| %s | %.0f | %.0f | %.0f | %d | %d |\n", work, ours.Tokens, theirs.Tokens, served, ours.Peak>>20, theirs.Peak>>20)
	}
	return nil
}

// start runs a process whose last line is a figure.
func start(ctx context.Context, program string, arguments ...string) (f figure, err error) {
	cmd := exec.CommandContext(ctx, program, arguments...)
	cmd.Stderr = os.Stderr
	out, err := cmd.Output()
	if err != nil {
		return f, err
	}
	lines := strings.Split(strings.TrimSpace(string(out)), "\n")
	return f, json.Unmarshal([]byte(lines[len(lines)-1]), &f)
}
