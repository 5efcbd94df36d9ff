// Command latency measures what the gateway adds to a model call: the time of a request
// minus the time that the sampler takes, which is fixed. Requests arrive in an open loop,
// at times that do not depend on replies. A latency counts from the time when a request
// was due, so that a gateway that falls behind can't hide it.
//
//	go run ./bench/latency -litellm /path/to/bin/litellm
//
// Everything runs in separate processes: the upstream with canned replies; the gateway,
// whose sampler is the upstream over HTTP and whose store is a SQLite file; and, with
// -litellm, LiteLLM's proxy in front of the same upstream. The row "direct" asks the
// upstream itself, which shows what the machine and the load add. The row "standard
// library's proxy" asks it through net/http/httputil.ReverseProxy, which passes bytes on
// and keeps nothing. It shows the least cost of receiving a call and sending it on. With
// -open N, the command instead holds N calls open at once and prints the memory that this
// takes. With -against PROGRAM, it compares the processor time of this build's gateway
// with that of another build of this command, in turns, which gives a result on a busy
// machine too. -profile writes CPU profiles of this build's gateway.
package main

import (
	"context"
	"flag"
	"fmt"
	"math"
	"net/http"
	"os"
	"os/signal"
	"time"

	"github.com/fulgurite/fulgurite/internal/memory"
)

// settings are the flags.
type settings struct {
	role     string
	delay    time.Duration
	upstream string
	durable  bool
	dir      string

	litellm    string
	seconds    float64
	most       float64
	open       int
	against    string
	rounds     int
	concurrent float64
	profile    string
}

func main() {
	var s settings
	flag.StringVar(&s.role, "role", "", "what this process is: upstream, proxy, gateway, or nothing for the whole measurement")
	flag.DurationVar(&s.delay, "delay", 100*time.Millisecond, "how long the upstream takes")
	flag.StringVar(&s.upstream, "upstream", "", "address of the upstream, for the proxy and the gateway")
	flag.BoolVar(&s.durable, "durable", true, "commit calls before they are answered, for the gateway")
	flag.StringVar(&s.dir, "dir", "", "directory for the store; a temporary one by default")
	flag.StringVar(&s.litellm, "litellm", "", "program of LiteLLM's proxy, to be measured beside")
	flag.Float64Var(&s.seconds, "seconds", 10, "how long each load lasts")
	flag.Float64Var(&s.most, "most", 1000, "most requests a second: a load of more calls at once has a slower upstream")
	flag.IntVar(&s.open, "open", 0, "hold this many calls open at once for a minute, and say what that takes")
	flag.StringVar(&s.against, "against", "", "another build of this program: compare the processor time of its gateway with this one's, in turns")
	flag.IntVar(&s.rounds, "rounds", 6, "how many turns each build gets")
	flag.Float64Var(&s.concurrent, "concurrent", 100, "how many calls at once the builds are compared with")
	flag.StringVar(&s.profile, "profile", "", "with -against, begin of the names of files for CPU profiles; for the gateway, the file")
	flag.Parse()
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt)
	defer stop()
	if err := s.run(ctx); err != nil {
		fmt.Fprintln(os.Stderr, "latency:", err)
		os.Exit(1) //nolint:gocritic // the context ends with the process
	}
}

func (s settings) run(ctx context.Context) error {
	switch s.role {
	case "upstream":
		return announce(upstream(s.delay))
	case "proxy":
		memory.Pace(ctx)
		handler, err := proxy(s.upstream)
		if err != nil {
			return err
		}
		return announce(handler)
	case "gateway":
		memory.Pace(ctx) // as the gateway's own process does
		handler, err := newGateway(ctx, s.upstream, s.dir, s.durable)
		if err != nil {
			return err
		}
		if err := profileTo(s.profile); err != nil {
			return err
		}
		return announce(handler)
	}
	if s.against != "" {
		return s.compare(ctx)
	}
	if s.open > 0 {
		return s.holdOpen(ctx)
	}
	return s.measure(ctx)
}

// measure prints a table of all loads.
func (s settings) measure(ctx context.Context) error {
	fmt.Println("| concurrent | upstream | streamed | through | p50 | p99 | CPU ms a call | failed |")
	fmt.Println("| ---: | ---: | --- | --- | ---: | ---: | ---: | ---: |")
	for _, concurrent := range []int{1, 100, 1000} {
		delay := max(s.delay, time.Duration(float64(concurrent)/s.most*float64(time.Second)))
		if err := s.measureAt(ctx, concurrent, delay); err != nil {
			return err
		}
	}
	return nil
}

