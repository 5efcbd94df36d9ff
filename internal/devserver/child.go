package devserver

import (
	"bufio"
	"context"
	"encoding/json"
	"errors"
	"io"
	"os"
)

// Ports are where a server of another process listens.
type Ports struct{ Frontend, UI int }

// Serve is the server of another process, which has locked the directory: it writes
// its Ports to out and stops when control says so. When control ends without a word
// the other process is dead, and this one dies with it.
func Serve(ctx context.Context, options []byte, control io.Reader, out io.Writer) error {
	var o Options
	if err := json.Unmarshal(options, &o); err != nil {
		return err
	}
	o.locked = true
	stop := make(chan struct{})
	go func() {
		if _, err := bufio.NewReader(control).ReadString('\n'); err != nil {
			os.Exit(1)
		}
		close(stop)
	}()
	s, err := Start(ctx, o)
	if err != nil {
		return err
	}
	err = json.NewEncoder(out).Encode(Ports{s.ports.frontend, s.ports.ui})
	if err == nil {
		<-stop
	}
	return errors.Join(err, s.Stop())
}
