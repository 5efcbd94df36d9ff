//go:build serverprocess

package devserver

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"sync/atomic"
)

// program is the server that a build with the race detector starts, instead of one in its
// own process: ./server, built without the detector. The linker sets it.
var program string

// inner is the server in a separate process, which ends with this one.
type inner struct {
	process *exec.Cmd
	control io.WriteCloser
	silent  atomic.Bool
}

// start locks the directory for this process and starts the server in the other one.
func (s *Server) start(ctx context.Context) error {
	o := s.options
	o.Log = nil
	if o.Dir != "" {
		if err := os.MkdirAll(o.Dir, 0o755); err != nil {
			return err
		}
		var err error
		if s.lock, err = lock(o.Dir); err != nil {
			return err
		}
	}
	options, err := json.Marshal(o)
	if err != nil {
		return err
	}
	s.inner.process = exec.Command(program, string(options))
	if s.inner.control, err = s.inner.process.StdinPipe(); err != nil {
		return err
	}
	out, err := s.inner.process.StdoutPipe()
	if err != nil {
		return err
	}
	var stderr bytes.Buffer
	s.inner.process.Stderr = &stderr
	if err := s.inner.process.Start(); err != nil {
		s.inner.process = nil
		return err
	}
	// A start that takes too long ends here: without control, the other process exits.
	defer context.AfterFunc(ctx, func() { _ = s.inner.control.Close() })()
	var at Ports
	if err := json.NewDecoder(out).Decode(&at); err != nil {
		// What it says on standard error is complete once it has ended.
		err = errors.Join(err, s.inner.control.Close(), s.inner.process.Wait())
		s.inner.process = nil
		return errors.Join(fmt.Errorf("%w: %s", err, &stderr), ctx.Err())
	}
	s.ports.frontend, s.ports.ui = at.Frontend, at.UI
	return nil
}

// end makes the other process stop as this one would.
func (s *Server) end() (err error) {
	if s.inner.process != nil {
		_, err = io.WriteString(s.inner.control, "stop\n")
		err = errors.Join(err, s.inner.control.Close(), s.inner.process.Wait())
	}
	if s.lock != nil {
		err = errors.Join(err, s.lock.Close())
	}
	return err
}
