// Package shell writes the commands that messages show, so that people can paste them into
// a shell in any directory: with quoted words, and with the flags by which the command finds
// the runs. It runs none. A test takes all messages with commands and reads the commands
// with the program's own parser.
package shell

import (
	"regexp"
	"slices"
	"strings"
)

// Program is the name of the command-line tool, and Worker that of the program with the
// processes of a fleet.
const (
	Program = "fulgurite"
	Worker  = "fulgurite-worker"
)

// dirless are the commands that use no directory of state.
func dirless() []string {
	return []string{"plan", "tasks", "grade", "import", "schema", "version", "try", "warm-start", "completion", "help", "complete"}
}

// storeless are the commands of a directory that can't use another store than that of the
// directory or of its stack.
func storeless() []string {
	return []string{"demo", "dev", "temporal", "train", "optimize", "schedule", "token"}
}

// recordless are the commands of Worker that use no records.
func recordless() []string { return []string{"tools", "health", "version"} }

// Command returns a command of the tool that works on the usual directory of state, as
// people type it. Its first word is the name of the command.
func Command(words ...string) string { return Place{}.Command(words...) }

// Place says where the records of runs are, if they are not where commands look by
// themselves.
type Place struct {
	Dir   string // of all state
	Store string // the store to use instead of that of Dir
	Blobs string // the blobs to use instead of those of Dir
}

// Command returns a command of the tool that looks into the place, as people type it.
func (p Place) Command(words ...string) string {
	quoted := make([]string, len(words))
	for i, word := range words {
		quoted[i] = Quote(word)
	}
	return Program + " " + strings.Join(slices.Insert(quoted, min(1, len(quoted)), p.Flags(words[0])...), " ")
}

// WorkerCommand returns a command of Worker that works on the place's records, as people
// type it.
func (p Place) WorkerCommand(name string) string {
	return strings.Join(append([]string{Worker, name}, p.flags(Worker, name)...), " ")
}

// Flags returns the words by which a command of that name finds the place.
func (p Place) Flags(name string) []string { return p.flags(Program, name) }

// WorkerFlags returns the words by which a command of Worker finds the place's records.
func (p Place) WorkerFlags(name string) []string { return p.flags(Worker, name) }

func (p Place) flags(program, name string) (words []string) {
	add := func(flag, value string) {
		if value != "" {
			words = append(words, flag, Quote(value))
		}
	}
	none := dirless()
	if program == Worker {
		none = recordless()
	}
	if slices.Contains(none, name) {
		return nil
	}
	if program == Program {
		add("--dir", p.Dir)
	}
	if program == Worker || !slices.Contains(storeless(), name) {
		add("--store", p.Store)
		add("--blobs", p.Blobs)
	}
	return words
}

// shown is a command in a text, which backquotes tell from the other words.
var shown = regexp.MustCompile("`(" + Program + "|" + Worker + ") ([a-z][a-z-]*)([^`\n]*)`")

// placed is a command that says itself where it looks.
var placed = regexp.MustCompile(` --(dir|store|file)[ =]`)

// Complete adds the place to the commands in a text. The texts of workflows and of the
// record have commands without one: they are kept, and read from other places too.
func (p Place) Complete(text string) string {
	return shown.ReplaceAllStringFunc(text, func(command string) string {
		part := shown.FindStringSubmatch(command)
		program, name, rest := part[1], part[2], part[3]
		flags := p.flags(program, name)
		if len(flags) == 0 || placed.MatchString(rest+" ") {
			return command
		}
		return "`" + program + " " + name + " " + strings.Join(flags, " ") + rest + "`"
	})
}

// CompleteAll does what Complete does, for each text of a list. It returns another list.
func (p Place) CompleteAll(texts []string) []string {
	out := slices.Clone(texts)
	for i, text := range out {
		out[i] = p.Complete(text)
	}
	return out
}

// Error returns an error with the place in the commands that its text shows.
func (p Place) Error(err error) error {
	if err == nil {
		return nil
	}
	return placedError{err, p.Complete(err.Error())}
}

type placedError struct {
	error
	text string
}

func (e placedError) Error() string { return e.text }

func (e placedError) Unwrap() error { return e.error }

// plain is a word that no shell reads as more than itself.
var plain = regexp.MustCompile(`^[A-Za-z0-9_./:@%+,=-]+$`)

// Quote returns a word so that a POSIX shell reads it as one word with just these
// characters.
func Quote(word string) string {
	if plain.MatchString(word) {
		return word
	}
	return "'" + strings.ReplaceAll(word, "'", `'\''`) + "'"
}
