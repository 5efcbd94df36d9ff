package checker

import (
	"bufio"
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"time"
)

// Generation is a line of the sampler's log: something that was sampled, whether
// or not anybody learned of it.
type Generation struct {
	ID       string    `json:"id"`
	Run      string    `json:"run"`
	Version  int       `json:"version"`
	Seed     uint64    `json:"seed,string"`
	Tokens   []int32   `json:"tokens"`
	Weights  string    `json:"weights"`
	Started  time.Time `json:"started"`
	Finished time.Time `json:"finished"`
}

// ReadGenerations reads a sampler's log. A line is written with one system call,
// so that even a killed sampler leaves none in part.
func ReadGenerations(r io.Reader) ([]Generation, error) {
	var all []Generation
	lines := bufio.NewReader(r)
	for n := 1; ; n++ {
		line, err := lines.ReadBytes('\n')
		if errors.Is(err, io.EOF) && len(line) == 0 {
			return all, nil
		}
		if err != nil && !errors.Is(err, io.EOF) {
			return nil, fmt.Errorf("read generations: %w", err)
		}
		d := json.NewDecoder(bytes.NewReader(line))
		var g Generation
		if err := d.Decode(&g); err != nil {
			return nil, fmt.Errorf("read generation in line %d: %w", n, err)
		}
		if g.Run == "" || g.ID == "" || len(g.Tokens) == 0 || g.Started.IsZero() {
			return nil, fmt.Errorf("read generation in line %d: it lacks its run, id, tokens or time", n)
		}
		all = append(all, g)
	}
}
