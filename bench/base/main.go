// Command base measures what a frozen base costs the processes of a fleet: a sampler and
// a trainer load the same base from the same store of blobs at the same time. Then they
// decode and update an adapter over it.
//
//	go run ./bench/base -base DIR -precision bf16
//	go run ./bench/base -shape qwen2.5-0.5b
//	go run ./bench/base -shape qwen2.5-0.5b -unmapped
//
// A shape gets random weights. For each process the command prints: the seconds until it
// was loaded; the processor seconds of its work; its peak memory until it was loaded, and
// in all; the part of its memory that no file backs; and its share of all memory if pages
// that processes share are divided among them. The first two processes find no packed
// file and make it; the next two find it. With -unmapped each process keeps its own copy.
// It runs only on Linux.
package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"os"
	"os/exec"
	"os/signal"
	"strconv"
	"syscall"

	"github.com/fulgurite/fulgurite/bench/shapes"
	"github.com/fulgurite/fulgurite/model"
	"github.com/fulgurite/fulgurite/model/files/checkpoint"
	"github.com/fulgurite/fulgurite/model/files/hf"
	"github.com/fulgurite/fulgurite/store/blob"
)

// options are the options of every process.
type options struct {
	base, shape, precision string
	threads, rank          int
	updates, rows          int // of the trainer
	unmapped               bool
	work, blobs, manifest  string // of a process that another one started
}

func main() {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	err := run(ctx)
	stop()
	if err != nil {
		fmt.Fprintln(os.Stderr, "base:", err)
		os.Exit(1)
	}
}

func run(ctx context.Context) error {
	var o options
	flag.StringVar(&o.base, "base", "", "directory of the model, as Hugging Face lays it out")
	flag.StringVar(&o.shape, "shape", "", "smollm2-135m or qwen2.5-0.5b, with random weights, instead of -base")
	flag.StringVar(&o.precision, "precision", "f32", "how the base is held: f32, bf16 or q8_0")
	flag.IntVar(&o.threads, "threads", 1, "threads of each process")
	flag.IntVar(&o.rank, "rank", 8, "rank of the adapter")
	flag.IntVar(&o.updates, "updates", 2, "updates that the trainer makes")
	flag.IntVar(&o.rows, "rows", 16, "rows of 128 tokens of an update")
	flag.BoolVar(&o.unmapped, "unmapped", false, "keep the base in the memory of each process")
	flag.StringVar(&o.work, "work", "", "what this process does: store, sampler or trainer; by default it starts others")
	flag.StringVar(&o.blobs, "blobs", "", "directory of blobs, of a process that was started")
	flag.StringVar(&o.manifest, "manifest", "", "version to load, of a process that was started")
	flag.Parse()
	switch o.work {
	case "":
		return o.all(ctx)
	case "store":
		return o.store(ctx)
	}
	return o.measure(ctx)
}

// store keeps the base and a new adapter as a version, and prints its manifest.
func (o options) store(ctx context.Context) error {
	a, tensor, err := o.model()
	if err != nil {
		return err
	}
	blobs, err := blob.Open(o.blobs)
	if err != nil {
		return err
	}
	l := model.LoRA{Rank: o.rank, Alpha: float64(2 * o.rank), Targets: model.LoRATargets(), BasePrecision: model.Precision(o.precision)}
	base, err := checkpoint.SaveBase(ctx, blobs, a, l.Precision(), tensor)
	if err != nil {
		return err
	}
	c := model.Checkpoint{Architecture: a, Adapter: &model.Adapter{LoRA: l, Base: base}, Weights: a.InitAdapter(l, 1)}
	manifest, _, err := checkpoint.Save(ctx, blobs, c, model.Manifest{
		Policy: model.DefaultPolicy, Parent: -1, Codec: "template", Engine: "native", Fingerprint: "none",
	})
	if err == nil {
		fmt.Println(manifest)
	}
	return err
}

// model returns the architecture of the base, and a function that returns its tensors one
// at a time.
func (o options) model() (model.Architecture, func(name string) (model.Tensor, error), error) {
	if o.base == "" {
		a, ok := shapes.Of(o.shape)
		if !ok {
			return a, nil, fmt.Errorf("-shape is %q: there are %v; or name a model by -base", o.shape, shapes.Names())
		}
		return a, shapes.Random(a), nil
	}
	stored, err := hf.OpenDirectory(o.base)
	if err != nil {
		return model.Architecture{}, nil, err
	}
	return stored.Architecture, stored.Tensor, nil // the process ends before long, and its files with it
}

// all runs a process that stores the model, and then, twice, two processes that are
// measured at the same time.
func (o options) all(ctx context.Context) (err error) {
	if o.blobs, err = os.MkdirTemp("", "base-"); err != nil {
		return err
	}
	defer func() { err = errors.Join(err, os.RemoveAll(o.blobs)) }()
	out, err := o.command(ctx, "store").Output()
	if err != nil {
		return fmt.Errorf("store the model: %w", err)
	}
	o.manifest = string(out[:len(out)-1])
	fmt.Println("| | process | loaded after s | processor s of its work | peak MB until then | peak MB | own MB | share MB |")
	fmt.Println("| --- | --- | ---: | ---: | ---: | ---: | ---: | ---: |")
	for _, round := range []string{"first", "again"} {
		if err := o.round(ctx, round); err != nil {
			return fmt.Errorf("%s: %w", round, err)
		}
	}
	return nil
}

// command returns the command of a process that does some work.
func (o options) command(ctx context.Context, work string) *exec.Cmd {
	cmd := exec.CommandContext(ctx, os.Args[0], "-work", work, "-base", o.base, "-shape", o.shape, "-precision", o.precision,
		"-threads", strconv.Itoa(o.threads), "-rank", strconv.Itoa(o.rank),
		"-updates", strconv.Itoa(o.updates), "-rows", strconv.Itoa(o.rows), "-blobs", o.blobs, "-manifest", o.manifest,
		"-unmapped="+strconv.FormatBool(o.unmapped))
	cmd.Stderr = os.Stderr
	return cmd
}
