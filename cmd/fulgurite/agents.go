package main

import (
	"github.com/fulgurite/fulgurite/agent"
	"github.com/fulgurite/fulgurite/internal/builtin"
)

// agents are the functions that a spec may name in agent.func.
func agents() agent.Registry { return builtin.Agents() }
