package page

import (
	"fmt"
	"html/template"
	"net/url"
	"strings"

	"github.com/fulgurite/fulgurite/page/format"
	"github.com/fulgurite/fulgurite/record"
	"github.com/fulgurite/fulgurite/trace"
)

// functions are those that templates call.
func functions() template.FuncMap {
	return template.FuncMap{
		"clean": format.Shown, "line": format.FirstLine, "count": format.Count, "fixed": format.Fixed, "optional": format.Optional, "signed": format.Signed,
		"moment": format.Moment, "exact": format.Exact, "took": format.Took, "status": statusText, "outcome": outcomeText, "digest": format.Digest, "whole": format.Whole, "change": format.Change, "reason": format.Reason, "p": format.Chance,
	}
}

func statusText(s record.Status) string { return strings.ReplaceAll(string(s), "_", " ") }

func outcomeText(o trace.Outcome) string {
	if o == trace.Running { // which is empty
		return "running"
	}
	return strings.ReplaceAll(string(o), "_", " ")
}

// runPath is the path of a run, and stepPath that of a step of a kind, which with task,
// sample and attempt behind it is the address of an attempt.
func runPath(run string) string { return "/runs/" + url.PathEscape(run) }

func stepPath(run string, kind trace.Kind, step int) string {
	return fmt.Sprintf("%s/%s-%d", runPath(run), kind, step)
}

func versionPath(run string, number int) string {
	return fmt.Sprintf("%s/versions/%d", runPath(run), number)
}

// comparePath is where two runs are compared.
func comparePath(a, b string) string { return "/compare?" + url.Values{"run": {a, b}}.Encode() }

func groupPath(r trace.RolloutID) string {
	return fmt.Sprintf("%s/%d", stepPath(r.Run, r.Kind, r.Step), r.Task)
}

func attemptPath(a trace.Address) string {
	return fmt.Sprintf("%s/%d/%d", groupPath(a.RolloutID), a.Sample, a.Attempt)
}
