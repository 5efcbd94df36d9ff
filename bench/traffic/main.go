// Command traffic measures what recording adds to calls of served versions. Clients have
// conversations of four turns with a version over HTTP, in an open loop: requests are due at
// times that do not depend on replies, and a latency counts from the time when a request was
// due. The sampler has its replies ready, and the store is a SQLite file on disk.
//
//	go run ./bench/traffic -minutes 1 -rate 100
//
// Everything runs in one process, first without recording and then with it, in as many rounds
// as -rounds says. After each round with recording it counts the calls on record: there must be
// as many as replies.
//
//	go run ./bench/traffic -judged -minutes 10 -rate 100 -kill-every 30s
//
// With -judged the gateway is a process of its own, which is killed again and again, and feedback
// on the replies comes late, twice and under forged keys. Clients send again what fails. At the
// end their account is compared with the store, and the exit code is 1 if a reply or feedback was
// lost or doubled.
package main

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"flag"
	"fmt"
	"io"
	"net"
	"net/http"
	"os"
	"path/filepath"
	"slices"
	"sync"
	"time"

	"github.com/fulgurite/fulgurite/dialog"
	"github.com/fulgurite/fulgurite/gateway"
	"github.com/fulgurite/fulgurite/internal/memory"
	"github.com/fulgurite/fulgurite/model"
	"github.com/fulgurite/fulgurite/record"
	"github.com/fulgurite/fulgurite/store"
)

const (
	run   = "demo"
	turns = 4
)

func main() {
	minutes := flag.Float64("minutes", 1, "how long each round lasts")
	rate := flag.Float64("rate", 100, "requests a second")
	rounds := flag.Int("rounds", 1, "how often each is measured, in turns")
	inFours := flag.Bool("in-fours", false, "let the requests of four conversations always be due at the same moment, instead of at times that do not depend on each other")
	dir := flag.String("dir", "", "directory for the stores; a temporary one by default")
	judged := flag.Bool("judged", false, "give feedback on the replies of a gateway that is a process of its own")
	killEvery := flag.Duration("kill-every", 0, "with -judged: how often the gateway is killed; 0 is never")
	late := flag.Duration("late", 20*time.Second, "with -judged: how long after a reply feedback comes at the latest")
	ctx := context.Background()
	memory.Pace(ctx) // as a gateway's own process does
	var err error
	if len(os.Args) > 1 && os.Args[1] == gatewayCommand {
		err = runGateway(ctx, os.Args[2:])
	} else {
		flag.Parse()
		length, due := time.Duration(*minutes*float64(time.Minute)), arrivals{rate: *rate, inFours: *inFours}
		err = inDirectory(*dir, func(dir string) error {
			if *judged {
				return measureJudged(ctx, dir, judgedLoad{length: length, arrivals: due, killEvery: *killEvery, late: *late})
			}
			return measure(ctx, dir, length, due, *rounds)
		})
	}
	if err != nil {
		fmt.Fprintln(os.Stderr, "traffic:", err)
		os.Exit(1)
	}
}

// inDirectory runs f with a directory, or with a temporary one if none is given.
func inDirectory(dir string, f func(dir string) error) (err error) {
	if dir != "" {
		return f(dir)
	}
	if dir, err = os.MkdirTemp("", "traffic"); err != nil {
		return fmt.Errorf("make directory: %w", err)
	}
	defer func() { err = errors.Join(err, os.RemoveAll(dir)) }()
	return f(dir)
}

func measure(ctx context.Context, dir string, length time.Duration, a arrivals, rounds int) error {
	fmt.Println("| recording | requests | p50 ms | p90 ms | p99 ms | max ms | on record |")
	fmt.Println("| --- | ---: | ---: | ---: | ---: | ---: | ---: |")
	for i := range rounds {
		a.seed = uint64(i)
		for _, recording := range []model.Recording{model.RecordNothing, model.RecordAll} {
			name := recordingName(recording)
			if err := round(ctx, filepath.Join(dir, fmt.Sprintf("%d-%s.db", i, name)), name, recording, length, a); err != nil {
				return err
			}
		}
	}
	return nil
}

