package main

import (
	"bytes"
	"cmp"
	"context"
	"fmt"
	"maps"
	"slices"
	"strings"

	"go.uber.org/zap"

	"github.com/fulgurite/fulgurite/credit/attribution"
	"github.com/fulgurite/fulgurite/gateway"
	"github.com/fulgurite/fulgurite/trace"
	"github.com/fulgurite/fulgurite/workers/fleet"
)

// isExport reports whether the exchange brought spans.
func (x *exchange) isExport() bool { return strings.HasSuffix(x.path, "/v1/traces") }

// openTraces starts a server that receives spans by gRPC, if the walk sends them so.
func (s *testEnv) openTraces(ctx context.Context, g *gateway.Gateway) error {
	if !s.walk.GRPC {
		return nil
	}
	listener, err := fleet.Listen(ctx, "127.0.0.1:0")
	if err != nil {
		return err
	}
	s.traces = fleet.ServeTraces(listener, g, zap.NewNop())
	s.closers = append(s.closers, func() error { return s.traces.Close(context.WithoutCancel(ctx)) })
	return nil
}

// environment returns the walk's environment, with the address of the gRPC server if
// there is one.
func (s *testEnv) environment() map[string]string {
	out := map[string]string{}
	maps.Copy(out, s.walk.Environment)
	maps.Copy(out, s.tools.environment())
	if s.traces == nil {
		return out
	}
	url := "http://" + s.traces.Address()
	out["OTEL_EXPORTER_OTLP_PROTOCOL"], out["OTEL_EXPORTER_OTLP_ENDPOINT"], out["OTEL_EXPORTER_OTLP_TRACES_ENDPOINT"] = "grpc", url, url
	return out
}

// checkSpans compares the spans with the walk: a span must tell the agent of each call,
// and the tools that ran must be those of the walk.
func (a attemptRecord) checkSpans(w walk) error {
	if len(w.Agents)+len(w.Tools) == 0 {
		return nil
	}
	var agents, tools []string
	for i, name := range attribution.Of(a.calls, a.spans, nil) {
		if name.Source != attribution.Span {
			return fmt.Errorf("no span tells who made call %d: it is %s by %s, of %d spans", i, name.Agent, name.Source, len(a.spans))
		}
		agents = append(agents, name.Agent)
	}
	if !slices.Equal(agents, w.Agents) {
		return fmt.Errorf("the calls are of %q, want %q:%s", agents, w.Agents, a.showSpans())
	}
	ordered := slices.SortedFunc(slices.Values(a.spans), func(s, t trace.Span) int { return cmp.Compare(s.Started.UnixNano(), t.Started.UnixNano()) })
	for _, s := range ordered {
		if s.Kind != trace.ToolSpan {
			continue
		}
		tool := s.Tool
		if calls(a.calls, s.ToolCallID) {
			tool += " joined"
		}
		if s.Failed {
			tool += " failed"
		}
		tools = append(tools, tool)
	}
	if !slices.Equal(tools, w.Tools) {
		return fmt.Errorf("the tools that ran are %q, want %q:%s", tools, w.Tools, a.showSpans())
	}
	return nil
}

// calls reports whether one of the replies has the tool call.
func calls(all []trace.Exchange, id string) bool {
	return id != "" && slices.ContainsFunc(all, func(c trace.Exchange) bool { return bytes.Contains(c.Response, []byte(id)) })
}

// showSpans returns the content of the spans as readable text.
func (a attemptRecord) showSpans() string {
	var b strings.Builder
	for _, s := range a.spans {
		fmt.Fprintf(&b, "\n  span %s: kind %s, call %q, agent %q, tool %q, tool call %q, failed %t %.200s", s.Name, s.Kind, s.CallID, s.Agent, s.Tool, s.ToolCallID, s.Failed, s.Message)
		for _, name := range slices.Sorted(maps.Keys(s.Attributes)) {
			fmt.Fprintf(&b, "\n      %s = %.200v", name, s.Attributes[name])
		}
	}
	return b.String()
}
