package main

import (
	"context"
	"fmt"
	"net"
	"net/http"
	"strings"
	"time"

	"github.com/fulgurite/fulgurite/agent"
	"github.com/fulgurite/fulgurite/gateway"
	"github.com/fulgurite/fulgurite/internal/catalog"
	"github.com/fulgurite/fulgurite/internal/fleet"
	"github.com/fulgurite/fulgurite/model/serve"
	"github.com/fulgurite/fulgurite/trace"
)

type chatCommand struct {
	Version string `arg:"" help:"RUN@NUMBER or RUN@promoted."`
	Input   string `arg:"" help:"What to ask."`
	JSON    bool   `help:"Print JSON." name:"json"`

	Records recordFlags `embed:""`
}

// chatLimit is how long an agent may take to answer a person.
const chatLimit = 2 * time.Minute

// Run needs no stack: it samples from the store in this process.
func (c *chatCommand) Run(ctx context.Context, s *shared, t *terminal) error {
	db, blobs, err := s.openRecords(ctx, t, c.Records)
	if err != nil {
		return err
	}
	defer db.Close()
	k := catalog.Catalog{Store: db, Blobs: blobs}
	v, err := k.Find(ctx, c.Version)
	if err != nil {
		return err
	}
	sp, err := k.Spec(ctx, v.Run)
	if err != nil {
		return err
	}
	engine, err := fleet.Engines(sp.Model.Engine)
	if err != nil {
		return err
	}
	codecs := fleet.NewCodecs(blobs)
	sampler := serve.New(engine, k, 1)
	sampler.Constrain = codecs.Constrain
	defer sampler.Close()
	url, stop, err := serveHTTP(ctx, gateway.New(gateway.Config{Journal: db, Sampler: sampler, Versions: k, Codecs: codecs.Named, Log: s.logger(ctx, t.err)}))
	if err != nil {
		return err
	}
	defer stop()
	launcher, err := fleet.Launchers(agents()).Launcher(sp)
	if err != nil {
		return err
	}
	result, err := launcher.Launch(ctx, agent.Job{
		Address: trace.Address{RolloutID: trace.RolloutID{Run: v.Run, Kind: trace.Try}, Attempt: 1},
		Task:    agent.Task{ID: "chat", Input: c.Input}, BaseURL: url + "/v1", Key: "none", Model: v.String(),
		Directory: sp.Agent.Directory, Environment: sp.Agent.Environment, Limits: agent.Limits{Time: chatLimit},
	})
	if err != nil {
		return err
	}
	if result.Failed() {
		return fmt.Errorf("the agent failed (%s): %s", result.Failure, strings.TrimSpace(result.Message+"\n"+result.Stderr))
	}
	if c.JSON {
		return t.json(map[string]string{"version": v.String(), "input": c.Input, "answer": result.Text})
	}
	t.printf("%s\n", result.Text)
	return nil
}

// serveHTTP serves h on a free port of the loopback interface until stopped.
func serveHTTP(ctx context.Context, h http.Handler) (url string, stop func(), err error) {
	var lc net.ListenConfig
	l, err := lc.Listen(ctx, "tcp", "127.0.0.1:0")
	if err != nil {
		return "", nil, err
	}
	server := &http.Server{Handler: h, ReadHeaderTimeout: time.Minute}
	done := make(chan struct{})
	go func() {
		defer close(done)
		_ = server.Serve(l) // had it ended early, the agent's calls would have failed
	}()
	return "http://" + l.Addr().String(), func() {
		_ = server.Close() // nothing in flight is worth waiting for
		<-done
	}, nil
}
