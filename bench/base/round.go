package main

import (
	"bufio"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os/exec"
)

// figure is a process's report about itself. Memory is in bytes.
type figure struct {
	Loaded, Worked   float64 // seconds to load, and processor seconds of the work
	PeakLoaded, Peak int64
	Own, Share       int64
}

// print prints the figure as a row of the table.
func (f figure) print(round, work string) {
	fmt.Printf("| %s | %s | %.1f | %.1f | %d | %d | %d | %d |\n", round, work, f.Loaded, f.Worked, f.PeakLoaded>>20, f.Peak>>20, f.Own>>20, f.Share>>20)
}

// member is a process of a round. It reports when its work is done, waits until the work
// of all is done, reports its figure, and ends when its input is closed.
type member struct {
	work string
	cmd  *exec.Cmd
	in   io.WriteCloser
	out  *bufio.Reader
}

func (o options) member(ctx context.Context, work string) (m member, err error) {
	m = member{work: work, cmd: o.command(ctx, work)}
	if m.in, err = m.cmd.StdinPipe(); err != nil {
		return m, err
	}
	out, err := m.cmd.StdoutPipe()
	if err != nil {
		return m, err
	}
	m.out = bufio.NewReader(out)
	return m, m.cmd.Start()
}

// round runs a sampler and a trainer at the same time. Both stay until each has measured
// what it shares with the other.
func (o options) round(ctx context.Context, name string) (err error) {
	var all []member
	defer func() {
		for _, m := range all {
			err = errors.Join(err, m.in.Close(), m.cmd.Wait())
		}
	}()
	for _, work := range []string{"sampler", "trainer"} {
		m, err := o.member(ctx, work)
		if err != nil {
			return err
		}
		all = append(all, m)
	}
	for _, m := range all {
		if _, err := m.out.ReadString('\n'); err != nil {
			return fmt.Errorf("%s: %w", m.work, err)
		}
	}
	for _, m := range all {
		if _, err := io.WriteString(m.in, "all are done\n"); err != nil {
			return fmt.Errorf("%s: %w", m.work, err)
		}
		line, err := m.out.ReadBytes('\n')
		if err != nil {
			return fmt.Errorf("%s: %w", m.work, err)
		}
		var f figure
		if err := json.Unmarshal(line, &f); err != nil {
			return fmt.Errorf("%s: %w", m.work, err)
		}
		f.print(name, m.work)
	}
	return nil
}
