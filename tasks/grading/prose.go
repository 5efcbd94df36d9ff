package grading

import (
	"context"
	"strings"

	"github.com/fulgurite/fulgurite/spec"
	"github.com/fulgurite/fulgurite/tasks"
)

// GradesTexts reports whether a grader compares a text with a task's answer, and nothing
// else: then it can also grade what an agent said on its way. The others run programs,
// look at files, or ask the agent.
func GradesTexts(grader spec.Grader) bool {
	switch grader.Type {
	case spec.GraderExact, spec.GraderNumeric, spec.GraderContains, spec.GraderQA, spec.GraderSQL:
		return true
	}
	return false
}

// KnowsProse reports whether GradeWithoutProse has a rule for a grader.
func KnowsProse(grader spec.Grader) bool {
	switch grader.Type {
	case spec.GraderExact, spec.GraderNumeric, spec.GraderSQL:
		return true
	}
	return false
}

// GradeWithoutProse returns the reward that Grade would, for a text in which other words surround the answer.
//
//   - sql: the query that sqlmatch.Finder finds.
//   - numeric: the last number, whatever grader.extract says.
//   - exact: the content of the first code fence, without a word that follows the opening
//     fence on its line; without a fence, the last line that is not blank.
//
// For other graders it returns what Grade does.
func (g *Graders) GradeWithoutProse(ctx context.Context, grader spec.Grader, t tasks.Task, text string) (float64, error) {
	switch grader.Type {
	case spec.GraderSQL:
		if query, ok := g.queries.Find(text); ok {
			text = query
		}
	case spec.GraderNumeric:
		grader.Extract = spec.ExtractLastNumber
	case spec.GraderExact:
		grader.Extract, text = "", lastSaid(text)
	}
	reward, _, err := g.Grade(ctx, grader, t, text)
	return reward, err
}

// lastSaid returns the part of a text that GradeWithoutProse grades for exact.
func lastSaid(text string) string {
	const fence = "```"
	if _, code, fenced := strings.Cut(text, fence); fenced {
		code, _, _ = strings.Cut(code, fence)
		if language, rest, lines := strings.Cut(code, "\n"); lines && !strings.ContainsAny(strings.TrimSpace(language), " \t") {
			return rest
		}
		return code
	}
	text = strings.TrimSpace(text)
	return text[strings.LastIndexByte(text, '\n')+1:]
}
