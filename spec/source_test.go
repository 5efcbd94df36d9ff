package spec_test

import (
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/fulgurite/fulgurite/spec"
)

func TestASourceIsItsText(t *testing.T) {
	t.Parallel()
	for text, want := range map[string]spec.Source{
		"a/b.jsonl":             {Path: "a/b.jsonl"},
		"arithmetic":            {Family: spec.Arithmetic},
		"arithmetic:gate":       {Family: spec.Arithmetic, Split: "gate"},
		"arithmetic:gate:12":    {Family: spec.Arithmetic, Split: "gate", Count: 12},
		"spider:a/b.json":       {Family: spec.Spider, Path: "a/b.json"},
		"gsm8k:C:/x":            {Family: spec.GSM8K, Path: "C:/x"},
		"./musique:x":           {Path: "./musique:x"},
		"musique":               {Path: "musique"},
		"hotpotqa:/h":           {Family: spec.HotpotQA, Path: "/h"},
		"2wikimultihopqa:a.txt": {Family: spec.TwoWiki, Path: "a.txt"},
		"command:held out:1":    {Family: spec.Command, Split: "held out:1"},
		"./command:x":           {Path: "./command:x"},
	} {
		got, err := spec.ParseSource(text)
		require.NoError(t, err, text)
		require.Equal(t, want, got, text)
		require.Equal(t, text, got.String())
		require.Equal(t, want.Path == "", got.Generated())
	}
}

func TestASplitAloneKeepsTheProgramThatItNeeds(t *testing.T) {
	t.Parallel()
	all := spec.Tasks{Command: []string{"p"}, Directory: "/d", Train: "command:a", Test: "test.jsonl"}
	program := spec.Tasks{Command: []string{"p"}, Directory: "/d"}
	require.Equal(t, program, all.Program(spec.Grader{Type: spec.GraderExact}, all.Train))
	require.Equal(t, program, all.Program(spec.Grader{Type: spec.GraderTasks}, all.Test))
	require.Equal(t, spec.Tasks{}, all.Program(spec.Grader{Type: spec.GraderExact}, all.Test))
}

func TestPathsOfDataSetsAreResolved(t *testing.T) {
	t.Parallel()
	s := spec.Spec{Tasks: spec.Tasks{Train: "spider:data/train.json", Gate: "gsm8k:/g", Test: "arithmetic:test"}}
	require.ErrorContains(t, s.CheckAbsolute(), `tasks.train: "data/train.json" is relative`)
	s = s.Resolve("/home")
	require.Equal(t, spec.Tasks{Train: "spider:/home/data/train.json", Gate: "gsm8k:/g", Test: "arithmetic:test"}, s.Tasks)
	require.NoError(t, s.CheckAbsolute())
	require.ErrorContains(t, s.CheckFiles(), "tasks.train: /home/data/train.json: no such file or directory")
}

func TestSourcesThatCantBeAreRefused(t *testing.T) {
	t.Parallel()
	s := spec.Spec{Tasks: spec.Tasks{Train: "spider:", Gate: "gsm8k:g", Test: "gsm8k:g"}, Model: spec.Model{WarmStart: &spec.WarmStart{Demonstrations: "gsm8k:g"}}}
	err := s.Validate()
	require.ErrorContains(t, err, `tasks.train: "spider:" names no file: want spider:FILE; give the path of the data set's file`)
	require.ErrorContains(t, err, "tasks.test: the same tasks as tasks.gate")
	require.ErrorContains(t, err, "model.warm_start.demonstrations: gsm8k:g has tasks, not demonstrations")
}

func TestAVersionIsOfARunOrOfOneOfItsPolicies(t *testing.T) {
	t.Parallel()
	for text, want := range map[string]spec.VersionName{
		"demo@12":        {Run: "demo", Number: 12},
		"demo:main@0":    {Run: "demo"},
		"demo:writer@3":  {Run: "demo", Policy: "writer", Number: 3},
		"demo:a-b_c@100": {Run: "demo", Policy: "a-b_c", Number: 100},
	} {
		got, err := spec.ParseVersion(text)
		require.NoError(t, err, text)
		require.Equal(t, want, got, text)
	}
	for _, text := range []string{"", "demo", "demo@", "demo@01", "demo@-1", "demo@promoted", "@1", ":writer@1", "demo:@1", "demo:Writer@1", "demo:a:b@1", "demo:critic@1", "demo:prompts@1"} {
		_, err := spec.ParseVersion(text)
		require.Error(t, err, text)
	}
}
