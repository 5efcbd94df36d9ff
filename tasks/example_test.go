package tasks_test

import (
	"fmt"
	"strings"

	"github.com/fulgurite/fulgurite/spec"
	"github.com/fulgurite/fulgurite/tasks"
)

// A file of tasks has one JSON object per line. Errors name the lines of their faults.
func ExampleReadJSONL() {
	list, err := tasks.ReadJSONL(strings.NewReader(`{"id":"fr","input":"Capital of France?","answer":"Paris"}
{"id":"sum","input":"2+3","answer":5}
`), "tasks.jsonl")
	if err != nil {
		panic(err)
	}
	for _, t := range list {
		fmt.Printf("%s: %s %s\n", t.ID, t.Input, t.Answer)
	}

	_, err = tasks.ReadJSONL(strings.NewReader(`{"id":"fr","input":"Capital of France?"}
{"id":"fr"}
`), "tasks.jsonl")
	fmt.Println(err)
	// Output:
	// fr: Capital of France? Paris
	// sum: 2+3 5
	// tasks.jsonl:2: no input
}

// Three graders grade the same result.
func ExampleGrade() {
	task := tasks.Task{ID: "sum", Input: "2+3", Answer: "5"}
	for _, g := range []spec.Grader{{Type: spec.GraderExact}, {Type: spec.GraderNumeric, Tolerance: 0.1}, {Type: spec.GraderContains}} {
		reward, err := tasks.Grade(g, task, "5.05")
		if err != nil {
			panic(err)
		}
		fmt.Println(g.Type, reward)
	}
	// Output:
	// exact 0
	// numeric 1
	// contains 1
}
