// Command prompts compares searches for prompts: our APO, our GEPA, and the APO of
// agentlightning 0.3.0, in a synthetic world. A scripted model classifies items, and its
// chance of the right label depends on which lines a prompt has. A scripted reflector adds
// a line to a prompt or takes one out, at random. So the comparison says how well a search
// chooses among proposals under noise, and nothing about texts of real models.
//
// All searches meet the same model and the same reflector, start from the same prompt and
// have the same budget in rollouts. What counts is the expected accuracy of a search's best
// prompt on a gate split that no search sees, after parts of the budget.
//
//	bench/prompts/run                    all, with the other product in its own environment
//	go run ./bench/prompts -seeds 10     ours alone
//
// It prints tables in Markdown.
package main

import (
	"context"
	"flag"
	"fmt"
	"net"
	"net/http"
	"os"
	"os/signal"
	"time"

	"github.com/fulgurite/fulgurite/prompts/reflector"
	"github.com/fulgurite/fulgurite/prompts/search"
)

func main() {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt)
	err := run(ctx)
	stop()
	if err != nil {
		fmt.Fprintln(os.Stderr, "prompts:", err)
		os.Exit(1)
	}
}

func run(ctx context.Context) error {
	python := flag.String("python", "", "an interpreter that has agentlightning; without it, only our searches run")
	seeds := flag.Int("seeds", 10, "seeds, each of which is a world")
	rounds := flag.Int("rounds", 3, "rounds of APO")
	failures := flag.Float64("failures", 0, "the share of rollouts that fail")
	flag.Parse()
	s := settings{beam: 4, branch: 4, rounds: *rounds, gradientBatch: 4, validationBatch: 16, failures: *failures}
	s.budget = s.whole()

	var worlds []*world
	for seed := range *seeds {
		worlds = append(worlds, newWorld(uint64(seed)+1))
	}
	b, err := newBench(ctx, worlds)
	if err != nil {
		return err
	}
	defer b.close()
	r, err := b.run(ctx, s, *python)
	if err != nil {
		return err
	}
	fmt.Print(r.markdown())
	return nil
}

// bench serves the worlds and runs searches in them.
type bench struct {
	worlds []*world
	mux    *http.ServeMux
	server *http.Server
	url    string
}

func newBench(ctx context.Context, worlds []*world) (*bench, error) {
	handler, err := reflectors(worlds)
	if err != nil {
		return nil, err
	}
	listener, err := (&net.ListenConfig{}).Listen(ctx, "tcp", "127.0.0.1:0")
	if err != nil {
		return nil, err
	}
	b := &bench{worlds: worlds, mux: http.NewServeMux(), url: "http://" + listener.Addr().String()}
	b.mux.Handle("/reflector/", http.StripPrefix("/reflector", handler))
	b.server = &http.Server{Handler: b.mux, ReadHeaderTimeout: time.Minute}
	go func() { _ = b.server.Serve(listener) }() // it ends with close
	return b, nil
}

func (b *bench) close() { _ = b.server.Close() }

// reflector returns the scripted reflector of a world.
func (b *bench) reflector(w *world) (reflector.Reflector, error) {
	return reflector.New(reflector.Options{Type: reflector.OpenAI, URL: fmt.Sprintf("%s/reflector/%d/v1", b.url, w.seed), Model: "synthetic"})
}

// run runs all searches in every world.
func (b *bench) run(ctx context.Context, s settings, python string) (results, error) {
	out := results{settings: s, worlds: b.worlds, histories: map[string][][]standing{}}
	for _, w := range b.worlds {
		from, err := b.reflector(w)
		if err != nil {
			return out, err
		}
		defer from.Close()
		for row, search := range map[string]func(*world) (search.Search, error){oursAPO: s.apo, oursGEPA: s.gepa} {
			made, err := search(w)
			if err != nil {
				return out, err
			}
			history, err := drive(ctx, made, newRollouts(w, s.failures), from)
			if err != nil {
				return out, fmt.Errorf("%s in world %d: %w", row, w.seed, err)
			}
			out.histories[row] = append(out.histories[row], history)
		}
	}
	if python == "" {
		return out, nil
	}
	theirs, err := b.theirs(ctx, s, python)
	if err != nil {
		return out, fmt.Errorf("%s: %w", theirAPO, err)
	}
	out.histories[theirAPO] = theirs
	return out, nil
}
