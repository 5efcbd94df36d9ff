// Package completion makes shells complete command lines of this program: its commands,
// flags, choices, the names of runs and their versions. A shell completes files by itself
// where this package has no word. The scripts of the shells only ask `fulgurite complete`,
// so that they need not change when commands do.
package completion

import (
	"context"
	"embed"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"reflect"
	"strconv"
	"strings"
	"time"

	"github.com/alecthomas/kong"

	"github.com/fulgurite/fulgurite/cmd/fulgurite/internal/state"
	"github.com/fulgurite/fulgurite/cmd/fulgurite/internal/terminal"
	"github.com/fulgurite/fulgurite/model"
	"github.com/fulgurite/fulgurite/workers/fleet"
)

//go:embed scripts
var scripts embed.FS

// Script is `fulgurite completion`.
type Script struct {
	Shell string `arg:"" enum:"bash,zsh,fish" help:"The shell: bash, zsh or fish. Put \"source <(fulgurite completion bash)\" into ~/.bashrc, the same with zsh into ~/.zshrc, or \"fulgurite completion fish | source\" into ~/.config/fish/config.fish."`
}

// Run prints the script.
func (c *Script) Run(t *terminal.Terminal) error {
	text, err := scripts.ReadFile("scripts/" + c.Shell)
	if err != nil {
		return fmt.Errorf("read the script: %w", err)
	}
	t.Printf("%s", text)
	return nil
}

// Words is `fulgurite complete`, which the scripts call.
type Words struct {
	Line []string `arg:"" optional:"" help:"The words after the program's name; the last one, which may be empty, is completed."`
}

// readTimeout limits how long names are read from the store: a person waits.
const readTimeout = 2 * time.Second

// Run prints a line for each word that may stand there, with its description after a tab.
func (c *Words) Run(ctx context.Context, parsed *kong.Context, s *state.Flags, t *terminal.Terminal) error {
	ctx, cancel := context.WithTimeout(ctx, readTimeout)
	defer cancel()
	line := c.Line
	if len(line) == 0 {
		line = []string{""}
	}
	for _, one := range candidates(parsed.Model.Node, line, &recorded{ctx: ctx, flags: *s, line: line, terminal: t}) {
		t.Printf("%s\n", strings.TrimRight(one.word+"\t"+one.help, "\t"))
	}
	return nil
}

// candidate is a word that may stand where the cursor is.
type candidate struct{ word, help string }

// names are the runs and versions on record. A name that can't be read is not offered.
type names interface {
	runs() []string
	policies(run string) []string // of a run that trains several
	versions(run string) []string // numbers
}

// place is where the cursor is in a command line.
type place struct {
	node       *kong.Node
	positional []string   // given before
	flag       *kong.Flag // whose value is meant; nil for none
}

// candidates returns the words that may replace the last one of a command line.
func candidates(root *kong.Node, line []string, known names) []candidate {
	before, current := line[:len(line)-1], line[len(line)-1]
	at := find(root, before)
	var all []candidate
	switch {
	case at.flag != nil:
		all = choices(at.flag.Value)
	case strings.HasPrefix(current, "-"):
		for _, flag := range flagsOf(at.node) {
			all = append(all, candidate{"--" + flag.Name, flag.Help})
		}
	default:
		all = append(commandsOf(at.node), at.arguments(current, known)...)
	}
	var out []candidate
	for _, one := range all {
		if strings.HasPrefix(one.word, current) {
			one.help, _, _ = strings.Cut(one.help, "\n")
			out = append(out, one)
		}
	}
	return out
}

// find reads the words before the cursor.
func find(root *kong.Node, words []string) place {
	at := place{node: root}
	for i := 0; i < len(words); i++ {
		name, isFlag := strings.CutPrefix(words[i], "--")
		if !isFlag {
			if below := child(at.node, words[i]); below != nil {
				at.node = below
			} else {
				at.positional = append(at.positional, words[i])
			}
			continue
		}
		for _, flag := range flagsOf(at.node) {
			if flag.Name != name || flag.IsBool() {
				continue
			}
			if i+1 == len(words) {
				at.flag = flag
			}
			i++ // its value
			break
		}
	}
	return at
}

func child(node *kong.Node, name string) *kong.Node {
	for _, below := range node.Children {
		if below.Name == name {
			return below
		}
	}
	return nil
}

// flagsOf returns the flags of a command and those of all commands.
func flagsOf(node *kong.Node) []*kong.Flag {
	var out []*kong.Flag
	for ; node != nil; node = node.Parent {
		for _, flag := range node.Flags {
			if !flag.Hidden {
				out = append(out, flag)
			}
		}
	}
	return out
}

// commandsOf returns the commands below a command.
func commandsOf(node *kong.Node) []candidate {
	var out []candidate
	for _, below := range node.Children {
		if !below.Hidden {
			out = append(out, candidate{below.Name, below.Help})
		}
	}
	return out
}

