package gateway

import (
	"cmp"
	"context"
	"fmt"
	"net/http"
	"strings"

	"golang.org/x/sync/errgroup"

	"github.com/fulgurite/fulgurite/gateway/otlp"
	"github.com/fulgurite/fulgurite/internal/protocol"
	"github.com/fulgurite/fulgurite/record"
	"github.com/fulgurite/fulgurite/wire"
)

const (
	// evaluationsAtOnce is how many evaluations of an export are recorded at the same time, so
	// that they share commits.
	evaluationsAtOnce = 16
	// maxReasons is how many reasons the reply to an export gives for what it rejects.
	maxReasons = 3
)

// logs takes the evaluations among exported log records as feedback. Other records are
// rejected.
func (g *Gateway) logs(w http.ResponseWriter, r *http.Request) error {
	if g.config.Feedback == nil {
		return unknownURL(nil, "no reply is recorded here, so there is none to judge")
	}
	encoding, err := encodingOf(r)
	if err != nil {
		return err
	}
	body, err := g.readBody(w, r)
	if err != nil {
		return err
	}
	all, err := encoding.DecodeLogs(body)
	if err != nil {
		return &wire.Failure{Status: http.StatusBadRequest, Code: "invalid_body", Message: err.Error()}
	}
	reasons, err := g.takeEvaluations(w, r, all)
	if err != nil {
		return err
	}
	rejected, why := rejections("log record", reasons)
	return writeExport(w, http.StatusOK, encoding, encoding.LogsReply(rejected, why))
}

// spanEvaluations takes the evaluations among the events of exported spans as feedback. A span
// is rejected if an event of it is refused, or if it has none: spans themselves are recorded in
// attempts only.
func (g *Gateway) spanEvaluations(encoding otlp.Encoding, batch otlp.Batch) func(http.ResponseWriter, *http.Request) error {
	return func(w http.ResponseWriter, r *http.Request) error {
		refusals, err := g.takeEvaluations(w, r, batch.Evaluations)
		if err != nil {
			return err
		}
		reasons, judges := make([]string, len(batch.Spans)), make([]bool, len(batch.Spans))
		for i, e := range batch.Evaluations {
			judges[e.Span] = true
			reasons[e.Span] = cmp.Or(reasons[e.Span], refusals[i])
		}
		for i := range reasons {
			if !judges[i] {
				reasons[i] = "outside attempts, only events " + otlp.EvaluationEvent + " are taken"
			}
		}
		rejected, why := rejections("span", reasons)
		return writeExport(w, http.StatusOK, encoding, encoding.Reply(rejected, why))
	}
}

// takeEvaluations records evaluations of a client, and returns for each the reason why it was
// not; empty if it was. Each counts as a request of the client's limit. After an error, the
// exporter may send all of them again, because what was recorded is known by its content.
func (g *Gateway) takeEvaluations(w http.ResponseWriter, r *http.Request, all []otlp.Evaluation) (reasons []string, err error) {
	c := clientOf(r.Context())
	if err := g.limit(w, c, len(all), 1); err != nil { // one was counted when the request came
		return nil, err
	}
	user := r.Header.Get(protocol.UserHeader)
	reasons = make([]string, len(all))
	var group errgroup.Group // a fault of one keeps no other from being recorded
	group.SetLimit(evaluationsAtOnce)
	for i, e := range all {
		if reasons[i] = e.Refusal; e.Refusal != "" {
			continue
		}
		if user != "" {
			e.User = user
		}
		group.Go(func() (err error) {
			reasons[i], err = g.takeEvaluation(r.Context(), c, e)
			return err
		})
	}
	if err := group.Wait(); err != nil {
		return nil, err
	}
	return reasons, nil
}

// takeEvaluation records an evaluation, or returns why not. An error is a fault of ours.
func (g *Gateway) takeEvaluation(ctx context.Context, c client, e otlp.Evaluation) (reason string, err error) {
	label := e.Name
	if e.Label != "" {
		label += ":" + e.Label
	}
	if len(label) > maxLabel {
		return fmt.Sprintf("%s and %s have %d bytes together: give at most %d", otlp.EvaluationName, otlp.EvaluationLabel, len(label), maxLabel), nil
	}
	// The same event is the same feedback, by an id from which nobody can confirm a guess of
	// the texts.
	score := "none"
	if e.Score != nil {
		score = fmt.Sprint(*e.Score)
	}
	id, err := g.config.Feedback.HashUser(ctx, fmt.Sprintf("%s\n%q %q %q %s %q %q %d", otlp.EvaluationEvent, e.Reply, e.Name, e.Label, score, e.Explanation, e.User, e.Time.UnixNano()))
	if err != nil {
		return "", err
	}
	posted := postedFeedback{ID: "otel-" + id, Reply: e.Reply, Reward: e.Score, Labels: []string{label}, Comment: e.Explanation, User: e.User}
	if err = posted.check(); err == nil {
		_, _, err = g.takeFeedback(ctx, c, posted)
	}
	if err == nil {
		return "", nil
	}
	f := explain("", err)
	if f.Status >= http.StatusInternalServerError {
		return "", err
	}
	return f.Message, nil
}

// rejections counts the reasons that are not empty, and puts the first ones into a message.
func rejections(what string, reasons []string) (rejected int, why string) {
	var first []string
	for i, reason := range reasons {
		if reason == "" {
			continue
		}
		if rejected++; len(first) < maxReasons {
			first = append(first, fmt.Sprintf("%s %d: %s", what, i, reason))
		}
	}
	if rejected == 0 {
		return 0, ""
	}
	if more := rejected - len(first); more > 0 {
		first = append(first, fmt.Sprintf("and %d more", more))
	}
	return rejected, fmt.Sprintf("%d of %d were not taken. %s", rejected, len(reasons), strings.Join(first, "; "))
}

// judging admits clients that may judge replies.
func (g *Gateway) judging(handle func(http.ResponseWriter, *http.Request) error) func(http.ResponseWriter, *http.Request) error {
	return g.within(handle, record.ScopeFeedback, record.ScopeFeedbackAny)
}