// measureAt measures everything in front of one upstream, one after the other.
func (s settings) measureAt(ctx context.Context, concurrent int, delay time.Duration) error {
	up, err := self(ctx, "-role", "upstream", "-delay", delay.String())
	if err != nil {
		return err
	}
	defer up.stop()
	row := func(p *process, t target, stream bool) {
		l := load{rate: float64(concurrent) / delay.Seconds(), stream: stream, delay: delay}
		warm := l
		warm.count = min(50, concurrent*2)
		client := newClient()
		warm.run(ctx, client, t)
		l.count = max(50, int(l.rate*s.seconds))
		used := p.cpu()
		o := l.run(ctx, client, t)
		used = p.cpu() - used
		client.CloseIdleConnections()
		fmt.Printf("| %d | %v | %t | %s | %s | %s | %s | %d |\n", concurrent, delay, stream, t.name, millis(o.at(0.5)), millis(o.at(0.99)), millis(used/time.Duration(l.count)), o.failures)
		if o.failures > 0 {
			fmt.Fprintln(os.Stderr, t.name, "failed:", o.failure)
		}
	}
	direct := target{"direct", func(int) string { return up.url + "/v1/chat/completions" }}
	for _, stream := range []bool{false, true} {
		row(up, direct, stream)
	}
	if err := s.throughProxy(ctx, up, row); err != nil {
		return err
	}
	for _, durable := range []bool{true, false} {
		g, directory, err := s.gateway(ctx, up, durable)
		if err != nil {
			return err
		}
		t := target{map[bool]string{true: "gateway", false: "gateway, nothing kept"}[durable], g.attempt}
		row(g, t, false)
		row(g, t, true)
		g.stop()
		_ = os.RemoveAll(directory)
	}
	if s.litellm == "" {
		return nil
	}
	directory, err := os.MkdirTemp(s.dir, "litellm")
	if err != nil {
		return err
	}
	defer func() { _ = os.RemoveAll(directory) }()
	p, err := litellm(ctx, s.litellm, up.url, directory)
	if err != nil {
		return err
	}
	defer p.stop()
	t := target{"LiteLLM proxy", func(int) string { return p.url + "/v1/chat/completions" }}
	row(p, t, false)
	row(p, t, true)
	return nil
}

// throughProxy measures a proxy that reads and keeps nothing.
func (s settings) throughProxy(ctx context.Context, up *process, row func(*process, target, bool)) error {
	p, err := self(ctx, "-role", "proxy", "-upstream", up.url)
	if err != nil {
		return err
	}
	defer p.stop()
	t := target{"standard library's proxy", func(int) string { return p.url + "/v1/chat/completions" }}
	row(p, t, false)
	row(p, t, true)
	return nil
}

// gateway starts a gateway with an empty store.
func (s settings) gateway(ctx context.Context, up *process, durable bool) (*process, string, error) {
	program, err := os.Executable()
	if err != nil {
		return nil, "", err
	}
	return s.gatewayOf(ctx, program, up, durable)
}

// gatewayOf starts the gateway of a build of this program.
func (s settings) gatewayOf(ctx context.Context, program string, up *process, durable bool) (*process, string, error) {
	directory, err := os.MkdirTemp(s.dir, "latency")
	if err != nil {
		return nil, "", err
	}
	arguments := []string{"-role", "gateway", "-upstream", up.url, "-dir", directory, fmt.Sprintf("-durable=%t", durable)}
	if s.profile != "" {
		arguments = append(arguments, "-profile", s.profile)
	}
	g, err := start(ctx, program, arguments...)
	return g, directory, err
}

// attempt returns the URL for a call of the next agent's attempt.
func (p *process) attempt(serial int) string {
	return p.url + "/r/" + address(serial).String() + "/v1/chat/completions"
}

// holdOpen keeps calls open for a minute.
func (s settings) holdOpen(ctx context.Context) error {
	const minute = time.Minute
	up, err := self(ctx, "-role", "upstream", "-delay", minute.String())
	if err != nil {
		return err
	}
	defer up.stop()
	g, directory, err := s.gateway(ctx, up, true)
	if err != nil {
		return err
	}
	defer func() { _ = os.RemoveAll(directory) }()
	defer g.stop()
	idle, _ := g.resident()
	begin := time.Now()
	o := load{rate: s.most, count: s.open, stream: true, delay: minute}.run(ctx, newClient(), target{"gateway", g.attempt})
	_, peak := g.resident()
	fmt.Printf("%d streamed calls, each open for %v, all of them at once for %.0f s: %d failed; resident memory %.0f MB idle, at most %.0f MB; p50 %s and p99 %s over the minute\n",
		s.open, minute, minute.Seconds()-float64(s.open)/s.most, o.failures, idle, peak, millis(o.at(0.5)), millis(o.at(0.99)))
	if o.failures > 0 {
		return fmt.Errorf("a call failed: %s", o.failure)
	}
	fmt.Fprintln(os.Stderr, "took", time.Since(begin).Round(time.Second))
	return nil
}

// newClient returns a client that can hold as many connections as a load needs.
func newClient() *http.Client {
	return &http.Client{Transport: &http.Transport{MaxIdleConnsPerHost: 10000, DisableCompression: true}}
}

func millis(d time.Duration) string { return fmt.Sprintf("%.2f ms", float64(d.Microseconds())/1000) }

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