// choices returns the values that a flag or an argument may have, if they are a list.
func choices(v *kong.Value) []candidate {
	var out []candidate
	for _, word := range v.EnumSlice() {
		if word != "" {
			out = append(out, candidate{word, ""})
		}
	}
	return out
}

// arguments returns what the next argument may be. The names of arguments say what they
// are: the run, a version, or an attempt, whose address begins with its run.
func (p place) arguments(current string, known names) []candidate {
	all := p.node.Positional
	if len(all) == 0 {
		return nil
	}
	argument := all[min(len(p.positional), len(all)-1)]
	many := argument.Target.Kind() == reflect.Slice
	if len(p.positional) >= len(all) && !many {
		return nil
	}
	if argument.Enum != "" {
		return choices(argument)
	}
	switch argument.Name {
	case "command":
		return commandsOf(descend(p.root(), p.positional))
	case "run", "attempt":
		return plain(known.runs())
	case "version", "a", "b":
		if argument.Target.Kind() == reflect.Int { // of the run before it
			return plain(known.versions(p.positional[0]))
		}
		return references(current, known)
	}
	return nil
}

func (p place) root() *kong.Node {
	root := p.node
	for root.Parent != nil {
		root = root.Parent
	}
	return root
}

// descend returns the command that words name.
func descend(node *kong.Node, words []string) *kong.Node {
	for _, word := range words {
		below := child(node, word)
		if below == nil {
			return &kong.Node{}
		}
		node = below
	}
	return node
}

func plain(words []string) []candidate {
	out := make([]candidate, len(words))
	for i, word := range words {
		out[i].word = word
	}
	return out
}

// references returns the runs, or, once a run and : are typed, its policies, or, once @ is
// typed, its versions.
func references(current string, known names) []candidate {
	name, _, ok := strings.Cut(current, "@")
	run, _, ofPolicy := strings.Cut(name, ":")
	switch {
	case !ok && ofPolicy:
		return policies(run, known)
	case !ok:
		return plain(known.runs())
	}
	out := []candidate{{name + "@promoted", "the promoted version"}, {name + "@newest", "the version that was trained last"}}
	for _, number := range known.versions(run) {
		out = append(out, candidate{name + "@" + number, ""})
	}
	return out
}

// policies returns the policies of a run, as RUN:POLICY.
func policies(run string, known names) []candidate {
	var out []candidate
	for _, policy := range known.policies(run) {
		out = append(out, candidate{run + ":" + policy, ""})
	}
	return out
}

// recorded reads names from the store that a command line means.
type recorded struct {
	ctx      context.Context //nolint:containedctx // it lives for one completion
	flags    state.Flags
	line     []string
	terminal *terminal.Terminal
}

// open opens the store. Whoever completes a command line is not told what is wrong with
// it; the command does that.
func (r *recorded) open() (fleet.Records, error) {
	quiet := &terminal.Terminal{Out: io.Discard, Err: io.Discard}
	if dir := valueOf(r.line, "--dir"); dir != "" {
		if whole, err := filepath.Abs(dir); err == nil {
			r.flags.Dir = whole
		}
	}
	records := state.RecordFlags{Store: os.Getenv("FULGURITE_STORE")}
	if url := valueOf(r.line, "--store"); url != "" {
		records.Store = url
	}
	return r.flags.OpenRecords(r.ctx, quiet, records)
}

// runs implements names.
func (r *recorded) runs() []string {
	records, err := r.open()
	if err != nil {
		return nil
	}
	defer records.Close()
	all, err := records.Store.Runs(r.ctx)
	if err != nil {
		return nil
	}
	out := make([]string, len(all))
	for i, run := range all {
		out[i] = run.Name
	}
	return out
}

// policies implements names.
func (r *recorded) policies(run string) []string {
	records, err := r.open()
	if err != nil {
		return nil
	}
	defer records.Close()
	sp, err := records.Catalog.Spec(r.ctx, run)
	if err != nil {
		return nil
	}
	return sp.PolicyNames()
}

// versions implements names.
func (r *recorded) versions(run string) []string {
	records, err := r.open()
	if err != nil {
		return nil
	}
	defer records.Close()
	all, err := records.Store.Versions(r.ctx, run, model.DefaultPolicy)
	if err != nil {
		return nil
	}
	out := make([]string, len(all))
	for i, v := range all {
		out[i] = strconv.Itoa(v.Number)
	}
	ofPrompts, err := records.Store.PromptVersions(r.ctx, run)
	if err == nil && len(ofPrompts) > 0 { // then these are what is promoted
		out = make([]string, len(ofPrompts))
		for i, v := range ofPrompts {
			out[i] = strconv.Itoa(v.Number)
		}
	}
	return out
}

// valueOf returns the value of a flag in a command line, or "".
func valueOf(line []string, flag string) string {
	for i, word := range line {
		if value, ok := strings.CutPrefix(word, flag+"="); ok {
			return value
		}
		if word == flag && i+1 < len(line) {
			return line[i+1]
		}
	}
	return ""
}
