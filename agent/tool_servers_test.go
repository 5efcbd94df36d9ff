package agent_test

import (
	"bufio"
	"context"
	"fmt"
	"net"
	"net/http"
	"net/http/httptest"
	"os"
	"os/exec"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
	"go.uber.org/zap"

	"github.com/fulgurite/fulgurite/agent"
	"github.com/fulgurite/fulgurite/tasks"
	"github.com/fulgurite/fulgurite/tasks/retrieval"
)

// playTools serves paragraphs at an address until it is killed.
func playTools(address string) {
	index, err := retrieval.NewIndex(context.Background(), []tasks.Paragraph{{Title: "Bonn", Text: "A city on the Rhine."}})
	must(err)
	listener, err := net.Listen("tcp", address)
	must(err)
	fmt.Println(listener.Addr())
	must(http.Serve(listener, retrieval.NewServer(index, "test", zap.NewNop())))
}

// toolServer is a process that serves tools, always at one address.
type toolServer struct {
	t       *testing.T
	address string
	process *exec.Cmd
}

func (s *toolServer) start() {
	args := acting("tools", s.address)
	s.process = exec.Command(args[0], args[1:]...)
	s.process.Stderr = os.Stderr
	out, err := s.process.StdoutPipe()
	require.NoError(s.t, err)
	require.NoError(s.t, s.process.Start())
	line, err := bufio.NewReader(out).ReadString('\n')
	require.NoError(s.t, err)
	s.address = strings.TrimSpace(line)
}

// kill ends the process as kill -9 does.
func (s *toolServer) kill() {
	_ = s.process.Process.Kill()
	_ = s.process.Wait()
}

func startTools(t *testing.T) *toolServer {
	s := &toolServer{t: t, address: "127.0.0.1:0"}
	s.start()
	t.Cleanup(s.kill)
	return s
}

func (s *toolServer) health() []string { return []string{"http://" + s.address + "/healthz"} }

func TestAnAttemptWhoseToolServerWasKilledIsAFault(t *testing.T) {
	t.Parallel()
	s := startTools(t)
	launched := 0
	guess := func(during func()) agent.Launcher {
		return agent.WithToolServers(agent.Func(func(context.Context, agent.Task, agent.Env) (string, error) {
			launched++
			during()
			return "a guess", nil
		}), s.health(), nil)
	}
	_, err := guess(s.kill).Launch(t.Context(), job("demo"))
	require.ErrorIs(t, err, agent.ErrToolServer)
	require.ErrorContains(t, err, "the agent may have met a fault of its tools")
	require.Equal(t, 1, launched)

	_, err = guess(func() {}).Launch(t.Context(), job("demo"))
	require.ErrorIs(t, err, agent.ErrToolServer)
	require.ErrorContains(t, err, "before the attempt: server of tools http://"+s.address)
	require.Equal(t, 1, launched, "nothing is launched while the tools are away")

	s.start()
	_, err = guess(func() { s.kill(); s.start() }).Launch(t.Context(), job("demo"))
	require.ErrorIs(t, err, agent.ErrToolServer, "it was away in between")
	require.ErrorContains(t, err, "was started again")

	got, err := guess(func() {}).Launch(t.Context(), job("demo"))
	require.NoError(t, err)
	require.Equal(t, "a guess", got.Text)
}

func TestAFailureOfAnAgentWithoutItsToolsIsAFault(t *testing.T) {
	t.Parallel()
	s := startTools(t)
	failing := agent.Func(func(context.Context, agent.Task, agent.Env) (string, error) {
		s.kill()
		return "", fmt.Errorf("no search")
	})
	_, err := agent.WithToolServers(failing, s.health(), nil).Launch(t.Context(), job("demo"))
	require.ErrorIs(t, err, agent.ErrToolServer)
}

func TestAToolServerThatSaysNothingOfItselfOnlyHasToAnswer(t *testing.T) {
	t.Parallel()
	status := http.StatusNoContent
	s := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) { w.WriteHeader(status) }))
	t.Cleanup(s.Close)
	l := agent.WithToolServers(agent.Func(func(context.Context, agent.Task, agent.Env) (string, error) { return "42", nil }), []string{s.URL}, nil)
	got, err := l.Launch(t.Context(), job("demo"))
	require.NoError(t, err)
	require.Equal(t, "42", got.Text)
	status = http.StatusServiceUnavailable
	_, err = l.Launch(t.Context(), job("demo"))
	require.ErrorIs(t, err, agent.ErrToolServer)
	require.ErrorContains(t, err, "answered 503")
}
