// Command engine compares the native engine with engine torch, and with a plain loop of
// PyTorch, transformers and PEFT, on a published language model. It measures tokens per
// second and peak memory of scoring, of updates of all weights and of an adapter, and of
// decoding for 1, 8 and 32 requests at once.
//
//	go run ./bench/engine -base DIR
//	go run ./bench/engine -base DIR -python /path/to/venv/bin/python
//	go run ./bench/engine -base DIR -precision q8_0 -only decode -llama /path/to/llama-server
//
// Each figure is measured in its own process, by default with two threads. Scores and
// updates use 16 rows of 128 tokens; their figure is a mean without the first one.
// Decoding makes 64 tokens after prompts of 64 tokens, and the time includes the prompts.
// Python needs torch and transformers, and peft for the adapter (torch_engine.py). Engine
// torch runs its program with the same Python, on the CPU. With -precision, the base of
// adapters is held in that precision, and decoding too uses an adapter over it.
//
// -llama starts llama.cpp's server with the same weights in the same precision. -vllm
// names a Python that has vLLM. Both decode without an adapter, over HTTP, for the same
// numbers of requests. -server is the URL of a running server, whose precision and
// threads are not known here. Tokens per second depend on what else runs on the machine.
// Tokens per second of processor time depend on it far less, least with -threads 1, where
// no thread waits for another.
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
	"syscall"

	"github.com/fulgurite/fulgurite/model"
	"github.com/fulgurite/fulgurite/model/engine/torch"
	"github.com/fulgurite/fulgurite/model/files/hf"
)

//go:embed torch_engine.py
var script []byte

// figure is the report of one process.
type figure struct {
	Tokens    float64 `json:"tokens"`    // per second
	Processor float64 `json:"processor"` // tokens per second of processor time; 0 if not measured
	Peak      int64   `json:"peak"`      // bytes
}

// String returns the figure as three cells of a table.
func (f figure) String() string {
	cells := []string{"–", "–", "–"}
	for i, x := range []float64{f.Tokens, f.Processor, float64(f.Peak >> 20)} {
		if x > 0 {
			cells[i] = strconv.FormatFloat(x, 'f', 0, 64)
		}
	}
	return strings.Join(cells, " | ")
}

// ratio returns a cell with x ÷ y, or a dash if one of them was not measured.
func ratio(x, y float64) string {
	if x == 0 || y == 0 {
		return "–"
	}
	return strconv.FormatFloat(x/y, 'f', 2, 64)
}

func main() {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
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
	name := flag.String("model", servedName, "the model's name at that server")
	llama := flag.String("llama", "", "llama.cpp's server, to be started and measured beside")
	vllm := flag.String("vllm", "", "Python with vLLM, whose server is to be started and measured beside")
	only := flag.String("only", "", "kinds of work that begin so, for example decode")
	engine := flag.String("engine", "native", "what does the work of -work: native or torch")
	work := flag.String("work", "", "what this process measures; by default it starts others for all")
	flag.Parse()
	if *base == "" {
		return errors.New("-base names no model")
	}
	if *work != "" {
		return measure(ctx, *engine, *base, *work, *threads, *rank, model.Precision(*precision))
	}
	config, err := hf.OpenDirectory(*base)
	if err != nil {
		return err
	}
	vocabulary := config.Architecture.VocabSize
	if err := config.Close(); err != nil {
		return err
	}
	dir, err := os.MkdirTemp("", "engine-")
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, os.RemoveAll(dir)) }()
	if *python != "" {
		if err := os.Setenv(torch.EnvPython, *python); err != nil {
			return err
		}
	}
	file := filepath.Join(dir, "torch_engine.py")
	if err := os.WriteFile(file, script, 0o600); err != nil {
		return err
	}
	theirs := other{server: server{*address, *name}}
	switch {
	case *llama != "":
		theirs.program, err = startLlama(ctx, *llama, *base, dir, model.Precision(*precision), *threads)
	case *vllm != "":
		theirs.program, err = startVLLM(ctx, *vllm, *base, dir, model.Precision(*precision), *threads)
	}
	if err != nil {
		return err
	}
	if theirs.program != nil {
		defer theirs.program.stop()
	}
	fmt.Println("| | native, tokens/s | a processor second | peak MB | engine torch, tokens/s | a processor second | peak MB | PyTorch, tokens/s | a processor second | peak MB | engine torch ÷ PyTorch | a processor second | server, tokens/s | a processor second | peak MB |")
	fmt.Println("| --- | ---: | ---: | ---: | ---: | ---: | ---: | ---: | ---: | ---: | ---: | ---: | ---: | ---: | ---: |")
	for _, work := range []string{"score", "update", "adapter", "decode 1", "decode 8", "decode 32"} {
		if !strings.HasPrefix(work, *only) {
			continue
		}
		own := []string{"-base", *base, "-threads", strconv.Itoa(*threads), "-rank", strconv.Itoa(*rank), "-precision", *precision, "-work", work}
		native, err := start(ctx, os.Args[0], own...)
		if err != nil {
			return fmt.Errorf("%s: %w", work, err)
		}
		var program, pytorch figure
		if *python != "" {
			if program, err = start(ctx, os.Args[0], append(own, "-engine", "torch")...); err != nil {
				return fmt.Errorf("%s with engine torch: %w", work, err)
			}
			if pytorch, err = start(ctx, *python, file, *base, work, strconv.Itoa(*threads), strconv.Itoa(*rank)); err != nil {
				return fmt.Errorf("%s with PyTorch: %w", work, err)
			}
		}
		served, err := theirs.measure(ctx, work, vocabulary)
		if err != nil {
			return fmt.Errorf("%s by the server: %w", work, err)
		}
		fmt.Printf("| %s | %s | %s | %s | %s | %s | %s |\n", work, native, program, pytorch,
			ratio(program.Tokens, pytorch.Tokens), ratio(program.Processor, pytorch.Processor), served)
	}
	return nil
}

// other is the server to compare with: one that this command started, one that was
// already running, or none.
type other struct {
	program *program
	server  server
}

// measure measures the server where the work is to decode.
func (o other) measure(ctx context.Context, work string, vocabulary int) (figure, error) {
	number, decode := strings.CutPrefix(work, "decode ")
	if !decode || o.program == nil && o.server.url == "" {
		return figure{}, nil
	}
	n, err := strconv.Atoi(number)
	if err != nil {
		return figure{}, err
	}
	if o.program != nil {
		return o.program.decodes(ctx, vocabulary, n, o.program.used)
	}
	return o.server.decodes(ctx, vocabulary, n, nil)
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