// round measures one gateway, and prints a row.
func round(ctx context.Context, file, name string, recording model.Recording, length time.Duration, a arrivals) error {
	db, err := store.Open(ctx, file, nil)
	if err != nil {
		return err
	}
	defer func() { _ = db.Close() }()
	if err := db.Migrate(ctx); err != nil {
		return err
	}
	if _, _, err := db.CreateRun(ctx, record.Run{Name: run, WorkflowID: run, ExecutionID: "x", SpecDigest: "d"}); err != nil {
		return err
	}
	g := gateway.New(gateway.Config{Journal: db, Conversations: db, Versions: versions{recording}, Sampler: sampler{}})
	listener, err := new(net.ListenConfig).Listen(ctx, "tcp", "127.0.0.1:0")
	if err != nil {
		return fmt.Errorf("listen: %w", err)
	}
	server := &http.Server{Handler: g, ReadHeaderTimeout: time.Minute}
	go func() { _ = server.Serve(listener) }()
	defer func() { _ = server.Close() }()

	latencies, err := load(ctx, "http://"+listener.Addr().String()+"/v1/chat/completions", length, a)
	if err != nil {
		return err
	}
	recorded := 0
	for n := 0; ; n++ {
		c, err := db.Conversation(ctx, run, n)
		if err != nil {
			break // there are no more
		}
		recorded += c.Calls
	}
	if recording == model.RecordAll && recorded != len(latencies) {
		return fmt.Errorf("%d replies, and %d calls on record", len(latencies), recorded)
	}
	slices.Sort(latencies)
	at := func(share float64) float64 {
		return float64(latencies[min(len(latencies)-1, int(share*float64(len(latencies))))]) / float64(time.Millisecond)
	}
	fmt.Printf("| %s | %d | %.2f | %.2f | %.2f | %.2f | %d |\n", name, len(latencies), at(0.5), at(0.9), at(0.99), at(1), recorded)
	return nil
}

// load sends requests as they are due, and returns how long each took since it was due. Every
// conversation has a worker of its own, so its turns follow each other.
func load(ctx context.Context, url string, length time.Duration, a arrivals) ([]time.Duration, error) {
	client := &http.Client{Transport: &http.Transport{MaxIdleConnsPerHost: 512}}
	var mu sync.Mutex
	var all []time.Duration
	var failed error
	var group sync.WaitGroup
	begun := time.Now()
	for at, random := range a.conversations(length) {
		due := begun.Add(at)
		time.Sleep(time.Until(due))
		group.Go(func() {
			messages := []map[string]string{}
			for turn := range turns {
				if turn > 0 {
					due = due.Add(a.interval(random, turnInterval))
				}
				time.Sleep(time.Until(due))
				messages = append(messages, map[string]string{"role": "user", "content": fmt.Sprintf("What do you say to question %d of %d?", turn, due.UnixNano())})
				text, err := ask(ctx, client, url, messages)
				mu.Lock()
				all, failed = append(all, time.Since(due)), firstOf(failed, err)
				mu.Unlock()
				if err != nil {
					return
				}
				messages = append(messages, map[string]string{"role": "assistant", "content": text})
			}
		})
	}
	group.Wait()
	return all, failed
}

func firstOf(a, b error) error {
	if a != nil {
		return a
	}
	return b
}

func ask(ctx context.Context, client *http.Client, url string, messages []map[string]string) (string, error) {
	body, err := json.Marshal(map[string]any{"model": run, "messages": messages})
	if err != nil {
		return "", fmt.Errorf("encode request: %w", err)
	}
	request, err := http.NewRequestWithContext(ctx, http.MethodPost, url, bytes.NewReader(body))
	if err != nil {
		return "", fmt.Errorf("make request: %w", err)
	}
	response, err := client.Do(request)
	if err != nil {
		return "", fmt.Errorf("ask: %w", err)
	}
	defer func() { _ = response.Body.Close() }()
	text, err := io.ReadAll(response.Body)
	if err != nil {
		return "", fmt.Errorf("read reply: %w", err)
	}
	var reply struct {
		Choices []struct {
			Message struct{ Content string }
		}
	}
	if err := json.Unmarshal(text, &reply); err != nil || response.StatusCode != http.StatusOK || len(reply.Choices) != 1 {
		return "", fmt.Errorf("ask: %s: %s", response.Status, text)
	}
	return reply.Choices[0].Message.Content, nil
}

// versions has one version.
type versions struct{ recording model.Recording }

// Resolve returns the version, whatever it is called.
func (v versions) Resolve(context.Context, string) (model.Served, error) {
	return model.Served{VersionID: model.VersionID{Run: run, Policy: model.DefaultPolicy, Number: 1}, Codec: "compact", Recording: v.recording}, nil
}

// List returns the name of the version.
func (versions) List(context.Context) ([]string, error) { return []string{run}, nil }

// sampler has the reply to every request.
type sampler struct{}

// Sample returns a reply of 64 tokens.
func (sampler) Sample(_ context.Context, _ model.VersionID, r model.DecodeRequest) (model.Completion, string, error) {
	text := dialog.Compact().Encode("The answer to this question depends on the day, so ask again.")
	tokens := append(append([]int32{}, text...), r.Stop[0])
	return model.Completion{Tokens: tokens, Logprobs: make([]float32, len(tokens)), Finish: "stop"}, "w", nil
}
