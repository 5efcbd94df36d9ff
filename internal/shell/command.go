package shell

import (
	"regexp"
	"slices"
	"strings"
)

// Program is the name of the command-line tool.
const Program = "fulgurite"

// dirless are the commands that use no directory of state.
func dirless() []string {
	return []string{"plan", "tasks", "grade", "import", "schema", "version", "try", "warm-start", "completion", "help", "complete"}
}

// storeless are the commands of a directory that can't use another store than that of the
// directory or of its stack.
func storeless() []string {
	return []string{"demo", "dev", "temporal", "train", "token"}
}

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

// Flags returns the words by which a command of that name finds the place.
func (p Place) Flags(name string) (words []string) {
	if slices.Contains(dirless(), name) {
		return nil
	}
	add := func(flag, value string) {
		if value != "" {
			words = append(words, flag, Quote(value))
		}
	}
	add("--dir", p.Dir)
	if !slices.Contains(storeless(), name) {
		add("--store", p.Store)
		add("--blobs", p.Blobs)
	}
	return words
}

// shown is a command in a text, which backquotes tell from the other words.
var shown = regexp.MustCompile("`" + Program + " ([a-z][a-z-]*)([^`\n]*)`")

// placed is a command that says itself where it looks.
var placed = regexp.MustCompile(` --(dir|store|file)[ =]`)

// Complete adds the place to the commands in a text. The texts of workflows and of the
// record have commands without one: they are kept, and read from other places too.
func (p Place) Complete(text string) string {
	return shown.ReplaceAllStringFunc(text, func(command string) string {
		part := shown.FindStringSubmatch(command)
		name, rest := part[1], part[2]
		flags := p.Flags(name)
		if len(flags) == 0 || placed.MatchString(rest+" ") {
			return command
		}
		return "`" + Program + " " + name + " " + strings.Join(flags, " ") + rest + "`"
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
