package page

import (
	"cmp"
	"errors"
	"fmt"
	"html/template"
	"net/http"
	"net/url"
	"strconv"
	"strings"

	"github.com/fulgurite/fulgurite/internal/readable"
	"github.com/fulgurite/fulgurite/internal/shell"
	"github.com/fulgurite/fulgurite/page/format"
	"github.com/fulgurite/fulgurite/record"
)

// functions returns the functions that templates call. Function "command" writes a command
// that finds the runs in a place, and "advice" shows a text with such commands.
func functions(place shell.Place) template.FuncMap {
	return template.FuncMap{
		"command": place.Command, "advice": func(text string) string { return format.Shown(place.Complete(text)) },
		"clean": format.Shown, "line": format.FirstLine, "count": format.Count, "counted": format.Counted, "are": readable.IsOrAre, "were": readable.WasOrWere, "fixed": format.Fixed, "optional": format.Optional, "signed": format.Signed,
		"moment": format.Moment, "exact": format.Exact, "took": format.Took, "status": statusText, "digest": format.Digest, "whole": format.Whole, "change": format.Change, "reason": format.Reason, "p": format.Chance,
	}
}

func statusText(s record.Status) string { return strings.ReplaceAll(string(s), "_", " ") }

// words returns what became of an attempt, in the words of the page.
func words(state record.AttemptState) string { return strings.ReplaceAll(string(state), "_", " ") }

// runPath returns the path of a run, and stepPath that of a step of a kind. The path of a
// step, followed by task, sample and attempt, has the form of an attempt's address.
func runPath(run string) string { return "/runs/" + url.PathEscape(run) }

func stepPath(run string, kind record.Kind, step int) string {
	return fmt.Sprintf("%s/%s-%d", runPath(run), kind, step)
}

func versionPath(run string, number int) string {
	return fmt.Sprintf("%s/versions/%d", runPath(run), number)
}

// comparePath returns the path of the page that compares two runs.
func comparePath(a, b string) string { return "/compare?" + url.Values{"run": {a, b}}.Encode() }

// pairPath returns the path of the page that compares two versions of a run on a split.
func pairPath(run string, a, b int, split record.Kind) string {
	return fmt.Sprintf("%s/versions/compare?a=%d&b=%d&split=%s", runPath(run), a, b, split)
}

// betweenPath returns the path of the page that compares versions of two runs on a split.
func betweenPath(run, a, b string, split record.Kind) string {
	return runPath(run) + "/versions/compare?" + url.Values{"a": {a}, "b": {b}, "split": {string(split)}}.Encode()
}

// besidePath returns the path of the page that shows a task of a split under two versions side
// by side. place is the position of the task in the evaluations.
func besidePath(run, a, b string, split record.Kind, place int) string {
	return runPath(run) + "/versions/compare/task?" + url.Values{"a": {a}, "b": {b}, "split": {string(split)}, "task": {strconv.Itoa(place)}}.Encode()
}

func groupPath(r record.RolloutID) string {
	return fmt.Sprintf("%s/%d", stepPath(r.Run, r.Kind, r.Step), r.Task)
}

func attemptPath(a record.Address) string {
	return fmt.Sprintf("%s/%d/%d", groupPath(a.RolloutID), a.Sample, a.Attempt)
}

// nowhere answers requests for paths without a page. A path that only has too many
// slashes is redirected to the correct one.
func (s *Server) nowhere(w http.ResponseWriter, r *http.Request) {
	if short := strings.TrimRight(r.URL.Path, "/"); short != r.URL.Path && short != "" {
		to := &url.URL{Path: "/" + strings.TrimLeft(short, "/"), RawQuery: r.URL.RawQuery} // of this site, whatever was asked for
		probe := r.Clone(r.Context())
		probe.URL = to
		if _, pattern := s.mux.Handler(probe); pattern != "GET /" {
			http.Redirect(w, r, to.String(), http.StatusMovedPermanently)
			return
		}
	}
	s.render(w, r, http.StatusNotFound, s.missing(r))
}

