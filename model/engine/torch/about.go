package torch

import (
	_ "embed" // for requirements
	"fmt"
	"strconv"
	"time"
)

//go:embed requirements.txt
var requirements string

// Requirements returns the text of a requirements file of pip: the packages, each with
// the version that the engine's tests were made with.
func Requirements() string { return requirements }

// About describes the program, its libraries and its device. The program sends it when it
// starts.
type About struct {
	// Versions of the libraries, by their names on the Python index.
	Versions map[string]string `json:"versions"`
	// Device is the device that would train: "cpu", "cuda" or "cuda:N".
	Device string `json:"device"`
	// Processor is the device's name; for a CPU, its instruction set.
	Processor string `json:"processor"`
	Threads   int    `json:"threads"`
	DType     string `json:"dtype"`
	Attention string `json:"attention"`
	PID       int    `json:"pid"`
	// CUDA is the version that torch was built for, empty for a build without it.
	CUDA string `json:"cuda"`
	// GPUs is how many GPUs the program sees; 0 if it computes on the CPU.
	GPUs int `json:"gpus"`
	// Memory is the device's memory in bytes; 0 for a CPU.
	Memory int64 `json:"memory,omitempty"`
	// Ranks is the number of processes over which a model is spread.
	Ranks int `json:"ranks"`
}

// RanksOf returns over how many processes an engine with the zero Options spreads a model
// if the program sees so many GPUs. It returns 1 for a setting that is not a number,
// which New refuses.
func RanksOf(gpus int) int {
	o := Options{}.withDefaults()
	if o.Ranks == autoRanks {
		return max(1, min(gpus, maxRanks))
	}
	count, _ := strconv.Atoi(o.Ranks) // 0 if it is not a number
	return max(1, count)
}

// Describe starts the program as New does, asks it to describe itself, and ends it. It
// kills a program that has not loaded its libraries within the limit. The error says what
// the user has to change.
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
