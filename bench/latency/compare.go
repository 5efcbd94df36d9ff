package main

import (
	"context"
	"fmt"
	"math"
	"os"
)

// compare compares the processor time of this build's gateway with that of another
// build's. Both run in turns, with one upstream, so that other work on the machine
// affects both.
func (s settings) compare(ctx context.Context) error {
	up, err := self(ctx, "-role", "upstream", "-delay", s.delay.String())
	if err != nil {
		return err
	}
	defer up.stop()
	fmt.Printf("| upstream | streamed | durable | CPU ms a call, %s | this build | ratio of the rounds, geometric mean and standard error |\n", s.against)
	fmt.Println("| ---: | --- | --- | ---: | ---: | ---: |")
	for _, durable := range []bool{true, false} {
		for _, stream := range []bool{false, true} {
			l := load{rate: s.concurrent / s.delay.Seconds(), stream: stream, delay: s.delay}
			l.count = int(l.rate * s.seconds)
			if err := s.compareAt(ctx, up, l, durable); err != nil {
				return err
			}
		}
	}
	return nil
}

// compareAt prints the row of one load.
func (s settings) compareAt(ctx context.Context, up *process, l load, durable bool) error {
	this, err := os.Executable()
	if err != nil {
		return err
	}
	other := s
	other.profile = "" // only this build writes a profile
	var theirs, ours float64
	var ratios []float64
	for range s.rounds {
		before, err := other.cpuOf(ctx, s.against, up, l, durable)
		if err != nil {
			return err
		}
		now, err := s.cpuOf(ctx, this, up, l, durable)
		if err != nil {
			return err
		}
		theirs, ours = theirs+before, ours+now
		ratios = append(ratios, math.Log(now/before))
	}
	mean, deviation := spread(ratios)
	rounds := float64(s.rounds)
	fmt.Printf("| %v | %t | %t | %.3f | %.3f | %.3f ± %.3f |\n", s.delay, l.stream, durable, theirs/rounds, ours/rounds, math.Exp(mean), math.Exp(mean)*deviation)
	return nil
}

// cpuOf starts a gateway of a program, and returns its processor time for each call of a
// load, in milliseconds.
func (s settings) cpuOf(ctx context.Context, program string, up *process, l load, durable bool) (float64, error) {
	if s.profile != "" {
		s.profile = fmt.Sprintf("%s-stream-%t-durable-%t", s.profile, l.stream, durable)
	}
	g, directory, err := s.gatewayOf(ctx, program, up, durable)
	if err != nil {
		return 0, err
	}
	defer func() { _ = os.RemoveAll(directory) }()
	defer g.stop()
	client := newClient()
	defer client.CloseIdleConnections()
	t := target{program, g.attempt}
	warm := l
	warm.count = 200
	warm.run(ctx, client, t)
	used := g.cpu()
	o := l.run(ctx, client, t)
	used = g.cpu() - used
	if o.failures > 0 {
		return 0, fmt.Errorf("%s: a call failed: %s", program, o.failure)
	}
	return float64(used.Microseconds()) / 1000 / float64(l.count), nil
}

// spread returns the mean of values and its standard error.
func spread(values []float64) (mean, deviation float64) {
	n := float64(len(values))
	for _, v := range values {
		mean += v / n
	}
	for _, v := range values {
		deviation += (v - mean) * (v - mean)
	}
	return mean, math.Sqrt(deviation / max(1, n-1) / n)
}