// errorBody says what went wrong, and where to go on.
type errorBody struct {
	Title, Text string
	Links       []link
}

func failed(title, text string, links ...link) view {
	return view{template: "error", Title: title, Body: errorBody{title, text, append(links, link{Text: "All runs", Path: "/"})}}
}

// missing says what does not exist, in words for a reader.
func (s *Server) missing(r *http.Request) view {
	name := r.PathValue("run")
	if name == "" {
		return failed("There is no such page", "Nothing is at "+format.FirstLine(r.URL.Path)+".")
	}
	if _, err := s.Records.Run(r.Context(), name); errors.Is(err, record.ErrForgotten) {
		return failed("Run "+format.FirstLine(name)+" was forgotten", err.Error())
	} else if err != nil {
		return failed("There is no run "+format.FirstLine(name), "Its name may be misspelt, or it is in another store.")
	}
	there := link{Text: "Run " + format.FirstLine(name), Path: runPath(name)}
	steps := link{Text: "Its steps", Path: runPath(name) + "/steps"}
	if version := r.PathValue("version"); version != "" {
		return failed(fmt.Sprintf("Run %s has no version %s", format.FirstLine(name), format.FirstLine(version)), "It may not have been made yet.", there, link{Text: "Its versions", Path: runPath(name) + "/versions"})
	}
	if c := r.PathValue("candidate"); c != "" || strings.HasSuffix(r.URL.Path, "/prompts") {
		if c == "" {
			return failed(fmt.Sprintf("Run %s searches for no prompts", format.FirstLine(name)), "Its spec has no optimizer.", there)
		}
		return failed(fmt.Sprintf("Run %s has no candidate %s", format.FirstLine(name), format.FirstLine(c)), "Its search may not have made it yet.", there, link{Text: "Its prompts", Path: promptsPath(name)})
	}
	if r.PathValue("action") != "" {
		return failed("There is no such action", "What can be done to run "+format.FirstLine(name)+" is on its page.", there)
	}
	at, err := placeOf(name, r.PathValue("step"), cmp.Or(r.PathValue("task"), "0"), cmp.Or(r.PathValue("sample"), "0"), cmp.Or(r.PathValue("attempt"), "1"))
	if err != nil {
		return failed("There is no such page", "Nothing of run "+format.FirstLine(name)+" is at "+format.FirstLine(r.URL.Path)+".", there)
	}
	if at.Kind == record.Served {
		list := link{Text: "Its conversations", Path: conversationsPath(name, nil)}
		if _, err := s.Records.Conversation(r.Context(), name, at.Task); errors.Is(err, record.ErrForgotten) {
			return failed(fmt.Sprintf("Conversation %d of run %s was removed", at.Task, format.FirstLine(name)), "Its retention was over, or its user was forgotten. Its texts, tokens and feedback are gone.", list, there)
		}
		return failed(fmt.Sprintf("Run %s has no recorded conversation %d", format.FirstLine(name), at.Task), "Its number may be misspelt.", list, there)
	}
	what, step := stepName(at.Kind, at.Step), link{Text: stepName(at.Kind, at.Step), Path: stepPath(name, at.Kind, at.Step)}
	switch {
	case r.PathValue("attempt") != "":
		return failed(fmt.Sprintf("There is no attempt %d at sample %d of task %d", at.Attempt, at.Sample, at.Task), fmt.Sprintf("Run %s has none in %s.", format.FirstLine(name), what), link{Text: "Its group", Path: groupPath(at.RolloutID)}, step, there)
	case r.PathValue("task") != "":
		return failed(fmt.Sprintf("%s has no task %d", what, at.Task), fmt.Sprintf("Run %s has no attempt at it.", format.FirstLine(name)), step, there)
	}
	return failed(fmt.Sprintf("Run %s has nothing of this: %s", format.FirstLine(name), what), "It may not have begun yet.", steps, there)
}
