package main

import (
	"context"
	"flag"
	"fmt"
	"math/rand/v2"
	"os"
	"os/signal"
	"path/filepath"
	"slices"
	"time"
)

func main() {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt)
	err := run(ctx)
	stop()
	if err != nil {
		fmt.Fprintln(os.Stderr, "restart:", err)
		os.Exit(1)
	}
}

func run(ctx context.Context) error {
	kills := flag.Int("kills", 20, "how often the process is killed")
	agents := flag.String("agents", "func", "what the run's agents are: func or command")
	thought := flag.Duration("thought", 0, "how long a command agent waits before it begins")
	bin := flag.String("bin", "bin", "directory of fulgurite and calc-agent")
	seed := flag.Uint64("seed", 1, "seed of the moments of the kills")
	keep := flag.Bool("keep", false, "keep the state, and say where it lies")
	flag.Parse()
	work, err := os.MkdirTemp("", "restart-")
	if err != nil {
		return err
	}
	if *keep {
		fmt.Println("state:", work)
	} else {
		defer func() { _ = os.RemoveAll(work) }()
	}
	binaries, err := filepath.Abs(*bin)
	if err != nil {
		return err
	}
	p := process{tool: filepath.Join(binaries, "fulgurite"), dir: filepath.Join(work, "state")}
	spec, err := writeSpec(work, *agents, filepath.Join(binaries, "calc-agent"), *thought)
	if err != nil {
		return err
	}
	defer p.kill()
	if err := p.start(ctx); err != nil {
		return err
	}
	if err := p.train(ctx, spec); err != nil {
		return err
	}
	moments := rand.New(rand.NewPCG(*seed, 0))
	usual, err := p.undisturbed(ctx)
	if err != nil {
		return err
	}
	var up, on, whole, steps []time.Duration
	for i := range *kills {
		// The moment is random within the time of about two steps.
		select {
		case <-ctx.Done():
			return ctx.Err()
		case <-time.After(500*time.Millisecond + time.Duration(moments.Int64N(int64(2500*time.Millisecond)))):
		}
		p.kill()
		before, err := p.count(ctx)
		if err != nil {
			return err
		}
		killed := time.Now()
		if err := p.start(ctx); err != nil {
			return err
		}
		ready := time.Now()
		after, err := p.progress(ctx, before, anything)
		if err != nil {
			return err
		}
		ended, err := p.progress(ctx, before, step)
		if err != nil {
			return err
		}
		up, on, whole = append(up, ready.Sub(killed)), append(on, max(0, after.at.Sub(ready))), append(whole, after.at.Sub(killed))
		steps = append(steps, ended.at.Sub(ready))
		fmt.Printf("kill %2d: up after %5.2f s; then progress (%s) after %5.2f s, the step's end after %5.2f s\n",
			i+1, up[i].Seconds(), after.difference(before), on[i].Seconds(), steps[i].Seconds())
	}
	fmt.Printf("%d kills, %s agents; a step that nobody disturbs takes %.2f s\n", *kills, *agents, usual.Seconds())
	fmt.Printf("%-24s %9s  %9s\n", "", "median", "greatest")
	for _, row := range []struct {
		name string
		of   []time.Duration
	}{{"kill to up", up}, {"up to progress", on}, {"kill to progress", whole}, {"up to the step's end", steps}} {
		fmt.Printf("%-24s %7.2f s  %7.2f s\n", row.name, median(row.of).Seconds(), slices.Max(row.of).Seconds())
	}
	return nil
}

// undisturbed returns the median time of five steps without kills.
func (p *process) undisturbed(ctx context.Context) (time.Duration, error) {
	last, err := p.progress(ctx, count{versions: 1}, step)
	var took []time.Duration
	for range 5 {
		if err != nil {
			return 0, err
		}
		var next count
		next, err = p.progress(ctx, last, step)
		took = append(took, next.at.Sub(last.at))
		last = next
	}
	return median(took), err
}

func median(of []time.Duration) time.Duration {
	sorted := slices.Sorted(slices.Values(of))
	n := len(sorted)
	return (sorted[(n-1)/2] + sorted[n/2]) / 2
}
