package main

import (
	"bufio"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"maps"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"

	"github.com/fulgurite/fulgurite/spec"
)

// toolServer is a server of tools that the programs of an example need.
type toolServer struct {
	// Command is run in the example's folder. It writes its address to standard error.
	Command []string `yaml:"command"`
	// Variable gets the address with Path in the environment of the programs.
	Variable string `yaml:"variable"`
	Path     string `yaml:"path"`
	// Health is the path that answers while the server is up.
	Health string `yaml:"health"`
}

// runningServer is a server that was started. Its zero value means that there is none.
type runningServer struct {
	toolServer
	url     string
	process *exec.Cmd
	drained chan struct{} // closed when its standard error was read to the end
}

var serverAddress = regexp.MustCompile(`http://[0-9.]+:[0-9]+`)

// start starts the server and waits for its address.
func (t *toolServer) start(ctx context.Context, folder string) (*runningServer, error) {
	if t == nil {
		return &runningServer{}, nil
	}
	program := t.Command[0]
	if !filepath.IsAbs(program) && filepath.Base(program) != program {
		program = filepath.Join(folder, program)
	}
	program, err := filepath.Abs(program)
	if err != nil {
		return nil, err
	}
	s := &runningServer{toolServer: *t, process: exec.CommandContext(ctx, program, t.Command[1:]...), drained: make(chan struct{})}
	s.process.Dir = folder
	stderr, err := s.process.StderrPipe()
	if err != nil {
		return nil, err
	}
	if err := s.process.Start(); err != nil {
		return nil, fmt.Errorf("start the server of tools (`make build` makes it): %w", err)
	}
	lines, output := bufio.NewScanner(stderr), ""
	for s.url == "" && lines.Scan() {
		output += lines.Text() + "\n"
		s.url = serverAddress.FindString(lines.Text())
	}
	go func() {
		defer close(s.drained)
		_, _ = io.Copy(io.Discard, stderr)
	}()
	if s.url == "" {
		s.kill()
		return nil, fmt.Errorf("the server of tools told no address:\n%s", tail(output))
	}
	return s, nil
}

// kill kills the server with SIGKILL. It may be called more than once.
func (s *runningServer) kill() {
	if s.process == nil || s.process.ProcessState != nil {
		return
	}
	_ = s.process.Process.Kill()
	<-s.drained
	_ = s.process.Wait()
}

// environment returns the variable that tells programs the address of the server.
func (s *runningServer) environment() map[string]string {
	if s.url == "" {
		return nil
	}
	return map[string]string{s.Variable: s.url + s.Path}
}

// probes returns the addresses that an agent's launcher probes.
func (s *runningServer) probes() []string {
	if s.url == "" {
		return nil
	}
	return []string{s.url + s.Health}
}

// specFor returns the path of the example's spec, or, if there is a server, of a copy
// that contains the server's current address.
func (s *runningServer) specFor(e example, directory string) (string, error) {
	file := filepath.Join(e.Folder, e.Spec)
	if s.url == "" {
		return file, nil
	}
	loaded, err := spec.Load(file)
	if err != nil {
		return "", err
	}
	if len(loaded.Agent.ToolServers) == 0 || loaded.Agent.Environment[s.Variable] == "" {
		return "", errors.New(e.Spec + " names no server of tools: want agent.tool_servers and agent.environment." + s.Variable)
	}
	loaded.Agent.Environment = maps.Clone(loaded.Agent.Environment)
	maps.Copy(loaded.Agent.Environment, s.environment())
	loaded.Agent.ToolServers = s.probes()
	text, err := json.Marshal(loaded)
	if err != nil {
		return "", err
	}
	file = filepath.Join(directory, e.Name+".json")
	return file, os.WriteFile(file, text, 0o600)
}
