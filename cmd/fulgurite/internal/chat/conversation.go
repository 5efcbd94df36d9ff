package chat

import (
	"context"
	"crypto/rand"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"math/big"
	"os"
	"path/filepath"

	"go.uber.org/zap"

	"github.com/fulgurite/fulgurite/activities"
	"github.com/fulgurite/fulgurite/agent"
	"github.com/fulgurite/fulgurite/agent/forwarder"
	"github.com/fulgurite/fulgurite/gateway"
	"github.com/fulgurite/fulgurite/internal/builtin"
	"github.com/fulgurite/fulgurite/model"
	"github.com/fulgurite/fulgurite/spec"
	"github.com/fulgurite/fulgurite/store"
	"github.com/fulgurite/fulgurite/trace"
	"github.com/fulgurite/fulgurite/workers/fleet"
)

// conversation runs a run's agent as RunAgent does, but outside of any stack: in an
// attempt with the run's terms, behind a forwarder and a gateway. The attempt is recorded
// in a temporary store, which Close removes, so that the run's records stay as they are.
type conversation struct {
	spec      spec.Spec
	version   model.VersionID
	launcher  agent.Launcher
	journal   *store.Store
	forwarder *forwarder.Forwarder
	watch     *callWatch
	closers   fleet.Closers
}

func newConversation(ctx context.Context, records fleet.Records, sp spec.Spec, v model.VersionID, log *zap.Logger) (_ *conversation, err error) {
	c := &conversation{spec: sp, version: v}
	defer func() {
		if err != nil {
			err = errors.Join(err, c.Close())
		}
	}()
	// A codec or launcher that can't be made is reported here. Later it would look like a
	// fault of the infrastructure, for which agents wait.
	if _, err := records.Codecs.Named(sp.Model.Codec); err != nil {
		return nil, err
	}
	if c.launcher, err = fleet.Launchers(builtin.Agents()).Launcher(sp); err != nil {
		return nil, err
	}
	if err := c.openJournal(ctx, log); err != nil {
		return nil, err
	}
	builtin := records.Sampler(1)
	c.closers.OnClose(func(context.Context) error { builtin.Close(); return nil })
	router := records.Route(builtin)
	c.closers.OnClose(func(context.Context) error { router.Close(); return nil })
	listener, err := fleet.Listen(ctx, "127.0.0.1:0")
	if err != nil {
		return nil, err
	}
	c.watch = &callWatch{sampler: router}
	door := gateway.New(gateway.Config{Journal: c.journal, Sampler: c.watch, Codecs: records.Codecs.Named, Log: log})
	server := fleet.Serve(listener, c.watch.around(door), log)
	c.closers.OnClose(server.Close)
	c.forwarder, err = forwarder.New(ctx, server.URL, log)
	if err != nil {
		return nil, err
	}
	c.closers.OnClose(c.forwarder.Close)
	return c, nil
}

func (c *conversation) openJournal(ctx context.Context, log *zap.Logger) error {
	dir, err := os.MkdirTemp("", "fulgurite-chat-")
	if err != nil {
		return err
	}
	c.closers.OnClose(func(context.Context) error { return os.RemoveAll(dir) })
	if c.journal, err = store.Open(ctx, filepath.Join(dir, "chat.db"), log); err != nil {
		return err
	}
	c.closers.OnClose(func(context.Context) error { return c.journal.Close() })
	return c.journal.Migrate(ctx)
}

// Close ends what was started and removes the attempt's record.
func (c *conversation) Close() error { return c.closers.Close(context.Background()) }

// ask runs the agent once. An error says that it could not be run, or that its calls
// could not be answered; refused says which calls were refused.
func (c *conversation) ask(ctx context.Context, input string) (agent.Result, error) {
	// A random task number gives the attempt its own seeds and home. So the same question
	// draws another answer each time, and several chats may run at once.
	number, err := rand.Int(rand.Reader, big.NewInt(1<<31))
	if err != nil {
		return agent.Result{}, err
	}
	rollout := trace.RolloutID{Run: c.version.Run, Kind: trace.Try, Task: int(number.Int64())}
	key := rand.Text()
	sum := sha256.Sum256([]byte(key))
	address, err := c.journal.BeginAttempt(ctx, rollout, "chat", activities.AttemptTerms(c.spec, c.version), hex.EncodeToString(sum[:]))
	if err != nil {
		return agent.Result{}, err
	}
	ctx, stop := context.WithCancelCause(ctx)
	defer stop(context.Canceled)
	c.watch.broken = stop
	session, err := c.forwarder.Open(ctx, address, key)
	if err != nil {
		return agent.Result{}, err
	}
	defer session.Close()
	result, err := c.launcher.Launch(session.Context(), agent.Job{
		Address: address, Execution: key, Task: agent.Task{ID: "chat", Input: input}, BaseURL: session.BaseURL(), Key: key,
		Directory: c.spec.Agent.Directory, Environment: c.spec.Agent.Environment,
		Limits: activities.AttemptLimits(c.spec), Waited: session.Waited, Idle: session.Idle,
	})
	if cause := context.Cause(ctx); cause != nil {
		return result, cause // the agent's result or error follows from this cause
	}
	session.Close() // only now are all faults known that the agent could have seen
	if err == nil {
		err = session.Fault()
	}
	if err != nil {
		return result, fmt.Errorf("run the agent of %s: %w", c.version, err)
	}
	return result, nil
}

// refused describes the model calls that the gateway refused. It returns "" if there were
// none.
func (c *conversation) refused() string { return c.watch.String() }
