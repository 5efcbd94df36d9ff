package main

import (
	"crypto/sha256"
	"encoding/binary"
	"fmt"
	"math"
	"math/rand/v2"
	"slices"
	"strings"

	"github.com/fulgurite/fulgurite/prompts/search"
	"github.com/fulgurite/fulgurite/testsuite/scriptedreflector"
)

// Sizes of the splits. The gate is the measure, so that its error is small.
const (
	trainItems      = 40
	validationItems = 48
	gateItems       = 2000
)

// splitGate is the split that no search sees.
const splitGate = "gate"

// opening is the first line of every prompt. By it, the prompt is found in a question.
const opening = "Sort the message into one of eight labels and reply with the label alone."

func labels() []string {
	return []string{"billing", "delivery", "returns", "account", "fault", "complaint", "praise", "other"}
}

func useful() []string {
	return []string{
		"Read the whole message before you decide.",
		"Find out first which product the message is about.",
		"If money is mentioned, look at who has to pay.",
		"Decide by what the sender wants, not by what happened.",
		"Look for dates and places.",
		"Ignore greetings and signatures.",
		"If two labels fit, take the narrower one.",
		"Compare the message with a typical one of each label.",
		"Translate messages in other languages first.",
		"Check your choice against the last sentence of the message.",
	}
}

func harmful() []string {
	return []string{
		"Decide by the first word of the message.",
		"Ignore all numbers in the message.",
		"Take the label with the most letters that fits.",
		"Assume that the sender is angry.",
		"Do not read beyond the first sentence.",
		"When in doubt, take the last label.",
		"Ignore what the sender asks for.",
		"Treat every question as rhetorical.",
	}
}

func neutral() []string {
	return []string{
		"You are an expert.", "Be friendly.", "This matters a lot.", "Think like a clerk.", "Stay calm.", "Use your best judgement.",
	}
}

// critiques are what the reflector replies to a question for a critique. None contains
// another or a line of a prompt.
func critiques() []string {
	var out []string
	for _, lack := range []string{
		"does not say what to look at", "leaves open which label comes first", "gives no order of steps", "says too much",
		"contradicts itself", "names no exception", "does not say when to stop", "is vague",
	} {
		for _, when := range []string{
			"in short messages", "in long messages", "with two requests", "with numbers", "without a question",
			"with an apology", "with a quotation", "with an unknown product",
		} {
			out = append(out, fmt.Sprintf("The prompt %s for messages %s.", lack, when))
		}
	}
	return out
}

// world is a synthetic task: items to classify, and a scripted model that classifies them.
// Each useful line of a prompt helps the model with a part of the items, each harmful one
// hurts with a part, and each 100 bytes hurt a little with all of them. Everything follows
// from the seed.
type world struct {
	seed   uint64
	prompt string // to start from: the opening, a useful line and two harmful ones
	items  map[string][]item
	lines  map[string]line
}

// line is what a line of a prompt does.
type line struct {
	// share is the part of the items that it changes, and change by how much, in logits.
	share, change float64
}

type item struct {
	label string
	// logit is that of the model's being sure of the right label, without any line.
	logit float64
	// changes are those by lines that matter to the item.
	changes map[string]float64
}

func newWorld(seed uint64) *world {
	draws := rand.New(rand.NewPCG(seed, 0))
	between := func(low, high float64) float64 { return low + (high-low)*draws.Float64() }
	w := &world{seed: seed, items: map[string][]item{}, lines: map[string]line{}}
	for _, text := range useful() {
		w.lines[text] = line{between(0.1, 0.4), between(0.8, 2.2)}
	}
	for _, text := range harmful() {
		w.lines[text] = line{between(0.1, 0.4), -between(0.8, 2.2)}
	}
	start := []string{opening, useful()[draws.IntN(len(useful()))]}
	for _, i := range draws.Perm(len(harmful()))[:2] {
		start = append(start, harmful()[i])
	}
	w.prompt = strings.Join(start, "\n")
	for _, split := range []struct {
		name string
		size int
	}{{search.SplitTrain, trainItems}, {search.SplitValidation, validationItems}, {splitGate, gateItems}} {
		for range split.size {
			it := item{label: labels()[draws.IntN(len(labels()))], logit: draws.NormFloat64() - 1.5, changes: map[string]float64{}}
			for _, text := range slices.Concat(useful(), harmful()) {
				if l := w.lines[text]; draws.Float64() < l.share {
					it.changes[text] = l.change
				}
			}
			w.items[split.name] = append(w.items[split.name], it)
		}
	}
	return w
}

