package torch

import (
	_ "embed" // for requirements
	"fmt"
	"strconv"
	"time"
)

//go:embed requirements.txt
var requirements string

// Requirements are the packages, each with the version that the engine's tests were made
// with, as the text of a requirements file of pip.
func Requirements() string { return requirements }

// About is how the program describes itself, its libraries and its device.
type About struct {
	// Versions of the libraries, by their names on the Python index.
	Versions map[string]string `json:"versions"`
	// Device is the device that would train: "cpu", "cuda" or "cuda:N".
	Device string `json:"device"`
	// Processor is the device's name, of a CPU its instruction set.
	Processor string `json:"processor"`
	Threads   int    `json:"threads"`
	DType     string `json:"dtype"`
	Attention string `json:"attention"`
	PID       int    `json:"pid"`
	// CUDA is the version that torch was built for, empty for a build without it.
	CUDA string `json:"cuda"`
	// GPUs is how many the program sees; 0 where it computes on the CPU.
	GPUs int `json:"gpus"`
	// Memory is the device's, in bytes; 0 for a CPU.
	Memory int64 `json:"memory,omitempty"`
	// Ranks is among how many processes, one for each GPU, a model is spread.
	Ranks int `json:"ranks"`
}

// RanksOf is among how many processes an engine with the zero Options spreads a model, where
// the program sees so many GPUs. What is no number is 1 here, and refused by New.
func RanksOf(gpus int) int {
	o := Options{}.withDefaults()
	if o.Ranks == autoRanks {
		return max(1, min(gpus, mostRanks))
	}
	count, _ := strconv.Atoi(o.Ranks) // 0 where it is no number
	return max(1, count)
}

// Describe starts the program as New does, asks what it is, and ends it. A program that
// has not loaded its libraries within the limit is killed. The error says what a person
// has to change.
func Describe(o Options, within time.Duration) (About, error) {
	o = o.withDefaults()
	if err := o.check(); err != nil {
		return About{}, err
	}
	o.Limit = within
	p, err := begin(&o, within)
	if err != nil {
		return About{}, fmt.Errorf("%s: %w", o.Python, err)
	}
	defer p.close()
	return p.about, nil
}
