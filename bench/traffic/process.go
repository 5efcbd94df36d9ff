package main

import (
	"context"
	"errors"
	"fmt"
	"net"
	"net/http"
	"os"
	"os/exec"
	"os/signal"
	"path/filepath"
	"strconv"
	"strings"
	"sync"
	"syscall"
	"time"

	"github.com/fulgurite/fulgurite/gateway"
	"github.com/fulgurite/fulgurite/model"
	"github.com/fulgurite/fulgurite/store"
)

// gatewayCommand is the argument that makes this program a gateway.
const gatewayCommand = "gateway"

// runGateway serves until a signal comes. The arguments are the file of the store, the
// address, and what is recorded.
func runGateway(ctx context.Context, args []string) error {
	if len(args) != 3 {
		return errors.New("gateway: give the store, the address and what is recorded")
	}
	ctx, stop := signal.NotifyContext(ctx, syscall.SIGTERM)
	defer stop()
	db, err := store.Open(ctx, args[0], nil)
	if err != nil {
		return err
	}
	defer func() { _ = db.Close() }()
	recording := model.RecordNothing
	if args[2] == recordingName(model.RecordAll) {
		recording = model.RecordAll
	}
	g := gateway.New(gateway.Config{
		Journal: db, Conversations: db, Feedback: db, Keys: store.ServingKeys{Store: db}, ServingKey: "the key of operators, which no client has",
		Versions: versions{recording}, Sampler: sampler{},
	})
	listener, err := new(net.ListenConfig).Listen(ctx, "tcp", args[1])
	if err != nil {
		return fmt.Errorf("listen: %w", err)
	}
	server := &http.Server{Handler: g, ReadHeaderTimeout: time.Minute}
	go func() {
		<-ctx.Done()
		_ = server.Close()
	}()
	if err := server.Serve(listener); !errors.Is(err, http.ErrServerClosed) {
		return err
	}
	return nil
}

func recordingName(r model.Recording) string {
	return map[model.Recording]string{model.RecordNothing: "none", model.RecordAll: "all"}[r]
}

// gatewayProcess is a gateway in a process of its own, at an address that stays the same.
type gatewayProcess struct {
	url  string
	args []string

	mu      sync.Mutex
	command *exec.Cmd
	failed  error
}

// startGateway starts a gateway and returns once it answers.
func startGateway(ctx context.Context, file string, recording model.Recording) (*gatewayProcess, error) {
	listener, err := new(net.ListenConfig).Listen(ctx, "tcp", "127.0.0.1:0")
	if err != nil {
		return nil, fmt.Errorf("find a port: %w", err)
	}
	address := listener.Addr().String()
	if err := listener.Close(); err != nil {
		return nil, fmt.Errorf("find a port: %w", err)
	}
	g := &gatewayProcess{url: "http://" + address, args: []string{gatewayCommand, file, address, recordingName(recording)}}
	return g, g.launch(ctx)
}

// launch starts the process and waits until it listens.
func (g *gatewayProcess) launch(ctx context.Context) error {
	self, err := os.Executable()
	if err != nil {
		return fmt.Errorf("find this program: %w", err)
	}
	command := exec.Command(self, g.args...) //nolint:noctx // it is ended by signals
	command.Stderr = os.Stderr
	if err := command.Start(); err != nil {
		return fmt.Errorf("start the gateway: %w", err)
	}
	g.mu.Lock()
	g.command = command
	g.mu.Unlock()
	ctx, cancel := context.WithTimeoutCause(ctx, time.Minute, errors.New("the gateway does not listen after a minute"))
	defer cancel()
	for {
		connection, err := new(net.Dialer).DialContext(ctx, "tcp", strings.TrimPrefix(g.url, "http://"))
		if err == nil {
			return connection.Close()
		}
		if err := sleep(ctx, 5*time.Millisecond); err != nil {
			return context.Cause(ctx)
		}
	}
}

// killEvery kills the process and starts it again, once in every interval, until ended is
// closed. It returns how often.
func (g *gatewayProcess) killEvery(ctx context.Context, every time.Duration, ended <-chan struct{}) (kills int) {
	if every == 0 {
		return 0
	}
	tick := time.NewTicker(every)
	defer tick.Stop()
	for {
		select {
		case <-ended:
			return kills
		case <-ctx.Done():
			return kills
		case <-tick.C:
		}
		kills++
		_ = g.command.Process.Kill() // it may have ended
		_ = g.command.Wait()
		if err := g.launch(ctx); err != nil {
			g.mu.Lock()
			g.failed = err
			g.mu.Unlock()
			return kills
		}
	}
}

func (g *gatewayProcess) failure() error {
	g.mu.Lock()
	defer g.mu.Unlock()
	return g.failed
}

// memory returns the most memory that the current process has taken, in MiB; 0 where
// /proc does not say.
func (g *gatewayProcess) memory() float64 {
	text, err := os.ReadFile(fmt.Sprintf("/proc/%d/status", g.command.Process.Pid))
	if err != nil {
		return 0
	}
	for line := range strings.Lines(string(text)) {
		if fields := strings.Fields(line); len(fields) > 1 && fields[0] == "VmHWM:" {
			kib, _ := strconv.ParseFloat(fields[1], 64)
			return kib / 1024
		}
	}
	return 0
}

// close ends the process; a second call does nothing.
func (g *gatewayProcess) close() error {
	if g.command.ProcessState != nil {
		return nil
	}
	if err := g.command.Process.Signal(syscall.SIGTERM); err != nil {
		return fmt.Errorf("end the gateway: %w", err)
	}
	if err := g.command.Wait(); err != nil {
		return fmt.Errorf("end the gateway: %w", err)
	}
	return nil
}

// storeSize returns the size of the store's files in MiB.
func storeSize(file string) (float64, error) {
	files, err := filepath.Glob(file + "*")
	if err != nil {
		return 0, fmt.Errorf("list the files of the store: %w", err)
	}
	size := 0.0
	for _, name := range files {
		info, err := os.Stat(name)
		if err != nil {
			return 0, fmt.Errorf("read the size of the store: %w", err)
		}
		size += float64(info.Size()) / (1 << 20)
	}
	return size, nil
}