// lengthCost is what each byte of a prompt takes from an item's logit.
const lengthCost = 0.05 / 100

// chance returns the probability that the model gives the right label. A line that stands
// twice works once.
func (w *world) chance(prompt string, it item) float64 {
	logit := it.logit - lengthCost*float64(len(prompt))
	lines := strings.Split(prompt, "\n")
	slices.Sort(lines)
	for _, text := range slices.Compact(lines) {
		logit += it.changes[text]
	}
	sure := 1 / (1 + math.Exp(-logit))
	guess := 1 / float64(len(labels()))
	return sure + (1-sure)*guess
}

// gate returns the expected accuracy of the model on the gate split.
func (w *world) gate(prompt string) float64 {
	sum := 0.0
	for _, it := range w.items[splitGate] {
		sum += w.chance(prompt, it)
	}
	return sum / gateItems
}

// attempt is what the model does with an item.
type attempt struct {
	Input  string  `json:"input"`
	Answer string  `json:"answer"`
	Reward float64 `json:"reward"`
	// Failed means that there is no answer, because of the infrastructure.
	Failed bool `json:"failed"`
}

// attempt returns what the model does with an item for the nth time, from 0. It is the
// same for equal arguments.
func (w *world) attempt(prompt, split string, index, n int, failures float64) attempt {
	it := w.items[split][index]
	out := attempt{Input: fmt.Sprintf("Message %d of %s.", index, split)}
	draw := func(what string) float64 {
		digest := sha256.Sum256(fmt.Appendf(nil, "%s %d %s %d %d %s", what, w.seed, split, index, n, prompt))
		return float64(binary.LittleEndian.Uint64(digest[:8])>>11) / (1 << 53)
	}
	if draw("failure") < failures {
		out.Failed = true
		return out
	}
	if draw("answer") < w.chance(prompt, it) {
		out.Answer, out.Reward = it.label, 1
		return out
	}
	others := slices.DeleteFunc(labels(), func(label string) bool { return label == it.label })
	out.Answer = others[int(draw("other")*float64(len(others)))]
	return out
}

// best returns the prompt with all useful lines and no other.
func (w *world) best() string { return strings.Join(append([]string{opening}, useful()...), "\n") }

// pool returns what the reflector proposes from: every line, with what it changes on the
// gate split.
func (w *world) pool() scriptedreflector.Pool {
	p := scriptedreflector.Pool{Critiques: critiques()}
	now, lines := w.gate(w.prompt), strings.Split(w.prompt, "\n")
	for _, text := range slices.Concat(useful(), harmful(), neutral()) {
		without := slices.DeleteFunc(slices.Clone(lines), func(one string) bool { return one == text })
		quality := now - w.gate(strings.Join(without, "\n"))
		if len(without) == len(lines) {
			quality = w.gate(w.prompt+"\n"+text) - now
		}
		p.Lines = append(p.Lines, scriptedreflector.Proposal{Text: text, Quality: quality})
	}
	return p
}

// rollouts counts what a search has asked the model of a world for.
type rollouts struct {
	world *world
	// failures is the share of rollouts that fail.
	failures float64
	total    int
	seen     map[string]int
}

func newRollouts(w *world, failures float64) *rollouts {
	return &rollouts{world: w, failures: failures, seen: map[string]int{}}
}

func (r *rollouts) attempt(prompt, split string, index int) attempt {
	key := fmt.Sprintf("%s %d %s", split, index, prompt)
	n := r.seen[key]
	r.seen[key]++
	r.total++
	return r.world.attempt(prompt, split, index, n, r.failures)
}
