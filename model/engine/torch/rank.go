package torch

import (
	"encoding/json"
	"errors"
	"fmt"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"time"

	"github.com/fulgurite/fulgurite/internal/subprocess"
)

// rank is one of the operating-system processes of a started program.
type rank struct {
	number int
	cmd    *exec.Cmd
	conn   net.Conn
	stderr tail
	ended  chan struct{} // closed when it has ended
	about  About
}

// launch starts rank number of count, in a directory with the program. The rank gets one
// end of a pair of sockets.
func launch(o Options, dir string, number, count int) (*rank, error) {
	ours, theirs, err := socketPair()
	if err != nil {
		return nil, fmt.Errorf("make a pair of sockets: %w", err)
	}
	defer func() { _ = theirs.Close() }() // the program has its own copy
	r := &rank{number: number, ended: make(chan struct{})}
	r.conn, err = net.FileConn(ours)
	if err := errors.Join(err, ours.Close()); err != nil {
		return nil, fmt.Errorf("open a socket: %w", err)
	}
	r.cmd = exec.Command(o.Python, "-u", filepath.Join(dir, "program"),
		strconv.Itoa(socketDescriptor), o.Device, strconv.Itoa(o.Threads), strconv.Itoa(number), strconv.Itoa(count), o.products)
	r.cmd.Env = append(subprocess.Environment(), "HF_HUB_OFFLINE=1", "TRANSFORMERS_OFFLINE=1", "TOKENIZERS_PARALLELISM=false", "PYTHONDONTWRITEBYTECODE=1")
	r.cmd.ExtraFiles = []*os.File{theirs}
	r.cmd.Stdout, r.cmd.Stderr = &r.stderr, &r.stderr
	r.cmd.WaitDelay = leave // processes that the program started may hold these open
	if err := r.cmd.Start(); err != nil {
		return nil, errors.Join(fmt.Errorf("start Python: %w: `fulgurite doctor --install-torch` makes an environment for engine torch of a Python 3.10 or later; %s names another that has torch", err, EnvPython), r.conn.Close())
	}
	go func() {
		defer close(r.ended)
		_ = r.cmd.Wait() // cmd.ProcessState says how it ended
	}()
	return r, nil
}

// greet reads how the rank describes itself, or why it can't work.
func (r *rank) greet(within time.Duration) error {
	if err := r.conn.SetReadDeadline(time.Now().Add(within)); err != nil {
		return err
	}
	hello, err := readFrame(r.conn)
	if err != nil {
		return err
	}
	if hello.Error != "" {
		return unfit(hello.Error)
	}
	if err := json.Unmarshal(hello.Result, &r.about); err != nil {
		return fmt.Errorf("%w: %w", errFrame, err)
	}
	return nil
}

// unfit is an error that the user has to fix before a rank can work.
type unfit string

func (u unfit) Error() string { return string(u) }

// exchange sends q and reads until its reply; alive is called at each sign of life.
func (r *rank) exchange(q request, alive func() error) (reply, error) {
	if err := writeFrame(r.conn, q); err != nil {
		return reply{}, err
	}
	for {
		got, err := readFrame(r.conn)
		if err == nil && (got.Generation != q.Generation || got.Sequence != q.Sequence) {
			err = fmt.Errorf("%w: reply %d of generation %d to request %d of generation %d", errFrame, got.Sequence, got.Generation, q.Sequence, q.Generation)
		}
		if err == nil && got.Progress {
			if err = alive(); err == nil {
				continue
			}
		}
		return got, err
	}
}

// wait returns when the rank has ended. A rank ends when its socket is closed; wait kills
// one that does not.
func (r *rank) wait() {
	select {
	case <-r.ended:
	case <-time.After(leave / 10):
		_ = r.cmd.Process.Kill() // it may have ended just now
		<-r.ended
	}
}
